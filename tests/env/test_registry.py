"""Ids, lazy loading, errors that help, and a third-party package found by its id."""

from __future__ import annotations

import inspect
import os
import pickle
import shutil
import subprocess
import sys
from functools import partial

import gymnasium
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv
from gymnasium.wrappers import TransformObservation, TransformReward
from paths import ROOT
from ragen_envs.bandit import Bandit
from ragen_lab import checker as env_checker

from ragen_verl import Env, make, register
from ragen_verl.env import check, ids, registry
from ragen_verl.errors import BadEnvKwargs, RecipeError, UnknownEnv

EXAMPLE = ROOT / "examples" / "my_env"


@pytest.fixture(autouse=True)
def forget_registrations(monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})


def test_bare_name_means_the_highest_version():
    register("Twice-v1", "ragen_envs.bandit:Bandit")
    register("Twice-v10", "ragen_envs.frozen_lake:FrozenLake")
    register("Twice-v9", "ragen_envs.bandit:Bandit")
    assert type(make("Twice")).__name__ == "FrozenLake"
    assert type(make("Twice-v9")).__name__ == "Bandit"
    assert type(make("Sokoban")).__name__ == "Sokoban"


@pytest.mark.parametrize(
    ("asked", "nearest"),
    [
        ("Sokobann-v0", "Sokoban-v0"),
        ("sokoban", "Sokoban-v0"),
        ("FrozenLake-v7", "FrozenLake-v0"),
        ("frozen_lake", "FrozenLake-v0"),
        ("", None),
        ("zzz", None),
    ],
)
def test_unknown_id_names_the_nearest_or_lists_all(asked, nearest):
    with pytest.raises(UnknownEnv) as error:
        make(asked)
    if nearest:
        assert f"did you mean {nearest}?" in str(error.value)
    else:
        assert all(id in str(error.value) for id in ids())


@pytest.mark.parametrize("call", [lambda id, kw: make(id, **kw), check])
def test_unknown_kwargs_are_refused_before_building(call):
    with pytest.raises(BadEnvKwargs, match=r"'sizes'; it accepts size, frozen, success_rate, observation_format"):
        call("FrozenLake-v0", {"sizes": 4})
    with pytest.raises(BadEnvKwargs, match="accepts dim, boxes"):
        call("LargerSokoban", {"colour": 1})
    call("LargerSokoban-v0", {"boxes": 1})


def test_check_does_not_build():
    def never() -> Env:
        raise AssertionError("built")

    register("Never-v0", never)
    check("Never-v0", {})
    check("Never-v0")


def test_missing_kwargs_are_named():
    class Needy(Bandit):
        def __init__(self, table):
            super().__init__()

    register("Needy-v0", Needy)
    with pytest.raises(BadEnvKwargs, match="needs 'table'"):
        make("Needy-v0")
    make("Needy-v0", table=1)


def test_register_takes_strings_classes_partials_and_defaults():
    register("A-v0", "ragen_envs.bandit:Bandit", low="Calm", high="Wild")
    register("B-v0", Bandit, low="Calm", high="Wild")
    register("C-v0", partial(Bandit, low="Calm", high="Wild"))
    for id in ("A-v0", "B-v0", "C-v0"):
        assert make(id).high == "Wild"
        assert make(id, high="Storm").high == "Storm"


def test_same_registration_twice_is_harmless_another_is_not():
    register("Mine-v0", Bandit, low="Calm")
    register("Mine-v0", Bandit, low="Calm")
    with pytest.raises(RecipeError, match="taken by this process"):
        register("Mine-v0", Bandit)
    with pytest.raises(RecipeError, match="taken by ragen-verl"):
        register("Sokoban-v0", Bandit)


def test_ids_need_a_version():
    with pytest.raises(RecipeError, match="'Mine-v0'"):
        register("Mine", Bandit)


@pytest.mark.parametrize(
    "target", ["no_such_module:Env", "ragen_envs.bandit:NoSuch", "ragen_envs.bandit:PAIRS", "ragen_envs.bandit"]
)
def test_broken_entry_points_say_whose_they_are(target):
    register("Broken-v0", target)
    with pytest.raises(RecipeError, match="Broken-v0 of this process"):
        make("Broken-v0")


@pytest.mark.parametrize("target", [dict, "builtins:dict", lambda: {}])
def test_something_that_is_no_env_is_refused(target):
    register("NoEnv-v0", target)
    with pytest.raises(RecipeError, match=r"derived from ragen_verl\.Env"):
        make("NoEnv-v0")


