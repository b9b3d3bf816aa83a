"""Which solved episodes with tools were solved for the wrong reason, against what the player really did."""

from __future__ import annotations

import numpy as np
import pytest
from ragen_lab.score.registry import run
from saved_episodes import plan, played

from ragen_verl.env import make
from ragen_verl.env.tools import called, said


def judged(actions: list[str], env_id: str, seed: int, **kwargs) -> float | None:
    one = played([[action] for action in actions], env_id, seed, **kwargs)
    assert one.success
    run([one], ["wrong_reason"])
    return one.scores["wrong_reason"]


def looked_up(seed: int, random: np.random.Generator, **kwargs) -> list[str]:
    """The oracle's plan, with calls in between that lead nowhere."""
    env = make("ToolWorld-v0", **kwargs)
    env.reset(seed=seed)
    useless = (env.random_action(random) for _ in range(1000))
    lost = [action for action in useless if "_of" in action][: int(random.integers(3))]
    return [*lost, *plan("ToolWorld-v0", seed, **kwargs)]


def leaked(seed: int, **kwargs) -> list[str]:
    """The right answer, after calls that do not return it."""
    env = make("ToolWorld-v0", **kwargs)
    env.reset(seed=seed)
    first = [action for action in env.oracle() if "message" in action]
    link = env.chain[0]
    return [*first, called(link, person="Nobody"), called(link, person=env.subject), env.oracle()[-1]]


WORLDS = {"two links": {}, "four links": {"depth": 4}, "a missing person": {"missing": 1.0}}


@pytest.mark.parametrize("kwargs", WORLDS.values(), ids=WORLDS)
def test_answers_that_were_looked_up_and_leaked_ones(kwargs) -> None:
    random = np.random.default_rng(0)
    for seed in range(20):
        assert judged(looked_up(seed, random, **kwargs), "ToolWorld-v0", seed, **kwargs) == 0.0
        assert judged(leaked(seed, **kwargs), "ToolWorld-v0", seed, **kwargs) == 1.0


def test_a_code_that_was_read_and_one_that_was_guessed() -> None:
    for seed in range(20):
        env = make("Lockbox-v0")
        env.reset(seed=seed)
        look, opened = env.oracle()
        other = next(name for name in env.names if name != env.place)
        assert judged([look, opened], "Lockbox-v0", seed) == 0.0
        assert judged([called("look", box=other), opened], "Lockbox-v0", seed) == 1.0


def test_effects_of_earlier_calls_are_needed() -> None:
    """In this environment results say nothing, and each call is a step of the way."""
    from ragen_verl import ToolEnv, register, tool

    class Stairs(ToolEnv):
        """Climb three stairs."""

        instruction = "Climb to stair 3."

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.at = 0
            return "You are on the floor.", {}

        @tool
        def climb(self, to: int):
            """Climb.

            Args:
                to: A stair.
            """
            self.at += to == self.at + 1
            return self.end("Done.", 1.0, success=True) if self.at == 3 else "Done."

        def oracle(self):
            return [called("climb", to=stair) for stair in range(self.at + 1, 4)]

    register("Stairs-v0", Stairs)
    assert judged(plan("Stairs-v0", 0), "Stairs-v0", 0) == 0.0


def test_where_it_does_not_apply() -> None:
    right = plan("ToolWorld-v0", 3)
    ways = [right[-1]], [said("?")], right
    guess, lost, other = (played([[one] for one in way], "ToolWorld-v0", 3) for way in ways)
    other.record["turns"][0]["state"] = "Another world."
    run([guess, lost, other, lake := played([["Right"]])], ["wrong_reason"])
    assert [one.scores["wrong_reason"] for one in (guess, lost, other, lake)] == [None] * 4
