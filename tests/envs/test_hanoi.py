"""Tower of Hanoi: rules, and an oracle that is never beaten by a search."""

from __future__ import annotations

import itertools
from collections import deque

import pytest
from environment_contract import check_contract, check_step, play_oracle
from ragen_envs.hanoi import Hanoi

from ragen_verl import make
from ragen_verl.errors import RecipeError


def pegs(*peg_of: int) -> Hanoi:
    env = Hanoi(discs=len(peg_of))
    env.reset(seed=0)
    env.peg_of = list(peg_of)
    return env


def test_contract():
    check_contract("Hanoi-v0")
    check_contract("Hanoi-v0", one_level=True, discs=5, scattered=False)


def test_a_larger_disc_never_goes_onto_a_smaller_one():
    env = pegs(1, 0, 0)
    assert env.render() == "A: 3 2\nB: 1\nC: -"
    step = check_step(env, "a to b")
    assert step.info["action_is_valid"] and not step.info["action_is_effective"] and step.reward == 0.0
    assert not check_step(env, "C to A").info["action_is_effective"]
    assert check_step(env, " B TO A ").observation == "A: 3 2 1\nB: -\nC: -"


def test_the_tower_on_c_earns_one_and_ends():
    step = check_step(pegs(0, 2, 2), "A to C")
    assert (step.reward, step.terminated, step.info["success"]) == (1.0, True, True)
    assert not check_step(pegs(0, 1, 1), "A to B").terminated  # the whole tower, on the wrong peg


def distances(discs: int) -> dict[tuple[int, ...], int]:
    """Moves to the goal from every state, by a search through the environment's own steps."""
    goal = (2,) * discs
    found, queue = {goal: 0}, deque([goal])
    while queue:
        state = queue.popleft()
        for name in Hanoi.actions:  # moves can be undone, so a search from the goal finds the way to it
            env = pegs(*(0,) * discs)
            env.peg_of = list(state)
            if state == goal:  # a solved tower does not move: let the search take it apart by hand
                after = [0 if disc == 0 else peg for disc, peg in enumerate(state)]
                after[0] = "ABC".index(name[-1])
            else:
                env.step(name)
                after = env.peg_of
            if tuple(after) not in found:
                found[tuple(after)] = found[state] + 1
                queue.append(tuple(after))
    return found


@pytest.mark.parametrize("discs", [1, 2, 3, 4])
def test_the_oracle_is_shortest_from_every_state(discs):
    shortest = distances(discs)
    assert len(shortest) == 3**discs
    for state in itertools.product(range(3), repeat=discs):
        assert len(pegs(*state).oracle()) == shortest[state]


def test_the_classic_start_takes_the_well_known_number_of_moves():
    for discs in range(1, 9):
        env = make("Hanoi-v0", discs=discs, scattered=False)
        assert env.reset(seed=discs)[0] == make("Hanoi-v0", discs=discs, scattered=False).reset(seed=0)[0]
        steps, reward = play_oracle(env)
        assert len(steps) == 2**discs - 1 <= env.max_actions and reward == 1.0


def test_scattered_starts_reach_every_state_but_the_goal():
    env = make("Hanoi-v0", discs=2)
    assert len({env.reset(seed=seed)[0] for seed in range(200)}) == 3**2 - 1


def test_long_episodes_are_truncated():
    env = pegs(0, 0, 0)
    steps = [env.step("C to A") for _ in range(4 * 2**3)]
    assert steps[-1].truncated and not steps[-1].terminated and not steps[-2].truncated


@pytest.mark.parametrize("kwargs", [{"discs": 0}, {"discs": 9}, {"discs": True}, {"discs": 3.0}, {"scattered": 1}])
def test_bad_arguments(kwargs):
    with pytest.raises(RecipeError, match=next(iter(kwargs))):
        make("Hanoi-v0", **kwargs)
