"""The base class, and what every environment must keep: generators, text in, purity of imports."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen_verl import Env, Step, make
from ragen_verl.env import Names, ids
from ragen_verl.errors import RecipeError

OURS = [
    *("Bandit-v0", "BanditTest-v0", "BanditGen-v0", "BanditGenTest-v0", "BanditRev-v0", "BanditRevTest-v0"),
    *("Sokoban-v0", "SimpleSokoban-v0", "LargerSokoban-v0", "SokobanNewVocab-v0", "CoordSokoban-v0"),
    *("FrozenLake-v0", "CoordFrozenLake-v0"),
]
BASE = ["Bandit-v0", "Sokoban-v0", "FrozenLake-v0"]


def episode(id, seed, rollout_index):
    env = make(id)
    seen = [env.reset(seed=seed, options={"rollout_index": rollout_index})[0]]
    chooser = np.random.default_rng(seed)
    for _ in range(30):
        step = env.step(env.actions[chooser.integers(len(env.actions))])
        seen.append([step.observation, step.reward, step.terminated, step.truncated, step.info])
    return seen


# The same function for another process, which imports nothing else.
EPISODE = "import json, sys\nimport numpy as np\nfrom ragen_verl import make\n" + inspect.getsource(episode)


def fingerprint(ids_: list[str]) -> str:
    return json.dumps([episode(id, seed, seed % 3) for id in ids_ for seed in range(5)])


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("id", OURS)
@pytest.mark.filterwarnings("ignore:.*Not able to test alternative render modes")
def test_gymnasium_accepts_it(id):
    check_env(make(id))


@pytest.mark.parametrize("id", OURS)
def test_docstring_has_gymnasiums_sections(id):
    text = type(make(id)).__doc__
    wanted = "Description, Action Space, Observation Space, Starting State, Rewards, Episode End, Arguments"
    for section in [*wanted.split(", "), "Version History"]:
        assert f"## {section}" in text


def test_same_seed_same_episode_in_another_process():
    code = EPISODE + f"\nprint(json.dumps([episode(i, s, s % 3) for i in {OURS} for s in range(5)]))"
    assert run(code) == fingerprint(OURS)


@pytest.mark.parametrize("id", BASE)
def test_same_seed_same_episode_beside_a_hundred_others(id):
    alone = [episode(id, seed, 1) for seed in range(100)]
    envs = [make(id) for _ in range(100)]
    seen = [[env.reset(seed=seed, options={"rollout_index": 1})[0]] for seed, env in enumerate(envs)]
    choosers = [np.random.default_rng(seed) for seed in range(100)]
    for _ in range(30):
        for env, chooser, log in zip(envs, choosers, seen, strict=True):
            step = env.step(env.actions[chooser.integers(len(env.actions))])
            log.append([step.observation, step.reward, step.terminated, step.truncated, step.info])
    assert seen == alone


@pytest.mark.parametrize("id", BASE)
def test_global_generators_are_left_alone(id):
    np.random.seed(0)
    before = np.random.get_state()[1].tolist()
    episode(id, 7, 0)
    assert np.random.get_state()[1].tolist() == before


@pytest.mark.parametrize("id", OURS)
def test_a_group_starts_alike_and_then_differs(id):
    env = make(id)
    for seed in range(10):
        starts = {env.reset(seed=seed, options={"rollout_index": rollout_index})[0] for rollout_index in range(16)}
        assert len(starts) == 1
        lucks = set()
        for rollout_index in range(16):
            env.reset(seed=seed, options={"rollout_index": rollout_index})
            lucks.add(tuple(env.dynamics.random(4)))
        assert len(lucks) == 16


def test_rollout_index_zero_is_apart_from_np_random():
    env = make("FrozenLake-v0")
    env.reset(seed=3)
    first = env.dynamics.random(4).tolist()
    env.reset(seed=3, options={"rollout_index": 0})
    assert env.dynamics.random(4).tolist() == first
    assert np.random.default_rng(3).random(4).tolist() != first


@pytest.mark.parametrize("rollout_index", [-1, 1.5, "2", True])
def test_bad_rollout_index_is_refused(rollout_index):
    with pytest.raises(RecipeError, match="rollout_index"):
        make("Bandit-v0").reset(seed=0, options={"rollout_index": rollout_index})


def test_reset_without_a_seed_is_reproducible_afterwards():
    env = make("Sokoban-v0")
    env.reset(seed=1)
    first, _ = env.reset()
    second, _ = env.reset()
    assert first != second
    seed = env.seed
    assert make("Sokoban-v0").reset(seed=seed)[0] == second


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
@pytest.mark.parametrize("id", BASE)
def test_a_copy_draws_the_same_transitions(id, clone):
    env = make(id)
    env.reset(seed=11, options={"rollout_index": 2})
    if id != "Bandit-v0":
        env.step(env.actions[0])
    twin = clone(env)
    for k in range(40):
        assert env.step(env.actions[k % len(env.actions)]) == twin.step(twin.actions[k % len(twin.actions)])
    assert env.reset() == twin.reset()


@settings(max_examples=150, deadline=None)
@given(id=st.sampled_from(OURS), actions=st.lists(st.text(max_size=20) | st.sampled_from(["up", " LEFT ", "Dragon"])))
def test_step_never_raises_and_stays_in_its_spaces(id, actions):
    env = _shared(id)
    observation, info = env.reset(seed=5)
    assert observation in env.observation_space and info == {}
    for action in actions:
        before = env.render()
        step = env.step(action)
        assert isinstance(step, Step) and step.observation in env.observation_space
        assert step.observation == env.render()
        assert {"success", "action_is_valid", "action_is_effective"} <= set(step.info)
        assert step.info["action_is_valid"] == (action in env.action_space)
        if not step.info["action_is_valid"]:
            assert (step.observation, step.reward) == (before, 0.0) and not step.info["action_is_effective"]


_made: dict[str, Env] = {}


def _shared(id: str) -> Env:
    return _made.setdefault(id, make(id))


@pytest.mark.parametrize("id", OURS)
@pytest.mark.parametrize("junk", [None, 3, b"Up", ["Up"], np.int64(1)])
def test_step_takes_even_what_is_no_text(id, junk):
    env = _shared(id)
    env.reset(seed=0)
    assert not env.step(junk).info["action_is_valid"]


@pytest.mark.parametrize("id", BASE)
def test_step_before_reset_says_so(id):
    env = make(id)
    with pytest.raises(ResetNeeded):
        env.step(env.actions[0])


@pytest.mark.parametrize("id", BASE)
def test_nothing_happens_after_the_end(id):
    env = make(id, **({"success_rate": 1.0} if id == "FrozenLake-v0" else {}))
    env.reset(seed=2)
    for action in env.oracle():
        step = env.step(action)
    assert step.terminated and step.info["success"]
    again = env.step(env.actions[0])
    assert (again.observation, again.reward, again.terminated) == (step.observation, 0.0, True)
    assert env.oracle() == []


def test_environments_import_neither_verl_nor_torch():
    code = EPISODE + f"\nfor id in {OURS}: episode(id, 0, 0)\n"
    code += "print(sorted({'verl', 'torch', 'ray', 'transformers', 'vllm', 'gymnasium'} & set(sys.modules)))"
    assert run(code) == "['gymnasium']"


def test_instructions_are_short_and_name_no_other_size():
    for id in OURS:
        env = make(id)
        env.reset(seed=0)
        assert len(env.instruction) < 700
    assert "5 x 5" in make("FrozenLake-v0", size=5).instruction


def test_names_space():
    names = Names(("Up", "Down"), seed=1)
    assert "up" in names and " DOWN\n" in names and "left" not in names and 3 not in names
    assert {names.sample() for _ in range(50)} == {"Up", "Down"}
    assert names == Names(("Up", "Down")) and names != Names(("Down", "Up")) and "Up" in repr(names)


def test_free_text_environment_has_a_text_action_space():
    class Echo(Env):
        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.said = ""
            return self.render(), {}

        def step(self, action):
            self.said = action
            return self.outcome(1.0, words=2.0)

        def render(self):
            return self.said

    env = Echo()
    env.reset(seed=0)
    assert "anything at all" in env.action_space and env.oracle() == []
    assert env.step("a b").info["words"] == 2.0


class SeedAlone(Env):
    """Its author hands on the seed alone, as gymnasium's documentation shows it."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = int(self.np_random.integers(1000))
        return self.render(), {}

    def render(self):
        return str(self.place)


