"""Pages of docs/ that are followed word for word: their files written, their commands run, their trainings checked."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from paths import ROOT

CHECK = """
import shlex, sys
from ragen_verl.cli.prepare import prepare
from ragen_verl.errors import RecipeError
for command in sys.argv[1:]:
    recipe, *overrides = shlex.split(command)[2:]
    try:
        print("accepted", prepare(recipe, overrides, machine=False).config.algorithm.adv_estimator)
    except RecipeError as error:
        print("refused", error)
"""


def with_site(site: Path) -> dict[str, str]:
    """The environment of a process in which pip installs offline into `site` and Python finds it there."""
    return {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": str(site),
        "PIP_TARGET": str(site),
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # to pip that means: no isolation
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PYTHONWARNINGS": "ignore",
    }


class Page:
    """A page with blocks of code.

    Args:
        name: of the file in docs/.

    Attributes:
        text: all of it.
        files: path in the first line of a block -> the block.
        commands: every line of its `sh` blocks.
        trainings: the commands that train.
    """

    def __init__(self, name: str) -> None:
        self.text = (ROOT / "docs" / name).read_text("utf-8")
        blocks = re.findall(r"^```(\w+)\n(.*?)^```$", self.text, flags=re.DOTALL | re.MULTILINE)
        named = [text for kind, text in blocks if kind != "sh" and re.match(r"# \S+/\S+\n", text)]
        self.files = {text.splitlines()[0].removeprefix("# "): text for text in named}
        self.commands = [line for kind, text in blocks if kind == "sh" for line in text.splitlines()]
        self.trainings = [line for line in self.commands if line.startswith("ragen-verl train")]

    def follow(self, folder: Path) -> Reader:
        """A reader of the page, who has written its files into a folder."""
        for name, text in self.files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)
        return Reader(folder)


class Reader:
    """Runs commands where the files of a page lie.

    Args:
        folder: where.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = with_site(folder / "site")

    def __call__(self, command: str | list[str], said: str = "") -> subprocess.CompletedProcess:
        """Run a command of the page, with this typed into it."""
        words = shlex.split(command) if isinstance(command, str) else command
        return subprocess.run(
            words, cwd=self.folder, env=self.environment, input=said, capture_output=True, text=True, timeout=300
        )

    def check(self, trainings: Sequence[str]) -> list[str]:
        """Each training composed and checked instead of run: `accepted ...` or `refused ...`."""
        done = self([sys.executable, "-c", CHECK, *trainings])
        assert done.returncode == 0, done.stderr
        return [line for line in done.stdout.splitlines() if line.startswith(("accepted", "refused"))]
