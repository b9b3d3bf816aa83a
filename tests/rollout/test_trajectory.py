from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen_verl.rollout.rows import Row, rows_of
from ragen_verl.rollout.trajectory import RECORD_SCHEMA, StopReason, Trajectory, Turn, plain

ids = st.lists(st.integers(0, 9), min_size=1, max_size=5)
turns = st.lists(
    st.builds(
        Turn,
        state=st.text(max_size=3),
        prompt_ids=ids,
        response_ids=ids,
        reward=st.floats(-10, 10),
        penalty=st.sampled_from([0.0, -0.1]),
    ),
    max_size=5,
)


def trajectory(turns: list[Turn], stop: StopReason = StopReason.TURN_BUDGET) -> Trajectory:
    return Trajectory("Walk-v0", 7, 1, turns[0].prompt_ids if turns else [], turns, stop)


def only_row(played: Trajectory, **options) -> Row:
    (row,) = rows_of(played, **options)
    return row


@given(turns.filter(bool), st.booleans())
def test_rows_have_lists_of_one_length_and_partition_the_ids(turns, row_per_turn):
    played = trajectory(turns)
    played.row_per_turn = row_per_turn
    rows = rows_of(played)
    assert [number for row in rows for number in row.turns] == list(range(1, len(turns) + 1))
    assert len(rows) == (len(turns) if row_per_turn else 1)
    for row in rows:
        held = [turns[number - 1] for number in row.turns]
        assert len(row.response_ids) == len(row.response_mask) == len(row.rewards)
        sampled = [i for i, kept in zip(row.response_ids, row.response_mask, strict=True) if kept]
        between = [i for i, kept in zip(row.response_ids, row.response_mask, strict=True) if not kept]
        assert row.prompt_ids == held[0].prompt_ids
        assert sampled == [i for turn in held for i in turn.response_ids]
        assert between == [i for turn in held[1:] for i in turn.prompt_ids]
        # the reward stands on the last id of a run of sampled ones
        ends = [i for i, one in enumerate(row.response_mask) if one and not (row.response_mask[i + 1 :] or [0])[0]]
        assert [row.rewards[end] for end in ends] == [turn.reward + turn.penalty for turn in held]
        assert all(not reward for i, reward in enumerate(row.rewards) if i not in ends)
    assert math.isclose(sum(sum(row.rewards) for row in rows), played.ret, abs_tol=1e-9)


@given(turns.filter(bool))
def test_loss_on_environment_tokens_adds_what_is_between(turns):
    plain_row, whole = only_row(trajectory(turns)), only_row(trajectory(turns), loss_on_env_tokens=True)
    assert whole.response_mask == [1] * len(plain_row.response_ids)
    assert sum(whole.response_mask) - sum(plain_row.response_mask) == sum(len(turn.prompt_ids) for turn in turns[1:])
    same = ("turns", "prompt_ids", "response_ids", "log_probs", "rewards")
    assert [getattr(whole, name) for name in same] == [getattr(plain_row, name) for name in same]


def two_turns() -> Trajectory:
    return trajectory(
        [
            Turn("a", [1, 2], [3, 4], [-0.1, -0.2], reward=1.0),
            Turn("b", [5], [6], [-0.3], reward=-0.1, penalty=-0.1),
        ]
    )


def test_the_row_of_two_turns():
    played = two_turns()
    assert only_row(played) == Row(
        turns=[1, 2],
        prompt_ids=[1, 2],
        response_ids=[3, 4, 5, 6],
        response_mask=[1, 1, 0, 1],
        log_probs=[-0.1, -0.2, 0.0, -0.3],
        rewards=[0.0, 1.0, 0.0, -0.2],
        ends=[1, 3],
    )
    assert played.ret == pytest.approx(0.8)
    played.turns[1].log_probs = None
    assert only_row(played).log_probs is None


def test_the_rows_of_two_turns_with_prompts_of_their_own():
    played = two_turns()
    played.row_per_turn = True
    assert rows_of(played) == [
        Row([1], [1, 2], [3, 4], [1, 1], [-0.1, -0.2], [0.0, 1.0], [1]),
        Row([2], [5], [6], [1], [-0.3], [-0.2], [0]),
    ]
    assert played.record()["row_per_turn"] is True


