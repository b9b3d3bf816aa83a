"""Environments of other packages: what every adapter keeps, and each with its real package."""

from __future__ import annotations

import copy
import json
import math
import os
import pickle
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import gymnasium
import numpy as np
import pytest
from environment_contract import TEXTS, check_adapter
from hypothesis import given, settings
from hypothesis import strategies as st
from ragen_envs.adapters.randomness import GlobalRandomness
from ragen_envs.adapters.reasoning_gym import harmless
from ragen_lab import checker as checks

from ragen_verl import make, register
from ragen_verl.env import Env, Step, check, registry
from ragen_verl.errors import BadEnvKwargs, RecipeError, UnknownEnv

# (id, kwargs, answers that the environment understands): [] where its actions have names
ADAPTED = [
    ("gymnasium:Taxi-v4", {}, []),
    ("gymnasium:CliffWalking-v1", {"is_slippery": True}, []),
    ("gymnasium:Blackjack-v1", {}, []),
    ("gymnasium:CartPole-v1", {}, []),
    ("minigrid:MiniGrid-Dynamic-Obstacles-5x5-v0", {}, []),
    ("minigrid:MiniGrid-DoorKey-5x5-v0", {"view": "agent"}, []),
    ("textarena:GuessTheNumber-v0", {}, [f"[{number}]" for number in range(1, 21)]),
    ("textarena:2048-v0-easy", {}, ["[up]", "[down]", "[left]", "[right]"]),
    ("textarena:TowerOfHanoi-v0", {}, ["[A C]", "[A B]", "[B C]", "[C A]"]),
]
# reasoning-gym is installed for the slow tests alone (requirements/slow.lock): one of its dependencies is compiled
REASONING = [
    ("reasoning-gym:countdown", {}, ["1 + 2", "3"]),
    ("reasoning-gym:list_functions", {}, ["[1, 2]", "7"]),
    ("reasoning-gym:pool_matrix", {}, ["1 2\n3 4"]),
]
slow = pytest.mark.slow
each = pytest.mark.parametrize(
    ("id", "kwargs", "answers"),
    [
        *(pytest.param(*one, id=one[0]) for one in ADAPTED),
        *(pytest.param(*one, id=one[0], marks=slow) for one in REASONING),
    ],
)
adapted_lists = pytest.mark.parametrize("adapted", [ADAPTED, pytest.param(REASONING, marks=slow)], ids=["fast", "slow"])


def play(id: str, kwargs: dict, answers: list[str], seed: int, rollout_index: int = 0, n: int = 6) -> list:
    """What an episode shows for actions that the seed alone fixes."""
    env = make(id, **kwargs)
    seen: list = [env.reset(seed=seed, options={"rollout_index": rollout_index})[0], env.instruction]
    choose = np.random.default_rng(seed)
    for _ in range(n):
        among = env.actions or answers
        seen.append(list(env.step(among[int(choose.integers(len(among)))])))
    env.close()
    return seen


@each
def test_what_every_environment_keeps(id, kwargs, answers):
    check_adapter(make(id, **kwargs), answers[0] if answers else make(id, **kwargs).actions[0])


@each
def test_the_checker_finds_nothing_broken(id, kwargs, answers):
    report = checks.check(checks.Subject.of(id, **kwargs), replace(checks.QUICK, limit=60), skip=["processes"])
    assert report.ok, str(report)  # another process: below, for all of them at once


@each
def test_a_seed_is_an_episode_beside_fifty_others(id, kwargs, answers):
    before = random.getstate(), np.random.get_state()[1].tolist()
    seeds = [0, 1, 2] * 17
    alone = {seed: play(id, kwargs, answers, seed) for seed in set(seeds)}
    with ThreadPoolExecutor(50) as pool:
        together = list(pool.map(partial(play, id, kwargs, answers), seeds))
    assert together == [alone[seed] for seed in seeds]
    assert len({str(seen[0:2]) for seen in alone.values()} | {str(seen) for seen in alone.values()}) > 1
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


