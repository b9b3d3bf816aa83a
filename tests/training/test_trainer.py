"""The trainer's own arithmetic and the rows it trains on, without Ray."""

from __future__ import annotations

import json
from types import SimpleNamespace

import torch
import verl.trainer.ppo.v1  # noqa: F401  (registers the plugin's trainer)

from ragen_verl.rollout.trajectory import StopReason, Trajectory, Turn
from ragen_verl.training.agent_loop import RECORD, to_outputs


def output_of(trajectory: Trajectory):
    engine = SimpleNamespace(steps={"min_global_steps": 3, "max_global_steps": 4})
    (output,) = to_outputs(trajectory, engine, filler=9)
    return output


def test_row_has_exactly_the_trajectorys_ids_mask_and_rewards() -> None:
    turns = [
        Turn(state="s", prompt_ids=[1, 2], response_ids=[3, 4], log_probs=[-0.1, -0.2], reward=1.0, penalty=-0.1),
        Turn(state="t", prompt_ids=[5], response_ids=[6], log_probs=[-0.3], reward=0.5),
    ]
    output = output_of(Trajectory("Env", 7, 0, prompt_ids=[1, 2], turns=turns))
    row = output.as_dict()
    assert row["prompts"].tolist() == [1, 2]
    assert row["responses"].tolist() == [3, 4, 5, 6]
    assert row["response_mask"].tolist() == [1, 1, 0, 1]
    assert torch.allclose(row["rollout_log_probs"], torch.tensor([-0.1, -0.2, 0.0, -0.3]))
    assert torch.allclose(row["rm_scores"], torch.tensor([0.0, 0.9, 0.0, 0.5]))
    assert row["num_turns"] == 2
    assert row["extra_fields"]["max_global_steps"] == 4
    assert json.loads(row["extra_fields"]["reward_extra_info"][RECORD])["seed"] == 7


def test_a_failed_episode_is_a_row_that_nothing_learns_from() -> None:
    failed = Trajectory("Env", 7, 1, stop_reason=StopReason.ENV_ERROR, error="it broke")
    row = output_of(failed).as_dict()
    assert row["responses"].tolist() == [9]
    assert row["response_mask"].sum() == 0
    assert row["rm_scores"].sum() == 0
    assert json.loads(row["extra_fields"]["reward_extra_info"][RECORD])["excluded"] is True


def test_rows_of_finished_and_failed_episodes_have_the_same_fields() -> None:
    """verl reads a field of all rows at once and fails if some lack it."""
    turn = Turn(state="s", prompt_ids=[1], response_ids=[3], log_probs=[-0.1])
    finished = output_of(Trajectory("Env", 7, 0, prompt_ids=[1], turns=[turn])).as_dict()
    failed = output_of(Trajectory("Env", 7, 1, stop_reason=StopReason.ENGINE_ERROR)).as_dict()
    assert finished.keys() == failed.keys()
