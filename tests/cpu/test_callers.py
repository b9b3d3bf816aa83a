"""The nano model that calls tools: what it is trained on, and the shipped weights."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest
import torch
from nano_model.build import Stage, build
from nano_model.callers import ABLE, CHARACTERS, MIXED, WORLDS, Caller, CallerRecipe, generate
from nano_model.episodes import scripted
from nano_model.evaluate import played, score
from nano_model.tokenizer import END, build_tokenizer
from nano_model.train import TrainConfig
from nano_model.worlds import DEMONSTRATION_SEEDS
from recipe_composition import composed
from transformers import AutoModelForCausalLM, AutoTokenizer

from ragen_verl.cpu.nano_model import nano_model_path
from ragen_verl.env import make
from ragen_verl.resolvers import register_resolvers
from ragen_verl.rollout.protocols.tools import Tools

RECIPE, RULES = CallerRecipe(), Tools(think=False)


@cache
def tokenizer():
    folder = Path(mkdtemp())
    tokens = build_tokenizer(RECIPE.words(), RECIPE.phrases())
    RECIPE.config(tokens).save_pretrained(folder)
    RECIPE.save_tokenizer(tokens, folder)
    return AutoTokenizer.from_pretrained(folder)


def test_a_call_is_short_and_a_name_has_three_tokens() -> None:
    lengths = {
        text: len(tokenizer().encode(text, add_special_tokens=False))
        for text in ("Wowoni", "Gogowo", *RECIPE.words(), *RECIPE.phrases())
    }
    assert (lengths.pop("Wowoni"), lengths.pop("Gogowo")) == (3, 3)
    assert [text for text, count in lengths.items() if count != 1] == []
    chat = RULES.chat(tokenizer())
    assert (chat.form.name, chat.rendered, chat.several) == ("hermes", True, True)


def test_demonstrations_are_valid_calls_but_for_slips() -> None:
    texts = [tokenizer().decode(ids) for ids, _ in generate(tokenizer(), replace(MIXED, slips=0.0), 60, 1)]
    said = [part.partition(END)[0] for text in texts for part in text.split("<|im_start|>assistant\n")[1:]]
    assert len(said) > 100 and all(RULES.chat(tokenizer()).parse(one, RULES).format_ok for one in said)
    slipped = [tokenizer().decode(ids) for ids, _ in generate(tokenizer(), replace(MIXED, slips=1.0), 20, 1)]
    assert sum("could not be read" in text or "There is no tool" in text for text in slipped) >= 15


def test_the_loss_is_on_what_the_player_said() -> None:
    ids, mask = next(generate(tokenizer(), ABLE, 1, 3))
    text = tokenizer().decode([index for index, said in zip(ids, mask, strict=True) if said])
    assert text.startswith("<tool_call>") and text.endswith(END) and "tool_response" not in text


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_careful_callers_solve_and_wild_ones_do_not(world) -> None:
    env, chat, success = make(world.env_id, **world.kwargs), RULES.chat(tokenizer()), {}
    for character in ("careful", "wild"):
        mix, rng = replace(ABLE, shares=dict.fromkeys(CHARACTERS, 0.0) | {character: 1.0}), np.random.default_rng(0)
        wins = 0
        for seed in range(40):
            caller = Caller(env, mix, rng)
            wins += scripted(env, RULES, chat, seed, lambda state, caller=caller: RULES.answer([caller(state)])).success
        success[character] = wins / 40
    assert success["careful"] >= 0.95 and success["wild"] <= 0.4


def test_the_same_seed_builds_the_same_caller(tmp_path: Path) -> None:
    small = replace(RECIPE, stages=(Stage(MIXED, 8, 0.0),), train=TrainConfig(batch_tokens=400))
    folders = [build(tmp_path / name, seed, recipe=small) for name, seed in (("a", 1), ("b", 1), ("c", 2))]
    weights = [(folder / "model.safetensors").read_bytes() for folder in folders]
    assert weights[0] == weights[1] != weights[2]


# -- the shipped weights ----------------------------------------------------------------------------------------------


def test_the_shipped_caller_fits_prompts_and_recipe() -> None:
    """If this fails, the wording of a prompt or a tool changed: the model has to be built again to be of use."""
    folder = nano_model_path("tools")
    shipped = AutoTokenizer.from_pretrained(folder)
    assert shipped.get_vocab() == tokenizer().get_vocab() and shipped.chat_template == tokenizer().chat_template
    record = json.loads((folder / "build.json").read_text("utf-8"))
    assert record["recipe"] == json.loads(json.dumps(asdict(RECIPE)))
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 2 * 2**20


@pytest.mark.parametrize(("world", "valid"), [(WORLDS[0], 0.85), (WORLDS[1], 0.6)], ids=["Lockbox", "ToolWorld"])
def test_the_shipped_caller_starts_valid_and_with_room(world, valid) -> None:
    folder = nano_model_path("tools")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    options = {"episodes": 64, "protocol": RULES, "max_tokens": 24, "first_seed": DEMONSTRATION_SEEDS - 64}
    found = score(played(model, AutoTokenizer.from_pretrained(folder), world, **options))
    assert found.valid >= valid and 0.15 <= found.success <= 0.65


@pytest.mark.parametrize("recipe", ["nano/tools", "nano/tool_world"])
def test_the_recipes_take_the_shipped_caller(recipe) -> None:
    register_resolvers()
    config = composed(recipe)
    assert config.actor_rollout_ref.model.path == str(nano_model_path("tools"))
    assert (config.ragen.rollout.protocol, config.ragen.rollout.think) == ("tools", False)