@adapted_lists
def test_a_seed_is_an_episode_in_another_process(adapted):
    code = (
        "import json, sys; sys.path[:0] = ['tests/envs/adapters', 'tests/helpers']; from test_adapters import *\n"
        f"print(json.dumps([play(*one, seed=5) for one in {adapted!r}]))"
    )
    command = [sys.executable, "-W", "ignore", "-c", code]
    env = {**os.environ, "PYTHONHASHSEED": "7", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == json.loads(json.dumps([play(*one, seed=5) for one in adapted]))


@each
def test_members_start_alike(id, kwargs, answers):
    env = make(id, **kwargs)
    starts = {
        (env.reset(seed=3, options={"rollout_index": rollout_index})[0], env.instruction) for rollout_index in range(5)
    }
    assert len(starts) == 1


@pytest.mark.parametrize(
    ("id", "action"),
    [("gymnasium:Blackjack-v1", "hit"), ("textarena:2048-v0-easy", "[up]"), ("gymnasium:FrozenLake-v1", "right")],
)
def test_members_have_their_own_luck(id, action):
    seen = set()
    for rollout_index in range(20):
        env = make(id)
        env.reset(seed=3, options={"rollout_index": rollout_index})
        seen.add(tuple(env.step(action)[0] for _ in range(4)))
    assert len(seen) > 1


@each
def test_a_copy_goes_on_like_the_original(id, kwargs, answers):
    env = make(id, **kwargs)
    env.reset(seed=4, options={"rollout_index": 1})
    among = env.actions or answers
    env.step(among[0])
    twins = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    for twin in twins:
        original = copy.deepcopy(env)
        for action in (among * 5)[:8]:
            assert tuple(twin.step(action)) == tuple(original.step(action))


@adapted_lists
@settings(max_examples=40, deadline=None)
@given(data=st.data(), texts=st.lists(TEXTS, max_size=4))
def test_no_text_makes_a_step_raise(adapted, data, texts):
    id, kwargs, _ = data.draw(st.sampled_from(adapted))
    env = make(id, **kwargs)
    env.reset(seed=2)
    for text in texts:
        assert math.isfinite(env.step(text).reward)


# gymnasium and MiniGrid


def walk(env: Env, names: str) -> list[Step]:
    return [env.step(name) for name in names.split()]


def test_cliff_walking_has_a_known_best_walk():
    env = make("gymnasium:CliffWalking-v1")
    observation, _ = env.reset(seed=0)
    assert observation.splitlines()[3] == "PCCCCCCCCCCG"
    steps = walk(env, "UP " + "right " * 11 + "down")
    assert sum(step.reward for step in steps) == -13
    assert steps[-1].terminated and steps[-1].info["success"]
    assert env.step("up").info["action_is_effective"] is False
    env.reset(seed=0)
    assert env.step("right").reward == -100


def test_taxi_is_solved_by_the_places_that_it_names():
    env = make("gymnasium:Taxi-v4")
    text, _ = env.reset(seed=3)
    assert text.endswith(
        "Taxi: row 0, column 2. The passenger waits at red (row 0, column 0) and goes to yellow (row 4, column 0)."
    )
    assert text.splitlines()[1] == "|R: |T: :G|"
    steps = walk(env, "south south west west north north pickup south south south south dropoff")
    assert [step.reward for step in steps] == [-1.0] * 11 + [20.0]
    assert "sits in the taxi" in steps[6].observation
    assert steps[-1].info["success"] and steps[-1].terminated


def test_cart_pole_counts_as_solved_by_its_length_alone():
    env = make("gymnasium:CartPole-v1")
    assert "pole angle (rad)" in env.reset(seed=0)[0]
    steps = walk(env, "left " * 20)
    assert steps[-1].terminated and not steps[-1].info["success"]
    env = make("gymnasium:CartPole-v1", success_return=5)
    env.reset(seed=0)
    assert [step.info["success"] for step in walk(env, "left " * 6)] == [False] * 4 + [True] * 2


def test_a_retired_version_is_replaced_with_a_warning():
    with pytest.warns(UserWarning, match="Taxi-v4 is played instead"):
        assert make("gymnasium:Taxi-v3").name == "gymnasium:Taxi-v4"


class Odd(gymnasium.Env):
    """Every kind of observation; the reward is what was built in."""

    action_space = gymnasium.spaces.Discrete(2, start=5)
    observation_space = gymnasium.spaces.Dict(
        {
            "grid": gymnasium.spaces.Box(-1, 1, (2, 2)),
            "pair": gymnasium.spaces.Tuple((gymnasium.spaces.Discrete(3), gymnasium.spaces.MultiBinary(2))),
            "word": gymnasium.spaces.Text(5),
        }
    )

    def __init__(self, reward=0.0, image=False, text=False, says="number 6"):
        self.reward, self.says = reward, says
        if image:
            self.observation_space = gymnasium.spaces.Box(0, 255, (64, 64, 3), np.uint8)
        if text:
            self.action_space = gymnasium.spaces.Text(10)

    def look(self):
        return {"grid": np.array([[0.126, -0.001], [1, -1]]), "pair": (2, np.array([1, 0])), "word": "hi"}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.look(), {}

    def step(self, action):
        if action == "boom":
            raise ValueError(action)
        said = action == 6 if isinstance(self.says, str) and self.says == "number 6" else self.says
        return self.look(), self.reward, False, action == 6, {"is_success": said}


@pytest.fixture
def odd(monkeypatch):
    gymnasium.register("Odd-v0", entry_point=Odd)
    yield
    gymnasium.registry.pop("Odd-v0")


def test_any_describable_observation_is_put_in_words(odd):
    env = make("gymnasium:Odd-v0")
    assert env.reset(seed=0)[0] == "grid: \n0.13 0.00\n1.00 -1.00\npair: \n1: 2\n2: 1 0\nword: hi"
    assert env.actions == ("a0", "a1")
    step = env.step("a1")
    assert step.info["success"] and step.truncated
    assert make("gymnasium:Odd-v0", decimals=0, action_names=["no", "yes"]).actions == ("no", "yes")


@pytest.mark.parametrize("reward", [math.nan, math.inf, "much", [1, 2]])
def test_a_reward_that_is_no_number_is_an_error_and_not_a_score(odd, reward):
    env = make("gymnasium:Odd-v0", reward=reward)
    env.reset(seed=0)
    with pytest.raises(RuntimeError, match="gymnasium:Odd-v0 returned the reward"):
        env.step("a0")


@pytest.mark.parametrize("text", [True, False])
@pytest.mark.parametrize("says", ["False", [False], {}, np.array([True]), 0.5])
def test_a_success_that_is_no_bool_is_an_error_and_not_a_success(odd, says, text):
    env = make("gymnasium:Odd-v0", reward=1.0, says=says, text=text)
    env.reset(seed=0)
    with pytest.raises(TypeError, match=r"info\['is_success'\] is"):
        env.step("a0")


def test_a_success_may_be_a_number(odd):
    for says, solved in ((np.float32(1), True), (0.0, False), (np.False_, False), (None, False)):
        env = make("gymnasium:Odd-v0", says=says)
        env.reset(seed=0)
        assert env.step("a0").info["success"] is solved


def test_a_wrong_reward_for_a_text_is_an_error_as_well(odd):
    env = make("gymnasium:Odd-v0", text=True, reward=math.nan)
    env.reset(seed=0)
    with pytest.raises(RuntimeError, match="returned the reward nan"):
        env.step("fine")


class NoSpace(gymnasium.Env):
    """A class that sets no spaces, or renders nothing."""

    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012

    def __init__(self, actions=None, observations=None, render_mode=None):
        self.render_mode = render_mode
        if actions:
            self.action_space = gymnasium.spaces.Discrete(actions)
        if observations:
            self.observation_space = gymnasium.spaces.Box(0, 1, (observations,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(self.observation_space.shape), {}

    def render(self):
        return None


def test_an_environment_without_spaces_says_what_it_lacks(monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    register("NoSpace-v0", NoSpace)
    with pytest.raises(RecipeError, match="NoSpace-v0 has no action_space"):
        make("NoSpace-v0")
    with pytest.raises(RecipeError, match="NoSpace-v0 has no observation_space"):
        make("NoSpace-v0", actions=2)
    assert make("NoSpace-v0", actions=2, observations=3).reset(seed=0)[0] == "0.00 0.00 0.00", "it renders nothing"
    with pytest.raises(RuntimeError, match="NoSpace-v0 renders None, and its observation cannot be put in words"):
        make("NoSpace-v0", actions=2, observations=999).reset(seed=0)


def test_minigrid_s_ids_with_their_module_are_drawn_as_well():
    pytest.importorskip("minigrid")
    plain, named = make("minigrid:MiniGrid-Empty-5x5-v0"), make("gymnasium:minigrid:MiniGrid-Empty-5x5-v0")
    assert plain.reset(seed=1) == named.reset(seed=1)


def test_a_text_that_breaks_the_environment_cuts_the_episode_off(odd):
    env = make("gymnasium:Odd-v0", text=True, reward=1.0)
    env.reset(seed=0)
    assert env.actions is None and env.step("fine").reward == 1
    step = env.step("boom")
    assert step.truncated and step.reward == 0 and not step.info["action_is_valid"]
    assert not env.step("fine").info["action_is_effective"]


@pytest.mark.parametrize(
    ("id", "kwargs", "error", "message"),
    [
        ("gymnasium:Taxy-v4", {}, UnknownEnv, "did you mean Taxi-v4"),
        ("gymnsium:Taxi-v4", {}, UnknownEnv, "did you mean gymnasium:Taxi-v4"),
        ("gymnasium:", {}, UnknownEnv, "gymnasium:..."),
        ("gymnasium:Pendulum-v1", {}, RecipeError, "only Discrete and Text"),
        ("gymnasium:Odd-v0", {"image": True}, RecipeError, "12288 numbers, more than 512"),
        ("gymnasium:Odd-v0", {"action_names": ["a"]}, BadEnvKwargs, "2 different texts"),
        ("gymnasium:Odd-v0", {"action_names": ["a", "A"]}, BadEnvKwargs, "2 different texts"),
        ("gymnasium:Odd-v0", {"decimals": -1}, BadEnvKwargs, "decimals"),
        ("gymnasium:Taxi-v4", {"colour": 1}, BadEnvKwargs, "'colour'"),
        ("gymnasium:Taxi-v4", {"max_actions": 0}, BadEnvKwargs, "max_actions"),
        ("gymnasium:Taxi-v4", {"success_return": "much"}, BadEnvKwargs, "success_return"),
        ("minigrid:MiniGrid-Dorkey-5x5-v0", {}, UnknownEnv, "MiniGrid-DoorKey-5x5-v0"),
        ("minigrid:MiniGrid-Empty-5x5-v0", {"view": "side"}, BadEnvKwargs, "full, agent"),
        ("textarena:Wordel-v0", {}, UnknownEnv, "Wordle-v0"),
        ("textarena:ConnectFour-v0", {}, RecipeError, "several players"),
        ("textarena:BabyAiText-v0", {}, RecipeError, "needs another package"),
        ("textarena:GuessTheNumber-v0", {"colour": 1}, BadEnvKwargs, "'colour'"),
        pytest.param(*("reasoning-gym:countdwn", {}, UnknownEnv, "did you mean countdown"), marks=slow),
        pytest.param(*("reasoning-gym:countdown", {"colour": 1}, BadEnvKwargs, "'colour'"), marks=slow),
        pytest.param(
            *("reasoning-gym:countdown", {"min_numbers": -1}, RecipeError, "does not take these values"), marks=slow
        ),
        pytest.param(*("reasoning-gym:countdown", {"seed": 1}, BadEnvKwargs, "seed is set by the rollout"), marks=slow),
    ],
)
def test_what_cannot_be_built_says_why(odd, id, kwargs, error, message):
    with pytest.raises(error) as raised:
        make(id, **kwargs)
    assert message in str(raised.value)


def test_minigrid_is_drawn_and_solved():
    env = make("gymnasium:MiniGrid-Empty-5x5-v0")
    assert env.reset(seed=0)[0] == (
        "Mission: get to the green goal square\n#####\n#>..#\n#...#\n#..G#\n#####\n"
        "Things: goal (3, 3).\nYou: row 1, column 1, facing east."
    )
    assert not env.step("drop").info["action_is_effective"]
    steps = walk(env, "forward forward right forward forward")
    assert steps[-1].terminated and steps[-1].info["success"]
    assert steps[-1].reward == pytest.approx(1 - 0.9 * 6 / 100)  # six actions of a hundred: the package's formula


def test_a_minigrid_key_opens_its_door():
    env = make("minigrid:MiniGrid-DoorKey-5x5-v0")
    assert "yellow locked door (1, 2), yellow key (3, 1)" in env.reset(seed=3)[0]
    assert "carrying a yellow key" in walk(env, "right pickup")[-1].observation
    opened = walk(env, "left left forward right toggle")[-1].observation
    assert "yellow open door" in opened and "#>/.#" in opened
    env = make("minigrid:MiniGrid-DoorKey-5x5-v0", view="agent")
    lines = env.reset(seed=3)[0].splitlines()
    assert lines[0].startswith("Mission: use the key") and len(lines[7]) == 7 and lines[7][3] == "^" and "?" in lines[7]


# TextArena


def test_guessing_a_number_by_halves():
    env = make("textarena:GuessTheNumber-v0")
    env.reset(seed=0)
    assert "between 1 and 20" in env.instruction and env.max_actions == 11
    invalid = env.step("[99]")
    assert not invalid.info["action_is_valid"] and "outside the range" in invalid.observation and invalid.reward == 0
    low, high = 1, 20
    for _ in range(5):
        guess = (low + high) // 2
        step = env.step(str(guess))  # brackets are added
        if step.terminated:
            break
        low, high = (guess + 1, high) if "higher" in step.observation else (low, guess - 1)
    assert step.terminated and step.reward == 1 and step.info["success"]


def test_the_tower_of_hanoi_ends_by_its_solution_or_by_its_limit():
    env = make("textarena:TowerOfHanoi-v0")
    assert "A: [3, 2, 1]" in env.reset(seed=0)[0]
    wrong = env.step("C A")
    assert not wrong.info["action_is_valid"] and "A: [3, 2, 1]" in wrong.observation
    steps = [env.step(move) for move in ("A C", "A B", "C B", "A C", "B A", "B C", "A C")]
    assert steps[-1].reward == 1 and steps[-1].info["success"]
    env = make("textarena:TowerOfHanoi-v0", max_turns=2)
    env.reset(seed=0)
    last = [env.step(move) for move in ("A B", "B C", "C B")][-1]
    assert last.terminated and last.reward == 0 and not last.info["success"]
    for _ in range(30):
        env.reset(seed=0)
        assert not any(env.step("nonsense").terminated for _ in range(3))


def test_wordle_plays_words_on_disk_or_says_what_it_needs(tmp_path):
    """The real game, on a corpus of four words in NLTK's format."""
    words, tagger = tmp_path / "corpora/words", tmp_path / "taggers/averaged_perceptron_tagger_eng"
    words.mkdir(parents=True), tagger.mkdir(parents=True)
    for name in ("en", "en-basic"):
        (words / name).write_text("crane\nslate\nhouse\nplant\n")
    (tagger / "averaged_perceptron_tagger_eng.weights.json").write_text('{"bias": {"NN": 1.0}}')
    (tagger / "averaged_perceptron_tagger_eng.tagdict.json").write_text("{}")
    (tagger / "averaged_perceptron_tagger_eng.classes.json").write_text('["NN"]')
    code = (
        "import warnings; warnings.simplefilter('ignore')\n"
        "import nltk; nltk.download = lambda *a, **k: False\n"
        "from ragen_verl import make; from ragen_verl.errors import RecipeError\n"
        "try:\n    env = make('textarena:Wordle-v0')\n"
        "except RecipeError as error:\n    print(error)\nelse:\n"
        "    env.reset(seed=1); print([[s.reward, s.info['success']] for s in map(env.step,"
        " ['crane', 'slate', 'house', 'plant'])][-1])"
    )
    said = {}
    for data in (tmp_path, tmp_path / "empty"):
        env = {**os.environ, "NLTK_DATA": str(data), "HOME": str(tmp_path)}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
        said[data] = done.stdout.splitlines()[-1]
    assert said[tmp_path].endswith("True]")
    assert "python -m nltk.downloader words" in said[tmp_path / "empty"]


# reasoning-gym


@slow
@pytest.mark.parametrize(
    "task", ["countdown", "n_queens", "string_insertion", "simple_integration", "chain_sum", "acre"]
)
def test_the_right_answer_scores_one(task):
    env = make(f"reasoning-gym:{task}")
    env.reset(seed=8)
    assert not env.step("  ").terminated
    step = env.step(env.oracle()[0])
    assert step.reward == 1 and step.terminated and step.info["success"] and env.oracle() == []
    env.reset(seed=8)
    assert env.step("wrong").reward < 1


ATTACKS = [
    "__import__('pathlib').Path('{0}').touch()",
    "[__import__('pathlib').Path('{0}').touch()]",
    "().__class__.__base__.__subclasses__()",
    "9**9**9**9",
    "((9**99)**99)**99",
    "4**4**4**4**4",
    "factorial(10**9)",
    "1e999999999",
    "x**99999999",
    "exec",
]


@slow
@pytest.mark.parametrize(
    "task",
    [
        "string_insertion",
        "spiral_matrix",
        "binary_matrix",
        "n_queens",
        "countdown",
        "puzzle24",
        "simple_integration",
        "intermediate_integration",
        "polynomial_multiplication",
    ],
)
def test_no_answer_is_run_as_a_program(task, tmp_path):
    env = make(f"reasoning-gym:{task}")
    mark = tmp_path / "pwned"
    for attack in ATTACKS:
        env.reset(seed=1)
        assert env.step(attack.format(mark)).reward < 0.5
    assert not mark.exists()


def test_ordinary_answers_reach_the_scoring():
    assert harmless("countdown", "(25 + 3) * 2 - 1/4", "")
    assert harmless("simple_integration", "3*x**12/4 + sin(x)/2 + C", "")
    assert harmless("polynomial_multiplication", "6*x**21 - 4*x*y + 2", "")
    assert harmless("n_queens", "_ Q _ _\n_ _ _ Q", "") and harmless("n_queens", "[['_', 'Q']]", "")
    assert harmless("spiral_matrix", "1 2 3", "") and harmless("spiral_matrix", "[1, 2, 3]", "")
    assert harmless("word_sorting", "anything(at) all", "")
    assert not harmless("spiral_matrix", "print(1)", "") and not harmless("countdown", "2**3", "")


# randomness


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=30))
def test_streams_do_not_mix_whatever_the_order(turns):
    def draw(numpy: bool) -> float:
        return float(np.random.random()) if numpy else random.random()

    streams, expected = [GlobalRandomness() for _ in range(3)], []
    for index, stream in enumerate(streams):
        stream.seed(index)
        with copy.deepcopy(stream)():
            expected.append([draw(numpy) for who, numpy in turns if who == index])
    before, drawn = (random.getstate(), np.random.get_state()[1].tolist()), [[], [], []]
    for who, numpy in turns:
        with streams[who]():
            drawn[who].append(draw(numpy))
    assert drawn == expected
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


def test_the_global_generators_come_back_after_an_error():
    before = random.getstate()
    with pytest.raises(ZeroDivisionError), GlobalRandomness()():
        random.random()
        raise ZeroDivisionError
    assert random.getstate() == before


@pytest.mark.parametrize(
    ("game", "move"), [("Countdown", "[0 1 +]"), ("Cryptarithm", "[S 9]"), ("Slitherlink", "[h 0 0]")]
)
def test_textarena_games_that_log_actions_wrongly_are_played(game, move):
    env = make(f"textarena:{game}-v0")
    first, _ = env.reset(seed=0)
    refused = env.step("nothing")
    assert not refused.info["action_is_valid"] and "invalid move" in refused.observation
    played = env.step(move)
    assert played.info["action_is_valid"] and not played.truncated and played.observation not in ("", first)
    assert move not in played.observation


def test_textarena_prints_nothing(capfd):
    env = make("textarena:RushHour-v0")
    for seed in range(3):
        env.reset(seed=seed)
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(("budget", "wanted"), [(None, 200), (500, 475), (20, 20)])
def test_cart_pole_can_be_solved_within_its_budget(budget, wanted):
    env = make("gymnasium:CartPole-v1", max_actions=budget)
    env.reset(seed=0)
    solved = [env.after("x", 1.0, terminated=False, truncated=False).info["success"] for _ in range(env.max_actions)]
    assert solved.index(True) + 1 == wanted


def test_a_module_before_the_name_is_imported(tmp_path, monkeypatch):
    (tmp_path / "brings_one.py").write_text(
        "import gymnasium\ngymnasium.register('Brought-v0', 'gymnasium.envs.toy_text:CliffWalkingEnv')\n"
    )
    (tmp_path / "brings_nothing.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert make("gymnasium:brings_one:Brought-v0").reset(seed=0)
    gymnasium.registry.pop("Brought-v0")
    with pytest.raises(RecipeError, match="brings_nothing cannot be imported \\(ZeroDivisionError"):
        make("gymnasium:brings_nothing:Brought-v0")
    with pytest.raises(RecipeError, match="needs the package brings_no_more"):
        make("gymnasium:brings_no_more:Brought-v0")
    with pytest.raises(UnknownEnv, match="did you mean CliffWalking-v1"):
        make("gymnasium:brings_one:CliffWalkin-v1")


# the registry


class Mine(Env):
    def __init__(self, name, size=1):
        self.name, self.size = name, size


def test_another_package_can_bring_its_own_prefix(monkeypatch):
    entry = registry._Entry(f"{__name__}:Mine")
    monkeypatch.setattr(registry, "_scan", lambda group: registry._Scan({"mine": entry}, {}))
    assert (make("mine:a b:c", size=3).name, make("mine:x").size) == ("a b:c", 1)
    check("mine:x", {"size": 2})
    with pytest.raises(BadEnvKwargs, match="'colour'"):
        check("mine:x", {"colour": 2})


@pytest.mark.parametrize(
    ("id", "package", "extra", "further"),
    [
        ("minigrid:MiniGrid-Empty-5x5-v0", "minigrid", "minigrid", ""),
        ("textarena:GuessTheNumber-v0", "textarena", "textarena", ""),
        ("reasoning-gym:countdown", "reasoning_gym", "reasoning-gym", ""),
        ("openenv:http://127.0.0.1:1", "openenv", "openenv", ""),
        ("gem:game:Sudoku-v0-easy", "gem", "gem", "pip install --no-deps gem-llm==0.1.0"),
        ("verifiers:reverse-text", "verifiers", "verifiers", " where its pins"),
        (
            *("verifiers:reverse-text", "verifiers", "verifiers"),
            "`ragen-verl env serve verifiers:reverse-text` there, and play http://",
        ),
    ],
)
def test_a_missing_package_names_its_extra(id, package, extra, further):
    code = (
        "import sys\nclass Block:\n    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] == {package!r}: raise ModuleNotFoundError(name=name)\n"
        "sys.meta_path.insert(0, Block())\nfrom ragen_verl import make\nfrom ragen_verl.errors import MissingExtra\n"
        f"try: make({id!r})\nexcept MissingExtra as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert f'need {package}: run make add PACKAGE="ragen-verl[{extra}]" in a checkout' in done.stdout
    assert further in done.stdout


def test_nothing_is_imported_before_it_is_asked_for():
    """The adapters are, what they adapt is not."""
    packages = ["minigrid", "textarena", "reasoning_gym", "openenv", "pygame", "gem", "verifiers"]
    packages += ["nltk", "sympy", "datasets"]
    code = (
        "import sys, ragen_verl\nfrom ragen_verl.env import ids, registry\nids()\n"
        "print(all(registry.builder(f'{prefix}:x').func.__doc__ for prefix in registry.adapters()))\n"
        f"print([m for m in {packages!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "[]"]
