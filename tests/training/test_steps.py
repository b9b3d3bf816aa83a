"""A step of the trainer, verl's code included, on rows in memory; in the place of the workers stands one that notes.

What is computed is real: records, filter, plan, padding, advantages. No model runs, and no Ray.
"""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import pytest
import torch
import verl.trainer.ppo.padding_utils as padding_utils
import verl.trainer.ppo.v1.trainer_base as trainer_base
from memory_queue import MemoryQueue
from trainers import trainer_of
from verl.trainer.ppo.core_algos import AdaptiveKLController

from ragen_verl.rollout.trajectory import StopReason, Trajectory, Turn
from ragen_verl.training import data_plane
from ragen_verl.training.agent_loop import to_outputs
from ragen_verl.training.trainer_modes import RagenAsyncTrainer, RagenTrainer

P, N = 4, 2
ENGINE = SimpleNamespace(steps={"min_global_steps": 0, "max_global_steps": 0})


class Actor:
    """The actor's workers: one rank that notes the rows and settings of an update."""

    def __init__(self, queue: MemoryQueue) -> None:
        self._dispatch_info, self.queue = {"actor": [0]}, queue

    def compute_log_prob(self, rows):
        for key in rows.keys:
            tokens = len(self.queue.rows[key]["input_ids"])
            self.queue.rows[key] |= {"log_probs": torch.full((tokens,), -0.2), "entropy": torch.ones(tokens)}
        return rows

    def update_actor(self, rows) -> dict:
        self.keys, self.told = list(rows.keys), dict(rows.extra_info)
        return {"metrics": {"grad_norm": [1.0], "mfu": [0.0]}}


def played(seed: int, rollout_index: int, reward: float, env: str = "Lake", turns: int = 2) -> Trajectory:
    many = [Turn("s", [1, 2], [3, 4], [-0.5, -0.5], reward=reward / turns) for _ in range(turns)]
    stop = StopReason.TURN_BUDGET if turns else StopReason.CONTEXT_FULL
    return Trajectory(f"{env}-v0", seed, rollout_index, [1, 2], many, stop, env_name=env)


def rows_in_verl(trajectories: list[Trajectory]) -> dict[str, dict]:
    """Rows as verl's agent-loop worker puts them into the queue."""
    found = {}
    for one in trajectories:
        for index, output in enumerate(to_outputs(one, ENGINE, filler=9)):
            row = output.as_dict() | {"uid": f"u{one.seed}"}
            ids = torch.cat([row["prompts"], row["responses"]])
            row |= {"input_ids": ids, "position_ids": torch.arange(len(ids)), "loss_mask": row["response_mask"]}
            found[f"u{one.seed}_{one.rollout_index}_{index}"] = row
    return found


@pytest.fixture
def make(tmp_path, monkeypatch):
    def trainer(trajectories: list[Trajectory], *overrides: str, kind: type = RagenTrainer) -> RagenTrainer:
        queue = MemoryQueue(rows_in_verl(trajectories))
        for module in (trainer_base, padding_utils, data_plane):
            monkeypatch.setattr(module, "tq", queue)
        made = trainer_of(
            tmp_path,
            f"ragen.train.envs.0.groups={P}",
            f"actor_rollout_ref.rollout.n={N}",
            "actor_rollout_ref.actor.ppo_mini_batch_size=2",
            "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
            "algorithm=nano_grpo",
            "ragen.diagnostics.mismatch.bypass_freq=null",
            *overrides,
            kind=kind,
        )
        made.global_steps, made.total_training_steps, made.timing_raw = 1, 50, {"gen": 1.5}
        made.curr_step_profile = False
        made.actor_rollout_wg, made.queue = Actor(queue), queue
        made.tokenizer = SimpleNamespace(eos_token_id=9)
        made.checkpoint_manager = SimpleNamespace(sleep_replicas=lambda: None, abort_replicas=lambda: None)
        made.reward_loop_manager = SimpleNamespace(reward_loop_worker_handles=[])
        monkeypatch.setattr(made.replay_buffer, "sample", lambda **_: (queue.batch(), {}))
        return made

    return trainer


