"""Trajectories that a run or an evaluation saved, with the data that a replay needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ragen_lab.score.replay import Replay, replay
from yaml import YAMLError

from ragen_verl.config.envs import EnvGroups, Split
from ragen_verl.config.schema import parse
from ragen_verl.errors import RecipeError
from ragen_verl.extensions import use_files
from ragen_verl.names import HELD_OUT_SUCCESS
from ragen_verl.rollout.trajectory import environment_of
from ragen_verl.runs.folder import RunFolder, mapping
from ragen_verl.runs.trajectories import EPISODES, read_file

__all__ = ["Played", "Saved", "load"]

_FIRST, _LAST, _BEST, _ALL = "first", "last", "best", "all"


@dataclass
class Played:
    """A saved trajectory.

    Attributes:
        record: `Trajectory.record()` as it was saved; in any schema, and older ones lack messages.
        split: `train`, `val` or `generalisation`.
        step: the training step; None for an evaluation.
        kwargs: the environment's arguments; None where they are unknown, so that a replay is impossible.
        shared_rng: whether the group shared its transition randomness.
        scores: evaluator -> its number, or None where it does not apply; filled by `registry.run`.
    """

    record: Mapping[str, Any]
    split: str
    step: int | None = None
    kwargs: Mapping[str, Any] | None = None
    shared_rng: bool = False
    scores: dict[str, float | None] = field(default_factory=dict)

    @property
    def env(self) -> str:
        """The environment's name in the metrics."""
        return environment_of(self.record)

    @property
    def seed(self) -> int:
        """The seed of the initial state."""
        return self.record["seed"]

    @property
    def success(self) -> bool:
        """Whether the task was solved."""
        return bool(self.record["success"])

    @property
    def ret(self) -> float:
        """The return, with format penalties."""
        return float(self.record["return"] or 0.0)

    @property
    def turns(self) -> list[dict[str, Any]]:
        """The turns, as in the record."""
        return self.record["turns"]

    @cached_property
    def replay(self) -> Replay | None:
        """The replay of the episode; None where it is not possible."""
        return None if self.kwargs is None else replay(self.record, self.kwargs, self.shared_rng)


@dataclass(frozen=True)
class Saved:
    """The saved trajectories of a folder.

    Attributes:
        path: the folder or file.
        trajectories: those that count.
        excluded: the number of those that were left out because environment or engine failed.
        broken: the number of invalid lines, such as one cut short by a kill.
        step: their training step; None for an evaluation, and for several steps.
    """

    path: Path
    trajectories: list[Played]
    excluded: int
    broken: int
    step: int | None


def load(path: Path, *, split: str = "val", step: str = _LAST) -> Saved:
    """Read the trajectories of a run's folder, of an evaluation's, or of a JSONL file.

    Args:
        path: a run's folder, the folder of one policy in an evaluation, an evaluation of one policy, or a file.
        split: the split, for a run.
        step: the step, for a run: `first`, `last`, `best` (most held-out success), `all`, or a number.

    Raises:
        RecipeError: there is nothing to read, the folder holds several policies, or the step was not saved.
    """
    path = path.expanduser()
    if (path / "trajectories").is_dir():
        return _run(RunFolder(path), split, step)
    file = path if path.is_file() else _episodes(path)
    known = mapping(file.parent / "settings.json") or {}
    shared, arguments = known.get("shared_group_rng", False), known.get("arguments")
    arguments = arguments if isinstance(arguments, dict) else {}  # without them a replay is not possible

    def made(record: Mapping[str, Any]) -> Played:
        where = record["split"] or split
        return Played(record, where, None, arguments.get(where, {}).get(environment_of(record)), shared)

    return _saved(path, [(file, made)], None)


def _run(folder: RunFolder, split: str, step: str) -> Saved:
    files = {int(file.stem): file for file in sorted(folder.trajectories(split).glob("*.jsonl")) if file.stem.isdigit()}
    if not files:
        there = sorted(one.name for one in (folder.path / "trajectories").iterdir() if any(one.glob("*.jsonl")))
        has = ", ".join(there) or "none"
        raise RecipeError(f"{folder.path} has no trajectories of the split {split!r}; it has {has}.")
    wanted = _steps(folder, files, step)
    block: dict[str, Any] = {}
    envs: tuple[EnvGroups, ...] = ()
    # a recipe that is damaged, of another version, or with a missing plugin: a replay is not possible
    with suppress(RecipeError, YAMLError):
        block = folder.ragen_block()
        use_files(block.get("plugins") or [])
        envs = parse(Split, block.get(split), f"ragen.{split}").envs
    shared = bool((block.get("rollout") or {}).get("shared_group_rng"))

    def made(number: int) -> Callable[[Mapping[str, Any]], Played]:
        known = {env.tag: env.kwargs_at(number) for env in envs}
        return lambda record: Played(record, split, number, known.get(environment_of(record)), shared)

    one = wanted[0] if len(wanted) == 1 else None
    return _saved(folder.path, [(files[number], made(number)) for number in wanted], one)


def _steps(folder: RunFolder, files: Mapping[int, Path], step: str) -> list[int]:
    steps = sorted(files)
    named = {_FIRST: steps[:1], _LAST: steps[-1:], _ALL: steps}
    rates = {row["step"]: row[HELD_OUT_SUCCESS] for row in folder.rows() if HELD_OUT_SUCCESS in row}
    if both := [number for number in steps if number in rates]:
        named[_BEST] = [max(both, key=lambda number: rates[number])]
    named |= {str(number): [number] for number in steps}
    if step not in named:
        raise RecipeError(
            f"{folder.path} has no trajectories of step {step!r}: name one of {', '.join(map(str, steps))}, or "
            f"{', '.join(name for name in (_FIRST, _LAST, _BEST, _ALL) if name in named)}."
        )
    return named[step]


def _episodes(path: Path) -> Path:
    if (path / EPISODES).is_file():
        return path / EPISODES
    found = sorted(path.glob(f"*/{EPISODES}"))
    if len(found) == 1:
        return found[0]
    if found:
        raise RecipeError(
            f"{path} is an evaluation of {len(found)} policies: name the folder of one, such as {found[0].parent}."
        )
    raise RecipeError(f"{path} holds no trajectories: name a run's folder, an evaluation's, or a JSONL file.")


def _saved(path: Path, files: list[tuple[Path, Callable[[Mapping[str, Any]], Played]]], step: int | None) -> Saved:
    kept: dict[tuple, Played] = {}
    broken: list[str] = []
    failed = set()
    for file, made in files:
        for record in read_file(file, broken.append):
            one = made(record)
            key = (one.split, one.env, one.step, one.seed, record["rollout_index"])
            if record.get("excluded"):
                failed.add(key)
            else:
                kept[key] = one  # if an episode was played again, the later record
    excluded = len(failed - set(kept))
    if not kept:
        raise RecipeError(
            f"{path} holds no trajectory that counts: {excluded} failed in environment or engine, {len(broken)} lines "
            "are no record."
        )
    return Saved(path, list(kept.values()), excluded, len(broken), step)
