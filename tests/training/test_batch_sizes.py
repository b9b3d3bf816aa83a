"""How a step's rows are cut, and the trainer's use of it, without Ray."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import verl.trainer.ppo.v1  # noqa: F401  (registers the plugin's trainer)
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.core_algos import agg_loss

from ragen_verl.config.filter import Filter
from ragen_verl.training.batch_sizes import BatchSizes, WorkerGroupProxy, fit_updates, rows_per_rank
from ragen_verl.training.trainer import RagenTrainer

N, GROUPS = 4, 16
PASS = st.builds(BatchSizes, st.integers(1, 6), st.none() | st.integers(1, 20))


@settings(deadline=None, max_examples=150)
@given(st.integers(1, 300), st.integers(1, 5), st.lists(PASS, min_size=1, max_size=4))
def test_every_cut_is_even_and_no_fewer_rows_would_do(rows: int, ranks: int, passes: list[BatchSizes]) -> None:
    passes = fit_updates(rows, ranks, passes)
    per_rank = rows_per_rank(rows, ranks, passes)
    assert per_rank * ranks >= rows
    for one in passes:
        mini, left = divmod(per_rank, one.updates)
        assert left == 0
        micro = one.micro_batch(per_rank)
        if one.micro is None:
            assert micro is None
        else:
            assert mini % micro == 0 and 1 <= micro <= one.micro
            assert 2 * micro >= min(mini, one.micro)
    assert not any(all(one.fits(size) for one in passes) for size in range(-(-rows // ranks), per_rank))


@settings(deadline=None, max_examples=150)
@given(st.integers(1, 300), st.integers(1, 5), st.lists(PASS, min_size=1, max_size=3))
def test_no_update_can_be_padding_alone(rows: int, ranks: int, passes: list[BatchSizes]) -> None:
    fitted = fit_updates(rows, ranks, passes)
    whole = rows_per_rank(rows, ranks, fitted) * ranks
    for wanted, one in zip(passes, fitted, strict=True):
        assert 1 <= one.updates <= wanted.updates
        assert one.updates == 1 or whole - rows < whole // one.updates


@settings(deadline=None)
@given(st.integers(1, 500), st.integers(1, 32))
def test_one_update_pads_by_less_than_its_number_of_micro_batches(rows: int, micro: int) -> None:
    padded = rows_per_rank(rows, 1, [BatchSizes(1, micro)])
    assert padded - rows < -(-padded // micro)


def test_cuts_by_hand() -> None:
    assert rows_per_rank(13, 1, [BatchSizes(1, None)]) == 13
    assert rows_per_rank(13, 1, [BatchSizes(1, 16)]) == 13
    assert rows_per_rank(13, 1, [BatchSizes(1, 8)]) == 14  # two micro-batches of 7
    assert BatchSizes(1, 8).micro_batch(14) == 7
    assert rows_per_rank(13, 2, [BatchSizes(1, None)]) == 7
    assert rows_per_rank(40, 1, [BatchSizes(2, 16), BatchSizes(1, 16)]) == 40  # 2 x 2 of 10 rows, and 4 of 10
    assert BatchSizes(2, 16).micro_batch(40) == BatchSizes(1, 16).micro_batch(40) == 10
    assert rows_per_rank(50, 1, [BatchSizes(2, 16)]) == 52  # 25 is 5 of 5, too small; 26 is 2 of 13
    assert fit_updates(2, 1, [BatchSizes(4, None)]) == [BatchSizes(2, None)]
    # 5 rows an update have no half of 4, and 6 would be 7 of padding: smaller micro-batches
    assert fit_updates(17, 1, [BatchSizes(4, 4)]) == [BatchSizes(4, 2)]


def trainer(
    kept: int, *, rows: int | None = None, mini: int = 4, micro: int = 2, critic: bool = False, **keys: object
) -> RagenTrainer:
    """A trainer with a batch of `kept` trajectories in hand, without verl's set-up."""
    block = {"ppo_mini_batch_size": mini, "ppo_micro_batch_size_per_gpu": micro, "use_dynamic_bsz": False}
    made = object.__new__(RagenTrainer)
    made.config = OmegaConf.create(
        {
            "actor_rollout_ref": {
                "actor": block,
                "rollout": {"n": N, "log_prob_micro_batch_size_per_gpu": 8},
                "ref": {},
            },
            "critic": block | {"forward_micro_batch_size_per_gpu": 8},
        }
    )
    made.use_critic, made.use_reference_policy = critic, False
    made.ragen = SimpleNamespace(filter=Filter(**keys), train=SimpleNamespace(groups=GROUPS))
    made._kept, made._rows = kept, kept if rows is None else rows
    return made


