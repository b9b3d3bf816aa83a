"""Gradient norms by reward spread: buckets, metrics, and the pass that leaves the optimizer as it was."""

from __future__ import annotations

import math
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import TensorDict

from ragen_verl import gradient_norms as worker_side
from ragen_verl.config.probes import GradientSignal
from ragen_verl.config.schema import parse
from ragen_verl.diagnostics.gradient_signal import ALL, split, summarize
from ragen_verl.errors import RecipeError
from ragen_verl.probes import lay_out, update_rows

# a coarse grid, so that groups of equal spread are common
SPREADS = st.lists(st.integers(0, 6).map(lambda tenths: tenths / 10), min_size=1, max_size=24)


def rows_of(count: int, size: int = 3) -> list[list[int]]:
    """Rows of each group, the groups' rows taking turns."""
    return [list(range(group, count * size, count)) for group in range(count)]


@settings(deadline=None, max_examples=200)
@given(SPREADS, st.integers(2, 8))
def test_buckets_divide_the_batch_by_spread(spreads, buckets):
    groups = rows_of(len(spreads))
    whole, *parts = split(groups, spreads, buckets)
    assert whole.name == ALL and list(whole.rows) == list(range(3 * len(spreads)))
    assert sorted(whole.spreads) == sorted(spreads)
    if len(set(spreads)) == 1:
        assert parts == []
    if parts:
        assert len(parts) >= 2 and len(parts) <= buckets
        assert sorted(row for part in parts for row in part.rows) == list(whole.rows)
        for low, high in pairwise(parts):
            assert max(low.spreads) < min(high.spreads)
            assert int(low.name.removeprefix("bucket_")) < int(high.name.removeprefix("bucket_"))
        for part in parts:
            assert {spreads[row % len(spreads)] for row in part.rows} == set(part.spreads)


@settings(deadline=None, max_examples=100)
@given(SPREADS, st.integers(2, 8), st.integers(0, 99))
def test_the_order_of_groups_does_not_matter(spreads, buckets, seed):
    groups = rows_of(len(spreads))
    order = np.random.default_rng(seed).permutation(len(spreads))
    shuffled = split([groups[k] for k in order], [spreads[k] for k in order], buckets)
    assert [(b.name, b.rows, sorted(b.spreads)) for b in shuffled] == [
        (b.name, b.rows, sorted(b.spreads)) for b in split(groups, spreads, buckets)
    ]


def test_different_spreads_fill_equal_quantiles():
    parts = split(rows_of(12), [k / 10 for k in range(12)], 6)[1:]
    assert [part.name for part in parts] == [f"bucket_{k}" for k in range(1, 7)]
    assert [len(part.spreads) for part in parts] == [2] * 6
    # groups that a common return has left without spread stay together
    assert [len(part.spreads) for part in split(rows_of(6), [0, 0, 0, 0, 1, 2], 3)[1:]] == [4, 2]


def test_nothing_to_measure():
    assert split([], [], 3) == []
    assert summarize([], [], {}) == {}
    with pytest.raises(ValueError):
        split(rows_of(2), [0.1, math.nan], 3)
    with pytest.raises(ValueError):
        split(rows_of(2), [0.1], 3)


def test_metrics_of_a_signal_that_follows_the_spread():
    buckets = split(rows_of(4), [0.0, 0.1, 0.2, 0.4], 4)
    norms = [{"task": 1.0, "entropy": 5.0}, *({"task": t, "entropy": 5.0} for t in (0.1, 0.3, 0.9, 2.0))]
    metrics = summarize(buckets, norms, {"entropy": -0.01, "kl": 0.0})
    assert metrics["grad_norm/all/task"] == 1.0
    assert metrics["grad_norm/bucket_4/task"] == 2.0
    assert metrics["grad_norm/bucket_4/signal_to_noise"] == pytest.approx(2.0 / 0.05)
    assert metrics["grad_norm/task_high_over_low"] == pytest.approx(20)
    assert metrics["grad_norm/entropy_high_over_low"] == 1
    assert metrics["grad_norm/task_rank_correlation"] == pytest.approx(1)
    assert "grad_norm/entropy_rank_correlation" not in metrics  # constant: no order to compare
    assert metrics["grad_norm/all/reward_std_mean"] == pytest.approx(0.175)
    assert metrics["grad_norm/bucket_3/reward_std_min"] == metrics["grad_norm/bucket_3/reward_std_max"] == 0.2
    assert metrics["grad_norm/bucket_1/sample_count"] == 3 and metrics["grad_norm/bucket_1/sample_pct"] == 0.25


