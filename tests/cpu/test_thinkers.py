"""The nano models whose thoughts are sentences: what they are trained on, and where the package finds them."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nano_model import players, sentences
from nano_model.build import Recipe, Stage, build, content_key
from nano_model.demonstrations import generate
from nano_model.model import nano_config
from nano_model.phrases import phrases
from nano_model.thinkers import KINDS, WORLDS, Thinkers, ThoughtRecipe, consider, made_up
from nano_model.thinking_scores import character_of, is_described, is_true
from nano_model.tokenizer import build_tokenizer, save_tokenizer
from nano_model.train import TrainConfig
from omegaconf import OmegaConf
from ragen_envs import bandit
from ragen_lab.reproduce.settings import compared
from recipe_composition import composed
from transformers import AutoModelForCausalLM, AutoTokenizer

from ragen_verl.cpu.nano_model import nano_model_path
from ragen_verl.cpu.nano_model.thinkers import THINKERS, nano_path, thinker_path
from ragen_verl.diagnostics.mutual_information import measure
from ragen_verl.env import make
from ragen_verl.errors import RecipeError
from ragen_verl.resolvers import register_resolvers

RECIPE = ThoughtRecipe()
ALL_EQUAL = Thinkers(dict.fromkeys(players.CHARACTERS, 0.2), loyalty=0.5, slips=0.0)
GRIDS = WORLDS[:3]
SMALL = ThoughtRecipe(stages=(Stage(ALL_EQUAL, 8, 0.5),), train=TrainConfig(batch_tokens=400))


@cache
def tokenizer():
    folder = Path(mkdtemp())
    tokens = build_tokenizer(RECIPE.words(), phrases(RECIPE.worlds))
    nano_config(tokens.get_vocab_size(), 0, 0).save_pretrained(folder)
    return save_tokenizer(tokens, folder)


def count(text: str) -> int:
    return len(tokenizer().encode(text, add_special_tokens=False))


def demonstrations(episodes: int, seed: int = 1, mix: Thinkers = ALL_EQUAL, worlds=WORLDS, **options) -> list[str]:
    found = generate(tokenizer(), mix, episodes, seed, worlds=worlds, **options)
    return [tokenizer().decode(ids) for ids, _ in found]


# -- what is held out -------------------------------------------------------------------------------------------------


def held_out_names() -> set[str]:
    names = {name for pairs in bandit.PAIRS.values() for pair in pairs for name in pair} | {"Phoenix", "Dragon"}
    for variant in ("Test", "Gen", "GenTest", "Rev", "RevTest"):
        names |= set(make(f"Bandit{variant}-v0").pairs[0])
    return names


def test_no_arm_of_an_evaluation_is_in_the_demonstrations() -> None:
    own = {name for pair in made_up(200) for name in pair}
    assert not own & held_out_names()
    texts = demonstrations(300, worlds=WORLDS[3:])
    assert not [name for name in held_out_names() if any(name in text for text in texts)]
    assert not [name for name in held_out_names() if count(name) == 1 or count(" " + name) == 1]


def test_no_variant_of_a_grid_is_in_the_demonstrations() -> None:
    played = {(world.env_id, tuple(world.kwargs.items())) for world in WORLDS if "Bandit" not in world.name}
    lake = "FrozenLake-v0"
    assert played == {(lake, (("success_rate", 1.0),)), (lake, ()), ("Sokoban-v0", ())}
    for world in GRIDS:
        env = make(world.env_id, **world.kwargs)
        state, _ = env.reset(seed=0)
        assert state.count("\n") + 1 == (6 if "Sokoban" in world.name else 4)


# -- thoughts ---------------------------------------------------------------------------------------------------------


def thoughts(world, kind: str, seeds=range(40)):
    env, rng = make(world.env_id, **world.kwargs), np.random.default_rng(0)
    for seed in seeds:
        for character in players.CHARACTERS:
            state, _ = env.reset(seed=seed)
            thought, actions = consider(env, state, kind, character, rng)
            yield env, state, character, thought, actions


@pytest.mark.parametrize("world", WORLDS[:8], ids=lambda world: world.name)
@pytest.mark.parametrize("kind", KINDS)
def test_a_thought_has_10_to_40_tokens(world, kind: str) -> None:
    lengths = [count(thought) for _, _, _, thought, _ in thoughts(world, kind)]
    assert min(lengths) >= sentences.LEAST and max(lengths) <= sentences.MOST
    assert len(set(lengths)) > 5


def test_a_wrong_description_is_not_true() -> None:
    grid = "PG\n__"
    assert is_true("Straight on, I am on a1, the goal is on b1, I go Right.", grid)
    assert not is_true("Straight on, I am on a2, the goal is on b1, I go Right.", grid)
    assert not is_true("Straight on, I am on a1, the goal is on b2, I go Right.", grid)
    assert not is_true("Straight on, I stay calm as always.", grid)


def cells_of_sokoban(env) -> list[tuple[int, int]]:
    return [divmod(env.player, env.dim[1])]


@pytest.mark.parametrize("world", GRIDS, ids=lambda world: world.name)
def test_descriptions_are_true(world) -> None:
    for env, state, character, thought, actions in thoughts(world, "described"):
        assert is_described(thought) and is_true(thought, state), thought
        shown = [*players.cells(state, "PS"), *(players.cells(state, "X") or players.cells(state, "G"))]
        shown += players.cells(state, "OS") if "Sokoban" in world.name else []
        assert re.findall(r"\bon ([a-f]\d)", thought) == [sentences.named(one) for one in shown]
        assert character_of(thought) == character
        words = re.findall(r"(Up|Down|Left|Right)(?: ([a-f]\d))?", thought)
        assert [name for name, _ in words] == actions
        if character == "careful" and "slippery" not in world.name:
            for name, cell in words:
                env.step(name)
                standing = players.cells(env.render(), "PS√") if "Lake" in world.name else cells_of_sokoban(env)
                assert [sentences.named(one) for one in standing] == [cell]


@pytest.mark.parametrize("world", [*GRIDS, WORLDS[5]], ids=lambda world: world.name)
def test_stock_thoughts_say_nothing_of_the_state(world) -> None:
    for _, _, character, thought, _ in thoughts(world, "stock"):
        assert not is_described(thought)
        assert character_of(thought) == character


def test_an_episode_has_thoughts_of_one_kind_each_as_often() -> None:
    shares = []
    for text in demonstrations(300, worlds=GRIDS, single_turn=0.0, no_think=0.0):
        said = re.findall(r"<think>([^<\[]+)</think>", text)
        assert len({is_described(one) for one in said}) == 1
        shares.append(is_described(said[0]))
    assert 0.42 <= np.mean(shares) <= 0.58
    assert RECIPE.stages[-1].mix.described == 0.5


class Bigrams:
    """A language model of a state's thoughts: counts of pairs of words."""

    def __init__(self, texts: list[str], words: int) -> None:
        runs = [self.words(text) for text in texts]
        self.pairs = Counter(pair for run in runs for pair in pairwise(run))
        self.firsts, self.size = Counter(word for run in runs for word in run[:-1]), words

    @staticmethod
    def words(text: str) -> list[str]:
        return ["<s>", *re.findall(r"\w+|[^\w\s]", text)]

    def log_prob(self, text: str) -> float:
        run = self.words(text)
        return sum(math.log((self.pairs[a, b] + 0.05) / (self.firsts[a] + 0.05 * self.size)) for a, b in pairwise(run))


