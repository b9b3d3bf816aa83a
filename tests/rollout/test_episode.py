from __future__ import annotations

import asyncio
import json
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_chat import STRIPS_THOUGHTS, Engine, Walk, end_of_turn, say, spell, tokenizer, wait_for

from ragen_verl.env import make
from ragen_verl.env.hosting.threads import EnvWorkers
from ragen_verl.errors import RecipeError
from ragen_verl.rollout.chat import ChatTokens
from ragen_verl.rollout.episode import Generation, Limits, play
from ragen_verl.rollout.protocols.ragen import Ragen
from ragen_verl.rollout.rows import rows_of
from ragen_verl.rollout.trajectory import StopReason, Trajectory

RIGHT = " go </think> <answer> Right </answer>"
FAMILIES = ["qwen", "llama", "gemma"]
WIDE = Limits(response_length=200, context_length=20_000, step_timeout=5)


@pytest.fixture(scope="module")
def workers():
    with EnvWorkers(4) as pool:
        yield pool


@cache
def chat_tokens(family, template, rules):
    return ChatTokens(tokenizer(family, template), rules)


def start(workers, env, engine, family="qwen", limits=WIDE, template=None, **protocol):
    rules = Ragen(**protocol)
    chat = chat_tokens(family, template, rules)
    return play(
        env,
        seed=3,
        rollout_index=1,
        protocol=rules,
        chat=chat,
        generate=engine,
        limits=limits,
        workers=workers,
        env_id="Walk-v0",
    )


def run(workers, env, *said, family="qwen", **options) -> Trajectory:
    """Play an episode in which the model says these texts, the last one over and over."""
    words = tokenizer(family)
    engine = Engine([say(words, text) if isinstance(text, str) else text for text in said])
    played = asyncio.run(start(workers, env, engine, family, **options))
    check_exact(played, engine)
    return played


def check_exact(played: Trajectory, engine: Engine) -> None:
    """What is trained on is, turn by turn, what the engine saw and made."""
    ids, mask = stream(played)
    assert len(ids) == len(mask)
    made = engine.made[: len(played.turns)]
    assert [turn.response_ids for turn in played.turns] == made
    position = 0
    for seen, answer in zip(engine.saw, made, strict=False):
        assert ids[: len(seen)] == seen
        assert ids[len(seen) : len(seen) + len(answer)] == answer
        assert mask[position : len(seen)] == [0] * (len(seen) - position)
        position = len(seen) + len(answer)
        assert mask[len(seen) : position] == [1] * len(answer)
    if made:
        assert len(ids) == position, "nothing follows the last sampled id"
    assert sum(sum(row.rewards) for row in rows_of(played)) == pytest.approx(played.ret)


def stream(played: Trajectory) -> tuple[list[int], list[int]]:
    """Ids and mask of an episode's only row, the prompt's zeros included."""
    if not played.turns:
        return played.prompt_ids, [0] * len(played.prompt_ids)
    (row,) = rows_of(played)
    return row.prompt_ids + row.response_ids, [0] * len(row.prompt_ids) + row.response_mask


# -- ids --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("think", [True, False])
def test_trained_ids_are_what_the_engine_saw_and_made(workers, family, think):
    said = RIGHT if think else " Right </answer>"
    played = run(workers, Walk(), said, family=family, think=think)
    assert played.stop_reason is StopReason.SOLVED
    assert [turn.executed for turn in played.turns] == [["Right"]] * 3
    assert played.ret == pytest.approx(-0.1 - 0.1 + 10.9)
    # the sampled end of turn is trained on, and not repeated by the prompt
    end = tokenizer(family).convert_tokens_to_ids(end_of_turn(tokenizer(family)))
    assert all(turn.response_ids[-1] == end for turn in played.turns)
    assert all(turn.prompt_ids[0] != end for turn in played.turns)


