"""The layout of the package: verl in the folders made for it, and imports that only run one way."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import pytest
from loaded_lines import ON_A_CPU, WHEN_ASKED
from paths import ROOT

from ragen_verl import names

PACKAGES = {"ragen_verl": ROOT / "ragen_verl", "ragen_lab": ROOT / "lab", "ragen_envs": ROOT / "envs"}
MODULES = {
    ".".join((name, *path.relative_to(root).with_suffix("").parts)).removesuffix(".__init__"): path
    for name, root in PACKAGES.items()
    for path in root.rglob("*.py")
}
# in the laboratory: qualify measures verl's workers and vLLM themselves, sft and convert call verl's trainer and merger
BOUND_TO_VERL = {
    "ragen_verl": {"training", "validation", "cpu", "patches", "doctor", "plugin.py", "vllm_plugin.py"},
    "ragen_lab": {"qualify", "sft", "convert"},
}
TRAINING = tuple(
    f"ragen_verl.{one}"
    for one in ("plugin", "vllm_plugin", "patches", "cpu", "cli.app", "cli.train", "training", "env.arguments")
)
"""What a training loads begins here: plugins, patches, the command, what verl imports by name, what environments do."""
MOST_LINES = 15_600
"""Own lines that a training may load if nothing of `WHEN_ASKED` asks. A commit that raises this says why."""
MOST_LINES_ON_A_CPU = 16_350
"""The same on a machine without an accelerator."""
MOST_LINES_EVER = 19_200
"""The same with all that can be asked for."""


def imported(path: Path) -> Iterator[str]:
    """Full names of everything that a file imports, also inside functions; not what only type checkers import."""
    todo: list[ast.AST] = [ast.parse(path.read_text())]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        todo += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def module_of(name: str) -> str | None:
    while name and name not in MODULES:
        name = name.rpartition(".")[0]
    return name or None


def graph() -> dict[str, set[str]]:
    """Module -> the modules of this repository that it imports."""
    return {
        module: {found for name in imported(path) if (found := module_of(name)) and found != module}
        for module, path in MODULES.items()
    }


def folder_of(module: str) -> str:
    path = MODULES[module]
    return path.parent.relative_to(ROOT).as_posix()


def circle(edges: Mapping[str, Iterable[str]]) -> list[str]:
    """Some circle of a graph, [] where there is none."""
    done: set[str] = set()
    way: list[str] = []

    def visit(node: str) -> list[str]:
        if node in way:
            return [*way[way.index(node) :], node]
        if node in done:
            return []
        way.append(node)
        for after in sorted(edges.get(node, ())):
            if found := visit(after):
                return found
        done.add(way.pop())
        return []

    return next((found for node in sorted(edges) if (found := visit(node))), [])


def test_only_the_folders_made_for_it_import_verl() -> None:
    for package, allowed in BOUND_TO_VERL.items():
        found = set()
        for path in PACKAGES[package].rglob("*.py"):
            if any(name.split(".")[0] in ("verl", "transfer_queue", "vllm") for name in imported(path)):
                found.add(path.relative_to(PACKAGES[package]).parts[0])
        assert found <= allowed


def test_the_layer_knows_nothing_of_the_laboratory() -> None:
    for package in ("ragen_verl", "ragen_envs"):
        for path in PACKAGES[package].rglob("*.py"):
            assert not [name for name in imported(path) if name.split(".")[0] == "ragen_lab"], path


def loaded(without: Collection[str] = ()) -> set[str]:
    """Modules of the layer that a training loads: all that `TRAINING` imports, also inside functions."""
    edges = graph()
    homes = tuple(f"ragen_verl.{one}." for one in ("advantages", "filter", "rollout.protocols"))
    todo = [one for one in MODULES if one.startswith((*homes, *TRAINING))]
    seen: set[str] = set()
    while todo:
        one = todo.pop()
        if one not in seen and one not in without:
            seen.add(one)
            package = one.rpartition(".")[0]
            todo += [*edges[one], *([package] if package in MODULES else [])]
    return {one for one in seen if one.startswith("ragen_verl")}


@pytest.mark.parametrize(
    ("without", "most"),
    [
        pytest.param(WHEN_ASKED, MOST_LINES, id="default"),
        pytest.param(WHEN_ASKED.keys() - ON_A_CPU.keys(), MOST_LINES_ON_A_CPU, id="cpu"),
        pytest.param((), MOST_LINES_EVER, id="all"),
    ],
)
def test_a_training_loads_no_more_lines_than_it_may(without: Collection[str], most: int) -> None:
    lines = sum(len(MODULES[one].read_text().splitlines()) for one in loaded(without))
    assert lines <= most, lines


def test_what_is_loaded_when_asked_is_there() -> None:
    assert WHEN_ASKED.keys() <= loaded() - loaded(WHEN_ASKED)


def test_one_module_knows_verls_data_plane() -> None:
    found = {
        path for path in MODULES.values() if any(name.split(".")[0] == "transfer_queue" for name in imported(path))
    }
    assert [path.name for path in found] == ["data_plane.py"]


def test_no_module_imports_itself_through_others() -> None:
    assert circle(graph()) == []


def test_no_folder_imports_itself_through_others() -> None:
    folders: dict[str, set[str]] = defaultdict(set)
    for module, others in graph().items():
        folders[folder_of(module)] |= {folder_of(other) for other in others} - {folder_of(module)}
    for top in ("ragen_verl", "lab"):  # what people import, what verl loads, and what all parts share
        folders.pop(top)
    assert circle(folders) == []


def test_environments_know_nothing_of_verl_or_torch() -> None:
    for path in PACKAGES["ragen_envs"].rglob("*.py"):
        assert not {name.split(".")[0] for name in imported(path)} & {"verl", "torch", "transfer_queue"}, path


def test_names_of_metrics_are_spelled_in_names_py_alone() -> None:
    known = [value for name, value in vars(names).items() if name.isupper() and "/" in value]
    prefixes = tuple({name.partition("/")[0] + "/" for name in known})
    for path in [*PACKAGES["ragen_verl"].rglob("*.py"), *PACKAGES["ragen_lab"].rglob("*.py")]:
        tree = ast.parse(path.read_text())
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docstrings]
        texts = [node.value for node in constants if isinstance(node.value, str)]
        assert not any(text.startswith(prefixes) for text in texts) or path.name == "names.py", path


@pytest.mark.parametrize(
    "folder",
    [path for name in ("ragen_verl", "lab") for path in ROOT.glob(f"{name}/**/") if any(path.glob("*.py"))],
    ids=str,
)
def test_every_folder_says_what_it_is_for(folder: Path) -> None:
    assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))


@pytest.mark.parametrize("file", [file for root in PACKAGES.values() for file in root.glob("**/__init__.py")], ids=str)
def test_what_a_package_offers_stands_in_its_all(file: Path) -> None:
    tree = ast.parse(file.read_text())
    offered = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    offered += [
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("ragen_")
        for alias in node.names
        if alias.asname != alias.name  # imported for its effect
    ]
    listed = next((ast.literal_eval(one.value) for one in tree.body if ast.unparse(one).startswith("__all__")), [])
    assert {name for name in offered if not name.startswith("_") and not name.isupper()} <= set(listed)


def top(tree: ast.Module) -> Iterator[ast.stmt]:
    """The statements at the top of a module, also those under a condition that is not `__name__ == "__main__"`."""
    for node in tree.body:
        if isinstance(node, ast.If) and "__name__" not in ast.unparse(node.test):
            yield from (*node.body, *node.orelse)
        else:
            yield node


def defined(tree: ast.Module) -> set[str]:
    """Names that a module gives to its own functions, classes and values."""
    names = set()
    for node in top(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}
    return names


def order(name: str) -> tuple[int, str]:
    """Ruff's order of `__all__`: constants, classes, the rest."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2), name