@pytest.mark.parametrize(
    ("kept", "updates"), [(64, 4), (48, 3), (32, 2), (16, 1), (8, 1), (2, 1), (40, 2), (41, 3), (128, 8)]
)
def test_proportional_updates_follow_the_kept_trajectories(kept: int, updates: int) -> None:
    made = trainer(kept)
    assert made._updates(made.config.actor_rollout_ref.actor) == updates
    several_rows = trainer(kept, rows=3 * kept)  # rows of one trajectory are no further trajectories
    assert several_rows._updates(several_rows.config.actor_rollout_ref.actor) == updates


@pytest.mark.parametrize("kept", [64, 48, 17, 8, 4])
def test_constant_updates_do_not(kept: int) -> None:
    made = trainer(kept, updates="constant")
    multiple = made._get_required_batch_multiple(1)
    assert made._passes["actor"].updates == 4
    assert multiple % 4 == 0


@pytest.mark.parametrize("rows", [2, 13, 24, 40, 64])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_padded_size_serves_every_pass(rows: int, ranks: int) -> None:
    made = trainer(rows, critic=True)
    whole = made._get_required_batch_multiple(ranks)
    assert rows <= whole and whole % ranks == 0
    assert set(made._passes) == {"actor", "critic", "old_log_prob", "values"}
    assert all(one.fits(whole // ranks) for one in made._passes.values())


class Workers:
    """A worker group that notes what its calls carry."""

    def update_actor(self, batch: KVBatchMeta) -> str:
        self.told = dict(batch.extra_info)
        return "done"


def test_update_is_told_real_rows_and_sizes_are_verls_again_afterwards() -> None:
    made = trainer(13)
    made.actor_rollout_wg = workers = Workers()
    assert made._get_required_batch_multiple(1) == 14
    rollout, actor = made.config.actor_rollout_ref.rollout, made.config.actor_rollout_ref.actor
    batch = KVBatchMeta(partition_id="train", keys=["a_0_0"], tags=[{}], extra_info={"global_batch_size": 14})
    with made._sized_to("actor", "actor_rollout_wg"):
        assert actor.ppo_mini_batch_size * rollout.n == 14
        assert made.actor_rollout_wg.update_actor(batch) == "done"
    assert workers.told == {"global_batch_size": 13.0, "micro_batch_size_per_gpu": 2}
    assert (actor.ppo_mini_batch_size, rollout.n) == (4, N)
    assert made.actor_rollout_wg is workers


def test_workers_are_verls_again_after_an_error() -> None:
    made = trainer(13)
    made.actor_rollout_wg = workers = Workers()
    made._get_required_batch_multiple(1)
    with pytest.raises(KeyError), made._sized_to("actor", "actor_rollout_wg"):
        raise KeyError
    assert made.actor_rollout_wg is workers
    assert isinstance(workers, Workers) and not isinstance(workers, WorkerGroupProxy)


@pytest.mark.parametrize("mode", ["seq-mean-token-mean", "seq-mean-token-sum", "token-mean"])
def test_padding_and_cuts_do_not_change_the_sum_of_verls_losses(mode: str) -> None:
    """verl's own agg_loss with the divisor that an update is told, against the plain mean over the real rows."""
    generator = torch.Generator().manual_seed(3)
    losses = torch.rand(13, 5, generator=generator)
    mask = torch.ones(13, 5)
    padded = [torch.cat([one, torch.zeros(3, 5)]) for one in (losses, mask)]
    order = torch.randperm(16, generator=generator)
    plain = agg_loss(losses, mask, mode)
    updates = 2
    parts = [
        agg_loss(
            padded[0][rows],
            padded[1][rows],
            mode,
            dp_size=1,
            batch_num_tokens=65 / updates,
            global_batch_size=13 / updates,
        )
        for rows in order.chunk(updates)
    ]
    assert torch.allclose(sum(parts) / updates, plain)


@pytest.mark.parametrize(("kind", "factor"), [("linear", 0.25), ("sqrt", 0.5)])
def test_loss_scale_is_the_kept_share_of_a_steps_trajectories(kind: str, factor: float) -> None:
    keys = {"strategy": "top_k", "loss_scaling": kind}
    assert trainer(GROUPS * N // 4, **keys)._loss_scale() == factor
    assert trainer(2 * GROUPS * N, **keys)._loss_scale() == 1
