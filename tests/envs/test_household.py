"""Household: rules of the room, task types, splits, plans."""

from __future__ import annotations

import numpy as np
import pytest
from environment_contract import TEXTS, check_contract, check_step, play_oracle
from hypothesis import given, settings
from hypothesis import strategies as st
from ragen_envs.household import Household
from ragen_envs.household.world import HAND, ROOMS, TASKS, THINGS, House, Task, furnish, kind, tasks_of

from ragen_verl import make
from ragen_verl.errors import RecipeError


def kitchen(type: str = "pick_and_place_simple", target: str = "fridge", things: tuple[str, ...] = ()) -> Household:
    """A kitchen with an egg on the countertop, a cup in the cabinet, and what `things` adds to the countertop."""
    env = Household()
    env.reset(seed=0)
    receptacles = ("countertop 1", "cabinet 1", "fridge 1", "microwave 1", "sinkbasin 1")
    at = {"egg 1": "countertop 1", "cup 1": "cabinet 1", **dict.fromkeys(things, "countertop 1")}
    env.house = House(Task(type, "kitchen", "egg", target), receptacles, at)
    env._said = env._tell("look")
    return env


def play(env: Household, *commands: str) -> list:
    steps = [check_step(env, command) for command in commands]
    assert all(step.info["action_is_valid"] for step in steps)
    return steps


def test_contract():
    check_contract("Household-v0")
    check_contract("Household-v0", tasks=["look_at_obj_in_light"], split="val", show_commands=False)


def test_an_egg_is_carried_into_the_fridge():
    env = kitchen()
    assert env.render().splitlines()[1:] == [
        "You are in the middle of a kitchen. Around you there are a countertop 1, a cabinet 1, a fridge 1, "
        "a microwave 1, a sinkbasin 1.",
        "Admissible commands: go to countertop 1, go to cabinet 1, go to fridge 1, go to microwave 1, "
        "go to sinkbasin 1, inventory, look",
    ]
    steps = play(env, "go to countertop 1", "take egg 1 from countertop 1", "go to fridge 1", "open fridge 1")
    told = [step.observation.splitlines()[1] for step in steps]
    assert told == [
        "You are at the countertop 1. On the countertop 1 you see an egg 1.",
        "You take the egg 1 from the countertop 1.",
        "You are at the fridge 1. The fridge 1 is closed.",
        "You open the fridge 1. The fridge 1 is open. In the fridge 1 you see nothing.",
    ]
    last = check_step(env, "move egg 1 to fridge 1")
    assert (last.reward, last.terminated, last.info["success"]) == (10.0, True, True)
    assert all(step.reward == 0 and not step.terminated for step in steps)


def test_what_is_closed_is_out_of_sight_and_reach():
    env = kitchen()
    (arrival,) = play(env, "go to cabinet 1")
    assert "cup" not in arrival.observation and "take cup 1 from cabinet 1" not in env.admissible_commands()
    assert not check_step(env, "take cup 1 from cabinet 1").info["action_is_valid"]
    opened, closed = play(env, "open cabinet 1", "close cabinet 1")
    assert "cup 1" in opened.observation and "cup" not in closed.observation
    play(env, "go to countertop 1", "take egg 1 from countertop 1", "go to cabinet 1")
    assert not check_step(env, "move egg 1 to cabinet 1").info["action_is_valid"]


def test_the_hand_holds_one_thing():
    env = kitchen(things=("egg 2",))
    play(env, "go to countertop 1", "take egg 1 from countertop 1")
    assert not check_step(env, "take egg 2 from countertop 1").info["action_is_valid"]
    held = play(env, "inventory")[0]
    assert held.observation.splitlines()[1] == "You hold an egg 1."


def test_only_commands_that_change_something_are_effective():
    env = kitchen()
    steps = play(env, "look", "inventory", "go to countertop 1", "examine countertop 1", "examine egg 1", "look")
    assert [step.info["action_is_effective"] for step in steps] == [False, False, True, False, False, False]


