"""verl's own main on a recipe, as `ragen-verl train` starts it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from ragen_verl.runs.folder import RunFolder
from ragen_verl.runs.launch import begin, command


def trained(
    recipe: str, run: Path, *overrides: str, cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> list[dict]:
    """The metrics of a run that ended well, a row per step."""
    log = run.with_suffix(".driver.log")
    with pytest.MonkeyPatch.context() as patch, log.open("w") as file:
        patch.chdir(cwd or Path.cwd())
        for name, value in (environment or {}).items():
            patch.setenv(name, value)
        code = begin(command(recipe, [*overrides, f"ragen.run.dir={run}"]), file).wait(550)
    assert code == 0, log.read_text()[-6000:]
    return RunFolder(run).rows()