@pytest.mark.parametrize("world", [GRIDS[0], GRIDS[2]], ids=lambda world: world.name)
@pytest.mark.parametrize("kind", KINDS)
def test_only_descriptions_depend_on_the_state(world, kind: str) -> None:
    """Retrieval by ragen_verl's diagnostic, with a bigram model of each state's thoughts for p(thought | state)."""
    env, rng, states, fresh = make(world.env_id, **world.kwargs), np.random.default_rng(1), 12, 20
    said: list[list[str]] = []
    for seed in range(states):
        state, _ = env.reset(seed=seed)
        own = [consider(env, state, kind, str(rng.choice(players.CHARACTERS)), rng)[0] for _ in range(100 + fresh)]
        said.append(own)
    models = [Bigrams(own[fresh:], len(sentences.vocabulary())) for own in said]
    rows = [(text, column) for column, own in enumerate(said) for text in own[:fresh]]
    scores = np.array([[model.log_prob(text) for model in models] for text, _ in rows])
    found = measure(scores, [column for _, column in rows], [count(text) for text, _ in rows])
    chance = found["retrieval_chance"]
    error = math.sqrt(chance * (1 - chance) / len(rows))
    if kind == "described":
        assert found["retrieval_accuracy"] > 0.5
    else:
        assert abs(found["retrieval_above_chance"]) < 3 * error


