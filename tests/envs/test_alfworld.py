"""ALFWorld and TextWorld: the real packages where they are installed, and what can go wrong without them."""

from __future__ import annotations

import importlib.util
import json
import random
import sys
from pathlib import Path

import numpy as np
import pytest
from environment_contract import check_contract, check_step, play_oracle
from ragen_envs import textworld
from ragen_envs.alfworld import ALFWorld
from ragen_envs.textworld import tidy

from ragen_verl import make
from ragen_verl.errors import MissingExtra, RecipeError


def installed(*modules: str) -> bool:
    return all(importlib.util.find_spec(module) for module in modules)


with_textworld = pytest.mark.skipif(
    not installed("textworld", "jericho"), reason='pip install "ragen-verl[textworld]" (jericho is built from source)'
)
with_alfworld = pytest.mark.skipif(
    not installed("alfworld", "textworld", "jericho", "fast_downward"),
    reason='pip install "ragen-verl[alfworld]" (its planner is built from source)',
)

#: Receptacles of the test's kitchen with their types, and things with theirs and what holds for them.
RECEPTACLES = {
    "countertop_bar_1": "CounterTopType",
    "fridge_bar_1": "FridgeType",
    "microwave_bar_1": "MicrowaveType",
    "cabinet_bar_1": "CabinetType",
}
THINGS = {"egg_bar_1": ("EggType", "countertop_bar_1"), "mug_bar_1": ("MugType", "cabinet_bar_1")}


def problem(thing: str, target: str, mark: str) -> str:
    """A game in the PDDL of ALFWorld's domain: some `thing` is to be `mark` and in some `target`."""
    facts = ["(atLocation agent1 loc_bar_0)"]
    for number, (name, kind) in enumerate(RECEPTACLES.items(), 1):
        facts += [f"(receptacleAtLocation {name} loc_bar_{number})", f"(receptacleType {name} {kind})"]
        facts += [f"(canContain {kind} {thing_kind})" for thing_kind, _ in THINGS.values()]
        if kind != "CounterTopType":
            facts.append(f"(openable {name})")
    for name, (kind, where) in THINGS.items():
        place = list(RECEPTACLES).index(where) + 1
        facts += [
            f"(objectType {name} {kind})",
            f"(inReceptacle {name} {where})",
            f"(objectAtLocation {name} loc_bar_{place})",
        ]
        facts += [f"({can} {name})" for can in ("pickupable", "heatable", "coolable", "cleanable")]
    receptacle_types, thing_types = sorted(set(RECEPTACLES.values())), sorted({kind for kind, _ in THINGS.values()})
    return f"""
(define (problem kitchen) (:domain alfred)
  (:objects
    agent1 - agent
    {" ".join(f"loc_bar_{number}" for number in range(len(RECEPTACLES) + 1))} - location
    {" ".join(RECEPTACLES)} - receptacle
    {" ".join(THINGS)} - object
    {" ".join([*receptacle_types, "SinkBasinType"])} - rtype
    {" ".join([*thing_types, "KnifeType", "ButterKnifeType"])} - otype)
  (:init (= (total-cost) 0) {" ".join(facts)})
  (:goal (and (exists (?r - receptacle) (exists (?o - object)
    (and (inReceptacle ?o ?r) (objectType ?o {thing}) (receptacleType ?r {target}) ({mark} ?o))))))
  (:metric minimize (total-cost)))
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """Data as alfworld-download leaves them: games in the package's own logic, and three to be passed over."""
    import alfworld as package

    logic = Path(package.__file__).parent / "data"
    root = tmp_path_factory.mktemp("alfworld")
    heat = (
        "pick_heat_then_place_in_recep-Egg-None-Fridge-1",
        "EggType",
        "FridgeType",
        "isHot",
        "put a hot egg in fridge",
    )
    cool = (
        "pick_cool_then_place_in_recep-Mug-None-CounterTop-1",
        "MugType",
        "CounterTopType",
        "isCool",
        "cool some mug",
    )

    def write(
        split: str, folder: str, thing: str, target: str, mark: str, words: str, solvable: bool | None = True
    ) -> None:
        where = root / "json_2.1.1" / split / folder / "trial_1"
        where.mkdir(parents=True)
        game = {
            "pddl_domain": (logic / "alfred.pddl").read_text(),
            "grammar": (logic / "alfred.twl2").read_text().replace("UNKNOWN GOAL", words),
            "pddl_problem": problem(thing, target, mark),
        }
        game |= {} if solvable is None else {"solvable": solvable}
        (where / "game.tw-pddl").write_text(json.dumps(game))
        (where / "traj_data.json").write_text("{}")

    write("train", *heat)
    write("train", *cool)
    write("train", heat[0].replace("Egg", "EggSliced"), *heat[1:])
    write("train", heat[0].replace("-1", "-2"), *heat[1:], solvable=False)
    write("train", heat[0].replace("-1", "-3"), *heat[1:], solvable=None)
    write("valid_seen", *heat)
    return root


@pytest.mark.slow
@with_alfworld
def test_the_contract_of_alfworld(data):
    check_contract("ALFWorld-v0", data_dir=str(data), split="eval_in_distribution")


