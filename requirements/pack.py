"""What a machine with torch and transformers, but without network, lacks: wheels in parts, and how to unpack them.

    python requirements/pack.py FOLDER [--has FREEZE] [--also PACKAGE==VERSION]...

Runs where there is a network, in the environment of `make install`: the packages and versions are those that it has.
`--has` names a file with the other machine's `pip freeze`; without it the other machine is taken to have torch,
transformers and what these need. `--also` adds what is not installed here, without its dependencies, such as
vllm==0.24.0. Ray's wheel is packed without the libraries that verl never imports. On the other machine, in FOLDER:

    sh unpack.sh
"""

from __future__ import annotations

import argparse
import importlib.metadata as metadata
import lzma
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PYTHON = "3.12"
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in range(39, 16, -1)] + ["manylinux2014_x86_64", "linux_x86_64"]
PART = 60 * 2**20
PRESENT = ("torch", "transformers", "pip", "setuptools")
SOURCES = ("antlr4-python3-runtime", "pylatexenc")
"""On PyPI as source only; plain Python, so that a wheel built here serves any Python 3."""
TRIMMED = re.compile(
    r"ray/(rllib|tune|serve|train|data|llm|jars|cpp|air|dag/tests|dashboard/client|core/src/ray/gcs/tests)/"
)
UNPACK = """\
#!/bin/sh
# Installs the packages of this folder into the running Python (3.12), without a network.
set -e
cd "$(dirname "$0")"
cat packages.tar.xz.* | tar -xJf -
${PYTHON:-python3} -m pip install --no-index --no-deps wheels/*.whl
"""


def main() -> None:
    """Downloads, trims, packs and splits."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--has", type=Path, help="the other machine's pip freeze")
    parser.add_argument("--also", action="append", default=[], help="PACKAGE==VERSION, without dependencies")
    options = parser.parse_args()
    wheels = options.folder / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    there = closure(PRESENT)
    if options.has:
        lines = options.has.read_text().splitlines()
        there = {canonicalize_name(re.split(r"[=@ ]", line)[0]) for line in lines if line.strip()}
    names = sorted(closure(("ragen-verl",)) - there - {"ragen-verl"})
    pins = {name: f"{name}=={metadata.version(name)}" for name in names}
    built = [pins.pop(name) for name in SOURCES if name in pins]
    platforms = [f"--platform={one}" for one in PLATFORMS]
    binary = ["--no-deps", "--only-binary=:all:", f"--python-version={PYTHON}", *platforms, "--dest", wheels]
    pip("download", *binary, *pins.values(), *options.also)
    pip("wheel", "--no-deps", "--wheel-dir", wheels, *built, ROOT)
    for wheel in wheels.glob("ray-*.whl"):
        trim(wheel)
    archive = options.folder / "packages.tar.xz"
    with lzma.open(archive, "wb", preset=6) as file, tarfile.open(fileobj=file, mode="w") as tar:
        tar.add(wheels, "wheels")
    for part in split(archive):
        print(f"{part.name}: {part.stat().st_size / 2**20:.1f} MiB")
    (options.folder / "unpack.sh").write_text(UNPACK)
    print(f"{len(list(wheels.glob('*.whl')))} packages; copy packages.tar.xz.* and unpack.sh, then: sh unpack.sh")


def closure(roots: tuple[str, ...]) -> set[str]:
    """Canonical names of installed packages and all that they need, on Linux with Python 3.12."""
    environment = {**default_environment(), "python_version": PYTHON, "python_full_version": f"{PYTHON}.0", "extra": ""}
    found: set[tuple[str, frozenset[str]]] = set()
    left = [Requirement(name) for name in roots]
    while left:
        one = left.pop()
        name, extras = canonicalize_name(one.name), frozenset({"", *one.extras})
        if (name, extras) in found:
            continue
        try:
            needs = map(Requirement, metadata.requires(name) or [])
        except metadata.PackageNotFoundError:
            continue
        found.add((name, extras))
        for need in needs:
            if need.marker is None or any(need.marker.evaluate({**environment, "extra": extra}) for extra in extras):
                left.append(need)
    return {name for name, _ in found}


def pip(*arguments: object) -> None:
    """A quiet pip command."""
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *map(str, arguments)]
    subprocess.run(command, check=True)


def trim(wheel: Path) -> None:
    """Leaves out of Ray's wheel what verl never imports; stored, so that xz sees the files themselves."""
    before = wheel.with_suffix(".whole")
    wheel.rename(before)
    with zipfile.ZipFile(before) as source, zipfile.ZipFile(wheel, "w", zipfile.ZIP_STORED) as target:
        for item in source.infolist():
            if TRIMMED.match(item.filename):
                continue
            data = source.read(item)
            if item.filename.endswith(".dist-info/RECORD"):
                data = b"".join(line for line in data.splitlines(keepends=True) if not TRIMMED.match(line.decode()))
            item.compress_type = zipfile.ZIP_STORED
            target.writestr(item, data)
    before.unlink()


def split(archive: Path) -> list[Path]:
    """Cuts a file into parts of at most `PART` bytes and removes it."""
    parts = []
    with archive.open("rb") as file:
        while data := file.read(PART):
            parts.append(archive.with_name(f"{archive.name}.{len(parts):02}"))
            parts[-1].write_bytes(data)
    archive.unlink()
    return parts


if __name__ == "__main__":
    main()