def test_without_regularisers_there_is_no_noise_to_compare_with():
    buckets = split(rows_of(2), [0.1, 0.2], 2)
    metrics = summarize(buckets, [{"task": 1.0, "entropy": 2.0}] * 3, {"entropy": 0.0, "kl": 0.0})
    assert not [name for name in metrics if "signal_to_noise" in name or "rank_correlation" in name]
    with_kl = summarize(buckets, [{"task": 1.0, "entropy": 2.0, "kl": 4.0}] * 3, {"entropy": 0.5, "kl": 0.25})
    assert with_kl["grad_norm/all/signal_to_noise"] == pytest.approx(0.5)


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), min_size=3, max_size=8).filter(lambda values: len(set(values)) > 1))
def test_rank_correlation_is_spearmans(values):
    buckets = split(rows_of(len(values)), list(range(len(values))), len(values))
    norms = [{"task": 1.0}, *({"task": float(value)} for value in values)]
    found = summarize(buckets, norms, {})["grad_norm/task_rank_correlation"]
    assert found == pytest.approx(np.corrcoef(range(len(values)), pd.Series(values).rank())[0, 1])


# -- on a worker ------------------------------------------------------------------------------------------------------


class Training:
    """The part of verl's TrainingWorker that the probe uses, on one small layer: zero, backward, clip, step, zero."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.module = torch.nn.Linear(3, 1)
        self.engine = SimpleNamespace(optimizer=torch.optim.Adam(self.module.parameters(), lr=0.1))
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.engine.optimizer, lambda step: 1 / (step + 1))
        self.loss_fn = lambda output: output.pow(2).mean()

    def set_loss_fn(self, loss_fn) -> None:
        self.loss_fn = loss_fn

    def train_batch(self, inputs: torch.Tensor) -> float:
        self.engine.optimizer.zero_grad()
        self.loss_fn(torch.nn.functional.dropout(self.module(inputs))).backward()
        norm = torch.nn.utils.clip_grad_norm_(self.module.parameters(), 1e-3)
        self.engine.optimizer.step()
        self.engine.optimizer.zero_grad()
        return float(norm)

    def state(self) -> list:
        moments = self.engine.optimizer.state_dict()["state"]
        return [
            *(p.detach().clone() for p in self.module.parameters()),
            *(value.clone() for one in moments.values() for value in one.values()),
            torch.get_rng_state(),
        ]


@pytest.mark.parametrize("steps_before", [0, 2])
def test_a_held_back_step_changes_nothing(steps_before):
    training, inputs = Training(), torch.arange(12.0).reshape(4, 3)
    for _ in range(steps_before):
        training.train_batch(inputs)
    before, loss, step = training.state(), training.loss_fn, training.engine.optimizer.step
    with (
        worker_side._same_random_numbers(),
        worker_side._no_step(training),
        worker_side._loss(training, lambda output: 7 * output.sum()),
    ):
        assert training.train_batch(inputs) > 0
    after = training.state()
    assert len(before) == len(after) and all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert training.loss_fn is loss and training.engine.optimizer.step == step
    training.train_batch(inputs)  # and then a step is one again
    assert not torch.equal(training.state()[0], before[0])


def test_an_error_in_the_pass_gives_everything_back():
    training = Training()
    loss = training.loss_fn
    with (
        pytest.raises(ZeroDivisionError),
        worker_side._no_step(training),
        worker_side._loss(training, lambda output: 1 / 0),
    ):
        training.train_batch(torch.ones(64, 3))
    assert training.loss_fn is loss
    before = training.state()[0]
    training.train_batch(torch.ones(64, 3))
    assert not torch.equal(training.state()[0], before)


def test_an_optimizer_that_is_none_of_torchs_is_refused():
    training = SimpleNamespace(engine=SimpleNamespace(optimizer=object()))
    with pytest.raises(RecipeError, match="fsdp"), worker_side._no_step(training):
        pass


def losses_of(component, config, log_prob, entropy, data):
    nested = lambda rows: torch.nested.as_nested_tensor(rows, layout=torch.jagged)  # noqa: E731
    output = {"log_probs": nested(log_prob), "entropy": nested(entropy)}
    return float(component(config, output, data)[0])


def test_components_are_the_terms_of_verls_own_loss():
    """task - entropy_coeff x entropy + kl_loss_coef x kl is the loss that verl minimises, term by term."""
    from verl.utils import tensordict_utils as tu
    from verl.workers.config import FSDPActorConfig
    from verl.workers.utils.losses import ppo_loss

    rng = torch.Generator().manual_seed(1)
    sizes = [(4, 3), (2, 5), (3, 1)]
    draw = lambda n: torch.rand(n, generator=rng)  # noqa: E731
    columns = {
        "prompts": [torch.zeros(p, dtype=torch.int64) for p, _ in sizes],
        "responses": [torch.zeros(r, dtype=torch.int64) for _, r in sizes],
        "response_mask": [torch.tensor([1] * r) for _, r in sizes],
        "old_log_probs": [-draw(r) for _, r in sizes],
        "ref_log_prob": [-draw(r) for _, r in sizes],
        "advantages": [draw(r) - 0.5 for _, r in sizes],
    }
    data = update_rows(columns, [0, 1, 2], lay_out([p + r for p, r in sizes], 1, None))
    assert isinstance(data, TensorDict) and data.batch_size[0] == 3
    tu.assign_non_tensor(data, dp_size=1, batch_num_tokens=9, global_batch_size=3)
    order = lay_out([p + r for p, r in sizes], 1, None).order
    log_prob = [-draw(sum(sizes[row])) for row in order]
    entropy = [draw(sum(sizes[row])) for row in order]
    for mode in ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum"):
        settings = dict(
            strategy="fsdp2", rollout_n=2, ppo_micro_batch_size_per_gpu=1, loss_agg_mode=mode, kl_loss_type="low_var_kl"
        )
        config = FSDPActorConfig(**settings)
        whole = FSDPActorConfig(**settings, use_kl_loss=True, kl_loss_coef=0.3, entropy_coeff=0.2)
        parts = {
            name: losses_of(getattr(worker_side, f"_{name}_loss"), config, log_prob, entropy, data)
            for name in worker_side.COMPONENTS
        }
        total = losses_of(ppo_loss, whole, log_prob, entropy, data)
        assert total == pytest.approx(parts["task"] - 0.2 * parts["entropy"] + 0.3 * parts["kl"], rel=1e-5)
        assert all(abs(part) > 1e-4 for part in parts.values())


def test_padding_of_a_bucket_counts_nowhere():
    columns = {
        "input_ids": [torch.arange(n) for n in (5, 2, 4)],
        "response_mask": [torch.tensor([1, 0, 1]), torch.tensor([1]), torch.tensor([1, 1])],
        "loss_mask": [torch.tensor([1, 0, 1]), torch.tensor([1]), torch.tensor([1, 1])],
    }
    places = lay_out([5, 4], ranks=2, most=None)
    three = lay_out([5, 4, 2], ranks=2, most=None)
    assert [len(row) for row in update_rows(columns, [0, 2], places)["input_ids"].unbind()] == [5, 4]
    padded = update_rows(columns, [0, 2, 1], three)
    assert padded.batch_size[0] == 4
    assert padded["loss_mask"].values().sum() == 5


# -- config -----------------------------------------------------------------------------------------------------------


def test_config():
    assert parse(GradientSignal, {"buckets": 3}, "ragen.x") == GradientSignal(buckets=3)
    for bad in ({"every": 0}, {"buckets": 1}, {"bucket": 3}):
        with pytest.raises(RecipeError, match=r"ragen\.x\."):
            parse(GradientSignal, bad, "ragen.x")


def test_what_cannot_be_measured_is_refused_at_start():
    on = GradientSignal(enabled=True)
    on.check("fsdp2", 8)
    GradientSignal().check("megatron", 1)
    with pytest.raises(RecipeError, match="megatron"):
        on.check("megatron", 8)
    with pytest.raises(RecipeError, match=r"rollout\.n is 1"):
        on.check("fsdp", 1)
