"""verl builds the sampler of every mode from the configuration that a trainer completes."""

from __future__ import annotations

from pathlib import Path

import pytest
from trainers import trainer_of
from verl.trainer.ppo.v1.replay_buffer import ReplayBufferAsync

from ragen_verl.training.oldest_groups import OldestGroups
from ragen_verl.training.trainer_modes import RagenAsyncTrainer, RagenDisaggregatedTrainer, RagenTrainer

KINDS = {"sync": RagenTrainer, "async": RagenAsyncTrainer, "disaggregated": RagenDisaggregatedTrainer}
SAMPLING = (
    "ragen.filter={strategy: top_k, value: 0.5, on_empty: dynamic_sampling, "
    "dynamic_sampling_groups: 3, dynamic_sampling_limit: 5}"
)


@pytest.mark.parametrize("mode", KINDS)
def test_verl_builds_the_sampler_of_each_mode(mode: str, tmp_path: Path) -> None:
    built = trainer_of(tmp_path, f"mode={mode}", SAMPLING, kind=KINDS[mode]).replay_buffer
    assert isinstance(built, OldestGroups) == isinstance(built, ReplayBufferAsync) == (mode != "sync")
    assert (built.target, built.limit) == (3, 5)
    assert built.poll_interval < 0.1
    if mode != "sync":
        assert (built.max_off_policy_threshold, built.max_off_policy_strategy) == (4, "wait")


def test_verls_own_refill_of_lost_groups_stays_a_choice(tmp_path: Path) -> None:
    assert not trainer_of(tmp_path).replay_buffer.sync_refill_failed_groups
    chosen = trainer_of(tmp_path, "trainer.v1.sampler.sync_refill_failed_groups=true").replay_buffer
    assert chosen.sync_refill_failed_groups and chosen.target is None


def test_filter_and_sampling_read_a_row_once(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, SAMPLING)
    assert trainer.selector.reader is trainer.replay_buffer.reader
