"""The nano model: tokenizer, demonstrations, training, shipped weights."""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import asdict
from functools import cache, partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from nano_model.build import Recipe, Stage, build, content_key
from nano_model.demonstrations import demonstrate, encode, generate, words
from nano_model.episodes import scripted
from nano_model.evaluate import played, score
from nano_model.model import nano_config, nano_model
from nano_model.phrases import phrases
from nano_model.players import CHARACTERS, Mix, respond
from nano_model.tokenizer import END, END_OF_TEXT, TAGS, build_tokenizer
from nano_model.train import TrainConfig, batches, collate, train
from nano_model.worlds import WORLDS
from ragen_envs.frozen_lake import FrozenLake
from transformers import AutoModelForCausalLM, AutoTokenizer

from ragen_verl.cpu.nano_model import nano_model_path
from ragen_verl.env import make
from ragen_verl.rollout.chat import ChatTokens
from ragen_verl.rollout.protocols.ragen import Ragen

MIX = Mix(dict.fromkeys(CHARACTERS, 0.2))


@cache
def shipped_tokenizer():
    return AutoTokenizer.from_pretrained(nano_model_path())


@pytest.fixture
def tokenizer():
    return shipped_tokenizer()


@pytest.fixture(scope="module")
def model():
    return AutoModelForCausalLM.from_pretrained(nano_model_path(), dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def samples():
    return list(generate(shipped_tokenizer(), MIX, 60, seed=1))


# -- tokenizer --------------------------------------------------------------------------------------------------------


def test_shipped_tokenizer_fits_the_prompts(tokenizer):
    """If this fails, the wording of a prompt changed: the nano model has to be built again to be of use."""
    fresh = build_tokenizer(words(), phrases())
    assert fresh.get_vocab() == tokenizer.get_vocab()


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=60))
@settings(max_examples=200, deadline=None)
def test_any_text_comes_back(text):
    tokenizer, text = shipped_tokenizer(), unicodedata.normalize("NFC", text)
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


@given(st.lists(st.text("P_OGX√#S", min_size=1, max_size=8), min_size=1, max_size=8))
@settings(max_examples=100, deadline=None)
def test_each_cell_is_one_token(rows):
    tokenizer = shipped_tokenizer()
    grid = "\n".join(rows)
    ids = tokenizer.encode(f"Turn 2:\nState:\n{grid}\nYou have 7 actions left.", add_special_tokens=False)
    assert [tokenizer.decode([k]) for k in ids[1 : 1 + len(grid)]] == list(grid)


def test_words_phrases_and_tags_are_single_tokens(tokenizer):
    texts = [*TAGS, *phrases(), *words(), *(" " + word for word in words())]
    assert [text for text in texts if len(tokenizer.encode(text, add_special_tokens=False)) != 1] == []
    assert len(tokenizer.encode("4096", add_special_tokens=False)) == 4


def test_tags_are_ordinary_and_markers_special(tokenizer):
    text = "<think>a</think><answer>Up || Down</answer><|im_end|>"
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids, skip_special_tokens=True) == text.removesuffix("<|im_end|>")
    assert (tokenizer.eos_token, tokenizer.pad_token) == (END, END_OF_TEXT)


def test_a_lake_episode_is_short(tokenizer):
    env, rng = make(WORLDS[0].env_id, **WORLDS[0].kwargs), np.random.default_rng(0)
    chat = ChatTokens(tokenizer, Ragen())
    lengths = [len(encode(demonstrate(env, Ragen(), chat, MIX, seed, rng))[0]) for seed in range(2_000_000, 2_000_100)]
    assert max(lengths) <= 300
    assert np.mean(lengths) <= 150


# -- demonstrations ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
@pytest.mark.parametrize("think", [True, False])
def test_demonstrations_are_what_a_rollout_would_see(tokenizer, world, think):
    protocol = Ragen(think=think, **world.budgets)
    chat = ChatTokens(tokenizer, protocol)
    env, rng = make(world.env_id, **world.kwargs), np.random.default_rng(3)
    for seed in range(3_000_000, 3_000_010):
        played = demonstrate(env, protocol, chat, MIX, seed, rng)
        ids, mask = encode(played)
        said = [tokenizer.decode([k for k, _ in run]) for run in _runs(ids, mask)]
        assert said == [turn.text + END for turn in played.turns]
        users = tokenizer.decode(ids).split("<|im_start|>user\n")[1:]
        messages = [{"role": "system", "content": protocol.system_prompt}]
        for user, turn in zip(users, played.turns, strict=True):
            messages.append({"role": "user", "content": user.partition(END)[0]})
            messages.append({"role": "assistant", "content": protocol.prefill + turn.text})
        assert tokenizer.decode(ids) + "\n" == tokenizer.apply_chat_template(messages, tokenize=False)


def _runs(ids, mask):
    runs, before = [], False
    for pair in zip(ids, mask, strict=True):
        if pair[1]:
            if not before:
                runs.append([])
            runs[-1].append(pair)
        before = pair[1]
    return runs


def test_demonstrations_depend_on_the_seed_alone(tokenizer):
    assert list(generate(tokenizer, MIX, 20, 5)) == list(generate(tokenizer, MIX, 20, 5))
    assert list(generate(tokenizer, MIX, 20, 5)) != list(generate(tokenizer, MIX, 20, 6))


