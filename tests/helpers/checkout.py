"""A checkout as `make train` leaves it, whose .venv sees the packages of this one and keeps what is added to itself."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from paths import ROOT

#: What tests that run under `make test` themselves must not hand on.
MAKE = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")


def checkout(folder: Path) -> Path:
    """Makefile, requirements and a .venv with the stamps of a finished install, in `folder`."""
    for name in ("Makefile", "pyproject.toml", "setup.py"):
        shutil.copy(ROOT / name, folder / name)
    shutil.copytree(ROOT / "requirements", folder / "requirements")
    venv = folder / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    (site,) = venv.glob("lib/python*/site-packages")
    (site / "stack.pth").write_text(f"import site; site.addsitedir({sysconfig.get_paths()['purelib']!r})\n")
    script = venv / "bin" / "ragen-verl"
    script.write_text(f"#!{venv}/bin/python\nfrom ragen_verl.cli import app\n\napp()\n")
    script.chmod(0o755)
    for stamp in re.findall(r"^touch (\S+)$", run(folder, "make -n install").stdout, re.MULTILINE):
        (folder / stamp).touch()
    return folder


def run(folder: Path, command: str, said: str = "") -> subprocess.CompletedProcess[str]:
    """A command line as it is typed in that folder, with no environment variables set for it."""
    env = {name: value for name, value in os.environ.items() if name not in MAKE}
    return subprocess.run(
        command, shell=True, cwd=folder, env=env, input=said, capture_output=True, text=True, timeout=300
    )
