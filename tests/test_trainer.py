"""The trainer's own arithmetic and the rows it trains on, without Ray."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch
import verl.trainer.ppo.v1  # noqa: F401  (registers the plugin's trainer)
from omegaconf import OmegaConf

from ragen_verl.rollout.agent_loop import RECORD, to_outputs
from ragen_verl.rollout.trajectory import StopReason, Trajectory, Turn
from ragen_verl.trainer import RagenTrainer

N = 4


def trainer(rows: int, *, groups_per_update: int, micro: int = 2, dynamic: bool = False, critic: bool = False):
    block = {
        "ppo_mini_batch_size": groups_per_update,
        "ppo_micro_batch_size_per_gpu": micro,
        "use_dynamic_bsz": dynamic,
    }
    made = object.__new__(RagenTrainer)
    made.config = OmegaConf.create({"actor_rollout_ref": {"actor": block, "rollout": {"n": N}}, "critic": block})
    made.use_critic, made._rows = critic, rows
    return made


@pytest.mark.parametrize(
    ("rows", "updates"),
    [(64, 4), (48, 3), (32, 2), (16, 1), (8, 1), (2, 1), (40, 2), (41, 3)],
)
def test_updates_are_in_proportion_to_the_kept_rows(rows: int, updates: int) -> None:
    made = trainer(rows, groups_per_update=4)
    assert made._updates(made.config.actor_rollout_ref.actor) == updates


@pytest.mark.parametrize("rows", range(2, 70))
@pytest.mark.parametrize("dp_size", [1, 2, 3])
def test_padding_is_less_than_what_one_round_of_micro_batches_needs(rows: int, dp_size: int) -> None:
    made = trainer(rows, groups_per_update=4, micro=2, critic=True)
    multiple = made._get_required_batch_multiple(dp_size)
    padded = -(-rows // multiple) * multiple
    updates = made._updates(made.config.actor_rollout_ref.actor)
    assert padded % updates == 0  # mini-batches of equal size
    assert padded // updates % (dp_size * 2) == 0  # of whole micro-batches on every rank
    assert padded - rows < updates * dp_size * 2


def test_no_padding_with_dynamic_micro_batches_on_one_rank() -> None:
    assert trainer(13, groups_per_update=4, dynamic=True)._get_required_batch_multiple(1) == 1


def test_sizes_are_verls_again_after_the_update() -> None:
    made = trainer(24, groups_per_update=2)
    actor = made.config.actor_rollout_ref.actor
    with made._sized_to(actor, 24):
        assert actor.ppo_mini_batch_size * made.config.actor_rollout_ref.rollout.n == 24 // 3
    assert (actor.ppo_mini_batch_size, made.config.actor_rollout_ref.rollout.n) == (2, N)


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
