"""Pages of docs/ that are followed word for word: their files written, their commands run, their trainings checked."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import forked
from paths import ROOT

CHECK = """
import shlex, sys
from ragen_verl.cli.prepare import prepare
from ragen_verl.config import RagenConfig
from ragen_verl.errors import RecipeError
for command in sys.argv[2:]:
    recipe, *overrides = shlex.split(command)[2:]
    try:
        config = prepare(recipe, overrides, machine=False).config
        ragen = RagenConfig.from_omegaconf(config)
        print("accepted", eval(sys.argv[1]))
    except RecipeError as error:
        print("refused", error)
"""

SITE = ".venv/lib/python*/site-packages"

#: What tests that run under `make test` themselves must not hand on.
MAKE = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")

#: A page's tests need none of pytest's plugins, whose import takes two seconds.
QUICKLY = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


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
        self.trainings = [line for line in self.commands if line.startswith(".venv/bin/ragen-verl train")]

    def follow(self, folder: Path) -> Reader:
        """A reader of the page, who has a checkout in a folder and has written the page's files into it."""
        checkout(folder)
        for name, text in self.files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)
        return Reader(folder)


class Reader:
    """Types commands where the files of a page lie.

    Args:
        folder: the checkout.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, command: str | list[str], said: str = "", **environment: str) -> subprocess.CompletedProcess:
        """Run a command of the page, with this typed into it."""
        return run(self.folder, command if isinstance(command, str) else shlex.join(command), said, **environment)

    def install(self, command: str) -> Reader:
        """The reader, once the command has added the page's package."""
        done = self(command)
        assert done.returncode == 0, done.stdout + done.stderr
        return self

    def check(self, trainings: Sequence[str], show: str = "config.algorithm.adv_estimator") -> list[str]:
        """Each training composed and checked instead of run: `accepted` and what is to be shown, or `refused ...`."""
        [site] = self.folder.glob(SITE)
        done = forked.run(CHECK, show, *trainings, cwd=self.folder, PYTHONPATH=str(site))
        lines = [line for line in done.stdout.splitlines() if line.startswith(("accepted", "refused"))]
        assert len(lines) == len(trainings), done.stderr
        return lines


def checkout(folder: Path) -> None:
    """A checkout as `make train` leaves it, whose .venv sees the packages of this one and keeps what is added."""
    for name in ("Makefile", "pyproject.toml", "setup.py"):
        shutil.copy(ROOT / name, folder / name)
    shutil.copytree(ROOT / "requirements", folder / "requirements")
    venv = folder / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    (site,) = folder.glob(SITE)
    stack = Path(sysconfig.get_paths()["purelib"])
    (site / "stack.pth").write_text(f"import site; site.addsitedir({str(stack)!r})\n")
    for info in stack.glob("*.dist-info"):  # uv looks for installed packages nowhere else
        shutil.copytree(info, site / info.name, ignore=shutil.ignore_patterns("RECORD", "licenses"))
    if (uv := Path(sys.executable).parent / "uv").exists():
        (venv / "bin" / "uv").symlink_to(uv)
    script = venv / "bin" / "ragen-verl"
    script.write_text(f"#!{venv}/bin/python\nfrom ragen_verl.cli import app\n\napp()\n")
    script.chmod(0o755)
    for stamp in re.findall(r"^.*\btouch .*$", run(folder, "make -n install").stdout, re.MULTILINE):
        run(folder, stamp)


def run(folder: Path, command: str, said: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """A command line as it is typed in that folder, with no environment variables but these set for it."""
    env = {name: value for name, value in os.environ.items() if name not in MAKE} | QUICKLY | environment
    return subprocess.run(
        command, shell=True, cwd=folder, env=env, input=said, capture_output=True, text=True, timeout=300
    )
