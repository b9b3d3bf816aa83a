"""The output of `ragen-verl train --dry-run`: the sizes of a run, and its differences from the recipe it builds on."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import entry_points
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from rich.table import Table
from rich.text import Text

from ragen_verl.cli.prepare import Prepared
from ragen_verl.config import RagenConfig
from ragen_verl.names import is_file
from ragen_verl.validation.composition import compose

__all__ = ["differences", "sizes", "table"]

_SHOWN = 20
_OWN = ("ragen.run.dir", "trainer.experiment_name")
"""Keys that tell runs apart without changing them."""


def sizes(config: DictConfig) -> dict[str, str]:
    """Part of a run -> its sizes in words.

    Args:
        config: verl's whole configuration, checked and resolved.
    """
    ragen, rollout = RagenConfig.from_omegaconf(config), config.actor_rollout_ref.rollout
    actor, trainer, kept = config.actor_rollout_ref.actor, config.trainer, ragen.kept_groups
    updates = ragen.updates(actor.ppo_mini_batch_size, kept) * actor.ppo_epochs
    least = "at least " if ragen.filter.strategy in ("top_p", "min_p") else ""
    budget = f", {ragen.rollout.max_actions} actions" if ragen.rollout.max_actions else ""
    played = ", ".join(f"{env.tag} {env.groups}" for env in ragen.train.envs)
    asked = sum(env.groups for env in ragen.val.envs)
    return {
        "a step plays": f"{ragen.train.groups} groups x {rollout.n} samples = {ragen.train.groups * rollout.n} "
        f"trajectories ({played})",
        "a trajectory": f"up to {ragen.rollout.max_turns} turns{budget}, {ragen.rollout.response_length} tokens an "
        f"answer, {config.data.max_prompt_length} + {config.data.max_response_length} tokens in all",
        "a step trains": f"on {least}{kept} groups in {updates} update{'s' if updates > 1 else ''}, learning rate "
        f"{actor.optim.lr:g}",
        "the run": f"{trainer.total_training_steps} steps; every {trainer.test_freq} of them {asked} held-out states, "
        f"every {trainer.save_freq} a checkpoint",
        "model": str(config.actor_rollout_ref.model.path),
        "runs on": f"{trainer.nnodes} x {trainer.n_gpus_per_node} {trainer.get('device') or 'cuda'}",
    }


def differences(recipe: str, overrides: list[str], config: DictConfig) -> tuple[str, dict[str, tuple[Any, Any]]]:
    """What a run changes: the recipe that it builds on, and key -> (value there, value here).

    Args:
        recipe: a name in the package or a file. One with overrides is compared with itself, another with the first
            entry of its defaults list.
        overrides: of the user.
        config: as composed, not resolved.
    """
    base = recipe if overrides else _base(recipe)
    if base is None:
        return "", {}
    there, here = dict(_leaves(compose(base))), dict(_leaves(config))
    changed = {key for key in there.keys() | here.keys() if there.get(key) != here.get(key)} - set(_OWN)
    return base, {key: (there.get(key), here.get(key)) for key in sorted(changed)}


def table(prepared: Prepared, overrides: list[str], fit: str | None) -> Table:
    """The rows of a dry run.

    Args:
        prepared: the checked run.
        overrides: of the user.
        fit: the sentence on the context, if it could be measured.
    """
    rows = sizes(prepared.config)
    if fit:
        rows["context"] = fit
    for point in entry_points(group="ragen_verl.dry_run"):  # the laboratory's estimates, if it is installed
        if told := point.load()(prepared.config):
            rows[point.name] = told
    base, changed = differences(prepared.recipe, overrides, compose(prepared.recipe, overrides))
    lines = [f"{key}: {_short(old)} -> {_short(new)}" for key, (old, new) in changed.items()]
    if len(lines) > _SHOWN:
        lines[_SHOWN:] = [f"and {len(lines) - _SHOWN} more"]
    if base:
        rows[f"changes {base}"] = "\n".join(lines) or "nothing"
    found = Table(box=None, show_header=False, pad_edge=False)
    found.add_column(style="bold", no_wrap=True)
    found.add_column(overflow="fold")
    for name, text in rows.items():
        found.add_row(Text(name), Text(text))
    return found


def _base(recipe: str) -> str | None:
    """The recipe that the first entry of a recipe's defaults list names; None for a piece of one."""
    path = Path(recipe) if is_file(recipe) else Path(str(files("ragen_verl.recipes"))) / f"{recipe}.yaml"
    entries = yaml.safe_load(path.read_text("utf-8")).get("defaults") or []
    named = next((one.lstrip("/") for one in entries if isinstance(one, str) and one != "_self_"), None)
    return named if named != "ragen" else None


def _leaves(block: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every key with its value; a list is one value."""
    if isinstance(block, DictConfig):
        block = OmegaConf.to_container(block, resolve=False)
    if isinstance(block, dict) and (block or not path):
        for key, value in block.items():
            yield from _leaves(value, f"{path}.{key}" if path else str(key))
    else:
        yield path, block


def _short(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("\n...\n").strip()
    return text if len(text) <= 100 else f"{text[:97]}..."
