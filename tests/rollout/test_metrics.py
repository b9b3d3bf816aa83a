from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen_verl.rollout.metrics import summarize
from ragen_verl.rollout.trajectory import StopReason, Trajectory, Turn


def record(env: str = "Sokoban", seed: int = 0, reason: str = "turn_budget", **values: float) -> dict:
    success = float(reason == "solved")
    return {
        "env_id": f"{env}-v0",
        "env": env,
        "seed": seed,
        "stop_reason": reason,
        "excluded": reason in ("environment_error", "engine_error"),
        "metrics": {"success": success, "return": 0.0, "valid_turn_ratio": 1.0, **values},
    }


def test_mean_is_over_those_that_report_the_metric() -> None:
    records = [record(tiles=4.0), record(tiles=8.0), record()]
    assert summarize(records, "train")["train/Sokoban/tiles"] == 6.0


def test_environments_are_kept_apart_and_totals_together() -> None:
    records = [record("Sokoban", reason="solved"), record("Bandit"), record("Bandit")]
    metrics = summarize(records, "val-env")
    assert metrics["val-env/Sokoban/success"] == 1.0
    assert metrics["val-env/Bandit/success"] == 0.0
    assert metrics["val-env/success"] == pytest.approx(1 / 3)
    assert metrics["val-env/valid"] == 1.0


def test_episodes_are_those_that_the_means_are_over() -> None:
    records = [record(reason="solved"), record(), record(reason="engine_error")]
    assert summarize(records, "val-env")["val-env/episodes"] == 2.0
    assert summarize([], "val-env") == {}


def test_pass_at_n_counts_groups() -> None:
    records = [record(seed=1, reason="solved"), record(seed=1), record(seed=2), record(seed=2)]
    assert summarize(records, "train")["train/Sokoban/pass@2"] == 0.5


def test_groups_can_be_given() -> None:
    records = [record(seed=1, reason="solved"), record(seed=1), record(seed=1), record(seed=1)]
    assert summarize(records, "train", groups=["a", "a", "b", "b"])["train/Sokoban/pass@2"] == 0.5


def test_non_zero_is_the_mean_where_it_is_not_zero() -> None:
    metrics = summarize([record(bonus=0.0), record(bonus=3.0), record(bonus=-1.0)], "train")
    assert metrics["train/Sokoban/non-zero/bonus"] == 1.0
    assert "train/Sokoban/non-zero/return" not in metrics


def test_failed_episodes_are_counted_and_enter_nothing_else() -> None:
    records = [record(seed=1, reason="solved"), record(seed=1, reason="environment_error", num_actions=7.0)]
    metrics = summarize(records, "train")
    assert metrics["train/success"] == 1.0
    assert metrics["train/excluded"] == 1.0 and metrics["train/excluded_ratio"] == 0.5
    assert metrics["train/stop_count/environment_error"] == 1.0
    assert "train/Sokoban/num_actions" not in metrics
    assert metrics["train/Sokoban/pass@2"] == 1.0  # named by the group's size, failed members included


def test_only_failed_episodes_give_counts_only() -> None:
    metrics = summarize([record(reason="engine_error")], "train")
    assert metrics["train/stop/engine_error"] == 1.0
    assert not any(key.startswith("train/Sokoban/") for key in metrics)


def test_no_episodes_give_no_metrics() -> None:
    assert summarize([], "train") == {}


def test_values_that_are_not_finite_are_left_out() -> None:
    metrics = summarize([record(odd=float("nan")), record(odd=2.0), record(odd=None)], "train")
    assert metrics["train/Sokoban/odd"] == 2.0


@settings(deadline=None)
@given(st.lists(st.sampled_from([str(reason) for reason in StopReason]), min_size=1, max_size=30))
def test_stop_shares_add_up_to_one(reasons: list[str]) -> None:
    metrics = summarize([record(reason=reason) for reason in reasons], "train")
    assert sum(metrics[f"train/stop/{reason}"] for reason in StopReason) == pytest.approx(1.0)
    assert sum(metrics[f"train/stop_count/{reason}"] for reason in StopReason) == len(reasons)


def test_reads_the_records_of_real_trajectories() -> None:
    turn = Turn(
        state="s", prompt_ids=[1], response_ids=[2, 3], think="go right", format_ok=True, actions=["Right"],
        num_valid=1, executed=["Right"], reward=1.0, valid=True, effective=True,
        infos=[{"success": True, "action_is_valid": True, "action_is_effective": True, "boxes": 2}],
    )  # fmt: skip
    solved = Trajectory("FrozenLake", 5, 0, [1], [turn], StopReason.SOLVED)
    failed = Trajectory("FrozenLake", 5, 1, stop_reason=StopReason.ENV_ERROR, error="boom")
    metrics = summarize([solved.record(), failed.record()], "train")
    assert metrics["train/FrozenLake/success"] == metrics["train/FrozenLake/pass@2"] == 1.0
    assert metrics["train/FrozenLake/action_is_valid"] == metrics["train/FrozenLake/action_is_effective"] == 1.0
    assert metrics["train/FrozenLake/num_actions"] == 1.0
    assert metrics["train/FrozenLake/boxes"] == 2.0
    assert metrics["train/return"] == metrics["train/valid"] == 1.0
    assert metrics["train/response_length"] == metrics["train/reasoning_length"] == 2.0
    assert metrics["train/excluded"] == 1.0


def test_truncated_and_terminated_episodes_are_told_apart() -> None:
    reasons = [StopReason.TERMINATED, StopReason.TRUNCATED, StopReason.TURN_BUDGET, StopReason.SOLVED]
    records = [Trajectory("Walk-v0", 5, i, stop_reason=one, env_name="Walk").record() for i, one in enumerate(reasons)]
    metrics = summarize(records, "train")
    assert metrics["train/truncated"] == metrics["train/Walk/truncated"] == 0.5
    assert metrics["train/stop/terminated"] == metrics["train/stop/truncated"] == 0.25


def test_records_of_schema_1_are_counted_under_their_name() -> None:
    old = {key: value for key, value in record("Sokoban", reason="failed").items() if key != "env"} | {"env_id": "Lake"}
    metrics = summarize([old], "train")
    assert metrics["train/Lake/success"] == 0.0 and metrics["train/stop/failed"] == 1.0
