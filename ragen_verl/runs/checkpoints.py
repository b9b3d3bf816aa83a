"""Find the checkpoints of a run that are complete: the run continues from the newest one, and damaged ones are named.

verl writes `global_step_N/actor`, `critic`, then `data.pt`, and last the step into `latest_checkpointed_iteration.txt`.
After a kill, a full disk or an interrupted copy, files are missing, empty or cut short.
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
from ragen_verl.names import CHECKPOINT
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
    "prune",
    "saving",
    "settle",
    "survey",
    "survey_of",
]

_POINTER = "latest_checkpointed_iteration.txt"
_DATA = "data.pt"
"""The file that verl writes last in a checkpoint; it holds the position in the data."""

_MODEL, _OPTIMIZER, _EXTRA = "model", "optim", "extra_state"
_KINDS = {"model": _MODEL, "optimizer": _OPTIMIZER, "extra": _EXTRA}
"""verl's name in `checkpoint.load_contents` -> the beginning of the shards' file names."""

_SHARD = re.compile(rf"({_MODEL}|{_OPTIMIZER}|{_EXTRA})_world_size_(\d+)_rank_(\d+)\.pt")


@dataclass(frozen=True)
class Wanted:
    """The files that a checkpoint needs.

    Attributes:
        actor, critic: the kinds of shards that are loaded; those of a critic only if the checkpoint has a critic.
        all_here: whether this process sees the shards of all ranks, as on a single machine.
    """

    actor: tuple[str, ...] = (_MODEL,)
    critic: tuple[str, ...] = (_MODEL,)
    all_here: bool = True

    @classmethod
    def of(cls, config: DictConfig) -> Wanted:
        """What the checkpoints of a recipe need."""
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
        named: the step in verl's file; None if there is none.
        step: the step of the newest complete checkpoint that is not newer than the named one; None without checkpoints.
        damaged: for checkpoints newer than that, step -> what is wrong; the newest first.
        unfinished: the steps among them that were still being written when the run ended.
    """

    folder: Path
    named: int | None
    step: int | None
    damaged: Mapping[int, str]
    unfinished: tuple[int, ...]

    def sentences(self) -> list[str]:
        """The sentences for the user; none if the named checkpoint is complete and there is no newer one."""
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
        """Remove unfinished checkpoints, and write the newest complete one into verl's file."""
        for step in self.unfinished:
            shutil.rmtree(checkpoints_in(self.folder)[step], ignore_errors=True)
        if self.step is not None and self.named != self.step:
            point_at(self.folder, self.step)


def survey(folder: Path, wanted: Wanted | None = None) -> Survey:
    """Find the checkpoint that a run can continue from; no file is changed.

    A checkpoint newer than the one in verl's file is not used, because somebody may have set that file back.

    Args:
        folder: `trainer.default_local_dir`.
        wanted: what a checkpoint needs.

    Raises:
        RecipeError: there are checkpoints and none is complete.
    """
    wanted = wanted or Wanted()
    named, whole, damaged = pointed_at(folder), None, {}
    # verl deletes the models of old checkpoints and leaves their other files
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
            "with trainer.resume_mode=resume_path, or start again with trainer.resume_mode=disable."
        )
    return Survey(folder, named, whole, damaged, unfinished)


def settle(config: DictConfig) -> None:
    """Make verl load the newest complete checkpoint, and say what newer ones lack; see `survey_of`."""
    if found := survey_of(config):
        for sentence in found.sentences():
            print(sentence)
        found.settle()


def survey_of(config: DictConfig) -> Survey | None:
    """The survey for a recipe; None if the recipe does not continue from the newest checkpoint.

    Raises:
        RecipeError: the checkpoint that the recipe names is damaged, or the run has none that is complete.
    """
    mode, wanted = config.trainer.resume_mode, Wanted.of(config)
    folder, path = (OmegaConf.select(config, f"trainer.{key}") for key in ("default_local_dir", "resume_from_path"))
    if mode == "auto" and folder:
        return survey(Path(folder).expanduser().absolute(), wanted)
    if mode == "resume_path" and (found := damage(Path(path), wanted)):
        raise RecipeError(f"trainer.resume_from_path is {path} but that checkpoint is damaged ({found}): name another.")
    return None