def test_declared_environments_load_lazily():
    code = "import sys; from ragen_verl.env import ids; ids(); print([m for m in sys.modules if 'ragen_envs' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.fixture(scope="module")
def installed_example(tmp_path_factory):
    folder = tmp_path_factory.mktemp("example")
    source, target = folder / "my_env", folder / "site"
    shutil.copytree(EXAMPLE, source)  # a build leaves files behind: not in the repository
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--target", str(target), str(source)], check=True, timeout=120)
    return target


def test_example_package_is_found_by_its_id(installed_example):
    code = """
from gymnasium.utils.env_checker import check_env
from ragen_verl import make
from ragen_verl.env import ids
assert "GuessNumber-v0" in ids()
env = make("GuessNumber", largest=4)
print(env.reset(seed=3)[0])
assert not env.step("four").info["action_is_valid"]
step = env.step(env.oracle()[0])
print(step.reward, step.terminated, step.info["success"])
check_env(make("GuessNumber-v0"))
try:
    make("GuessNumber-v0", smallest=1)
except ValueError as error:
    print(error)
"""
    environment = {**os.environ, "PYTHONPATH": str(installed_example), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "No guess yet.",
        "1.0 True True",
        "GuessNumber-v0 does not take 'smallest'; it accepts largest.",
    ]


def test_package_installed_after_the_first_look_is_found(installed_example, monkeypatch):
    with pytest.raises(UnknownEnv):
        make("GuessNumber-v0")
    monkeypatch.syspath_prepend(str(installed_example))
    assert make("GuessNumber-v0").largest == 16
    registry._forget()


@pytest.fixture
def install(tmp_path, monkeypatch):
    """A function that declares things in the name of a package, as its installed metadata would."""

    def declare(package: str, text: str, group: str = registry.GROUP) -> None:
        info = tmp_path / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{group}]\n{text}\n")
        registry._forget()

    monkeypatch.syspath_prepend(str(tmp_path))
    yield declare
    monkeypatch.undo()
    registry._forget()


def test_two_packages_with_one_id_lose_that_id_alone(install):
    install("one", "Clash-v0 = one:Env\nBandit-v0 = one:Env")
    install("two", "Clash-v0 = two:Env\nFine-v0 = ragen_envs.bandit:Bandit")
    assert "Clash-v0" not in ids() and isinstance(make("Fine-v0"), Bandit) and make("Sokoban")
    with pytest.raises(RecipeError, match=r"packages (one and two|two and one) both declare Clash-v0"):
        make("Clash-v0")
    with pytest.raises(RecipeError, match="both declare Bandit-v0: uninstall one"):
        make("Bandit-v0")
    assert len(registry.faults()) == 2


def test_a_declared_name_without_a_version_harms_no_other(install):
    install("one", "NoVersion = ragen_envs.bandit:Bandit\nFine-v0 = ragen_envs.bandit:Bandit")
    assert {"Fine-v0", "Sokoban-v0"} <= set(ids()) and isinstance(make("Fine"), Bandit)
    with pytest.raises(RecipeError, match=r"package one declares the environment 'NoVersion'.*call it 'NoVersion-v0'"):
        make("NoVersion")


@pytest.mark.parametrize(
    "code",
    ["1 / 0", "raise SystemExit(3)", "raise BaseException('no')", "import no_such_thing", "raise KeyboardInterrupt"],
)
def test_an_import_that_raises_anything_harms_no_other(install, tmp_path, monkeypatch, code):
    (tmp_path / "raises.py").write_text(code)
    install("one", "Raises-v0 = raises:Env")
    assert {"Raises-v0", "Sokoban-v0"} <= set(ids())
    with pytest.raises(RecipeError, match="Raises-v0 of one cannot be imported"):
        make("Raises-v0")
    with pytest.raises(UnknownEnv, match="did you mean Sokoban-v0"):
        make("Sokobann")


def test_a_user_s_interrupt_of_an_import_is_one(install, tmp_path):
    (tmp_path / "interrupted.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\nlist(range(9))")
    install("one", "Interrupted-v0 = interrupted:Env")
    with pytest.raises(KeyboardInterrupt):
        make("Interrupted-v0")