@pytest.mark.parametrize("family", FAMILIES)
def test_odd_samples_are_kept_verbatim(workers, family):
    words = tokenizer(family)
    special = words.all_special_ids
    end = words.convert_tokens_to_ids(end_of_turn(words))
    unusual = [
        [*spell(words, RIGHT), end],  # not the tokenization of its own text
        [
            *special,
            *say(words, RIGHT, ""),
            next(i for i in special if i != end),
        ],  # special tokens inside, another one at the end
        say(words, RIGHT, ""),  # no end of turn
        [end],
    ]
    played = run(workers, Walk(goal=9), *unusual, family=family)
    assert [turn.response_ids for turn in played.turns[:4]] == unusual
    assert [turn.executed for turn in played.turns[:4]] == [["Right"]] * 3 + [[]]
    assert words.encode(RIGHT, add_special_tokens=False) != spell(words, RIGHT)
    # a reply that did not end itself is closed by the next prompt, masked out
    assert [turn.prompt_ids[0] == end for turn in played.turns[1:]] == [False, True, True, False]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_reply_cut_by_length_is_closed_by_the_prompt(workers, family):
    limits = Limits(response_length=7, context_length=5000)
    played = run(workers, Walk(), RIGHT, family=family, limits=limits)
    assert [len(turn.response_ids) for turn in played.turns] == [7] * 5
    assert played.stop_reason is StopReason.TURN_BUDGET
    assert played.ret == pytest.approx(-0.5) and not any(turn.format_ok for turn in played.turns)


def test_a_template_that_strips_thoughts_keeps_the_stream(workers):
    played = run(workers, Walk(), RIGHT, template=STRIPS_THOUGHTS)
    assert tokenizer("qwen").decode(stream(played)[0]).count(" go </think>") == 3


@given(
    data=st.data(),
    response_length=st.integers(1, 30),
    context_length=st.integers(1, 900),
    think=st.booleans(),
    family=st.sampled_from(FAMILIES),
)
@settings(max_examples=60, deadline=None)
def test_any_samples_and_any_sizes_stay_exact(workers, data, response_length, context_length, think, family):
    vocabulary = len(tokenizer(family))
    said = data.draw(
        st.lists(st.lists(st.integers(0, vocabulary - 1), min_size=1, max_size=12), min_size=1, max_size=6)
    )
    limits = Limits(response_length, context_length)
    played = run(workers, Walk(), *said, family=family, limits=limits, think=think)
    assert len(stream(played)[0]) <= context_length or not played.turns
    assert not played.excluded
    json.dumps(played.record(), allow_nan=False)


def test_log_probs_stay_with_their_tokens(workers):
    played = run(workers, Walk(), RIGHT)
    (row,) = rows_of(played)
    for value, kept in zip(row.log_probs, row.response_mask, strict=True):
        assert (value < 0) == bool(kept)
    silent = asyncio.run(start(workers, Walk(), Engine([say(tokenizer("qwen"), RIGHT)], log_probs=False)))
    assert rows_of(silent)[0].log_probs is None


# -- what happens in a turn -------------------------------------------------------------------------------------------


def answer(*actions: str) -> str:
    return f"</think><answer>{'||'.join(actions)}</answer>"


@pytest.mark.parametrize(
    ("said", "executed", "valid", "penalty"),
    [
        (answer("Right", "Left"), ["Right", "Left"], True, 0.0),
        (answer("rIGHT"), ["rIGHT"], True, 0.0),
        (answer("Right", "jump", "Left"), ["Right", "Left"], False, -0.1),
        (answer("jump", "fly"), [], False, -0.1),
        (answer(), [], False, -0.1),
        ("no tags", [], False, -0.1),
        (answer(*["Left"] * 9), ["Left"] * 5, True, 0.0),
    ],
)
def test_unknown_actions_are_dropped_and_cost_one_penalty(workers, said, executed, valid, penalty):
    turn = run(workers, Walk(), said, max_turns=1).turns[0]
    assert (turn.executed, turn.valid, turn.penalty) == (executed, valid, penalty)
    assert turn.reward == pytest.approx(-0.1 * len(executed))
    assert turn.effective == bool(executed) and len(turn.infos) == len(executed)
    assert (
        turn.observation == f"P at {2 * executed.count('Right') + executed.count('rIGHT') * 2 - len(executed)}, G at 3"
    )


