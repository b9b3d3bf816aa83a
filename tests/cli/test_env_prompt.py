"""`ragen-verl env show ID --prompt` prints what a model is sent, no more and no less."""

from __future__ import annotations

import asyncio

import pytest
from toy_chat import Engine
from transformers import AutoTokenizer
from typer.testing import CliRunner

from ragen_verl.cli import app
from ragen_verl.config import RagenConfig
from ragen_verl.cpu.nano_model import nano_model_path
from ragen_verl.env import make
from ragen_verl.env.hosting.threads import EnvWorkers
from ragen_verl.rollout.chat import ChatTokens
from ragen_verl.rollout.episode import Limits, play
from ragen_verl.rollout.protocols.ragen import Ragen
from ragen_verl.validation.composition import compose

RECIPE = "nano/frozen_lake"


def shown(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["env", "show", *arguments, "--prompt"], env={"COLUMNS": "80", "TERM": "dumb"})
    assert result.exit_code == 0, result.output
    return result.output


def refused(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["env", "show", *arguments])
    assert result.exit_code == 2
    return " ".join(result.output.split())


def test_the_prompt_is_the_one_of_an_episode_of_the_recipe() -> None:
    """Token by token what an engine is given that plays the recipe's environment from this seed."""
    config = compose(RECIPE)
    ragen = RagenConfig.from_omegaconf(config)
    tokenizer = AutoTokenizer.from_pretrained(nano_model_path())
    protocol, lake = ragen.rollout.chat_protocol(), ragen.train.envs[0]
    engine = Engine([tokenizer.encode("x</think><answer>Up</answer>")])
    with EnvWorkers(1) as workers:
        asyncio.run(
            play(
                make(lake.id, **lake.kwargs),
                seed=10_007,
                rollout_index=0,
                protocol=protocol,
                chat=ChatTokens(tokenizer, protocol),
                generate=engine,
                limits=Limits(response_length=50, context_length=5_000),
                workers=workers,
            )
        )
    text = shown(lake.id, "--recipe", RECIPE, "--seed", "10007", "--model", str(nano_model_path()))
    assert text.endswith(f", {len(engine.saw[0])} tokens\n{tokenizer.decode(engine.saw[0])}\n\n")


def test_without_a_recipe_texts_and_budgets_are_the_defaults() -> None:
    text = shown("FrozenLake", "size=5", "--seed", "3")
    env = make("FrozenLake", size=5)
    state, _ = env.reset(seed=3)
    assert Ragen().first_user(env, state) in text and Ragen().system(env) in text
    assert text.endswith("<think>\n\n")


def test_arguments_go_over_those_of_the_recipe() -> None:
    first, other = (shown("FrozenLake", *more, "--recipe", RECIPE) for more in ([], ["size=6"]))
    assert "4 x 4" in first and "6 x 6" in other


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["Sokoban", "--prompt", "--recipe", RECIPE], "does not play Sokoban; it plays FrozenLake-v0"),
        (["FrozenLake", "--prompt", "--model", "no/such/folder"], "no/such/folder has no tokenizer"),
        (["FrozenLake", "--model", "x"], "--model is for --prompt"),
        (["FrozenLake", "--recipe", RECIPE], "--recipe is for --prompt"),
    ],
)
def test_what_cannot_be_shown_is_said(arguments: list[str], told: str) -> None:
    assert told in refused(*arguments)