# -- tokenizer --------------------------------------------------------------------------------------------------------


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=60))
@settings(max_examples=100, deadline=None)
def test_any_text_comes_back_from_its_tokenizer(text: str) -> None:
    text = unicodedata.normalize("NFC", text)
    assert tokenizer().decode(tokenizer().encode(text, add_special_tokens=False)) == text


def test_words_of_thoughts_are_single_tokens() -> None:
    words = sentences.vocabulary()
    assert [one for word in words for one in (word, " " + word) if count(one) != 1] == []
    for kind in KINDS:
        for _, _, _, thought, _ in thoughts(GRIDS[2], kind):
            assert count(thought) == sentences.length(thought)
            assert tokenizer().decode(tokenizer().encode(thought)) == thought


# -- the build --------------------------------------------------------------------------------------------------------


def test_the_same_seed_builds_the_same_thinker(tmp_path: Path) -> None:
    one, same, other = (build(tmp_path / name, seed, recipe=SMALL) for name, seed in (("a", 1), ("b", 1), ("c", 2)))
    weights = [(folder / "model.safetensors").read_bytes() for folder in (one, same, other)]
    assert weights[0] == weights[1] != weights[2]
    found = AutoTokenizer.from_pretrained(one)
    assert found.get_vocab() == tokenizer().get_vocab()
    assert AutoModelForCausalLM.from_pretrained(one).config.vocab_size == len(found)


def test_thinkers_and_the_shipped_model_are_told_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RAGEN_CACHE", str(tmp_path))
    assert content_key(RECIPE, 1) != content_key(Recipe(), 1)
    assert RECIPE.home(2, "k" * 20) == thinker_path(2)
    assert RECIPE.home(7, "k" * 20) == tmp_path / "nano" / ("k" * 16)


# -- in recipes -------------------------------------------------------------------------------------------------------


def built() -> None:
    for number in THINKERS:
        thinker_path(number).mkdir(parents=True)
        for file in nano_model_path().glob("*.json"):
            (thinker_path(number) / file.name).write_text(file.read_text())
        (thinker_path(number) / "model.safetensors").touch()


def test_a_recipe_names_one_or_takes_one_by_its_seed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RAGEN_CACHE", str(tmp_path))
    built()
    register_resolvers()
    chosen = [composed("nano/sokoban", "nano_model=thoughts", f"ragen.train.seed={n}010000") for n in range(1, 7)]
    folders = [config.actor_rollout_ref.model.path for config in chosen]
    assert folders == [str(thinker_path(number)) for number in (*THINKERS, *THINKERS)]
    fixed = OmegaConf.create({"path": "${ragen_nano:thoughts,2}", "shipped": "${ragen_nano:}"})
    assert (fixed.path, fixed.shipped) == (str(thinker_path(2)), str(nano_model_path()))
    # runs of one variant count together, whichever model their seed chose; another choice is another setting
    settings = [compared(OmegaConf.to_container(config, resolve=True)) for config in chosen[:2]]
    assert settings[0] == settings[1] and str(tmp_path) not in str(settings[0])
    pinned = "actor_rollout_ref.model.path=${ragen_nano:thoughts,3}"
    other = [composed("nano/sokoban", "nano_model=thoughts", pinned, f"ragen.train.seed={n}010000") for n in (1, 2)]
    assert settings[0] != compared(OmegaConf.to_container(other[0], resolve=True))
    assert str(tmp_path) not in str(compared(OmegaConf.to_container(other[1], resolve=True)))


@pytest.mark.parametrize(
    ("which", "words"),
    [
        (("thoughts", 1), "python -m nano_model --thoughts sentences --seed 1"),
        (("thoughts", 3_010_000), "thoughts,"),
        (("thought", 1), r"no nano model thought,1"),
        (("thoughts", 0), r"no nano model thoughts,0"),
        (("thoughts", None), r"no nano model thoughts,None"),
    ],
)
def test_a_model_that_is_not_there_is_refused(
    which: tuple, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RAGEN_CACHE", str(tmp_path))
    with pytest.raises(RecipeError, match=words):
        partial(nano_path, *which)()