def test_the_careful_player_reads_the_map():
    env, rng = FrozenLake(success_rate=1.0), np.random.default_rng(0)
    for seed in range(20):
        state, _ = env.reset(seed=seed)
        grid = state.split("\n")
        text = respond(env, state, True, "careful", rng, slips=0.0)
        (r, c), goal = (tuple(map(int, cell)) for cell in re.match(r"P(\d\d) G(\d\d)", text).groups())
        assert grid[r][c] == "P"
        assert grid[goal[0]][goal[1]] == "G"
        for r, c, cell in re.findall(r" [A-Z][a-z]+(\d)(\d)(.)", text.split("</think>")[0]):
            assert grid[int(r)][int(c)] == cell
            assert cell != "O"


@pytest.mark.parametrize("name", ["FrozenLake", "Sokoban", "Bandit"])
def test_careful_beats_aimless(tokenizer, name):
    world = next(world for world in WORLDS if world.name == name)
    env, protocol = make(world.env_id, **world.kwargs), Ragen(**world.budgets)
    chat, success = ChatTokens(tokenizer, protocol), {}
    for character in ("careful", "wild"):
        rng, wins = np.random.default_rng(0), 0
        for seed in range(60):
            play = partial(respond, env, think=True, character=character, rng=rng, slips=0.0)
            wins += scripted(env, protocol, chat, seed, play).success
        success[character] = wins / 60
    assert success["careful"] >= 0.95
    assert success["wild"] <= 0.4


# -- training ---------------------------------------------------------------------------------------------------------


def test_targets_are_the_said_ids_one_step_ahead():
    ids, targets = collate([([5, 6, 7, 8], [False, False, True, True]), ([5, 9], [False, True])])
    assert ids.tolist() == [[5, 6, 7, 8], [5, 9, 0, 0]]
    assert targets.tolist() == [[-100, 7, 8, -100], [9, -100, -100, -100]]


def test_batches_hold_every_sample_once(samples):
    plan = batches(samples, 600, np.random.default_rng(0))
    assert sorted(k for batch in plan for k in batch) == list(range(len(samples)))
    assert all(len(b) == 1 or len(b) * max(len(samples[k][0]) for k in b) <= 600 for b in plan)


def test_same_seed_same_weights(tokenizer, samples):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    config = nano_config(len(tokenizer), tokenizer.eos_token_id, tokenizer.pad_token_id)
    runs = []
    for _ in range(2):
        fresh = nano_model(config, seed=3)
        losses = train(fresh, samples, TrainConfig(batch_tokens=300), seed=3, max_steps=20)
        runs.append((losses, fresh.state_dict()))
    torch.set_num_threads(threads)
    assert runs[0][0] == runs[1][0]
    assert runs[0][0][-1] < runs[0][0][0]
    assert all(torch.equal(value, runs[1][1][key]) for key, value in runs[0][1].items())


def test_build_is_cached_by_content(tmp_path):
    recipe = Recipe(stages=(Stage(MIX, 8, 0.5),), train=TrainConfig(batch_tokens=400))
    folder = build(tmp_path / "model", seed=1, recipe=recipe)
    first = (folder / "model.safetensors").stat().st_mtime_ns
    weights = (folder / "model.safetensors").read_bytes()
    assert build(tmp_path / "model", seed=1, recipe=recipe) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == first
    build(tmp_path / "model", seed=1, recipe=recipe, force=True)
    assert (folder / "model.safetensors").stat().st_mtime_ns != first
    assert (folder / "model.safetensors").read_bytes() == weights
    assert content_key(recipe, 1) != content_key(recipe, 2)
    assert content_key(recipe, 1) != content_key(Recipe(stages=(Stage(MIX, 9, 0.5),), train=recipe.train), 1)
    assert AutoModelForCausalLM.from_pretrained(folder).config.vocab_size == len(AutoTokenizer.from_pretrained(folder))


# -- the shipped weights ----------------------------------------------------------------------------------------------


def test_shipped_weights_come_from_the_default_recipe():
    record = json.loads((nano_model_path() / "build.json").read_text(encoding="utf-8"))
    assert record["recipe"] == json.loads(json.dumps(asdict(Recipe())))


def test_shipped_weights_are_small_and_exact(model, tokenizer):
    assert sum(file.stat().st_size for file in nano_model_path().iterdir()) <= 4 * 2**20
    assert model.config.vocab_size == len(tokenizer) == model.get_input_embeddings().weight.shape[0]
    assert model.config.architectures == ["Qwen2ForCausalLM"]
    assert model.config.hidden_size // model.config.num_attention_heads >= 32
    assert model.config.eos_token_id == tokenizer.eos_token_id


@pytest.mark.parametrize("name", ["FrozenLake", pytest.param("Sokoban", marks=pytest.mark.slow), "Bandit"])
def test_shipped_model_starts_formatted_and_with_room(model, tokenizer, name):
    world = next(world for world in WORLDS if world.name == name)
    found = score(played(model, tokenizer, world, episodes=64, temperature=1.0))
    assert found.valid >= 0.9
    assert 0.02 <= found.success <= 0.7


@pytest.mark.slow
def test_careful_answers_win_more(model, tokenizer):
    free, careful = (
        score(played(model, tokenizer, WORLDS[0], episodes=64, temperature=0.5, prefix=prefix)) for prefix in ("", "P")
    )
    assert careful.success >= free.success + 0.15
