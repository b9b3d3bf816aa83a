"""The seams: the parts of verl that this package builds on, and their differences in the installed verl.

The seams are found in this package's own source: its imports from verl, the methods of verl's classes that its classes
override or call, and the objects that its patches replace. `seams.json` records them for the tested verl; `make lock`
writes it again, after the tests have passed with another verl.

verl's files are read and not imported, which takes a second instead of ten.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import json
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from ragen_verl.doctor import RECORD, recorded
from ragen_verl.patches import PATCHES
from ragen_verl.verl_files import Definition, file, imported, resolve

__all__ = ["DATA", "differences", "installed", "notice", "record", "used", "users"]

_PACKAGES = ("ragen_verl", "ragen_lab")
DATA = (
    "verl.experimental.agent_loop.agent_loop.AgentLoopWorker._agent_loop_postprocess",
    "verl.experimental.agent_loop.agent_loop.AgentLoopWorker._run_agent_loop",
    "verl.trainer.ppo.v1.agent_loop_tq.AgentLoopWorkerTQ",
    "verl.trainer.ppo.v1.replay_buffer.ReplayBuffer",
    "verl.trainer.ppo.v1.trainer_base.PPOTrainer._add_prompts_to_generate",
    "verl.trainer.ppo.v1.trainer_base.PPOTrainer._build_replay_buffer",
    "verl.trainer.ppo.v1.trainer_base.PPOTrainer.fit",
    "verl.trainer.ppo.v1.trainer_base.PPOTrainer.step",
    "verl.trainer.sft_trainer.SFTTrainer",
    "verl.workers.utils.losses.sft_loss",
)
"""The code does not name these, but depends on them: on keys and fields of rows, and on the order of hooks."""

_IN_PARTS = {"verl.trainer.ppo.v1.trainer_base.PPOTrainer"}
"""Bases of which only the methods that are overridden, called or named above count."""


def used() -> list[str]:
    """Full names of everything of verl that this package builds on, sorted."""
    return sorted({found[0] for name in {*DATA, *users()} if (found := resolve(name))} - _IN_PARTS)


def users() -> dict[str, set[Path]]:
    """What the code of the layer and of the laboratory names of verl -> the files that do."""
    found: dict[str, set[Path]] = {}
    for name, path in _patched():
        found.setdefault(name, set()).add(path)
    specs = [spec for package in _PACKAGES if (spec := find_spec(package))]
    for path in (path for spec in specs for path in Path(spec.submodule_search_locations[0]).rglob("*.py")):
        text = path.read_text("utf-8")
        if not re.search(r"\bverl\b", text):  # as a word, which `ragen_verl` is not
            continue
        tree = ast.parse(text)
        known = imported(tree)
        classes = (one for one in ast.walk(tree) if isinstance(one, ast.ClassDef))
        for name in (*_touched(tree, known), *(name for one in classes for name in _inherited(one, known))):
            found.setdefault(name, set()).add(path)
    return found


def installed() -> dict[str, dict[str, str] | None]:
    """Seam -> its arguments and a hash of its code in the installed verl, None where it is not there."""
    return {name: _described(name) for name in used()}


def differences() -> list[str]:
    """The differences of the installed verl from the recorded one: `NAME is gone`, `... has other arguments (code)`."""
    then, now = recorded()["seams"], installed()
    found = []
    for name in sorted({*then, *now}):
        before, after = then.get(name), now.get(name) or _described(name)
        if before == after or before is None:
            continue
        if after is None:
            found.append(f"{name} is gone")
        else:
            found.append(f"{name} has other {'code' if before['arguments'] == after['arguments'] else 'arguments'}")
    return found


def notice() -> str | None:
    """One sentence if the installed verl, another than the tested one, differs in something that is built on."""
    version, tested, found = importlib.metadata.version("verl"), recorded()["verl"], differences()
    if not found:
        return None
    gone = sum(one.endswith("is gone") for one in found)
    return (
        f"verl {version} differs from the tested {tested} in {len(found)} places that ragen_verl builds on, and {gone} "
        "of them are gone: `ragen-verl doctor` names them."
    )


def record() -> None:
    """Write `seams.json` from the installed verl."""
    found = {"verl": importlib.metadata.version("verl"), "seams": installed()}
    RECORD.write_text(json.dumps(found, indent=1) + "\n")


# -- this package's source ---------------------------------------------------------------------------------------------


def _touched(tree: ast.AST, known: dict[str, str]) -> Iterator[str]:
    """The attributes that code uses of the modules and classes with these local names, also through further names."""
    known = dict(known)
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            head, _, rest = ast.unparse(node.value).partition(".")
            if head in known and rest.isidentifier():
                known[node.targets[0].id] = f"{known[head]}.{rest}"
    yield from known.values()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            head, _, rest = ast.unparse(node).partition(".")
            if head in known:
                yield f"{known[head]}.{rest}"


def _inherited(node: ast.ClassDef, known: dict[str, str]) -> Iterator[str]:
    """The methods that a class may have from a base in verl: those that it defines, and those that it calls."""
    own = {one.name for one in node.body if isinstance(one, Definition)}
    called = {
        one.attr
        for one in ast.walk(node)
        if isinstance(one, ast.Attribute) and ast.unparse(one.value) in ("self", "super()")
    }
    for base in node.bases:
        if ast.unparse(base) in known:
            yield from (f"{known[ast.unparse(base)]}.{name}" for name in own | called)


def _patched() -> Iterator[tuple[str, Path]]:
    """The attributes that the patches of verl use of their argument, the imported module; and the patch's file."""
    for patch in (one for one in PATCHES if one.module.startswith("verl.")):
        file, _, name = patch.function.partition(":")
        path = Path(find_spec(file).origin)
        tree = ast.parse(path.read_text("utf-8"))
        functions = {one.name: one for one in tree.body if isinstance(one, ast.FunctionDef)}
        for one in (functions[name], *_handed_on(functions[name], functions)):
            yield from ((name, path) for name in _touched(one, {one.args.args[0].arg: patch.module}))