@pytest.mark.parametrize(
    ("type", "command", "appliance", "mark"),
    [
        ("pick_clean_then_place_in_recep", "clean", "sinkbasin 1", "clean"),
        ("pick_heat_then_place_in_recep", "heat", "microwave 1", "hot"),
        ("pick_cool_then_place_in_recep", "cool", "fridge 1", "cold"),
    ],
)
def test_a_thing_must_be_treated_before_it_counts(type, command, appliance, mark):
    env = kitchen(type, target="countertop")
    play(env, "go to countertop 1", "take egg 1 from countertop 1")
    untreated = play(env, "move egg 1 to countertop 1", "take egg 1 from countertop 1", f"go to {appliance}")
    assert not any(step.terminated for step in untreated)
    play(env, f"{command} egg 1 with {appliance}")
    assert play(env, "examine egg 1")[0].observation.splitlines()[1] == f"The egg 1 is {mark}."
    last = play(env, "go to countertop 1", "move egg 1 to countertop 1")[-1]
    assert last.info["success"] and last.reward == 10


def test_heat_undoes_cold_and_cold_heat_but_neither_dirties():
    env = kitchen("pick_cool_then_place_in_recep", target="countertop")
    play(env, "go to countertop 1", "take egg 1 from countertop 1", "go to sinkbasin 1", "clean egg 1 with sinkbasin 1")
    play(env, "go to fridge 1", "cool egg 1 with fridge 1", "go to microwave 1", "heat egg 1 with microwave 1")
    assert env.house.marks["egg 1"] == {"clean", "hot"}
    last = play(env, "go to countertop 1", "move egg 1 to countertop 1")[-1]
    assert not last.terminated


def test_a_second_treatment_changes_nothing():
    env = kitchen()
    play(env, "go to countertop 1", "take egg 1 from countertop 1", "go to sinkbasin 1")
    first, second = play(env, "clean egg 1 with sinkbasin 1", "clean egg 1 with sinkbasin 1")
    assert first.info["action_is_effective"] and not second.info["action_is_effective"]


def test_two_things_are_needed_where_two_are_asked_for():
    env = kitchen("pick_two_obj_and_place", target="sinkbasin", things=("egg 2",))
    bring = "go to countertop 1", "take egg {} from countertop 1", "go to sinkbasin 1", "move egg {} to sinkbasin 1"
    first = play(env, *(command.format(1) for command in bring))
    assert not first[-1].terminated
    assert play(env, *(command.format(2) for command in bring))[-1].info["success"]


def test_two_things_in_two_receptacles_are_not_together():
    env = kitchen("pick_two_obj_and_place", target="diningtable", things=("egg 2", "egg 3"))
    env.house.receptacles += ("diningtable 1", "diningtable 2")
    env.house.at |= {"egg 1": "diningtable 1", "egg 2": "diningtable 2"}
    assert not play(env, "look")[0].terminated
    play(env, "go to diningtable 1")
    assert play_oracle(env)[1] == 10


@pytest.mark.parametrize("lamp_first", [True, False])
def test_a_thing_is_looked_at_in_the_light_of_the_lamp(lamp_first):
    env = Household()
    env.reset(seed=0)
    task = Task("look_at_obj_in_light", "bedroom", "book", "desklamp")
    env.house = House(task, ("bed 1", "desk 1"), {"book 1": "bed 1", "desklamp 1": "desk 1"})
    lamp, book = ("go to desk 1", "turn on desklamp 1"), ("go to bed 1", "take book 1 from bed 1")
    steps = play(env, *(lamp + book + lamp[:1] if lamp_first else book + lamp))
    assert [step.terminated for step in steps] == [False] * (len(steps) - 1) + [True]
    assert steps[-1].reward == 10


@pytest.mark.parametrize(
    "spelling",
    ["put egg 1 in/on fridge 1", "PUT  egg 1 in fridge 1 ", "place egg 1 into fridge 1", "Move Egg 1 To Fridge 1"],
)
def test_other_spellings_are_understood(spelling):
    env = kitchen()
    play(env, "go to countertop 1", "take egg 1 from countertop 1", "go to fridge 1", "open fridge 1")
    assert check_step(env, spelling).info["success"]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), picks=st.lists(st.integers(0, 10**6), max_size=30), text=TEXTS)