def test_free_text_is_judged_by_the_environment(workers):
    env = Walk()
    env.actions = None
    turn = run(workers, env, answer("Right", "sing"), max_turns=1).turns[0]
    assert (turn.executed, turn.num_valid, turn.valid, turn.penalty) == (["Right", "sing"], 1, False, -0.1)


def test_next_turn_shows_reward_and_state_but_not_the_penalty(workers):
    played = run(workers, Walk(), answer("Right", "jump"), answer("Left"), max_turns=3, explain_invalid=True)
    second, third = (tokenizer("qwen").decode(turn.prompt_ids) for turn in played.turns[1:])
    assert "Reward:\n-0.1\n" in second and "State:\nP at 1, G at 3" in second and "You have 9 actions left" in second
    assert "not valid" in second and "not valid" not in third
    assert [turn.state for turn in played.turns] == ["P at 0, G at 3", "P at 1, G at 3", "P at 0, G at 3"]
    assert [turn.observation for turn in played.turns] == ["P at 1, G at 3", "P at 0, G at 3", "P at -1, G at 3"]


def test_execution_is_cut_at_the_action_budget(workers):
    played = run(workers, Walk(), answer("Left", "Left", "Left"), max_actions=4)
    assert [len(turn.executed) for turn in played.turns] == [3, 1]
    assert played.stop_reason is StopReason.ACTION_BUDGET
    env = Walk()
    env.max_actions = 2
    assert len(run(workers, env, answer("Left", "Left", "Left")).turns[0].executed) == 2


@pytest.mark.parametrize(
    ("env", "stop"),
    [
        (Walk(goal=2), StopReason.SOLVED),
        (Walk(goal=2, truncate=True), StopReason.SOLVED),
        (Walk(goal=2, silent=True), StopReason.SOLVED),
        (Walk(pit=2), StopReason.TERMINATED),
        (Walk(pit=2, truncate=True), StopReason.TRUNCATED),
    ],
)
def test_the_first_end_stops_the_episode(workers, env, stop):
    played = run(workers, env, answer("Right", "Right", "Right"))
    assert played.turns[0].executed == ["Right", "Right"] and len(played.turns) == 1
    assert played.stop_reason is stop and played.success == (stop is StopReason.SOLVED)
    assert env.closed == 1
    assert env.log[0] == (3, {"rollout_index": 1})


@pytest.mark.parametrize("env_id", ["Bandit-v0", "SimpleSokoban-v0", "SokobanNewVocab-v0", "CoordFrozenLake-v0"])
def test_the_oracle_solves_the_papers_environments(workers, env_id):
    reference = make(env_id)
    reference.reset(seed=3, options={"rollout_index": 1})
    plan = reference.oracle()
    said = [answer(*plan[start : start + 5]) for start in range(0, len(plan), 5)]
    played = run(workers, make(env_id), *said)
    assert played.success and [name for turn in played.turns for name in turn.executed] == plan
    assert played.metrics()["valid_turn_ratio"] == 1.0 and played.metrics()["num_actions"] == len(plan)


def test_solving_with_the_last_action_counts(workers):
    assert run(workers, Walk(goal=2), answer("Right", "Right"), max_actions=2, max_turns=1).success


def test_a_full_context_ends_the_episode_before_the_turn(workers):
    whole = run(workers, Walk(goal=99), RIGHT)
    used = [len(whole.prompt_ids)]
    for turn in whole.turns[1:]:
        used.append(used[-1] + len(whole.turns[0].response_ids) + len(turn.prompt_ids))
    for turns in range(4):
        full = Limits(200, used[turns] + 7)
        played = run(workers, Walk(goal=99), RIGHT, limits=full)
        assert (played.stop_reason, len(played.turns)) == (StopReason.CONTEXT_FULL, turns)
        assert not played.excluded and played.prompt_ids == whole.prompt_ids
        # with one more token there is room for a short response, and no more than that is asked for
        played = run(workers, Walk(goal=99), RIGHT, limits=Limits(200, used[turns] + 8))
        assert len(played.turns) == turns + 1 and len(played.turns[-1].response_ids) == 8