def step(trainer: RagenTrainer) -> dict:
    metrics: dict = {}
    trainer._step_once(metrics, trainer.timing_raw, P)
    return metrics


def two_environments(**changes: float) -> list[Trajectory]:
    return [
        played(seed, member, reward=float(member), env="Lake" if seed < 2 else "Sokoban", **changes)
        for seed in range(P)
        for member in range(N)
    ]


def test_a_step_updates_on_all_groups_with_a_share_of_each(make) -> None:
    trainer = make(two_environments())
    metrics = step(trainer)
    assert metrics["train/return"] == 0.5 and metrics["rollout/empty_after_filter"] == 0.0
    assert metrics["actor/grad_norm"] == 1.0
    keys, told = trainer.actor_rollout_wg.keys, trainer.actor_rollout_wg.told
    assert told["mini_batch_size"] == 4 and told["global_batch_size"] == 4.0  # two updates of eight rows
    for update in (keys[:4], keys[4:]):
        assert sorted(int(key[1]) // 2 for key in update) == [0, 0, 1, 1]
    for key in keys:
        advantage = trainer.queue.rows[key]["advantages"]
        expected = 2**-0.5 if key[3] == "1" else -(2**-0.5)  # 1 and 0 against their mean and sample deviation
        assert advantage.tolist() == pytest.approx([expected, expected, 0, 0, expected, expected], abs=1e-4)


def test_a_trajectory_without_a_turn_is_no_row_of_the_update(make) -> None:
    trajectories = two_environments()
    trajectories[0] = played(0, 0, 0.0, turns=0)
    trainer = make(trajectories)
    metrics = step(trainer)
    assert metrics["train/stop/context_full"] == 1 / 8
    assert "u0_0_0" not in trainer.actor_rollout_wg.keys and "u0_0_0" not in trainer.queue.rows
    records = [json.loads(line) for line in (trainer.recorder.folder.path / "trajectories/train/000001.jsonl").open()]
    assert records[0]["kept"] is False


def test_padding_is_spread_over_the_updates_of_a_step(make) -> None:
    trajectories = two_environments()
    trajectories[0] = played(0, 0, 0.0, turns=3)
    trajectories[0].row_per_turn = True
    trainer = make(trajectories)
    step(trainer)
    keys = trainer.actor_rollout_wg.keys
    assert len(keys) == 12  # five rows an update are no micro-batches of two or more
    assert [sum(not key.startswith("pad") for key in update) for update in (keys[:6], keys[6:])] == [5, 5]


def test_every_trajectory_failing_ends_the_run(make) -> None:
    trajectories = two_environments()
    for one in trajectories:
        one.stop_reason, one.error = StopReason.ENV_ERROR, "it broke"
    with pytest.raises(RuntimeError, match="every trajectory of step 1 failed, the first with: it broke"):
        step(make(trajectories))


def test_empty_steps_are_counted_and_end_the_run(make) -> None:
    alike = [played(seed, member, reward=1.0) for seed in range(P) for member in range(N)]
    trainer = make(alike, "ragen.filter.zero_variance=drop", "ragen.filter.on_empty=stop", "ragen.filter.stop_after=2")
    metrics = step(trainer)
    assert metrics["rollout/empty_after_filter"] == metrics["rollout/consecutive_empty_after_filter_steps"] == 1.0
    assert trainer.total_training_steps == 50 and not hasattr(trainer.actor_rollout_wg, "keys")
    trainer._compute_metrics(None, metrics)
    assert metrics["training/global_step"] == 1 and metrics["timing_s/gen"] >= 1.5
    trainer.global_steps = 2
    metrics = step(trainer)
    assert metrics["early_stopped/empty_filtered_steps"] == 1.0
    assert trainer.total_training_steps == 2  # verl's loop ends with this step
    trainer._compute_metrics(None, metrics)
    assert [row["step"] for row in trainer.recorder.folder.rows()] == [1, 2]


def test_a_step_with_groups_starts_the_count_again(make) -> None:
    trainer = make(two_environments())
    trainer.selector.empty_steps = 1
    assert step(trainer)["rollout/consecutive_empty_after_filter_steps"] == 0.0


def test_a_steps_line_has_verls_metrics_and_the_verdict(make) -> None:
    trainer = make(two_environments())
    metrics = step(trainer)
    trainer.timing_raw |= {"step": 2.0, "update_actor": 1.0, "adv": 0.1, "old_log_prob": 0.1}
    trainer._rollout_moe_lb_metrics_accumulator = None
    trainer._get_n_gpus_for_throughput = lambda: 1
    rows = trainer.queue.batch()
    rows.tags = [tag | {"min_global_steps": 0, "max_global_steps": 0} for tag in rows.tags]
    trainer._compute_metrics(rows, metrics, trainer.timing_raw, 1, 0)
    (line,) = trainer.recorder.folder.rows()
    assert line["critic/score/mean"] == 0.5 and line["timing_s/step"] == 2.0
    verdict = trainer.monitor.monitor.verdict.metrics()
    assert line["verdict/warnings"] == verdict["verdict/warnings"] and line["train/truncated"] == 1.0


def test_an_asynchronous_step_weighs_old_samples(make) -> None:
    trainer = make(two_environments(), "mode=async", kind=RagenAsyncTrainer)
    trainer.global_steps, first = 3, (0, 1, 2, 2)  # the weights that began the groups; those of now are number 2
    for key in trainer.queue.rows:
        trainer.queue.tags[key] = {"min_global_steps": first[int(key[1])], "max_global_steps": 2}
    metrics = step(trainer)
    assert (metrics["rollout/staleness_mean"], metrics["rollout/staleness_max"]) == (0.75, 2.0)
    assert metrics["rollout/mixed_weights"] == 0.5
    # the engine sampled each token at -0.5, the trainer has -0.2; between the turns are two tokens of the environment
    weights = trainer.queue.rows["u0_0_0"]["rollout_is_weights"].tolist()
    assert [weights[place] for place in (0, 1, 4, 5)] == pytest.approx([math.exp(0.3)] * 4)
    assert metrics["rollout_corr/rollout_is_mean"] == pytest.approx(math.exp(0.3))
    assert metrics["mismatch/tokens"] == 16  # of the two groups of now
    assert metrics["mismatch/mean"] == pytest.approx(0.3)


def test_padding_does_not_move_the_coefficient_of_the_kl(make) -> None:
    """All tokens have a KL of 0.2 against a target of 0.1: the coefficient rises, padding or not."""

    def after(rows: int) -> tuple[float, dict]:
        trajectories = [played(0, member, float(member)) for member in range(N)]
        trainer = make(trajectories, f"actor_rollout_ref.rollout.n={N}", "algorithm.use_kl_in_reward=true")
        trainer.kl_ctrl_in_reward = control = AdaptiveKLController(init_kl_coef=0.5, target_kl=0.1, horizon=100)
        batch_in_hand = trainer._balance_batch(trainer.queue.batch(), metrics={})
        extra = rows - len(batch_in_hand)
        trainer.planner.plan = SimpleNamespace(trajectories=trainer.planner.plan.trajectories, rows=N, padded=rows)
        batch_in_hand = padding_utils.upsample_batch_to_divisible_size(batch_in_hand, rows, 9)
        assert sum(tag.get("is_padding", False) for tag in batch_in_hand.tags) == extra
        for row in trainer.queue.rows.values():
            row["ref_log_prob"] = torch.full((len(row["responses"]),), -0.7)
            row["old_log_probs"] = torch.full((len(row["responses"]),), -0.5)
        metrics: dict = {}
        trainer._compute_advantage(batch_in_hand, metrics)
        assert trainer.kl_ctrl_in_reward is control
        return control.value, metrics

    alone, padded = after(N), after(8)
    assert alone[0] > 0.5
    assert padded[0] == pytest.approx(alone[0])
    assert padded[1]["actor/reward_kl_penalty"] == pytest.approx(0.2) == alone[1]["actor/reward_kl_penalty"]
