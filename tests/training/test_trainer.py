"""The trainer's own arithmetic and the rows it trains on, without Ray."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import verl.trainer.ppo.v1
from ragen_lab.report.reading import read_run
from saved_checkpoints import cut, save
from trainers import trainer_of

from ragen_verl.rollout.trajectory import StopReason, Trajectory, Turn
from ragen_verl.runs.checkpoints import pointed_at
from ragen_verl.training.agent_loop import RECORD, to_outputs
from ragen_verl.training.batch import TrajectoryBatch
from ragen_verl.training.step_plan import ModelPass, StepPlan
from ragen_verl.training.trainer import AgentTrainer


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
    assert row["extra_fields"]["turn_ends"] == [1, 3]
    assert json.loads(row["extra_fields"][RECORD])["seed"] == 7


def test_a_failed_episode_is_a_row_that_nothing_learns_from() -> None:
    failed = Trajectory("Env", 7, 1, stop_reason=StopReason.ENV_ERROR, error="it broke")
    row = output_of(failed).as_dict()
    assert row["responses"].tolist() == [9]
    assert row["response_mask"].sum() == 0
    assert row["rm_scores"].sum() == 0
    assert json.loads(row["extra_fields"][RECORD])["excluded"] is True


def test_finished_and_failed_episodes_have_the_same_fields() -> None:
    """verl reads a field of all rows at once and fails if some lack it."""
    turn = Turn(state="s", prompt_ids=[1], response_ids=[3], log_probs=[-0.1])
    finished = output_of(Trajectory("Env", 7, 0, prompt_ids=[1], turns=[turn])).as_dict()
    failed = output_of(Trajectory("Env", 7, 1, stop_reason=StopReason.ENGINE_ERROR)).as_dict()
    assert finished.keys() == failed.keys()


class Workers:
    """A worker group that remembers what its last call carried."""

    def __init__(self):
        self.carried = {}

    def infer_batch(self, batch):
        self.carried = dict(batch.extra_info)


def test_a_pass_of_the_critic_has_the_recipes_micro_batches(tmp_path: Path) -> None:
    trainer, workers = trainer_of(tmp_path), Workers()
    trainer.critic_wg = workers
    passes = {"values": ModelPass(1, 4), "critic": ModelPass(2, None)}
    trainer.planner.plan = StepPlan(TrajectoryBatch((), (), ()), ranks=1, passes=passes, per_rank=8)
    for name, expected in (("values", (4, False)), ("critic", (None, True))):
        with trainer._cut(name, "critic_wg"):
            trainer.critic_wg.infer_batch(SimpleNamespace(extra_info={}))
        assert (workers.carried.get("micro_batch_size_per_gpu"), workers.carried.get("use_dynamic_bsz")) == expected
    assert trainer.critic_wg is workers


def test_leaving_the_adapter_out_is_for_the_reference_alone(monkeypatch, tmp_path: Path) -> None:
    def leave_out(self, batch, metrics):
        batch.extra_info["no_lora_adapter"] = True
        return batch

    monkeypatch.setattr(verl.trainer.ppo.v1.PPOTrainer, "_compute_ref_log_prob", leave_out)
    trainer = trainer_of(tmp_path)
    trainer.ref_in_actor, trainer.actor_rollout_wg = True, Workers()
    trainer.planner.plan = StepPlan(TrajectoryBatch((), (), ()), ranks=1, passes={"ref": ModelPass()}, per_rank=8)
    assert trainer._compute_ref_log_prob(SimpleNamespace(extra_info={}), {}).extra_info == {}


def saver(folder: Path, step: int) -> AgentTrainer:
    trainer = trainer_of(folder / "run", "trainer.resume_mode=auto", f"trainer.default_local_dir={folder}")
    trainer.global_steps = step
    return trainer


def test_verl_loads_the_newest_checkpoint_that_is_whole(monkeypatch, tmp_path: Path, capsys) -> None:
    base = verl.trainer.ppo.v1.PPOTrainer
    monkeypatch.setattr(base, "_load_checkpoint", lambda self: setattr(self, "global_steps", pointed_at(tmp_path)))
    save(tmp_path, 20)
    cut(save(tmp_path, 40) / "actor" / "extra_state_world_size_1_rank_0.pt")
    trainer = saver(tmp_path, 0)
    trainer._load_checkpoint()
    assert trainer.global_steps == 20
    assert "step 40 (actor/extra_state_world_size_1_rank_0.pt is cut short)" in capsys.readouterr().out


def test_a_checkpoint_that_verl_cannot_finish_is_removed(monkeypatch, tmp_path: Path) -> None:
    def stop_half_way(self: AgentTrainer) -> None:
        cut(save(tmp_path, self.global_steps) / "data.pt")
        raise RuntimeError("the disk is slow today")

    save(tmp_path, 20)
    monkeypatch.setattr(verl.trainer.ppo.v1.PPOTrainer, "_save_checkpoint", stop_half_way)
    with pytest.raises(RuntimeError, match="slow today"):
        saver(tmp_path, 40)._save_checkpoint()
    assert [path.name for path in tmp_path.glob("global_step_*")] == ["global_step_20"] and pointed_at(tmp_path) == 20


def test_a_saved_checkpoint_removes_those_of_before(monkeypatch, tmp_path: Path) -> None:
    for step in (10, 20, 30):  # saved before a resume, so that verl does not know of them
        save(tmp_path, step)
    monkeypatch.setattr(verl.trainer.ppo.v1.PPOTrainer, "_save_checkpoint", lambda self: save(tmp_path, 40) and None)
    trainer = saver(tmp_path, 40)
    assert trainer.config.trainer.max_actor_ckpt_to_keep == 2
    trainer._save_checkpoint()
    assert sorted(path.name for path in tmp_path.glob("global_step_*")) == ["global_step_30", "global_step_40"]


def test_too_many_failed_episodes_end_a_run_with_its_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragen_verl.training.recorder.learning_curve", lambda *_: None)
    recorder = trainer_of(tmp_path / "run").recorder
    with pytest.raises(RuntimeError, match="failed_episodes"), recorder.run(0, []):
        for step in (1, 2, 3):
            recorder._records = [{"excluded": True, "error": "the shop is shut"}]
            stopped = recorder.step(step, {"train/excluded_ratio": 0.75})
        assert "failed_episodes" in stopped
    run = read_run(tmp_path / "run")
    assert run.state() == "failed" and run.cause().endswith("the shop is shut")
    assert run.summary["steps"] == 3 and len(run.rows) == 3