def _handed_on(patch: ast.FunctionDef, functions: dict[str, ast.FunctionDef]) -> Iterator[ast.FunctionDef]:
    """The functions of its file that a patch calls with its own argument."""
    for call in (one for one in ast.walk(patch) if isinstance(one, ast.Call) and one.args):
        name, first = (one.id if isinstance(one, ast.Name) else None for one in (call.func, call.args[0]))
        if name in functions and first == patch.args.args[0].arg:
            yield functions[name]


# -- verl's source -----------------------------------------------------------------------------------------------------


def _described(name: str) -> dict[str, str] | None:
    found = resolve(name)
    if found is None:
        return None
    arguments = "" if isinstance(found[1], ast.ClassDef) else ast.unparse(found[1].args)
    return {"arguments": arguments, "code": hashlib.sha256(_source(*found).encode()).hexdigest()[:16]}


def _source(name: str, node: Definition) -> str:
    """The text of a definition without docstrings, since another docstring changes nothing.

    The text and not `ast.unparse`, which prints one tree differently in Python 3.11 and 3.12.
    """
    parts = name.split(".")
    path = next(found for cut in range(len(parts) - 1, 0, -1) if (found := file(".".join(parts[:cut]))))
    inner = [one for one in ast.walk(node) if isinstance(one, Definition) and ast.get_docstring(one) is not None]
    left_out = {line for one in inner for line in range(one.body[0].lineno, one.body[0].end_lineno + 1)}
    start = min(one.lineno for one in (node, *node.decorator_list))
    lines = path.read_text("utf-8").splitlines()
    return "\n".join(lines[line - 1] for line in range(start, node.end_lineno + 1) if line not in left_out)
