"""`ragen-verl sft`: run verl's own supervised trainer under torchrun and watch it through the run's folder.

sft.yaml        verl's configuration
versions.json   packages, Python, machine
verl.jsonl      the output of verl's tracker
metrics.jsonl   the same as the rows of any run: `step`, `time` and verl's metric names
log.txt         the text that verl prints
error.txt       the cause, if the training failed or was stopped
model/          the trained model as a Hugging Face folder, at the end
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from ragen_lab.convert.export import merged
from rich.console import Console

from ragen_verl.errors import RecipeError
from ragen_verl.names import SFT_LOSS, SFT_LR
from ragen_verl.runs import lock
from ragen_verl.runs.cause import cause, ending
from ragen_verl.runs.folder import RunFolder, checkpoint_of, versions
from ragen_verl.runs.launch import WATCH_SECONDS, ended_by_signals, say, stop
from ragen_verl.switch import SWITCH

__all__ = ["command", "train"]

_CONFIG, _TRACKER, _MODEL = "sft.yaml", "verl.jsonl", "model"


def train(config: DictConfig, steps: int, folder: RunFolder, console: Console) -> Path:
    """Train, with one plain line per step, and export the model.

    Args:
        config: the resolved configuration of verl's trainer.
        steps: the number of its updates.
        folder: the run's folder, which is made here.
        console: the console for the output.

    Returns:
        The model's folder.

    Raises:
        RecipeError: the folder cannot be made, or the training failed; with the cause.
    """
    folder.make()
    with lock.taken(folder.path), ended_by_signals():
        try:
            with folder.keeps_cause():
                return _train(config, steps, folder, console)
        except KeyboardInterrupt as error:
            folder.write_cause(f"Stopped ({str(error) or 'SIGINT'}) after step {len(folder.rows())}.\n")
            raise


def _train(config: DictConfig, steps: int, folder: RunFolder, console: Console) -> Path:
    OmegaConf.save(config, folder.path / _CONFIG)
    (folder.path / "versions.json").write_text(json.dumps(versions(), indent=2))
    tracker = folder.path / _TRACKER
    environment = {**os.environ, SWITCH: "1", "VERL_FILE_LOGGER_PATH": str(tracker)}
    line = command(folder.path, config.trainer.n_gpus_per_node)
    started, seen = time.time(), 0
    with folder.log_file.open("w") as log:
        process = subprocess.Popen(line, stdout=log, stderr=log, start_new_session=True, env=environment)
        try:
            code = None
            while code is None:
                time.sleep(WATCH_SECONDS)
                code = process.poll()
                for step, metrics in list(_rows(tracker))[seen:]:
                    folder.log(step, metrics)
                    seen += 1
                    say(console, f"step {step}/{steps}: loss {metrics[SFT_LOSS]:.4f}, lr {metrics[SFT_LR]:.2g}")
        except BaseException:
            stop(process)
            raise
    if code:
        why = cause(folder.log_file.read_text(errors="replace"))
        raise RecipeError(f"The training failed ({ending(code)}): {why} The log is {folder.log_file}.")
    checkpoint = checkpoint_of(folder.path / "checkpoints", steps)
    model = merged(checkpoint, folder.path / _MODEL)
    shutil.rmtree(checkpoint.parent)
    say(console, f"{seen} steps in {time.time() - started:.0f} s with the start.")
    return model


def command(folder: Path, devices: int) -> list[str]:
    """The command of verl's trainer on the configuration in a run's folder, with a process for each device."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={devices}"]
    place = ["--config-path", str(folder), "--config-name", Path(_CONFIG).stem]
    quiet = [f"hydra.run.dir={folder}", "hydra.output_subdir=null", "hydra/job_logging=none"]
    return [*torchrun, "-m", "verl.trainer.sft_trainer", *place, *quiet]


def _rows(file: Path) -> Iterator[tuple[int, dict[str, float]]]:
    """Step and metrics of each whole line that verl's tracker has written."""
    for line in file.read_text().splitlines(keepends=True) if file.exists() else ():
        if line.endswith("\n"):
            row = json.loads(line)
            yield row["step"], row["data"]