@settings(max_examples=40, deadline=None)
@given(
    cost=st.sampled_from([-1.0, -0.1, 0.0, 0.5]),
    penalty=st.sampled_from([-0.3, -0.1, 0.0]),
    valid=st.lists(st.booleans(), min_size=1, max_size=6),
    share=st.floats(0.05, 1.0),
)
def test_a_cut_episode_returns_no_more_than_one_played_on(workers, cost, penalty, valid, share):
    class Costs(Walk):
        def step(self, action):
            state, _, *rest = super().step(action)
            return state, cost, *rest

    def played(said, limits=WIDE):
        return run(workers, Costs(goal=99), *said, limits=limits, max_turns=6, format_penalty=penalty)

    said = [RIGHT if one else "what?" for one in valid]
    whole = played(said)
    tokens = len(stream(whole)[0])
    cut = played(said, Limits(200, max(len(whole.prompt_ids) + 60, int(share * tokens))))
    if cut.stop_reason is not StopReason.CONTEXT_FULL or not cut.turns:
        return
    same = [turn.text for turn in cut.turns]
    assert cut.ret <= played([*same, "what?"]).ret + 1e-9, "the rest played without a valid answer"
    if len(set(valid)) == 1 and same[-1] == said[-1]:
        assert cut.ret <= whole.ret + 1e-9, "the rest played as before"


NO_BOOLS = (np.array([False]), np.array([1, 0]), "False", "", {}, {"level": False}, [0], None, 0.5, float("nan"), 2)
BOOLS = (True, 1, 1.0, np.True_, np.int64(1), np.float32(1), np.array(True))


@pytest.mark.parametrize("yes", BOOLS)
def test_success_may_be_any_kind_of_bool(workers, yes):
    solved = Walk(result=("s", 0.0, False, False, {"success": yes, "action_is_effective": yes}))
    unsolved = Walk(result=("s", 0.0, False, False, {"success": 1 - int(yes), "action_is_effective": yes}))
    assert run(workers, solved, RIGHT).stop_reason is StopReason.SOLVED
    assert run(workers, unsolved, RIGHT, max_turns=1).stop_reason is StopReason.TURN_BUDGET


# -- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "turns", "error"),
    [
        (Walk(fail="reset"), 0, "reset: ValueError: reset is broken"),
        (Walk(fail="step"), 1, "step('Right'): ValueError: step is broken"),
        (Walk(result=("s", float("nan"), False, False, {})), 1, "the reward is nan"),
        (Walk(result=("s", 0.0, False, {})), 1, "unpack"),
        (Walk(result=(None, 0.0, False, False, {})), 1, "the observation is NoneType"),
        (Walk(result=("s", 0.0, False, False, None)), 1, "info is NoneType"),
        *((Walk(result=("s", 0.0, False, False, {"success": no})), 1, "info['success'] is") for no in NO_BOOLS),
        (Walk(result=("s", 0.0, False, False, {"action_is_valid": "False"})), 1, "info['action_is_valid'] is 'False'"),
        (Walk(result=("s", 0.0, False, False, {"action_is_effective": [0]})), 1, "info['action_is_effective'] is [0]"),
        (Walk(result=("s", 0.0, "False", False, {})), 1, "terminated is 'False'"),
        (Walk(result=("s", 0.0, False, np.array([False]), {})), 1, "truncated is array([False])"),
    ],
)
def test_an_environment_that_fails_is_excluded(workers, env, turns, error):
    played = run(workers, env, RIGHT)
    assert played.stop_reason is StopReason.ENV_ERROR and played.excluded and not played.success
    assert error in played.error and len(played.turns) == turns
    assert env.closed == 1
    assert played.record()["error"] == played.error
    json.dumps(played.record(), allow_nan=False)


