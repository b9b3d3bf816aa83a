"""The seams that differ in another verl, the files of this repository that build on them, and the tests to run.

    .venv/bin/python requirements/new_verl.py                # the verl that is installed
    .venv/bin/python requirements/new_verl.py ../verl/verl   # the package's folder in a checkout; nothing is imported

It reads source files and takes seconds; docs/new_verl.md has the other steps.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Collection, Mapping
from pathlib import Path

from ragen_verl import verl_files
from ragen_verl.doctor import recorded, seams

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {"ragen_verl": ROOT / "ragen_verl", "ragen_lab": ROOT / "lab"}
NO_FILE = ROOT / "(rows and order of hooks: no file names these)"


def users_of_seams() -> dict[str, set[Path]]:
    """Seam, as the present verl defines it -> the files that build on it."""
    found: dict[str, set[Path]] = {}
    for name, files in seams.users().items():
        for one in {name, (verl_files.resolve(name) or [name])[0]}:
            found.setdefault(one, set()).update(files)
    return found


def by_file(differences: Collection[str], users: Mapping[str, Collection[Path]]) -> dict[Path, list[str]]:
    """File -> the differences of what it builds on."""
    found: dict[Path, list[str]] = {}
    for difference in differences:
        for file in sorted(users.get(difference.split(" ")[0], [NO_FILE])):
            found.setdefault(file, []).append(difference)
    return found


def tests_of(files: Collection[Path]) -> list[Path]:
    """The test files that import one of these files."""
    modules = {
        ".".join([package, *file.relative_to(folder).with_suffix("").parts])
        for file in files
        for package, folder in FOLDERS.items()
        if file.is_relative_to(folder)
    }
    return [test for test in sorted(ROOT.glob("tests/**/test_*.py")) if modules & imports(test)]


def imports(test: Path) -> set[str]:
    """Full names of what a file imports, and of the modules that it imports from."""
    found = set()
    for node in ast.walk(ast.parse(test.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{one.name}" for one in node.names)}
    return found


def look_in(folder: Path) -> None:
    """Read the verl in this folder from now on."""
    verl_files.folder = lambda: folder
    for cached in (verl_files.file, verl_files.tree, verl_files.resolve):
        cached.cache_clear()


def report(folder: Path | None) -> str:
    """The three lists for the verl in `folder`, by default the installed one."""
    users = users_of_seams()
    if folder is not None:
        look_in(folder.resolve())
    differences = seams.differences()
    gone = sum(one.endswith("is gone") for one in differences)
    known = recorded()
    lines = [f"{len(differences)} of {len(known['seams'])} seams differ from verl {known['verl']}, {gone} are gone."]
    found = by_file(differences, users)
    for file, mine in found.items():
        lines += ["", str(file.relative_to(ROOT)), *(f"    {one}" for one in mine)]
    if tests := tests_of(found):
        lines += ["", ".venv/bin/python -m pytest " + " ".join(str(test.relative_to(ROOT)) for test in tests)]
    return "\n".join(lines)


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="a folder with trainer/ and workers/ in it")
    folder = parser.parse_args().folder
    if folder is not None and not (folder / "trainer").is_dir():
        parser.error(f"{folder} is not the folder of the package verl: it has no folder trainer.")
    print(report(folder))


if __name__ == "__main__":
    main()
