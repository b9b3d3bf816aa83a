"""Environments on a server, as ids: the same episodes, retries that count once, and the loss of a server."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from env_servers import registering, server_processes, serving
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ragen_envs.serving.server import Settings
from ragen_lab import checker as checks
from rough_envs import STEPS, Count, Drifts
from toy_chat import Engine, say, tokenizer

from ragen_verl import make
from ragen_verl.env import registry
from ragen_verl.env.hosting import client as remote
from ragen_verl.env.hosting.client import ServerUnreachable, addresses
from ragen_verl.env.hosting.session import EnvFailed, ReplayDiffers
from ragen_verl.env.hosting.threads import EnvWorkers
from ragen_verl.errors import BadEnvKwargs, RecipeError, UnknownEnv
from ragen_verl.rollout.chat import ChatTokens
from ragen_verl.rollout.episode import Limits, play
from ragen_verl.rollout.protocols.ragen import Ragen
from ragen_verl.rollout.trajectory import StopReason


@pytest.fixture(scope="module", autouse=True)
def registered():
    with registering(Count=Count, Drifts=Drifts):
        yield


@pytest.fixture(scope="module")
def server():
    with serving(Settings(idle_seconds=60.0)) as one:
        yield one


@pytest.fixture(autouse=True)
def fresh_knowledge(monkeypatch):
    monkeypatch.setattr(remote, "_servers", {})
    monkeypatch.delenv(remote.TOKEN, raising=False)


TEXTS = st.text(max_size=20) | st.sampled_from(["Up", "up ", "\ud800", "\x00", "a" * 1_000_000])


def both(server, id, **kwargs):
    return make(f"{server.url}/{id}", **kwargs), make(id, **kwargs)


def same_start(far, near, seed, rollout_index=0):
    options = {"rollout_index": rollout_index}
    assert far.reset(seed=seed, options=options) == near.reset(seed=seed, options=options)
    assert (far.instruction, far.actions, dict(far.symbols)) == (near.instruction, near.actions, dict(near.symbols))
    assert (far.max_actions, far.charset, far.seed, far.rollout_index) == (
        near.max_actions,
        near.charset,
        seed,
        rollout_index,
    )


# -- the contract -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("id", "kwargs"),
    [("FrozenLake-v0", {"size": 5}), ("Sokoban", {}), ("Countdown-v0", {}), ("LargerSokoban-v0", {"boxes": 1})],
)
def test_a_server_plays_what_is_played_here(server, id, kwargs):
    far, near = both(server, id, **kwargs)
    for seed, rollout_index in ((0, 0), (0, 4), (7, 1)):
        same_start(far, near, seed, rollout_index)
        for action in [*(near.actions or ("1", "1 + 1")), "no such thing", "", None, 3, ["Up"]] * 2:
            assert far.step(action) == near.step(action)
            assert far.render() == near.render()
    far.close()


@pytest.mark.parametrize("kind", np.random.BitGenerator.__subclasses__())
def test_a_generator_of_any_kind_draws_there_as_here(server, kind):
    far, near = both(server, "WebShop-v0")
    same_start(far, near, seed=2)
    draws = []
    for env in (far, near):
        rng = np.random.Generator(kind(5))
        draws.append([env.random_action(rng), rng.integers(9), env.random_action(rng), rng.random()])
    assert draws[0] == draws[1]


def test_a_lost_world_draws_on_as_if_it_had_not_been(server):
    far, near = both(server, "WebShop-v0")
    same_start(far, near, seed=2)
    rngs = [np.random.default_rng(3) for _ in range(2)]
    for number in range(4):
        actions = [env.random_action(rng) for env, rng in zip((far, near), rngs, strict=True)]
        assert actions[0] == actions[1] and far.step(actions[0]) == near.step(actions[1])
        if number == 1:
            server.sessions.open.clear()


def test_the_checker_plays_on_a_server(server):
    report = checks.check(checks.Subject.of(f"{server.url}/Sokoban-v0"), replace(checks.QUICK, limit=60))
    assert report.ok, str(report)
    assert {verdict.word for verdict in report.rules.values()} == {"kept"}
    assert report.facts["scores"]["oracle"]["success"] == 1.0


def test_an_integer_too_long_to_write_arrives_as_none():
    class Huge(Count):
        def step(self, action):
            return self.outcome(
                1.0, success=False, terminated=False, number=10**5000, inside=[1, {"more": -(10**5000)}]
            )

    with registering(Huge=Huge), serving(Settings(idle_seconds=60.0)) as one:
        far = make(f"{one.url}/Huge-v0")
        far.reset(seed=1)
        info = far.step("go").info
    assert (info["number"], info["inside"]) == (None, [1, {"more": None}])


@given(seed=st.integers(0, 2**31), rollout_index=st.integers(0, 50), actions=st.lists(TEXTS, max_size=6))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_arrives_as_it_is(server, seed, rollout_index, actions):
    far, near = both(server, "FrozenLake-v0")
    same_start(far, near, seed, rollout_index)
    for action in actions:
        assert far.step(action) == near.step(action)
    far.close()


def test_a_seed_that_the_client_draws_repeats_the_episode(server):
    far, near = both(server, "Sokoban-v0")
    first, _ = far.reset()
    assert near.reset(seed=far.seed)[0] == first
    second, _ = far.reset()
    assert near.reset(seed=far.seed)[0] == second != first


def test_copies_play_on_by_themselves(server):
    far, near = both(server, "FrozenLake-v0")
    same_start(far, near, 5, 2)
    assert far.step("Up") == near.step("Up")
    twins = [copy.deepcopy(far), pickle.loads(pickle.dumps(far))]
    sessions = len(server.sessions.open)
    for action in ("Left", "Down", "Up"):
        expected = near.step(action)
        assert all(env.step(action) == expected for env in (far, *twins))
    assert len(server.sessions.open) == sessions + 2
    for env in (far, *twins):
        env.close()
        env.close()
    assert len(server.sessions.open) == sessions - 1


# -- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("id", "says"),
    [
        ("http://127.0.0.1:9", "is no address of an environment"),
        ("ftp://a/Count-v0", "There is no environment"),
        ("http://a:1/Count-v0,", "is no address of an environment"),
        ("http://a:1/Count-v0?size=4", "ends in a query"),
        ("http://a:1/Count-v0,http://b:1/Sokoban-v0", "name different environments"),
    ],
)
def test_addresses_that_cannot_be_right(id, says):
    with pytest.raises(RecipeError, match=says):
        make(id)


def test_addresses_are_split():
    assert addresses("http://a:1/X-v0/, https://b/X-v0,http://a:1/X-v0") == ["http://a:1/X-v0", "https://b/X-v0"]
    assert registry.resolve("http://a:1/X") == "http://a:1/X"
    registry.check("http://a:1/X", {"anything": 1})  # nobody is asked


def test_nobody_there_is_one_sentence():
    with pytest.raises(ServerUnreachable) as error:
        make("http://127.0.0.1:9/Count-v0")
    message = str(error.value)
    assert "ragen-verl env serve Count-v0" in message and "refused" in message and "\n" not in message


def test_the_servers_refusals_are_ones_own(server):
    with pytest.raises(UnknownEnv, match="did you mean Sokoban-v0"):
        make(f"{server.url}/Sokobann-v0")
    with pytest.raises(BadEnvKwargs, match="'colour'"):
        make(f"{server.url}/Sokoban-v0", colour=1)
    with pytest.raises(RecipeError, match="size must be an integer"):
        make(f"{server.url}/FrozenLake-v0", size=1)
    env = make(f"{server.url}/Count-v0")
    env.reset(seed=1)
    with pytest.raises(EnvFailed, match="ValueError: as asked"):
        env.step("raise")
    assert env.step("on").observation.startswith("1 of")


def test_tokens(monkeypatch):
    with serving(Settings(token="sesame")) as server:
        with pytest.raises(RecipeError, match="RAGEN_VERL_ENV_TOKEN"):
            make(f"{server.url}/Count-v0")
        monkeypatch.setenv(remote.TOKEN, "sesame")
        assert make(f"{server.url}/Count-v0").reset(seed=1)
    monkeypatch.setenv(remote.TIMEOUT, "soon")
    with pytest.raises(RecipeError, match="RAGEN_VERL_ENV_TIMEOUT is 'soon'"):
        make("http://127.0.0.1:9/Count-v0")


# -- retries ----------------------------------------------------------------------------------------------------------


def losing_replies(app, chance=0.3):
    """The application, but for some requests that it has done its reply is lost: a proxy's 502 comes instead."""
    rng = random.Random(0)

    async def wrapped(scope, receive, send):
        if scope["type"] != "http" or rng.random() > chance:
            return await app(scope, receive, send)

        async def nowhere(message):
            pass

        await app(scope, receive, nowhere)
        await send({"type": "http.response.start", "status": 502, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    return wrapped


def test_a_lost_reply_never_repeats_a_step():
    with serving(wrap=losing_replies) as server:
        far, near = make(f"{server.url}/Count-v0", name="far"), make("Count-v0", name="near")
        for seed in range(3):
            same_start(far, near, seed)
            for number in range(12):
                assert far.step(str(number)) == near.step(str(number))
        far.close()
    assert STEPS["far"] == STEPS["near"] == 36


def test_a_step_longer_than_the_timeout_is_waited_for(server, monkeypatch):
    monkeypatch.setenv(remote.TIMEOUT, "0.1")
    env = make(f"{server.url}/Count-v0", name="slow", slow=0.5)
    monkeypatch.setenv(remote.TIMEOUT, "20")
    env.reset(seed=1)
    assert env.step("a").info["action_is_valid"]
    assert env.render().startswith("1 of") and STEPS["slow"] == 1


def test_an_expired_session_is_played_again():
    with serving(Settings(idle_seconds=0.2)) as server:
        far, near = both(server, "Count-v0")
        same_start(far, near, 3)
        assert far.step("a") == near.step("a")
        for _ in range(400):
            if not server.sessions.open:
                break
            threading.Event().wait(0.05)
        assert not server.sessions.open
        assert far.step("b") == near.step("b")


# -- several servers --------------------------------------------------------------------------------------------------


def test_servers_share_the_load_and_a_full_one_is_passed_over():
    with serving(Settings(max_sessions=3)) as small, serving() as large:
        id = f"{small.url}/Count-v0,{large.url}/Count-v0"
        envs = [make(id) for _ in range(4)]
        assert len(small.sessions.open) == len(large.sessions.open) == 2
        envs += [make(id) for _ in range(6)]
        assert len(small.sessions.open) == 3 and len(large.sessions.open) == 7
        for env in envs:
            env.close()
        assert not small.sessions.open and not large.sessions.open


def test_an_episode_that_cannot_be_repeated_is_given_up(monkeypatch):
    with serving() as first, serving() as second:
        env = make(f"{first.url}/Drifts-v0,{second.url}/Drifts-v0")
        env.reset(seed=1)
        env.step("a")
        (first if first.sessions.open else second).stop()
        monkeypatch.setattr(Drifts, "version", 1)
        with pytest.raises(ReplayDiffers, match="began differently"):
            env.step("b")
        env.close()


# -- the loss of a server ---------------------------------------------------------------------------------------------

EPISODES, TURNS = 200, 4
RULES = Ragen(max_turns=TURNS, max_actions_per_turn=1)


class RandomPolicy:
    """Random moves by the episode's seed; `barrier` is awaited before the first, `after` called after it."""

    def __init__(self, seed, words, barrier=None, after=None):
        rng = random.Random(seed)
        moves = [rng.choice(("Left", "Down", "Right", "Up")) for _ in range(TURNS)]
        self.engine = Engine([say(words, f" go </think> <answer> {move} </answer>") for move in moves])
        self.barrier, self.after = barrier, after

    async def __call__(self, ids, max_tokens):
        turn = len(self.engine.made)
        if self.barrier and turn == 0:
            await self.barrier()
        if self.after and turn == 1:
            self.after()
        return await self.engine(ids, max_tokens)


def told(trajectory):
    """What the episode was, without times."""
    record = trajectory.record()
    for one in (record, *record["turns"]):
        for name in ("started", "seconds", "generate_seconds", "env_seconds"):
            one.pop(name, None)
    return json.dumps(record, sort_keys=True)


def test_200_live_episodes_survive_the_loss_of_a_server():
    """Killed under all of them: none is lost, and each is what it would have been on this machine."""
    words = tokenizer("qwen")
    chat, limits = ChatTokens(words, RULES), Limits(200, 20_000, step_timeout=60.0)
    kwargs = {"size": 8, "frozen": 0.9}

    async def play_all(id, policy, workers):
        episodes = (
            play(
                lambda: make(id, **kwargs),
                seed=seed,
                rollout_index=seed % 4,
                protocol=RULES,
                chat=chat,
                generate=policy(seed),
                limits=limits,
                workers=workers,
                env_id="FrozenLake",
            )
            for seed in range(EPISODES)
        )
        return await asyncio.gather(*episodes)

    with server_processes(["FrozenLake"], ["FrozenLake"]) as servers, EnvWorkers(16) as workers:
        urls, processes = zip(*servers, strict=True)
        id = ",".join(f"{url}/FrozenLake-v0" for url in urls)
        live, under_way = [], []
        everyone = asyncio.Event()

        async def barrier():
            live.append(1)
            if len(live) == EPISODES:
                everyone.set()
            await everyone.wait()

        def after():
            under_way.append(1)
            if len(under_way) == 50:  # in the middle of the others' requests
                processes[0].kill()

        far = asyncio.run(play_all(id, lambda seed: RandomPolicy(seed, words, barrier, after), workers))
        assert processes[0].wait(10) == -9 and processes[1].poll() is None
        assert remote._servers[f"{urls[0]}/FrozenLake-v0"].sessions == 0, "all went to the other"
        near = asyncio.run(play_all("FrozenLake-v0", lambda seed: RandomPolicy(seed, words), workers))
    assert [trajectory.error for trajectory in far if trajectory.excluded] == []
    assert [told(trajectory) for trajectory in far] == [told(trajectory) for trajectory in near]
    assert len({trajectory.stop_reason for trajectory in far}) > 1, "the episodes differ"


def test_without_any_server_left_episodes_are_excluded(monkeypatch):
    monkeypatch.setattr(remote.RemoteEnv, "patience", 0.2)
    words = tokenizer("qwen")

    async def episode(server, workers):
        return await play(
            lambda: make(f"{server.url}/FrozenLake-v0", size=8, frozen=1.0),
            seed=1,
            rollout_index=0,
            protocol=RULES,
            chat=ChatTokens(words, RULES),
            generate=RandomPolicy(1, words, after=server.stop),
            limits=Limits(200, 20_000, step_timeout=20.0),
            workers=workers,
            env_id="FrozenLake",
        )

    with EnvWorkers(2) as workers, serving() as server:
        played = asyncio.run(episode(server, workers))
        assert played.stop_reason is StopReason.ENV_ERROR and played.excluded and len(played.turns) == 2
        assert "WorldLost" in played.error
        again = asyncio.run(episode(server, workers))
        assert again.stop_reason is StopReason.ENV_ERROR and "env serve FrozenLake-v0" in again.error


def test_a_server_that_comes_back_saves_the_episode():
    with serving() as first, ThreadPoolExecutor(1) as pool:
        far, near = both(first, "Count-v0")
        same_start(far, near, 9)
        assert far.step("a") == near.step("a")
        first.stop()
        waiting = pool.submit(far.step, "b")
        with serving(port=first.port):
            assert waiting.result(30) == near.step("b")