def test_an_episode_without_turns_is_representable():
    failed = Trajectory("Walk-v0", 7, 1, stop_reason=StopReason.ENV_ERROR, error="reset: ValueError: no")
    assert failed.prompt_ids == [] and rows_of(failed) == []
    assert failed.excluded and not failed.success and failed.ret == 0
    assert all(value == 0.0 for value in failed.metrics().values())
    assert json.loads(json.dumps(failed.record(), allow_nan=False))["turns"] == []


@pytest.mark.parametrize("stop", StopReason)
def test_only_errors_are_excluded_and_only_solved_is_success(stop):
    played = trajectory([], stop)
    assert played.excluded == (stop in (StopReason.ENV_ERROR, StopReason.ENGINE_ERROR))
    assert played.success == (stop is StopReason.SOLVED)
    assert str(stop) == stop.value == played.record()["stop_reason"]
    cut = {"truncated", "action_budget", "turn_budget", "context_full"}
    assert stop.cut_short == played.record()["truncated"] == (str(stop) in cut)


def test_metrics_follow_their_definitions():
    def info(valid, effective, **more):
        return {"success": False, "action_is_valid": valid, "action_is_effective": effective, **more}

    played = trajectory(
        [
            Turn(
                "a", [1], [2, 3], think="three little words", format_ok=True, actions=["L", "R", "x"], num_valid=2,
                executed=["L", "R"], infos=[info(True, True, boxes=4), info(True, False, boxes=2)], effective=True,
                reward=-0.2, penalty=-0.1,
            ),
            Turn("b", [1], [2], penalty=-0.1),
            Turn(
                "c", [1], [2], think="go", format_ok=True, actions=["L"], num_valid=1, executed=["L"], valid=True,
                effective=True, infos=[info(True, np.bool_(True), boxes=np.float32(1), note="text", bad=float("nan"))],
            ),
        ],
        StopReason.SOLVED,
    )  # fmt: skip
    assert played.metrics() == pytest.approx(
        {
            "success": 1.0,
            "truncated": 0.0,
            "num_actions": 3.0,
            "response_length": 4.0,
            "turns": 3.0,
            "return": -0.4,
            "penalty": -0.2,
            "reasoning_length": 4.0,
            "action_is_valid": 2 / 3,  # last action of a turn; the turn that did nothing counts 0
            "action_is_effective": 1 / 3,
            "boxes": (2 + 0 + 1) / 3,
            "valid_action_ratio": 3 / 4,
            "effective_action_ratio": 2 / 3,
            "valid_turn_ratio": 1 / 3,
            "effective_turn_ratio": 2 / 3,
            "format_ratio": 2 / 3,
        }
    )
    assert all(type(value) is float for value in played.metrics().values())


def test_a_record_is_strict_json_with_what_happened_per_turn():
    played = trajectory(
        [
            Turn(
                "P_G", [1], [2, 3], text="go</think><answer>Right", think="go", actions=["Right"], executed=["Right"],
                observation="_PG", reward=np.float64(-0.1), infos=[{"x": np.int64(3), "bad": float("inf"), "s": {1}}],
            )
        ]
    )  # fmt: skip
    record = json.loads(json.dumps(played.record(), allow_nan=False))
    assert record["schema"] == RECORD_SCHEMA
    assert (record["env_id"], record["env"], record["seed"], record["rollout_index"]) == ("Walk-v0", "Walk-v0", 7, 1)
    turn = record["turns"][0]
    assert (turn["state"], turn["reasoning"], turn["executed"], turn["observation"]) == ("P_G", "go", ["Right"], "_PG")
    assert turn["infos"] == [{"x": 3, "bad": None, "s": [1]}]
    assert (turn["prompt_tokens"], turn["response_tokens"], turn["reward"]) == (1, 2, -0.1)


def test_plain_turns_anything_into_json():
    odd = {1: np.arange(3), "a": (np.float32("nan"), None, True), "b": object, "c": {"d": np.bool_(False)}}
    odd |= {"\udc80": "a\ud800", "large": 10**5000, 10**5000: -(10**400), "enough": 10**300}
    assert json.loads(json.dumps(plain(odd), allow_nan=False, ensure_ascii=False).encode()) == {
        **{"?": "a?", "large": None, "None": None, "enough": 10**300},
        "1": [0, 1, 2],
        "a": [None, None, True],
        "b": str(object),
        "c": {"d": False},
    }
