"""Environments in worker processes: the same episodes, and no hang or crash reaches another one."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
from dataclasses import replace

import pytest
from ragen_lab import checker as checks
from rough_envs import Apart, ApartLake, Count, Tell, TellAction
from toy_chat import Engine, say, tokenizer, wait_for

from ragen_verl import make, register
from ragen_verl.env import registry
from ragen_verl.env.hosting.process import EnvProcesses, ProcessDied
from ragen_verl.env.hosting.session import EnvFailed, ReplayDiffers
from ragen_verl.env.hosting.threads import EnvTimeout
from ragen_verl.errors import BadEnvKwargs, RecipeError
from ragen_verl.rollout.chat import ChatTokens
from ragen_verl.rollout.episode import Limits, play
from ragen_verl.rollout.protocols.ragen import Ragen
from ragen_verl.rollout.trajectory import StopReason

RULES = Ragen(max_actions_per_turn=1)


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    for kind in (Count, Apart, Tell, TellAction):
        register(f"{kind.__name__}-v0", kind)


@pytest.fixture(scope="module")
def processes():
    with EnvProcesses(2, timeout=2.0) as pool:
        yield pool


@pytest.fixture
def alone(processes):
    """One of the processes; earlier tests may have had it replaced."""
    return processes.workers[0]


def test_the_registry_knows_what_an_environment_runs_in():
    register("Variant-v0", Apart, name="another")
    asked = {id: registry.isolation(id) for id in ("Count", "Apart", "Variant", "FrozenLake", "http://a:1/Apart-v0")}
    assert asked == {
        "Count": "thread",
        "Apart": "process",
        "Variant": "process",
        "FrozenLake": "thread",
        "http://a:1/Apart-v0": "thread",
    }


@pytest.mark.parametrize(("id", "kwargs"), [("FrozenLake-v0", {"size": 5}), ("Apart-v0", {}), ("Sokoban-v0", {})])
def test_a_process_plays_what_a_thread_plays(processes, id, kwargs):
    far, near = processes.worker().make(id, **kwargs), make(id, **kwargs)
    for seed, rollout_index in ((3, 0), (3, 5), (8, 1)):
        options = {"rollout_index": rollout_index}
        assert far.reset(seed=seed, options=options) == near.reset(seed=seed, options=options)
        assert (far.instruction, far.actions, dict(far.symbols)) == (
            near.instruction,
            near.actions,
            dict(near.symbols),
        )
        for action in [*(near.actions or ("a", "b")), "no such thing", "\ud800", None] * 2:
            assert far.step(action) == near.step(action)
            assert far.render() == near.render()
    assert far.max_actions == near.max_actions and far.seed == near.seed and far.rollout_index == near.rollout_index
    far.close()


def test_the_checker_plays_it_in_a_process():
    register("ApartLake-v0", ApartLake)
    report = checks.check(checks.Subject.of("ApartLake-v0"), replace(checks.QUICK, limit=60), skip=["processes"])
    assert report.ok, str(report)  # ApartLake moves the generators of the process it is in
    unchecked = {name for name, verdict in report.rules.items() if verdict.word == "not checked"}
    assert unchecked == {"processes", "copies", "traces"}
    assert report.facts["scores"]["oracle"]["success"] == 1.0


def test_errors_come_over(processes):
    worker = processes.worker()
    before = worker.replaced
    with pytest.raises(BadEnvKwargs, match="'colour'"):
        worker.make("Apart-v0", colour=1)
    with pytest.raises(RecipeError, match="size must be an integer"):
        worker.make("FrozenLake-v0", size=1)
    env = worker.make("Apart-v0")
    env.reset(seed=1)
    with pytest.raises(EnvFailed, match="ValueError: as asked"):
        env.step("raise")
    assert env.step("on").observation.startswith("1 of"), "the process survived the exception"
    assert worker.replaced == before
    with pytest.raises(TypeError, match="cannot be copied"):
        pickle.dumps(env)


def test_a_class_that_no_other_process_can_import_is_refused(processes):
    class Local(Count):
        isolation = "process"

    register("Local-v0", Local)
    with pytest.raises(RecipeError, match=r"Local-v0 asks for a process.*declare it"):
        processes.worker().make("Local-v0")
    assert processes.worker().make("Apart-v0").reset(seed=1)


@pytest.mark.parametrize(
    ("action", "error", "says"),
    [("hang", EnvTimeout, "2 s"), ("exit", ProcessDied, "code 7"), ("crash", ProcessDied, "code -9")],
)
def test_one_episode_fails_and_those_beside_it_go_on(alone, action, error, says):
    culprit, others, local = alone.make("Apart-v0"), [alone.make("Apart-v0") for _ in range(3)], make("Count-v0")
    first, before = alone._process, alone.replaced
    for seed, env in enumerate([*others, culprit]):
        env.reset(seed=seed, options={"rollout_index": 2})
        env.step("one")
    with pytest.raises(error, match=says):
        culprit.step(action)
    assert first.poll() is not None and alone.replaced == before + 1
    for seed, env in enumerate(others):
        local.reset(seed=seed, options={"rollout_index": 2})
        assert [local.step("one"), local.step("two")][1] == env.step("two")
    assert alone.replaced == before + 1
    culprit.close()


def test_a_process_that_died_between_calls_costs_no_episode(alone):
    env, local = alone.make("Apart-v0"), make("Count-v0")
    for one in (env, local):
        one.reset(seed=4)
        one.step("a")
    alone._process.kill()
    alone._process.wait()
    assert env.step("b") == local.step("b")


@pytest.mark.parametrize(("id", "where"), [("Tell-v0", "began differently"), ("TellAction-v0", "at action 2")])
def test_an_episode_that_cannot_be_repeated_is_given_up(alone, id, where):
    env = alone.make(id)
    env.reset(seed=4)
    for _ in range(3):
        env.step("a")
    os.kill(alone._process.pid, signal.SIGKILL)
    alone._process.wait()
    with pytest.raises(ReplayDiffers, match=where):
        env.step("b")


def test_processes_end_with_their_pool():
    with EnvProcesses(2, timeout=5.0) as pool:
        envs = [pool.worker().make("Apart-v0") for _ in range(4)]
        running = [worker._process for worker in pool.workers]
        assert len({process.pid for process in running}) == 2 and not any(process.poll() for process in running)
        envs[0].close()
    wait_for(lambda: all(process.poll() is not None for process in running))
    with pytest.raises(RuntimeError, match="closed"):
        envs[1].reset(seed=1)
    with pytest.raises(ValueError, match="at least one"):
        EnvProcesses(0)


def test_rollouts_exclude_the_hung_and_the_crashed_alone(processes):
    """12 episodes in 2 processes: one hangs, one kills its process; 10 are played as in a thread."""
    words = tokenizer("qwen")
    chat, limits = ChatTokens(words, RULES), Limits(200, 5000, step_timeout=2.0)

    def engine(number):
        second = {3: "hang", 8: "crash"}.get(number, "two")
        said = ["one", second, "three", "win"]
        return Engine([say(words, f" go </think> <answer> {action} </answer>") for action in said])

    async def episodes(numbers):
        async def episode(number):
            worker = processes.worker()
            return await play(
                lambda: worker.make("Apart-v0"),
                seed=number,
                rollout_index=1,
                protocol=RULES,
                chat=chat,
                generate=engine(number),
                limits=limits,
                workers=worker.threads,
                env_id="Apart",
            )

        return await asyncio.gather(*map(episode, numbers))

    played, again = asyncio.run(episodes(range(12))), asyncio.run(episodes([20]))
    for number, trajectory in enumerate(played):
        if number in (3, 8):
            assert trajectory.stop_reason is StopReason.ENV_ERROR and trajectory.excluded, trajectory.error
            continue
        local = make("Count-v0")
        local.reset(seed=number, options={"rollout_index": 1})
        steps = [local.step(action) for action in ("one", "two", "three", "win")]
        assert trajectory.stop_reason is StopReason.SOLVED, trajectory.error
        assert [turn.reward for turn in trajectory.turns] == [step.reward for step in steps]
        assert [turn.observation for turn in trajectory.turns] == [step.observation for step in steps]
    assert again[0].success