def test_exactly_the_listed_commands_are_valid(seed, picks, text):
    env = make("Household-v0")
    env.reset(seed=seed)
    things = set(env.house.at)
    for pick in picks:
        listed = env.admissible_commands()
        assert env.render().endswith(", ".join(listed))
        assert not check_step(env, text).info["action_is_valid"]
        step = check_step(env, listed[pick % len(listed)])
        assert step.info["action_is_valid"] and set(env.house.at) == things
        assert set(env.house.at.values()) <= {*env.house.receptacles, HAND}
        assert sum(where == HAND for where in env.house.at.values()) <= 1
        if step.terminated:
            break


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), picks=st.lists(st.integers(0, 10**6), max_size=25))
def test_the_oracle_solves_the_task_from_anywhere(seed, picks):
    env = make("Household-v0")
    env.reset(seed=seed)
    for pick in picks:
        listed = env.admissible_commands()
        if listed:
            env.step(listed[pick % len(listed)])
    plan = env.oracle()
    steps, reward = play_oracle(env)
    assert len(steps) == len(plan) <= 15 and (reward == 10 or not plan) and env.house.solved()


@pytest.mark.parametrize("type", TASKS)
def test_every_task_can_be_done_and_is_not_done_at_the_start(type):
    env = Household()
    for seed, task in enumerate(tasks_of(type, None)):
        house = furnish(task, np.random.default_rng(seed))
        assert not house.solved() and not any(map(house.delivered, house.at))
        env.reset(seed=0)
        env.house = house
        plan = env.oracle()
        steps = play(env, *plan)
        assert steps[-1].info["success"] and len(plan) <= 12
        assert all(step.info["action_is_effective"] for step in steps)


def test_rooms_are_furnished_within_their_bounds():
    for seed in range(60):
        env = make("Household-v0")
        env.reset(seed=seed)
        house, room = env.house, env.house.task.room
        assert 7 <= len(house.receptacles) <= 27 and 7 <= len(house.at) <= 16
        for name, (low, high) in ROOMS[room].items():
            count = sum(kind(receptacle) == name for receptacle in house.receptacles)
            assert low <= count <= high
        for thing, where in house.at.items():
            assert kind(thing) == "desklamp" or kind(where) in THINGS[room][kind(thing)].places


@pytest.mark.parametrize("type", TASKS)
def test_train_and_val_ask_for_different_things(type):
    train, val = tasks_of(type, "train"), tasks_of(type, "val")
    assert train and val and not set(train) & set(val) and len(train) > 2 * len(val)
    assert sorted(train + val) == sorted(tasks_of(type, None)) and len(set(train + val)) == len(train + val)


def test_the_arguments_choose_what_is_asked_for():
    for split in ("train", "val"):
        env = make("Household-v0", tasks=list(TASKS[2:4]), split=split)
        seen = set()
        for seed in range(80):
            env.reset(seed=seed)
            seen.add(env.house.task)
        assert {task.type for task in seen} == set(TASKS[2:4]) and len(seen) > 5
        assert seen <= {task for type in TASKS for task in tasks_of(type, split)}
    silent = make("Household-v0", show_commands=False)
    assert "Admissible" not in silent.reset(seed=0)[0] and "Admissible" in env.render()


def test_all_kinds_of_rooms_and_tasks_come_up_and_seeds_differ():
    env = make("Household-v0")
    first = [env.reset(seed=seed)[0] for seed in range(120)]
    assert len(set(first)) == 120
    tasks = [env.reset(seed=seed) and env.house.task for seed in range(120)]
    assert {task.type for task in tasks} == set(TASKS) and {task.room for task in tasks} == set(ROOMS)


def test_long_episodes_are_truncated():
    env = kitchen()
    steps = [env.step("look") for _ in range(50)]
    assert steps[-1].truncated and not steps[-1].terminated and not steps[-2].truncated


@pytest.mark.parametrize(
    ("kwargs", "match"),
    [
        ({"tasks": ["cook"]}, "tasks"),
        ({"tasks": "look_at_obj_in_light"}, "tasks"),
        ({"tasks": []}, "tasks"),
        ({"tasks": ["look_at_obj_in_light"] * 2}, "tasks"),
        ({"tasks": [["look_at_obj_in_light"]]}, "tasks"),
        ({"split": "test"}, "split"),
        ({"show_commands": 1}, "show_commands"),
    ],
)
def test_bad_arguments(kwargs, match):
    with pytest.raises(RecipeError, match=match):
        make("Household-v0", **kwargs)