@pytest.mark.parametrize("line", [b"L\xff-v0 = a:b", b"Lost-v0"])
def test_entry_points_that_are_no_text_harm_no_other(install, tmp_path, line):
    install("one", "Fine-v0 = ragen_envs.bandit:Bandit")
    install("two", "Lost-v0 = ragen_envs.bandit:Bandit")
    (tmp_path / "two-1.0.dist-info" / "entry_points.txt").write_bytes(b"[ragen_verl.envs]\n" + line + b"\n")
    registry._forget()
    assert isinstance(make("Fine-v0"), Bandit) and make("Sokoban") and make("gymnasium:Taxi-v4")
    assert any("two-1.0.dist-info cannot be read" in fault for fault in registry.faults())
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "ragen_verl", "env", "list"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0 and "Fine-v0" in done.stdout and "Traceback" not in done.stderr, done.stderr


def test_two_adapters_with_one_prefix_are_named(install):
    install("one", "gymnasium = raises:Env", registry.ADAPTERS)
    with pytest.raises(RecipeError, match="both declare gymnasium: uninstall one of them"):
        make("gymnasium:Taxi-v4")


@pytest.mark.parametrize("text", ["bad = raises:Env", "gymnasium = raises:Env"])
def test_a_bad_adapter_harms_no_other(install, text):
    install("one", text, registry.ADAPTERS)
    with pytest.raises(RecipeError):
        make(text.partition(" ")[0] + ":Taxi-v4")
    assert make("minigrid:MiniGrid-Empty-5x5-v0") and make("Sokoban")
    with pytest.raises(UnknownEnv, match="did you mean Sokoban-v0"):
        make("Sokobann")


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("MiniGrid-LavaGapS5-v0", "minigrid:MiniGrid-LavaGapS5-v0"),
        ("BabyAI-GoToRedBall-v0", "minigrid:BabyAI-GoToRedBall-v0"),
        ("Taxi-v4", "gymnasium:Taxi-v4"),
        ("gimnasium:Taxi-v4", "gymnasium:Taxi-v4"),
    ],
)
def test_an_id_without_its_prefix_is_answered_with_it(asked, meant):
    with pytest.raises(UnknownEnv, match=f"did you mean {meant}\\?"):
        make(asked)


def test_an_id_of_a_package_that_is_absent_gets_its_prefix(monkeypatch):
    monkeypatch.setattr(registry, "_names", lambda prefix: [])
    with pytest.raises(UnknownEnv, match="did you mean minigrid:MiniGrid-LavaGapS5-v0"):
        make("MiniGrid-LavaGapS5-v0")


class Secret(gymnasium.Env):
    """A plain gymnasium environment in words: nothing in it knows of ragen_verl."""

    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012
    action_space = gymnasium.spaces.Text(20)
    observation_space = gymnasium.spaces.Text(100)
    instruction = "Say the number."

    def __init__(self, largest=9, render_mode=None):
        self.largest, self.render_mode = largest, render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.number = int(self.np_random.integers(self.largest))
        return f"A number below {self.largest}.", {}

    def step(self, action):
        valid = action.isdecimal()
        right = valid and int(action) == self.number
        luck = int(self.np_random.integers(10**6))
        return f"No, {luck}.", float(right), right, False, {"action_is_valid": valid, "success": right}

    def render(self):
        return ""


class Doors(Secret):
    action_space = gymnasium.spaces.Discrete(2, start=3)
    observation_space = gymnasium.spaces.Discrete(2)

    def __init__(self, max_actions=7):
        super().__init__()
        self.most = max_actions

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        return 1, float(action == 4), action == 4, False, {}


@pytest.mark.parametrize("target", [Secret, partial(Secret), lambda largest=9: Secret(largest)])
def test_a_plain_gymnasium_class_is_played_by_its_id(target):
    register("Secret-v0", target)
    env = make("Secret", largest=5)
    assert env.reset(seed=3) == ("A number below 5.", {}) and env.actions is None
    assert env.instruction == "Say the number."
    step = env.step("seven")
    assert step.observation.startswith("No, ") and not step.info["action_is_valid"]
    step = env.step(str(env.env.number))
    assert step.reward == 1.0 and step.terminated and step.info["success"] and step.info["action_is_valid"]
    said = set()
    for rollout_index in (0, 1, 1):
        env.reset(seed=3, options={"rollout_index": rollout_index})
        said.add(env.step("x").observation)
    assert len(said) == 2


