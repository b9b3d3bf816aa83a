from __future__ import annotations

import json
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest
import yaml
from benchmark_packages import BENCHMARKS
from hypothesis import given
from hypothesis import strategies as st
from paths import ROOT
from typer.testing import CliRunner

from ragen_verl.cli import app
from ragen_verl.cli.env_arguments import parse_kwargs
from ragen_verl.cli.recipes import PARTS, find, summary
from ragen_verl.env import registry
from ragen_verl.errors import RecipeError

COMMANDS = [
    "train",
    "resume",
    "eval",
    "leaderboard",
    "score",
    "gate",
    "runs",
    "runs list",
    "runs compare",
    "sweep",
    "reproduce",
    "diagnose",
    "convert",
    "doctor",
    "env",
    "env list",
    "env show",
    "env play",
    "env check",
    "recipes",
]


def run(*args: str, **env: str):
    return CliRunner().invoke(app, list(args), env={"COLUMNS": "200", "TERM": "dumb", **env})


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_explains_every_command(command):
    result = run(*command.split(), "--help")
    assert result.exit_code == 0
    assert "Usage:" in result.output
    for name in COMMANDS if not command else []:
        assert name.split()[0] in result.output


def test_help_shows_defaults_that_are_words():
    """Rich takes [...] for markup and prints nothing where it is not escaped."""
    assert "[default: runs/eval/RECIPE]" in run("eval", "--help").output
    for file in (ROOT / "ragen_verl" / "cli").glob("*.py"):
        assert "  [default:" not in file.read_text(), file


def test_no_command_loads_the_stack_before_it_runs():
    code = "import sys, ragen_verl.cli; print(*{'torch', 'verl', 'ray', 'vllm', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_version_is_the_installed_one():
    from importlib.metadata import version

    assert run("--version").output.strip() == version("ragen-verl")


def test_a_user_error_is_one_sentence_and_exit_code_2():
    result = run("env", "show", "Sokobann")
    assert result.exit_code == 2
    assert "Sokoban-v0" in result.stderr and "Traceback" not in result.output
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_user_error_keeps_its_traceback_on_demand():
    result = run("env", "show", "Sokobann", RAGEN_VERL_TRACEBACK="1")
    assert isinstance(result.exception, RecipeError)


def test_env_list_shows_every_id_and_survives_a_broken_package(monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    registry.register("Broken-v0", "no_such_module:Env")
    result = run("env", "list")
    assert result.exit_code == 0
    for id in registry.ids():
        assert id in result.output
    assert "no_such_module" in result.output
    assert all(f"{prefix}:NAME" in result.output for prefix in registry.adapters() if not prefix.startswith("http"))
    assert "Up | Down | Left | Right" in result.output


# ALFWorld, TextWorld and benchmarks need packages and data of their own, and have tests of their own
@pytest.mark.parametrize("id", sorted({*registry.ids()} - {"ALFWorld-v0", "TextWorld-v0"} - BENCHMARKS))
def test_env_show_draws_the_state_that_the_seed_gives(id):
    result = run("env", "show", id, "--seed", "7")
    assert result.exit_code == 0, result.output
    env = registry.make(id)
    observation, _ = env.reset(seed=7)
    assert observation in result.output
    assert env.instruction in result.output


def test_env_show_passes_arguments():
    result = run("env", "show", "FrozenLake", "size=6")
    env = registry.make("FrozenLake", size=6)
    assert env.reset(seed=0)[0] in result.output


def test_env_show_refuses_unknown_arguments():
    result = run("env", "show", "FrozenLake", "sice=6")
    assert result.exit_code == 2 and "size" in result.stderr


@given(st.dictionaries(st.text("abcxyz_", min_size=1), st.integers() | st.booleans() | st.lists(st.integers())))
def test_arguments_are_read_back(kwargs):
    assert parse_kwargs([f"{key}={json.dumps(value)}" for key, value in kwargs.items()]) == kwargs


@pytest.mark.parametrize("pair", ["size", "size=[1, 2"])
def test_arguments_that_cannot_be_read_are_refused(pair):
    with pytest.raises(RecipeError, match="size"):
        parse_kwargs([pair])


def test_recipes_are_listed_with_a_summary_and_parts_apart():
    recipes, parts, sweeps = (dict(find(kind)) for kind in ("recipe", "part", "sweep"))
    root = Path(str(files("ragen_verl.recipes")))
    there = {path.relative_to(root).with_suffix("").as_posix() for path in root.rglob("*.yaml")}
    assert {*recipes, *parts, *sweeps} == there
    assert "nano/frozen_lake" in recipes
    assert all("/" in name and name.split("/")[0] not in PARTS for name in recipes)
    assert all(text and not text.startswith("@") for text in {**recipes, **parts, **sweeps}.values())
    assert "nano/frozen_lake" in run("recipes").output
    assert "nano/frozen_lake" not in run("recipes", "--parts").output
    assert all(name in run("recipes", "--tables").output for name in sweeps)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# @package _global_\n# Learns quickly. And more.\na: 1\n", "Learns quickly"),
        ("# @package _global_\n# ragen-verl train a/b\n# Two\n# lines.\n# Not this.\n", "Two lines"),
        ("\n# After a blank line\n\n# not this\n", "After a blank line"),
        ("a: 1\n# too late\n", ""),
    ],
)
def test_summary_of_a_recipe(text, expected):
    assert summary(text) == expected


