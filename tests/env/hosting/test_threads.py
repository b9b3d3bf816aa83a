from __future__ import annotations

import asyncio
import threading
import time

import pytest
from toy_chat import Engine, Walk, say, tokenizer, wait_for

from ragen_verl.env.hosting.client import ServerUnreachable
from ragen_verl.env.hosting.threads import EnvTimeout, EnvWorkers
from ragen_verl.errors import RecipeError
from ragen_verl.rollout.chat import ChatTokens
from ragen_verl.rollout.episode import Limits, play
from ragen_verl.rollout.protocols.ragen import Ragen
from ragen_verl.rollout.trajectory import StopReason


def env_threads() -> int:
    return sum(thread.name == "ragen-env" for thread in threading.enumerate())


async def test_hanging_environments_do_not_stop_the_others():
    """3 of 20 hang in a pool of 4 threads: the other 17 are played meanwhile, and the pool keeps its size."""
    release = threading.Event()

    class Stuck(Walk):
        def step(self, action):
            release.wait()

    words, rules = tokenizer("qwen"), Ragen()
    chat, right = ChatTokens(words, rules), say(words, " go </think> <answer> Right </answer>")

    def episodes(envs, step_timeout):
        limits, engine = Limits(200, 5000, step_timeout=step_timeout), Engine([right])
        common = dict(seed=3, rollout_index=1, protocol=rules, chat=chat, generate=engine, limits=limits, workers=pool)
        return [asyncio.create_task(play(env, **common)) for env in envs]

    with EnvWorkers(4) as pool:
        stuck = episodes([Stuck() for _ in range(3)], step_timeout=5.0)
        others = episodes([Walk(hang="step", seconds=0.01) for _ in range(17)], step_timeout=60.0)
        await asyncio.wait(others)
        assert not any(task.done() for task in stuck), "the others waited for a timeout"
        assert {task.result().stop_reason for task in others} == {StopReason.SOLVED}
        assert [(await task).stop_reason for task in stuck] == [StopReason.ENV_ERROR] * 3 and pool.abandoned == 3
        # all four threads are there: four calls that need each other to go on
        barrier = threading.Barrier(4)
        await asyncio.gather(*(pool.call(barrier.wait, 5, timeout=5) for _ in range(4)))
        before = env_threads()
        release.set()
        await asyncio.to_thread(wait_for, lambda: env_threads() == before - 3)  # the late ones end


async def test_waiting_for_a_thread_is_not_counted_as_running():
    with EnvWorkers(1) as pool:
        await asyncio.gather(*(pool.call(time.sleep, 0.1, timeout=0.25) for _ in range(5)))
        assert pool.abandoned == 0


async def test_exceptions_come_out_and_threads_survive_them():
    def leave():
        raise SystemExit(3)

    with EnvWorkers(1) as pool:
        with pytest.raises(RuntimeError, match="SystemExit: 3"):
            await pool.call(leave, timeout=1)
        with pytest.raises(ZeroDivisionError):
            await pool.call(lambda: 1 / 0, timeout=1)
        with pytest.raises(EnvTimeout):
            await pool.call(time.sleep, 0.3, timeout=0.05)
        assert await pool.call(max, 1, 2, timeout=1) == 2
    with pytest.raises(RuntimeError, match="closed"):
        await pool.call(max, 1, 2, timeout=1)
    with pytest.raises(ValueError, match="at least one"):
        EnvWorkers(0)


async def test_a_cancelled_call_that_waits_never_runs():
    ran = []
    with EnvWorkers(1) as pool:
        first = asyncio.create_task(pool.call(time.sleep, 0.2, timeout=1))
        second = asyncio.create_task(pool.call(ran.append, 1, timeout=1))
        await asyncio.sleep(0.05)
        second.cancel()
        await first
        await pool.call(max, 1, 2, timeout=1)
    assert second.cancelled() and not ran


async def test_the_start_of_512_episodes_leaves_the_loop_free():
    """Environments are built and reset in threads: they wait for the loop to turn, which it could not do otherwise."""
    turned = threading.Event()

    class Waits(Walk):
        def __init__(self):
            assert turned.wait(60)
            super().__init__(goal=1)

        def reset(self, **arguments):
            assert turned.wait(60)
            return super().reset(**arguments)

    words, limits, rules = tokenizer("qwen"), Limits(200, 5000, step_timeout=120), Ragen()
    chat, right = ChatTokens(words, rules), say(words, " go </think> <answer> Right </answer>")

    async def turn():
        for _ in range(1000):
            await asyncio.sleep(0)
        turned.set()

    with EnvWorkers(4) as pool:
        episodes = [
            play(
                Waits,
                seed=3,
                rollout_index=rollout_index,
                protocol=rules,
                chat=chat,
                generate=Engine([right]),
                limits=limits,
                workers=pool,
            )
            for rollout_index in range(512)
        ]
        played, _ = await asyncio.gather(asyncio.gather(*episodes), turn())
    assert all(trajectory.success for trajectory in played)


async def test_what_builds_an_environment_may_fail():
    def play_built(build, pool):
        words, rules = tokenizer("qwen"), Ragen()
        return play(
            build,
            seed=3,
            rollout_index=1,
            protocol=rules,
            chat=ChatTokens(words, rules),
            generate=Engine([say(words, " go </think> <answer> Right </answer>")]),
            limits=Limits(200, 5000, step_timeout=0.5),
            workers=pool,
            env_id="Walk",
        )

    def fails(error):
        def build():
            raise error

        return build

    release = threading.Event()
    with EnvWorkers(1) as pool:
        for build, says in (
            (fails(OSError("no disk")), "make: OSError: no disk"),
            (fails(ServerUnreachable("no server")), "make: ServerUnreachable: no server"),
            (release.wait, "make: EnvTimeout"),
        ):
            played = await play_built(build, pool)
            assert played.stop_reason is StopReason.ENV_ERROR and says in played.error and not played.turns
        with pytest.raises(RecipeError, match="never"):
            await play_built(fails(RecipeError("never")), pool)
        release.set()
