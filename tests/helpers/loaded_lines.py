"""What a training loads of the layer: what it loads only where something asks, and what processes import."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from paths import HELPERS

from ragen_verl.cpu import fork_server

ON_A_CPU = dict.fromkeys(
    (f"ragen_verl.cpu.{one}" for one in ("patches", "platform", "sizes", "fork_server", "forked_driver", "nano_model")),
    "a machine without an accelerator",
)
WHEN_ASKED = {
    **ON_A_CPU,
    "ragen_verl.advantages.turn": "algorithm.adv_estimator names one of it",
    "ragen_verl.cli.dry_run": "--dry-run",
    "ragen_verl.cpu.nano_model.thinkers": "the recipe's model is one that thinks in sentences",
    "ragen_verl.diagnostics.calls": "ragen.rollout.protocol=tools",
    "ragen_verl.diagnostics.table": "the first warning",
    "ragen_verl.doctor.seams": "another verl than the tested one",
    "ragen_verl.env.hosting.process": 'an environment with isolation = "process"',
    "ragen_verl.patches.page": "a command that writes docs/patches.md",
    "ragen_verl.rollout.reading": "trainer.log_val_generations",
    "ragen_verl.rollout.protocols.tools": "ragen.rollout.protocol=tools",
    "ragen_verl.runs.resume": "a resume",
    "ragen_verl.training.gradient_norms": "ragen.diagnostics.gradient_signal.enabled",
    "ragen_verl.training.gloo_weights": "mode=disaggregated with gloo",
    "ragen_verl.training.nodes": "several nodes",
    "ragen_verl.training.oldest_groups": "mode=async or disaggregated",
    "ragen_verl.training.probes": "ragen.diagnostics.mutual_information.enabled or gradient_signal.enabled",
    "ragen_verl.validation.asynchronous": "mode=async or disaggregated",
}
"""Modules that a training loads only where the recipe or the machine asks for them."""


def recording(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The environment for a process that leaves in `folder` what it and those that it starts import.

    It has a fork server of its own, since that of the other tests began without the recording.
    """
    folder.mkdir()
    own = {name: value for name, value in environment.items() if name not in (fork_server.ADDRESS, fork_server.PYTHON)}
    path = os.pathsep.join([str(HELPERS / "recorded_imports"), *filter(None, [environment.get("PYTHONPATH")])])
    return {**own, "PYTHONPATH": path, "RECORDED_IMPORTS": str(folder)}


def recorded(folder: Path) -> set[str]:
    """The modules that these processes have imported."""
    return {name for file in folder.iterdir() for name in file.read_text().split()}