class SeedAloneTwice(SeedAlone):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)


class NoEnv:
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)


class SeedAloneMixed(NoEnv, SeedAlone):
    pass


class WithOptions(SeedAlone):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed, options=options)


class Wrapped(gymnasium.Wrapper):
    """A wrapper, and one that changes nothing."""

    def __init__(self):
        super().__init__(SeedAloneTwice())

    dynamics = property(lambda self: self.env.dynamics)


@pytest.mark.parametrize("kind", [SeedAlone, SeedAloneTwice, SeedAloneMixed, WithOptions, Wrapped])
def test_rollout_index_arrives_without_the_options(kind):
    env, draws = kind(), []
    for rollout_index in (0, 1, 2, 1):
        observation = env.reset(seed=4, options={"rollout_index": rollout_index})[0]
        assert observation == SeedAlone().reset(seed=4)[0] and env.unwrapped.rollout_index == rollout_index
        draws.append(env.dynamics.random())
    assert draws[1] == draws[3] and len(set(draws)) == 3
    env.reset(seed=4)  # nothing is left of the options before
    assert env.unwrapped.rollout_index == 0 and env.dynamics.random() == draws[0]


def test_rollout_index_survives_a_reset_that_raised():
    class Raises(SeedAlone):
        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            if seed == 1:
                raise OSError("as asked")
            return self.render(), {}

    env = Raises()
    with pytest.raises(OSError):
        env.reset(seed=1, options={"rollout_index": 3})
    env.reset(seed=2)
    assert env.rollout_index == 0


def test_reset_keeps_the_author_s_signature_and_text():
    assert inspect.signature(SeedAlone.reset) == inspect.signature(NoEnv.reset)
    assert make("Sokoban-v0").reset.__doc__


def test_a_name_is_matched_by_one_rule():
    class Straight(SeedAlone):
        actions = ("Straße", " Up ")

        def step(self, action):
            return self.outcome(valid=self.name_of(action) is not None)

    env = Straight()
    for said in ("STRASSE", " straße\n", "up", "UP"):
        assert env.name_of(said) in env.actions and said in env.action_space
    assert env.name_of("U p") is None and env.name_of(3) is None


def test_every_id_is_declared():
    assert set(OURS) <= set(ids())