@pytest.mark.parametrize(
    ("recipe", "hint"), [("nano/frozenlake", "nano/frozen_lake"), ("ragen", "part"), ("/tmp/x.yaml", "recipes")]
)
def test_unknown_recipes_are_refused_before_anything_starts(recipe, hint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for command in (["train"], ["eval", "--policy", "random"], ["collect", "--out", "new.parquet"]):
        result = run(*command, recipe)
        assert result.exit_code == 2 and hint in result.stderr, command
    assert list(tmp_path.iterdir()) == []


def test_train_hands_over_recipe_overrides_and_folder(monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr("ragen_verl.runs.launch.train", lambda *args: calls.append(args) or 3)
    monkeypatch.chdir(tmp_path)
    result = run("train", "nano/frozen_lake", "trainer.total_training_steps=2", "ragen.run.dir=here")
    assert result.exit_code == 3
    ((recipe, overrides, folder),) = calls
    assert recipe == "nano/frozen_lake" and folder.path == tmp_path / "here"
    assert overrides == ["trainer.total_training_steps=2", f"ragen.run.dir={tmp_path}/here"]


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("trainer.total_training_step=5", "did you mean trainer.total_training_steps?"),
        ("algorithm=starpo", "did you mean starpo_s?"),
        ("trainer.save_freq=5.5", "whole number"),
        ("trainer.logger=[wandbb]", "did you mean wandb?"),
        ("actor_rollout_ref.rollout.temperature=-1", "above 0"),
        ("ragen.run.dir=file", "is a file"),
        ("actor_rollout_ref.model.path=./[/tmp]", "[/tmp]"),
    ],
)
def test_a_mistake_is_one_sentence_and_no_folder(override, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    result = run("train", "nano/frozen_lake", override)
    assert result.exit_code == 2 and words in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_checking_a_recipe_loads_neither_torch_nor_verl(tmp_path):
    code = (
        "import sys\nfrom ragen_verl.cli.prepare import prepare\nprepare('nano/frozen_lake', [], machine=False)\n"
        "print(*{'torch', 'verl', 'ray', 'vllm', 'transformers'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.strip() == "" and list(tmp_path.iterdir()) == []


def test_a_dry_run_prints_the_whole_recipe_and_starts_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("train", "nano/frozen_lake", "--dry-run", "--full", "trainer.save_freq=7")
    assert result.exit_code == 0
    found = yaml.safe_load(result.stdout)
    assert found["trainer"]["save_freq"] == 7 and found["data"]["train_batch_size"] == 16
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_yaml_is_refused_with_its_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("# @package _global_\ntrainer: {a: [1\n")
    result = run("train", "mine.yaml")
    assert result.exit_code == 2 and "mine.yaml is no YAML, line 3" in result.stderr


def test_a_file_that_would_never_be_read_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nano_base.yaml").write_text("trainer: {}\n")
    result = run("train", "nano_base.yaml")
    assert result.exit_code == 2 and "call yours differently" in result.stderr


def test_unknown_options_are_usage_errors():
    assert run("train", "nano/frozen_lake", "--steps", "3").exit_code == 2


def test_training_loads_no_laboratory_and_no_other_command():
    code = (
        "import sys\nfrom typer.testing import CliRunner\nfrom ragen_verl.cli import app\n"
        "print(CliRunner().invoke(app, ['train', 'nano/frozen_lake', 'trainer.nnodes=0']).exit_code)\n"
        "others = ('ragen_lab', 'ragen_verl.cli.env', 'ragen_verl.doctor')\n"
        "print([one for one in sys.modules if one.startswith(others)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["2", "[]"]


def test_a_missing_extra_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.setitem(sys.modules, "scipy", None)
    for module in [one for one in sys.modules if one.startswith(("ragen_lab.report", "ragen_lab.statistics"))]:
        monkeypatch.delitem(sys.modules, module)
    result = run("report", str(ROOT))
    assert result.exit_code == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert 'which is not installed: make add PACKAGE="ragen-verl[lab]"' in result.stderr
