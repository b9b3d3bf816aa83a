"""Which of a run's checkpoints are whole: the newest of them is gone on from, and what was left half is said.

verl writes `global_step_N/actor`, `critic`, then `data.pt`, and at last the step into
`latest_checkpointed_iteration.txt`. A kill, a full disk or a copy that broke off leaves files that are missing, empty
or cut short.
"""

from __future__ import annotations

import re
import shutil
import struct
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from ragen_verl.errors import RecipeError
from ragen_verl.runs import disk
from ragen_verl.runs.folder import checkpoints_in

__all__ = [
    "Survey",
    "Wanted",
    "broken",
    "damage",
    "damage_of_model",
    "point_at",
    "pointed_at",
    "saving",
    "survey",
    "survey_of",
]

_POINTER = "latest_checkpointed_iteration.txt"
_DATA = "data.pt"
"""The last file of a checkpoint that verl writes: where the data stands."""

_MODEL, _OPTIMIZER, _EXTRA = "model", "optim", "extra_state"
_KINDS = {"model": _MODEL, "optimizer": _OPTIMIZER, "extra": _EXTRA}
"""verl's word in `checkpoint.load_contents` -> the beginning of the shards' names."""

_SHARD = re.compile(rf"({_MODEL}|{_OPTIMIZER}|{_EXTRA})_world_size_(\d+)_rank_(\d+)\.pt")


@dataclass(frozen=True)
class Wanted:
    """What has to be there.

    Attributes:
        actor, critic: kinds of shards that are loaded; a critic's only where the checkpoint has one.
        all_here: whether every rank writes to the disk that this process sees, which one machine's ranks do.
    """

    actor: tuple[str, ...] = (_MODEL,)
    critic: tuple[str, ...] = (_MODEL,)
    all_here: bool = True

    @classmethod
    def of(cls, config: DictConfig) -> Wanted:
        """As a recipe has it."""
        keys = ("actor_rollout_ref.actor.checkpoint.load_contents", "critic.checkpoint.load_contents")
        actor, critic = (
            tuple(_KINDS[one] for one in OmegaConf.select(config, key) or ("model",) if one in _KINDS) for key in keys
        )
        return cls(actor, critic, (OmegaConf.select(config, "trainer.nnodes") or 1) == 1)


@dataclass(frozen=True)
class Survey:
    """The checkpoints of a run.

    Attributes:
        folder: `trainer.default_local_dir`.
        named: the step that verl's file names; None where it names none.
        step: of the newest whole checkpoint, up to the named one; None where there is no checkpoint.
        damaged: step -> what is wrong, of those newer than it; the newest first.
        unfinished: those of them that were being written when the run ended.
    """

    folder: Path
    named: int | None
    step: int | None
    damaged: Mapping[int, str]
    unfinished: tuple[int, ...]

    def sentences(self) -> list[str]:
        """What a user has to know; nothing where the named checkpoint is whole and no other is there."""
        said = [
            f"The checkpoint of step {step} was still being written when the run ended ({self.damaged[step]}): it goes."
            for step in self.unfinished
        ]
        lost = [f"of step {step} ({why})" for step, why in self.damaged.items() if step not in self.unfinished]
        if self.named is not None and self.named != self.step and self.named not in self.damaged:
            lost.append(f"of step {self.named} (it is not there)")
        if lost:
            said.append(f"The checkpoint {' and that '.join(lost)} is damaged; going on from step {self.step}.")
        elif self.step is not None and self.named is None:
            said.append(
                f"{self.folder / _POINTER} names no step; going on from the newest checkpoint, step {self.step}."
            )
        return said

    def settle(self) -> None:
        """Remove what is unfinished, and have verl's file name the newest whole checkpoint."""
        for step in self.unfinished:
            shutil.rmtree(checkpoints_in(self.folder)[step], ignore_errors=True)
        if self.step is not None and self.named != self.step:
            point_at(self.folder, self.step)


def survey(folder: Path, wanted: Wanted | None = None) -> Survey:
    """Look which checkpoint a run can go on from; nothing is changed.

    A checkpoint newer than the one that verl's file names is not taken: somebody may have set that file back.

    Args:
        folder: `trainer.default_local_dir`.
        wanted: what has to be in a checkpoint.

    Raises:
        RecipeError: there were checkpoints and none is whole.
    """
    wanted = wanted or Wanted()
    named, whole, damaged = pointed_at(folder), None, {}
    # of old checkpoints verl deletes the models and leaves the rest
    saved = {step: path for step, path in checkpoints_in(folder).items() if (path / "actor").is_dir()}
    for step in sorted(saved, reverse=True):
        if found := damage(saved[step], wanted):
            damaged[step] = found
        elif named is None or step <= named:
            whole = step
            break
    newer = [step for step in damaged if named is None or step > named]
    unfinished = tuple(step for step in newer if broken(saved[step] / _DATA))
    lost = [f"step {step}: {why}" for step, why in damaged.items() if step not in unfinished]
    if named is not None and named not in saved:
        lost.append(f"step {named}, which {_POINTER} names, is not there")
    if whole is None and lost:
        raise RecipeError(
            f"No checkpoint in {folder} is whole ({'; '.join(lost)}): name one elsewhere by trainer.resume_from_path "
            "with trainer.resume_mode=resume_path, or begin anew with trainer.resume_mode=disable."
        )
    return Survey(folder, named, whole, damaged, unfinished)