def damage(folder: Path, wanted: Wanted | None = None) -> str | None:
    """What is missing or unreadable in a checkpoint, in a few words; None if it is complete.

    Only the end of each file is read. torch's archives have their directory there, so a file that is cut short lacks
    it. Changed bytes inside a file are not detected.

    Args:
        folder: `global_step_N`.
        wanted: what the checkpoint needs. If some rank has a kind of shard, every rank must have it.
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
    """What is missing or unreadable in the shards of one model; None if they are complete.

    Args:
        part: `global_step_N/actor` or `critic`.
        kinds: the kinds of shards that are checked.
        needed: the kinds that must be there.
        all_here: see `Wanted`.
    """
    sizes: dict[int, set[str]] = defaultdict(set)
    for path in part.glob("*.pt"):
        if match := _SHARD.fullmatch(path.name):
            sizes[int(match[2])].add(match[1])
    if not sizes:
        megatron = (part / "dist_ckpt").is_dir()  # Megatron's checkpoints have other shards
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
    """Why torch cannot load a file that it has saved: "is missing", "is empty", "is cut short"; None if it can."""
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
    """The newest step according to verl's file; None if the file is missing or cannot be read."""
    try:
        return int((folder / _POINTER).read_text())
    except (OSError, ValueError):
        return None


def point_at(folder: Path, step: int) -> None:
    """Write into verl's file from which step it continues.

    Raises:
        OSError: the file cannot be written; it is then unchanged.
    """
    disk.replace(folder / _POINTER, str(step))


def prune(checkpoint: Path, config: DictConfig) -> None:
    """Remove older checkpoints than the newest `trainer.max_actor_ckpt_to_keep`, including those of before a resume.

    verl forgets at a resume what it has saved before, and of those that it removes it leaves `data.pt`. With a critic
    the larger of the two numbers counts. Newer checkpoints stay, as of a run that was set back.

    Args:
        checkpoint: `global_step_N`, which has just been saved. If it is not complete, nothing is removed.
        config: the whole recipe. Nothing is removed if it has no limit, or if verl saves in the background.
    """
    limits = [OmegaConf.select(config, f"trainer.max_{part}_ckpt_to_keep") for part in ("actor", "critic")]
    limits = limits if (checkpoint / "critic").is_dir() else limits[:1]
    background = OmegaConf.select(config, "actor_rollout_ref.actor.checkpoint.async_save")
    if not all(limits) or background or damage(checkpoint, Wanted.of(config)):
        return
    here = int(checkpoint.name.removeprefix(CHECKPOINT))
    older = {step: path for step, path in checkpoints_in(checkpoint.parent).items() if step <= here}
    saved = [step for step, path in older.items() if (path / "actor").is_dir()]
    kept = saved[-max(limits) :]
    for step, path in older.items():
        if step not in kept:
            shutil.rmtree(path, ignore_errors=True)


@contextmanager
def saving(checkpoint: Path, wanted: Wanted | None = None) -> Iterator[None]:
    """A context in which a checkpoint is written.

    If that fails, the checkpoint is removed, and verl's file names the last complete one.

    Args:
        checkpoint: `global_step_N`. An incomplete one that an earlier part of the run left there is removed first.
        wanted: what the checkpoint needs.

    Raises:
        OSError: there was no room on the disk.
    """
    if checkpoint.exists() and damage(checkpoint, wanted):
        shutil.rmtree(checkpoint, ignore_errors=True)
    try:
        yield
    except Exception as error:
        short = disk.shortage(error, checkpoint.parent)  # checked before the removal makes room
        if damage(checkpoint, wanted):
            shutil.rmtree(checkpoint, ignore_errors=True)
        with suppress(OSError, RecipeError):
            survey(checkpoint.parent, wanted).settle()
        if short:
            raise OSError(short.errno, short.strerror, str(checkpoint)) from error
        raise
