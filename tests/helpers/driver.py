"""verl's own main on a recipe, as `ragen-verl train` starts it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ragen_verl.cpu.forked_driver import ForkedDriver
from ragen_verl.runs.folder import RunFolder
from ragen_verl.runs.launch import STARTS, again, begin, command, stop

START = 900
"""Seconds in which a training starts and makes a few steps, however busy the machine is."""


def trained(
    recipe: str, run: Path, *overrides: str, cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> list[dict]:
    """The metrics of a run that ended well, a row per step."""
    log = run.with_suffix(".driver.log")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(cwd or Path.cwd())
        for name, value in (environment or {}).items():
            patch.setenv(name, value)
        code = begun(recipe, log, *overrides, f"ragen.run.dir={run}").poll()
    assert code == 0, log.read_text()[-6000:]
    return RunFolder(run).rows()


def begun(recipe: str, log: Path, *overrides: str, far: Callable[[], object] = lambda: False) -> ForkedDriver:
    """A training that has ended, or that has come as far as `far` says; a start that had bad luck is repeated."""
    for _ in range(STARTS):
        with log.open("w") as file:
            driver = begin(command(recipe, list(overrides)), file)
        try:
            until(lambda driver=driver: driver.poll() is not None or far(), START)
        except BaseException:
            stop(driver)
            raise
        if driver.poll() is None or not again(log.read_text()):
            break
    return driver


def until(condition: Callable[[], object], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.2)