class Odd(Walk):
    """Says and raises what UTF-8 and JSON cannot hold."""

    instruction = "Walk \udc80."

    def render(self):
        return f"\ud800 {super().render()}"

    def step(self, action):
        return *super().step(action)[:4], {"success": False, "note": "\udc80", "number": 10**5000}


class Unspeakable(Exception):
    def __str__(self):
        raise ValueError("no text")


class Raises(Walk):
    def __init__(self, error):
        super().__init__()
        self.error = error

    def step(self, action):
        raise self.error


def written(played: Trajectory) -> str:
    """The record as it goes into a run's folder."""
    return json.dumps(played.record(), ensure_ascii=False, allow_nan=False).encode().decode()


def test_text_that_no_file_can_hold_does_not_end_the_run(workers):
    played = run(workers, Odd(), RIGHT, max_turns=2)
    assert played.stop_reason is StopReason.TURN_BUDGET
    assert played.turns[1].state.startswith("? P at 1") and '"note": "?", "number": null' in written(played)


@pytest.mark.parametrize("error", [ValueError("half \udc80"), ValueError(10**5000), Unspeakable()])
def test_an_error_that_cannot_be_written_excludes_one_episode(workers, error):
    played = run(workers, Raises(error), RIGHT)
    assert played.stop_reason is StopReason.ENV_ERROR and type(error).__name__ in written(played)


def test_an_info_without_end_excludes_one_episode(workers):
    info = {"success": False}
    info["itself"] = info
    played = run(workers, Walk(result=("s", 0.0, False, False, info)), RIGHT)
    assert played.stop_reason is StopReason.ENV_ERROR and "RecursionError" in written(played)


@pytest.mark.parametrize("where", ["reset", "step"])
def test_a_hanging_environment_is_excluded_and_closed_later(where):
    env = Walk(hang=where, seconds=1.5)
    with EnvWorkers(1) as pool:
        played = run(pool, env, RIGHT, limits=Limits(200, 5000, step_timeout=0.1))
        assert played.stop_reason is StopReason.ENV_ERROR and "EnvTimeout" in played.error
        assert env.closed == 0, "never while it runs, and it still does"
        assert run(pool, Walk(), RIGHT).success, "the only thread was replaced"
        wait_for(lambda: env.closed == 1)


def test_a_failing_close_spoils_nothing(workers):
    assert run(workers, Walk(fail="close"), RIGHT).success
    assert run(workers, Walk(hang="close", seconds=0.3), RIGHT, limits=Limits(200, 5000, step_timeout=0.1)).success


def test_an_engine_that_fails_is_excluded(workers):
    env = Walk()
    played = run(workers, env, RIGHT, RuntimeError("no engine"))
    assert played.stop_reason is StopReason.ENGINE_ERROR and played.excluded and env.closed == 1
    assert played.error == "generate: RuntimeError: no engine"
    assert len(played.turns) == 1
    assert "0 tokens" in run(workers, Walk(), []).error


@pytest.mark.parametrize("made", [Generation([5] * 300, None), Generation([5, 6], [-0.1])])
def test_an_engine_that_breaks_the_contract_is_excluded(workers, made):
    async def engine(ids, max_tokens):
        return made

    played = asyncio.run(start(workers, Walk(), engine))
    assert played.stop_reason is StopReason.ENGINE_ERROR and not played.turns


async def test_cancelling_ends_the_episode_and_closes_the_environment(workers):
    async def never(ids, max_tokens):
        await asyncio.sleep(60)

    for env, engine in [(Walk(), never), (Walk(hang="step", seconds=0.3), Engine([say(tokenizer("qwen"), RIGHT)]))]:
        task = asyncio.create_task(start(workers, env, engine))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(wait_for, lambda env=env: env.closed == 1)


@pytest.mark.parametrize("bad", [(0, 10), (10, -1), (10, 10, 0.0), (10, 10, 1.0, 0), (10, 10, 1.0, 1, 0)])
def test_sizes_that_cannot_work_are_refused(bad):
    with pytest.raises(RecipeError, match="set it above 0"):
        Limits(*bad)