def survey_of(config: DictConfig) -> Survey | None:
    """The same for a recipe; None where it does not go on from the newest checkpoint.

    Raises:
        RecipeError: the checkpoint that it names is damaged, or no checkpoint of the run is whole.
    """
    mode, wanted = config.trainer.resume_mode, Wanted.of(config)
    folder, path = (OmegaConf.select(config, f"trainer.{key}") for key in ("default_local_dir", "resume_from_path"))
    if mode == "auto" and folder:
        return survey(Path(folder).expanduser().absolute(), wanted)
    if mode == "resume_path" and (found := damage(Path(path), wanted)):
        raise RecipeError(f"trainer.resume_from_path is {path} but that checkpoint is damaged ({found}): name another.")
    return None


def damage(folder: Path, wanted: Wanted | None = None) -> str | None:
    """What is missing or unreadable in a checkpoint, in a few words; None where it is whole.

    Of each file only the end is read, where torch's archives have their directory: what is cut short lacks it. Bytes
    that changed inside a file are not seen.

    Args:
        folder: `global_step_N`.
        wanted: what has to be there; of a kind of shards that is there at all, every rank's has to be.
    """
    wanted = wanted or Wanted()
    if not folder.is_dir():
        return "it is not there"
    for part, kinds in (("actor", wanted.actor), ("critic", wanted.critic)):
        if part == "critic" and not (folder / part).is_dir():
            continue
        if found := damage_of_model(folder / part, {*kinds, *_KINDS.values()}, kinds, wanted.all_here):
            return found
    found = broken(folder / _DATA)
    return f"{_DATA} {found}" if found else None


def damage_of_model(
    part: Path, kinds: Iterable[str] = (_MODEL,), needed: Iterable[str] = (_MODEL,), all_here: bool = True
) -> str | None:
    """The same of the shards of one model.

    Args:
        part: `global_step_N/actor` or `critic`.
        kinds: of shards that are looked at.
        needed: those of them that have to be there.
        all_here: see `Wanted`.
    """
    sizes: dict[int, set[str]] = defaultdict(set)
    for path in part.glob("*.pt"):
        if match := _SHARD.fullmatch(path.name):
            sizes[int(match[2])].add(match[1])
    if not sizes:
        megatron = (part / "dist_ckpt").is_dir()  # which has no such shards
        return f"{part.name} has no shards" if all_here and not megatron else None
    for size, there in sizes.items():
        for kind in sorted(there.intersection(kinds).union(needed)):
            for rank in range(size):
                name = f"{kind}_world_size_{size}_rank_{rank}.pt"
                found = broken(part / name)
                if found and (all_here or (part / name).exists()):
                    return f"{part.name}/{name} {found}"
    return None


def broken(file: Path) -> str | None:
    """Why torch could not load a file that it saved: "is missing", "is empty", "is cut short"; None where it could."""
    try:
        if not file.stat().st_size:
            return "is empty"
        with zipfile.ZipFile(file):
            return None
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError, struct.error):
        return "is cut short"


def pointed_at(folder: Path) -> int | None:
    """The step that verl's file names as the newest; None where there is none or it cannot be read."""
    try:
        return int((folder / _POINTER).read_text())
    except (OSError, ValueError):
        return None


def point_at(folder: Path, step: int) -> None:
    """Have verl go on from a step, in one piece.

    Raises:
        OSError: the file cannot be written; it then names what it did.
    """
    disk.replace(folder / _POINTER, str(step))


@contextmanager
def saving(checkpoint: Path, wanted: Wanted | None = None) -> Iterator[None]:
    """Around the writing of a checkpoint: one that fails is removed, and verl's file names the last whole one.

    Args:
        checkpoint: `global_step_N`. What an earlier part of the run left there half goes first.
        wanted: what has to be in it.

    Raises:
        OSError: there was no room on the disk.
    """
    if checkpoint.exists() and damage(checkpoint, wanted):
        shutil.rmtree(checkpoint, ignore_errors=True)
    try:
        yield
    except Exception as error:
        short = disk.shortage(error, checkpoint.parent)  # before there is room again
        if damage(checkpoint, wanted):
            shutil.rmtree(checkpoint, ignore_errors=True)
        with suppress(OSError, RecipeError):
            survey(checkpoint.parent, wanted).settle()
        if short:
            raise OSError(short.errno, short.strerror, str(checkpoint)) from error
        raise