def test_public_names_of_modules_stand_in_all() -> None:
    for path in MODULES.values():
        tree = ast.parse(path.read_text())
        own = defined(tree)
        imported = {a.asname or a.name for node in top(tree) if isinstance(node, ast.ImportFrom) for a in node.names}
        listed = next(
            (ast.literal_eval(one.value) for one in tree.body if ast.unparse(one).startswith("__all__")), None
        )
        public = {name for name in own if not name.startswith("_")}
        assert listed is not None or not public, f"{path} has no __all__"
        lazy = "__getattr__" in own  # tests/test_public_api.py asks it for each name
        assert lazy or set(listed or ()) <= own | imported, f"{path} lists what it does not have"
        assert listed in (None, sorted(listed or (), key=order)), f"the __all__ of {path} is not sorted"
        assert public <= set(listed or ()), f"{path} has public names that __all__ lacks: an underscore, or the list"


def test_near_names_are_suggested_in_errors_py_alone() -> None:
    using = [path for path in PACKAGES["ragen_verl"].rglob("*.py") if any("difflib" in one for one in imported(path))]
    assert [path.name for path in using] == ["errors.py"]


def test_names_of_tests_are_short() -> None:
    for path in ROOT.glob("tests/**/test_*.py"):
        names = [node.name for node in ast.walk(ast.parse(path.read_text())) if hasattr(node, "name")]
        assert not [name for name in names if name and name.startswith("test_") and len(name) > 60], path


def test_no_two_files_of_tests_have_one_name() -> None:
    names = [path.name for path in ROOT.glob("tests/**/test_*.py")]  # the folders are no packages
    assert sorted(names) == sorted(set(names))


def test_the_architecture_page_names_every_folder() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    tree = text[text.index("## Folders") :]
    folders = [
        path for name in ("ragen_verl", "lab") for path in ROOT.glob(f"{name}/*/") if (path / "__init__.py").exists()
    ]
    assert [path.name for path in folders if f"{path.name}/" not in tree] == []
