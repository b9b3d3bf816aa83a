"""Ids, lazy loading, errors that help, and a third-party package found by its id."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import partial

import pytest
from paths import ROOT
from ragen_envs.bandit import Bandit

from ragen_verl import Env, make, register
from ragen_verl.env import check, ids, registry
from ragen_verl.errors import BadEnvKwargs, RecipeError, UnknownEnv

EXAMPLE = ROOT / "examples" / "my_env"


@pytest.fixture(autouse=True)
def forget_registrations(monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})


def test_bare_name_means_the_highest_version():
    register("Twice-v1", "ragen_envs.bandit:Bandit")
    register("Twice-v10", "ragen_envs.frozen_lake:FrozenLake")
    register("Twice-v9", "ragen_envs.bandit:Bandit")
    assert type(make("Twice")).__name__ == "FrozenLake"
    assert type(make("Twice-v9")).__name__ == "Bandit"
    assert type(make("Sokoban")).__name__ == "Sokoban"


@pytest.mark.parametrize(
    ("asked", "nearest"),
    [
        ("Sokobann-v0", "Sokoban-v0"),
        ("sokoban", "Sokoban-v0"),
        ("FrozenLake-v7", "FrozenLake-v0"),
        ("frozen_lake", "FrozenLake-v0"),
        ("", None),
        ("zzz", None),
    ],
)
def test_unknown_id_names_the_nearest_and_lists_all(asked, nearest):
    with pytest.raises(UnknownEnv) as error:
        make(asked)
    assert all(id in str(error.value) for id in ids())
    if nearest:
        assert f"did you mean '{nearest}'?" in str(error.value)


@pytest.mark.parametrize("call", [lambda id, kw: make(id, **kw), check])
def test_unknown_kwargs_are_refused_before_building(call):
    with pytest.raises(BadEnvKwargs, match=r"'sizes'; it accepts size, frozen, success_rate, observation_format"):
        call("FrozenLake-v0", {"sizes": 4})
    with pytest.raises(BadEnvKwargs, match="accepts dim, boxes"):
        call("LargerSokoban", {"colour": 1})
    call("LargerSokoban-v0", {"boxes": 1})


def test_check_does_not_build():
    def never() -> Env:
        raise AssertionError("built")

    register("Never-v0", never)
    check("Never-v0", {})
    check("Never-v0")


def test_missing_kwargs_are_named():
    class Needy(Bandit):
        def __init__(self, table):
            super().__init__()

    register("Needy-v0", Needy)
    with pytest.raises(BadEnvKwargs, match="needs 'table'"):
        make("Needy-v0")
    make("Needy-v0", table=1)


def test_register_takes_strings_classes_partials_and_defaults():
    register("A-v0", "ragen_envs.bandit:Bandit", low="Calm", high="Wild")
    register("B-v0", Bandit, low="Calm", high="Wild")
    register("C-v0", partial(Bandit, low="Calm", high="Wild"))
    for id in ("A-v0", "B-v0", "C-v0"):
        assert make(id).high == "Wild"
        assert make(id, high="Storm").high == "Storm"


def test_same_registration_twice_is_harmless_another_is_not():
    register("Mine-v0", Bandit, low="Calm")
    register("Mine-v0", Bandit, low="Calm")
    with pytest.raises(RecipeError, match="taken by this process"):
        register("Mine-v0", Bandit)
    with pytest.raises(RecipeError, match="taken by ragen-verl"):
        register("Sokoban-v0", Bandit)


def test_ids_need_a_version():
    with pytest.raises(RecipeError, match="'Mine-v0'"):
        register("Mine", Bandit)


@pytest.mark.parametrize(
    "target", ["no_such_module:Env", "ragen_envs.bandit:NoSuch", "ragen_envs.bandit:PAIRS", "ragen_envs.bandit"]
)
def test_broken_entry_points_say_whose_they_are(target):
    register("Broken-v0", target)
    with pytest.raises(RecipeError, match="Broken-v0 of this process"):
        make("Broken-v0")


@pytest.mark.parametrize("target", [dict, "builtins:dict", lambda: {}])
def test_something_that_is_no_env_is_refused(target):
    register("NoEnv-v0", target)
    with pytest.raises(RecipeError, match=r"derived from ragen_verl\.Env"):
        make("NoEnv-v0")


def test_declared_environments_load_lazily():
    code = "import sys; from ragen_verl.env import ids; ids(); print([m for m in sys.modules if 'ragen_envs' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.fixture(scope="module")
def installed_example(tmp_path_factory):
    folder = tmp_path_factory.mktemp("example")
    source, target = folder / "my_env", folder / "site"
    shutil.copytree(EXAMPLE, source)  # a build leaves files behind: not in the repository
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--target", str(target), str(source)], check=True, timeout=120)
    return target


def test_example_package_is_found_by_its_id(installed_example):
    code = """
from gymnasium.utils.env_checker import check_env
from ragen_verl import make
from ragen_verl.env import ids
assert "GuessNumber-v0" in ids()
env = make("GuessNumber", largest=4)
print(env.reset(seed=3)[0])
assert not env.step("four").info["action_is_valid"]
step = env.step(env.oracle()[0])
print(step.reward, step.terminated, step.info["success"])
check_env(make("GuessNumber-v0"))
try:
    make("GuessNumber-v0", smallest=1)
except ValueError as error:
    print(error)
"""
    environment = {**os.environ, "PYTHONPATH": str(installed_example), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "No guess yet.",
        "1.0 True True",
        "GuessNumber-v0 does not take 'smallest'; it accepts largest.",
    ]


def test_package_installed_after_the_first_look_is_found(installed_example, monkeypatch):
    with pytest.raises(UnknownEnv):
        make("GuessNumber-v0")
    monkeypatch.syspath_prepend(str(installed_example))
    assert make("GuessNumber-v0").largest == 16
    registry._declared.cache_clear()


def test_two_packages_with_one_id_are_refused(tmp_path, monkeypatch):
    for name in ("one", "two"):
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[ragen_verl.envs]\nClash-v0 = {name}:Env\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry._declared.cache_clear()
    with pytest.raises(RecipeError, match=r"packages (one and two|two and one) both declare Clash-v0"):
        ids()
    monkeypatch.undo()
    registry._declared.cache_clear()
    assert "Sokoban-v0" in ids()