@with_alfworld
def test_a_game_of_alfworld_is_played_and_pays_ten(data):
    env = make("ALFWorld-v0", data_dir=str(data), tasks=["pick_heat_then_place_in_recep"])
    first, _ = env.reset(seed=0)
    task, around, commands = first.splitlines()
    assert task == "Your task is to: put a hot egg in fridge."
    assert (
        all(name in around for name in ("countertop 1", "fridge 1", "microwave 1", "cabinet 1")) and "egg" not in around
    )
    assert "go to fridge 1" in commands
    way = ["go to countertop 1", "take egg 1 from countertop 1", "go to microwave 1", "heat egg 1 with microwave 1"]
    way += ["GO TO  fridge 1", "open fridge 1", "put egg 1 in/on fridge 1"]
    steps = [check_step(env, command) for command in way]
    assert "You pick up the egg 1 from the countertop 1." in steps[1].observation
    assert [step.reward for step in steps] == [0.0] * 6 + [10.0]
    assert steps[-1].terminated and steps[-1].info["success"] and env.admissible_commands() == []


@with_alfworld
def test_seeds_choose_among_the_solvable_games_asked_for(data):
    env = make("ALFWorld-v0", data_dir=str(data))
    seen = [env.reset(seed=seed)[0].splitlines()[0] for seed in range(8)]
    assert set(seen) == {"Your task is to: put a hot egg in fridge.", "Your task is to: cool some mug."}
    assert len(ALFWorld(data_dir=str(data))._files) == 2
    with pytest.raises(RecipeError, match="no solvable games of look_at_obj_in_light"):
        make("ALFWorld-v0", data_dir=str(data), tasks=["look_at_obj_in_light"])


@with_alfworld
def test_alfworlds_planner_goes_on_from_where_the_player_is(data, monkeypatch):
    monkeypatch.setenv("ALFWORLD_DATA", str(data))
    env = make("ALFWorld-v0", tasks=["pick_cool_then_place_in_recep"])
    env.reset(seed=0)
    for command in ("go to cabinet 1", "open cabinet 1", "close cabinet 1", "go to fridge 1"):
        assert check_step(env, command).info["action_is_valid"]
    steps, reward = play_oracle(env)
    assert reward == 10 and len(steps) <= 8


@with_alfworld
def test_two_games_at_once_do_not_mix(data):
    one, other = (make("ALFWorld-v0", data_dir=str(data), split="eval_in_distribution") for _ in range(2))
    one.reset(seed=0)
    other.reset(seed=0)
    one.step("go to countertop 1")
    assert "take egg 1 from countertop 1" in one.admissible_commands()
    one.step("take egg 1 from countertop 1")
    other.step("go to countertop 1")
    assert "take egg 1 from countertop 1" in other.admissible_commands()
    other.close()
    assert one.step("inventory").observation.splitlines()[1] == "You are carrying: a egg 1."
    assert "egg 1" in other.step("examine countertop 1").observation  # opened again, where it was


@with_alfworld
def test_alfworld_without_its_data_says_how_to_get_them(tmp_path, monkeypatch):
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))
    with pytest.raises(RecipeError, match="run alfworld-download, or set ALFWORLD_DATA") as error:
        make("ALFWorld-v0")
    assert str(tmp_path) in str(error.value)


@pytest.mark.parametrize(
    ("id", "extra", "missing"), [("ALFWorld-v0", "alfworld", "alfworld"), ("TextWorld-v0", "textworld", "textworld")]
)
def test_without_the_package_the_message_names_the_extra(id, extra, missing, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(textworld.importlib.util, "find_spec", lambda name: None if name == missing else found(name))
    with pytest.raises(MissingExtra, match=rf"needs .*{missing}.*pip install \"ragen-verl\[{extra}\]\""):
        make(id)


@pytest.mark.parametrize(
    ("id", "kwargs", "match"),
    [
        ("ALFWorld-v0", {"split": "val"}, "split"),
        ("ALFWorld-v0", {"tasks": ["cook"]}, "tasks"),
        ("ALFWorld-v0", {"data_dir": 3}, "data_dir"),
        ("TextWorld-v0", {"rooms": 0}, "rooms"),
        ("TextWorld-v0", {"objects": True}, "objects"),
        ("TextWorld-v0", {"quest_length": "3"}, "quest_length"),
        ("TextWorld-v0", {"number": 0}, "number"),
        ("TextWorld-v0", {"games": 3}, "games"),
        ("TextWorld-v0", {"games": "games", "rooms": 5}, "give games alone"),
    ],
)
def test_bad_arguments(id, kwargs, match):
    with pytest.raises(RecipeError, match=match):
        make(id, **kwargs)


@with_textworld
def test_a_folder_without_games_is_refused(tmp_path):
    (tmp_path / "lonely.z8").touch()
    with pytest.raises(RecipeError, match="tw-make"):
        make("TextWorld-v0", games=str(tmp_path))


def test_prompt_banner_and_control_characters_are_dropped():
    assert tidy("\n\n  -= Attic =-\n\nA chest.\x1b[2J \n\n>            -= Attic =-0/2") == "-= Attic =-\nA chest. [2J"
    assert tidy("You take > nothing.") == "You take > nothing."
    assert tidy("> -= Attic =-0/2") == ""


@pytest.mark.slow
@with_textworld
def test_games_are_made_and_played_without_global_state(tmp_path):
    before = random.getstate(), np.random.get_state()[1].tolist(), list(sys.argv)
    size = {"rooms": 2, "objects": 2, "quest_length": 2, "number": 2, "cache_dir": str(tmp_path)}
    check_contract("TextWorld-v0", **size)
    env = make("TextWorld-v0", **size)
    for seed in range(6):
        assert env.reset(seed=seed)[0].startswith("Objective: ")
        steps, reward = play_oracle(env)
        assert reward == pytest.approx(1.0) and steps[-1].info["success"]
    assert len(list(tmp_path.iterdir())) == 4  # two games, each .z8 and .json
    again = make("TextWorld-v0", games=str(tmp_path))
    assert len({again.reset(seed=seed)[0] for seed in range(12)}) == 2
    assert (random.getstate(), np.random.get_state()[1].tolist(), list(sys.argv)) == before
