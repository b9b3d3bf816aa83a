"""Takes packs on a machine without a network, and runs ragen-verl with them (Python 3.12, standard library only).

    python3 box.py [--to FOLDER]                # takes the packs that lie beside this file, also a few at a time
    python3 box.py qualify --minutes 20 ...     # the same, and then runs `ragen-verl qualify --minutes 20 ...`

`requirements/pack.py` writes the packs and copies this file next to them. FOLDER (default ~/ragen-verl-box) must last
from one call to the next. The packages go there, and nothing that the machine has is changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main(arguments: list[str]) -> int:
    """Takes what is here, and runs the command if there is one."""
    folder = Path("~/ragen-verl-box").expanduser()
    if arguments[:1] == ["--to"]:
        folder, arguments = Path(arguments[1]).resolve(), arguments[2:]
    packs = json.loads((HERE / "packs.json").read_text())
    ready = [name for name in packs if take(name, packs[name], folder)]
    if not arguments:
        return 0
    if not ready:
        sys.exit("No group of packs is whole yet: bring the missing ones first.")
    command = [sys.executable, "-m", "ragen_verl", *arguments]
    return subprocess.run(command, env=environment(folder)).returncode


def environment(folder: Path) -> dict[str, str]:
    """The environment of processes that find the packages and the machine's own, and nothing in their folder."""
    paths = [str(folder / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}


def take(name: str, parts: dict[str, str], folder: Path) -> bool:
    """Keeps the parts of a group that are here, and unpacks the group once it is whole.

    Args:
        name: of the group.
        parts: file name -> SHA-256, in order.
        folder: of the packages.

    Returns:
        Whether the group is unpacked.
    """
    done = folder / f"{name}.unpacked"
    if done.exists() and done.read_text() == "".join(parts.values()):
        return True
    folder.mkdir(parents=True, exist_ok=True)
    for part, digest in parts.items():
        for file in (HERE / part, folder / part):
            if file.exists() and hashlib.sha256(file.read_bytes()).hexdigest() != digest:
                sys.exit(f"{file} is damaged or of another packing: bring it again.")
        if (HERE / part).exists() and not (folder / part).exists():
            shutil.copy(HERE / part, folder / part)
    missing = [part for part in parts if not (folder / part).exists()]
    if missing:
        print(f"{name}: {len(parts) - len(missing)} of {len(parts)} packs are here; missing: {', '.join(missing)}.")
        return False
    whole = folder / f"{name}.tar.xz"
    with whole.open("wb") as file:
        for part in parts:
            file.write((folder / part).read_bytes())
    with tarfile.open(whole) as tar:
        tar.extractall(folder, filter="tar")
    for file in (whole, *(folder / part for part in parts)):
        file.unlink()
    done.write_text("".join(parts.values()))
    print(f"{name}: unpacked into {folder / 'site'}.")
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
