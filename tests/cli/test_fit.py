"""The sentence before a training: what an episode can need, and how much of it fits."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from ragen_verl.cli import app
from ragen_verl.cli.fit import fit
from ragen_verl.errors import RecipeError
from ragen_verl.validation.composition import compose

TOLD = re.compile(r"An episode of (\S+) can need (\d+) tokens, the context is (\d+): (\d+) of (\d+) turns fit")


def told(*overrides: str) -> tuple[str, int, int, int, int]:
    sentence = fit(compose("nano/frozen_lake", ["ragen.run.dir=x", *overrides]))
    name, *numbers = TOLD.match(sentence).groups()
    assert ("Raise data.max_response_length" in sentence) == (numbers[-2] != numbers[-1])
    return name, *map(int, numbers)


def test_a_recipe_whose_turns_all_fit_says_so():
    name, need, context, fitting, turns = told()
    assert (name, context) == ("FrozenLake", 800) and fitting == turns == 5 and need <= context


def test_a_recipe_with_tools_is_measured_to_its_last_turn():
    sentence = fit(compose("nano/tools", ["ragen.run.dir=x"]))
    need, turns = int(TOLD.match(sentence)[2]), int(TOLD.match(sentence)[5])
    assert turns == 5 and need > 5 * 24


def test_turns_that_do_not_fit_are_counted():
    _, need, context, fitting, turns = told("ragen.rollout.max_turns=12")
    assert turns == 12 and fitting < turns and need > context
    _, _, _, more, _ = told("ragen.rollout.max_turns=12", f"data.max_response_length={need - 200}")
    assert more == 12


def test_a_first_prompt_longer_than_prompts_may_be_is_refused():
    with pytest.raises(RecipeError, match=r"FrozenLake has \d+ tokens but data.max_prompt_length is 5:"):
        told("data.max_prompt_length=5")
    done = CliRunner().invoke(app, ["train", "nano/frozen_lake", "data.max_prompt_length=5", "ragen.run.dir=x"])
    assert done.exit_code == 2 and "data.max_prompt_length is 5: raise it." in done.stderr


def test_a_window_needs_no_more_with_more_turns():
    window = ("ragen.rollout.context=window", "ragen.rollout.window=1", "data.max_prompt_length=400")
    one, other = (told(*window, f"ragen.rollout.max_turns={turns}") for turns in (3, 12))
    assert other[1] - one[1] < 20 and other[3] == 12


@pytest.mark.parametrize("turns", [5, 12])
def test_a_dry_run_says_it_among_the_sizes(turns):
    done = CliRunner().invoke(app, ["train", "nano/frozen_lake", "--dry-run", f"ragen.rollout.max_turns={turns}"])
    assert done.exit_code == 0, done.output
    assert f"of {turns} turns fit" in " ".join(done.stdout.split())