def test_a_plain_class_takes_its_own_and_the_adapter_s_arguments():
    register("Secret-v0", Secret)
    register("Doors-v0", Doors)
    assert make("Secret-v0", largest=3, max_actions=4, instruction="Guess.").max_actions == 4
    env = make("Doors-v0", action_names=["left", "right"], max_actions=5)
    assert env.env.most == 5 and env.actions == ("left", "right")  # its own argument of that name comes first
    assert env.reset(seed=0)[0] == "state 0" and env.step("RIGHT").terminated
    with pytest.raises(BadEnvKwargs, match="'colour'; it accepts largest, render_mode, action_names"):
        check("Secret-v0", {"colour": 1})
    with pytest.raises(BadEnvKwargs, match="takes free text"):
        make("Secret-v0", action_names=["a"])
    assert pickle.loads(pickle.dumps(env)).step("left").observation == "state 1"


class Pole(gymnasium.Wrapper):
    """CartPole in a wrapper, as a package may declare it."""

    def __init__(self):
        super().__init__(CartPoleEnv())


class Survives(gymnasium.Env):
    """Every action earns something until the player dies, and the last one as well."""

    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Discrete(100)

    def __init__(self, rewards=(1.0, 1.0, 1.0)):
        self.rewards = rewards

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.played = 0
        return 0, {}

    def step(self, action):
        self.played += 1
        return self.played, self.rewards[self.played - 1], self.played == len(self.rewards), False, {}


def test_a_declared_wrapper_keeps_the_table_of_its_environment():
    register("Pole-v0", Pole)
    env = make("Pole-v0")
    assert env.actions == ("left", "right") and "Keep the pole" in env.instruction
    assert "pole angle" in env.reset(seed=0)[0]
    steps = [env.step("left") for _ in range(20)]
    assert steps[-1].terminated and not any(step.info["success"] for step in steps)
    register("Lake-v0", FrozenLakeEnv)
    lake = make("Lake-v0", is_slippery=False)
    assert lake.actions == ("left", "down", "right", "up") and lake.reset(seed=0)[0].startswith("PFFF")
    steps = [lake.step(way) for way in ["down", "down", "right", "right", "down", "right"]]
    assert steps[-1].info["success"] and not steps[-2].info["success"]


def test_a_wrapper_that_pays_otherwise_is_not_solved_by_its_sum():
    register("Pole-v0", lambda: TransformReward(CartPoleEnv(), lambda reward: 100 * reward))
    env = make("Pole-v0")
    env.reset(seed=0)
    assert not any(env.step("left").info["success"] for _ in range(20)) and "Keep the pole" in env.instruction


@pytest.mark.parametrize("ended", ["False", [False], None])
def test_an_end_that_is_no_bool_is_an_error(ended):
    env = make("gymnasium:FrozenLake-v1")
    env.reset(seed=0)
    env.env.step = lambda action: (0, 0.0, ended, False, {})
    with pytest.raises(TypeError, match=r"terminated is .*: make it one bool"):
        env.step("left")


def test_a_wrapper_that_shows_something_else_is_shown():
    register("Cell-v0", lambda: TransformObservation(FrozenLakeEnv(), str, gymnasium.spaces.Text(9)))
    env = make("Cell-v0")
    assert env.reset(seed=0)[0] == "0" and env.actions == ("left", "down", "right", "up")


@pytest.mark.parametrize(
    ("rewards", "solved"),
    [
        ((1.0, 1.0, 1.0), False),
        ((0.2, 0.1, 3.0), False),
        ((1.0,), True),
        ((0.0, 1.0, 1.0), True),
        ((1.0, 0.0), False),
        ((1.0, -1.0, 2.0), True),
    ],
)
def test_to_be_paid_at_every_step_is_no_success(rewards, solved):
    register("Survives-v0", Survives)
    env = make("Survives-v0", rewards=rewards)
    for _ in range(2):  # the second episode of an instance is judged alike
        env.reset(seed=0)
        steps = [env.step("a0") for _ in rewards]
        assert [step.info["success"] for step in steps] == [False] * (len(rewards) - 1) + [solved]
    assert make("Survives-v0", rewards=rewards, success_return=0.5).reset(seed=0)


def test_a_declared_plain_class_passes_the_checker(install, tmp_path):
    (tmp_path / "plain_secret.py").write_text(f"import gymnasium\n\n\n{inspect.getsource(Secret)}")
    install("plain", "PlainSecret-v0 = plain_secret:Secret")
    report = env_checker.check(env_checker.Subject.of("PlainSecret-v0"), env_checker.QUICK, skip=["processes"])
    assert report.ok, report
