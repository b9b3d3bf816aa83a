"""Asynchronous trainings with verl, Ray and vLLM: filter, dynamic sampling, importance weights, a resumed run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from driver import trained

pytestmark = [pytest.mark.train, pytest.mark.slow]

GROUPS, MEMBERS, STEPS = 4, 4, 4
SMALL = [
    "trainer.val_before_train=false",
    "ragen.val.envs.0.groups=8",
    "trainer.save_freq=2",
    f"ragen.train.envs.0.groups={GROUPS}",
    f"actor_rollout_ref.rollout.n={MEMBERS}",
    "actor_rollout_ref.actor.ppo_mini_batch_size=2",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8",
    "ragen.filter.strategy=top_k",
    "ragen.filter.value=0.5",
    "ragen.filter.on_empty=dynamic_sampling",
    "ragen.filter.dynamic_sampling_groups=3",
]


def steps_of(run: Path, last: int, *overrides: str) -> list[dict]:
    end = [f"trainer.total_training_steps={last}", f"trainer.test_freq={last}"]
    return trained("nano/frozen_lake", run, *SMALL, *overrides, *end)


def groups_of(run: Path, step: int) -> list[int]:
    """The seeds that a step was played on; each with all members."""
    lines = [
        json.loads(line) for line in (run / "trajectories" / "train" / f"{step:06d}.jsonl").read_text().splitlines()
    ]
    seeds = [line["seed"] for line in lines]
    assert all(seeds.count(seed) == MEMBERS for seed in seeds)
    return sorted(set(seeds))


@pytest.mark.parametrize("mode", ["async", "disaggregated"])
def test_asynchronous_steps_are_filtered_weighed_and_resumed(tmp_path: Path, mode: str) -> None:
    run = tmp_path / "run"
    steps_of(run, STEPS - 1, f"mode={mode}")
    rows = steps_of(run, STEPS, f"mode={mode}")  # goes on behind the checkpoint of the last step
    assert [row["step"] for row in rows] == [*range(1, STEPS + 1)]
    for row in rows:
        assert row["rollout/filter_kept_count"] <= GROUPS / 2
        assert GROUPS <= row["rollout/groups_generated"] <= 2 * GROUPS
        assert 0 <= row["rollout/staleness_mean"] <= row["rollout/staleness_max"] <= 3
        assert 0 < row["rollout_corr/rollout_is_mean"] <= 2 and row["rollout_corr/rollout_is_eff_sample_size"] <= 1.001
        if row["rollout/empty_after_filter"] == 0:
            assert row["actor/grad_norm"] > 0
    assert max(row["rollout/staleness_max"] for row in rows) >= 1
    played = [seed for step in range(1, STEPS + 1) for seed in groups_of(run, step)]
    assert len(played) == len(set(played))  # no group is trained on twice, a resumed one neither
    assert rows[-1]["val-env/episodes"] == 8


def test_a_separate_engine_has_the_trainers_weights(tmp_path: Path) -> None:
    warmup = "trainer.v1.separate_async.num_warmup_batches=0"  # so that every episode is played with the newest weights
    rows = steps_of(tmp_path / "run", STEPS, "mode=disaggregated", warmup)
    assert [row["rollout/staleness_max"] for row in rows] == [0.0] * STEPS
    assert all(row["mismatch/tokens"] > 100 and row["mismatch/max"] < 1e-3 for row in rows)
    assert any(row.get("actor/grad_norm", 0) > 0 for row in rows[:-1])
