"""Trainers made by their constructors, of the default recipe, with no models and no Ray."""

from __future__ import annotations

from pathlib import Path

from recipe_composition import composed

from ragen_verl.training.trainer_modes import RagenTrainer


def trainer_of(folder: Path, *overrides: str, kind: type = RagenTrainer) -> RagenTrainer:
    """A trainer whose run is in `folder`."""
    return kind(composed("nano/frozen_lake", f"ragen.run.dir={folder}", *overrides))
