"""How a step's rows are cut and dealt to updates, and the trainer's use of it, without Ray."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.core_algos import agg_loss

from ragen_verl.config import RagenConfig
from ragen_verl.training.batch import TrajectoryBatch
from ragen_verl.training.overrides import WorkerGroupProxy
from ragen_verl.training.planner import Planner
from ragen_verl.training.step_plan import ModelPass, StepPlan, rows_per_rank, spread_environments

N, GROUPS = 4, 16
PASS = st.builds(ModelPass, st.integers(1, 6), st.none() | st.integers(1, 20))


def trajectories(*environments: str, rows: int = 1, members: int = N) -> TrajectoryBatch:
    """A group for each name, of as many trajectories of as many rows."""
    names = [(env, f"u{group}", member) for group, env in enumerate(environments) for member in range(members)]
    return TrajectoryBatch(
        records=tuple({"env": env} for env, _, _ in names),
        groups=tuple(uid for _, uid, _ in names),
        keys=tuple(tuple(f"{uid}_{member}_{row}" for row in range(rows)) for _, uid, member in names),
    )


def single_rows(count: int) -> TrajectoryBatch:
    return trajectories(*["Env"] * count, members=1)


def plan(rows: int, ranks: int = 1, **passes: ModelPass) -> StepPlan:
    return StepPlan.of(single_rows(rows), ranks, passes)


def padded_keys(made: StepPlan) -> list[str]:
    """The keys of all rows of a plan, and behind them those of its padding."""
    return [*made.trajectories.row_keys, *(f"pad_{i}_0" for i in range(made.padded - made.rows))]


# -- sizes ------------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=150)
@given(st.integers(1, 300), st.integers(1, 5), st.lists(PASS, min_size=1, max_size=4))
def test_every_cut_is_even_and_no_fewer_rows_would_do(rows: int, ranks: int, wanted: list[ModelPass]) -> None:
    made = plan(rows, ranks, **{str(i): one for i, one in enumerate(wanted)})
    assert made.padded >= made.rows == rows
    for before, one in zip(wanted, made.passes.values(), strict=True):
        assert one.updates == min(before.updates, rows)
        mini, left = divmod(made.per_rank, one.updates)
        assert left == 0
        micro = one.micro_batch(made.per_rank)
        if one.micro is None:
            assert micro is None
        else:
            assert mini % micro == 0 and 1 <= micro <= one.micro
            assert 2 * micro >= min(mini, one.micro)
    passes = made.passes.values()
    assert not any(all(one.fits(size) for one in passes) for size in range(-(-rows // ranks), made.per_rank))


@settings(deadline=None)
@given(st.integers(1, 500), st.integers(1, 32))
def test_one_update_pads_by_fewer_rows_than_micro_batches(rows: int, micro: int) -> None:
    padded = rows_per_rank(rows, 1, [ModelPass(1, micro)])
    assert padded - rows < -(-padded // micro)


def test_cuts_by_hand() -> None:
    assert rows_per_rank(13, 1, [ModelPass(1, None)]) == 13
    assert rows_per_rank(13, 1, [ModelPass(1, 16)]) == 13
    assert rows_per_rank(13, 1, [ModelPass(1, 8)]) == 14  # two micro-batches of 7
    assert ModelPass(1, 8).micro_batch(14) == 7
    assert rows_per_rank(13, 2, [ModelPass(1, None)]) == 7
    assert rows_per_rank(40, 1, [ModelPass(2, 16), ModelPass(1, 16)]) == 40  # 2 x 2 of 10 rows, and 4 of 10
    assert ModelPass(2, 16).micro_batch(40) == ModelPass(1, 16).micro_batch(40) == 10
    assert rows_per_rank(50, 1, [ModelPass(2, 16)]) == 52  # 25 is 5 of 5, too small; 26 is 2 of 13


# -- rows to updates --------------------------------------------------------------------------------------------------


def updates_of(made: StepPlan, name: str, order: list[int]) -> list[list[int]]:
    """The rows of each update, as verl's workers cut them: ranks in a line, on each one update after the other."""
    size = made.per_rank // made.passes[name].updates
    runs = [order[rank * made.per_rank :][: made.per_rank] for rank in range(made.ranks)]
    return [[row for run in runs for row in run[update * size :][:size]] for update in range(made.passes[name].updates)]


@settings(deadline=None, max_examples=100)
@given(st.integers(1, 120), st.integers(1, 3), st.integers(1, 5), st.integers(1, 5), st.integers(0, 99))
def test_padding_is_spread_over_updates(rows: int, ranks: int, actor: int, critic: int, step: int) -> None:
    made = plan(rows, ranks, actor=ModelPass(actor, 8), critic=ModelPass(critic, None), values=ModelPass())
    keys = padded_keys(made)
    order = made.order(keys, [1 + row % 7 for row in range(made.padded)], (0, step))
    assert sorted(order) == list(range(made.padded))
    for name in ("actor", "critic"):
        counts = [sum(row < rows for row in update) for update in updates_of(made, name, order)]
        assert max(counts) - min(counts) <= 1
        assert min(counts) >= 1


def test_padding_of_three_updates_by_hand() -> None:
    made = plan(109, actor=ModelPass(3, 16))
    keys = padded_keys(made)
    order = made.order(keys, [1] * made.padded, (0, 1))
    assert sorted(sum(row < 109 for row in update) for update in updates_of(made, "actor", order)) == [36, 36, 37]


@settings(deadline=None)
@given(st.lists(st.integers(1, 500), min_size=6, max_size=60), st.integers(1, 3), st.integers(1, 3))
def test_rows_of_like_length_share_a_micro_batch(lengths: list[int], ranks: int, updates: int) -> None:
    made = plan(len(lengths), ranks, actor=ModelPass(updates, 4))
    keys = padded_keys(made)
    lengths = [*lengths, *[1] * (made.padded - made.rows)]
    order = made.order(keys, lengths, (0, 1))
    size = made.per_rank // made.passes["actor"].updates
    for start in range(0, made.padded, size):
        ordered = [lengths[row] for row in order[start : start + size]]
        assert ordered == sorted(ordered)


@pytest.mark.parametrize("step", range(5))
def test_every_update_has_its_share_of_each_environment(step: int) -> None:
    played = trajectories(*["FrozenLake"] * 8, *["Sokoban"] * 8)
    made = StepPlan.of(played, 1, {"actor": ModelPass(4, None)})
    order = made.order(played.row_keys, [1] * 64, (7, step))
    env = [record["env"] for record in played.records]
    for update in updates_of(made, "actor", order):
        assert Counter(env[row] for row in update) == {"FrozenLake": 8, "Sokoban": 8}


@settings(deadline=None, max_examples=100)
@given(st.permutations("aaaabbbbccccdddd"), st.sampled_from([1, 2, 3]), st.integers(0, 99))
def test_as_many_groups_as_updates_are_one_in_each(environments: list[str], rows: int, step: int) -> None:
    played = trajectories(*environments, rows=rows)
    made = StepPlan.of(played, 1, {"actor": ModelPass(4, None), "critic": ModelPass(2, None)})
    order = made.order(played.row_keys, [1] * made.rows, (7, step))
    env = [record["env"] for record, keys in zip(played.records, played.keys, strict=True) for _ in keys]
    for name, groups in (("actor", 1), ("critic", 2)):
        for update in updates_of(made, name, order):
            assert Counter(env[row] for row in update) == dict.fromkeys("abcd", groups * N * rows)


@settings(deadline=None, max_examples=100)
@given(st.data(), st.integers(1, 4), st.integers(1, 9), st.integers(1, 4), st.integers(1, 2), st.integers(0, 99))
def test_no_update_lacks_an_environment_with_as_many_groups(data, kinds, groups, members, ranks, step: int) -> None:
    """Environments of equal shares; their groups end in any order."""
    updates, critic = data.draw(st.integers(1, groups)), data.draw(st.integers(1, groups))
    played = trajectories(*data.draw(st.permutations("abcd"[:kinds] * groups)), members=members)
    made = StepPlan.of(played, ranks, {"actor": ModelPass(updates, None), "critic": ModelPass(critic, None)})
    order = made.order(padded_keys(made), [1] * made.padded, (7, step))
    env = [record["env"] for record in played.records]
    for name in made.passes:
        for update in updates_of(made, name, order):
            assert {env[row] for row in update if row < made.rows} == set(env)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.sampled_from("abc"), min_size=4, max_size=40), st.integers(2, 4), st.integers(0, 99))
def test_shares_are_off_by_two_groups_at_most(environments: list[str], updates: int, step: int) -> None:
    played = trajectories(*sorted(environments))
    made = StepPlan.of(played, 1, {"actor": ModelPass(updates, None)})
    keys = padded_keys(made)
    order = made.order(keys, [1] * made.padded, (7, step))
    env = [record["env"] for record in played.records]
    for update in updates_of(made, "actor", order):
        found = Counter(env[row] for row in update if row < made.rows)
        for name in set(env):
            assert abs(found[name] - env.count(name) / updates) <= 2 * N


def test_the_order_follows_from_the_step_alone() -> None:
    played = trajectories(*["a"] * 9, "b")
    made = StepPlan.of(played, 1, {"actor": ModelPass(2, None)})
    orders, again = ({step: made.order(played.row_keys, [1] * 40, (1, step)) for step in range(20)} for _ in range(2))
    assert orders == again
    assert sorted(spread_environments(played)) == sorted(played.row_keys)
    rare = {order.index(36) // 20 for order in orders.values()}
    assert rare == {0, 1}  # the rare environment is not always in the same half


def test_ranks_get_equal_work_of_every_update() -> None:
    made = plan(16, 2, actor=ModelPass(2, None))
    lengths = [100, 100, 100, 100, 1, 1, 1, 1] * 2
    order = made.order(made.trajectories.row_keys, lengths, (0, 3))
    runs = [order[:8], order[8:]]
    work = [[sum(lengths[row] for row in run[4 * u : 4 * u + 4]) for u in range(2)] for run in runs]
    assert work[0] == work[1]


@pytest.mark.parametrize(("ranks", "per_micro"), [(1, 4), (2, 4), (4, 4), (8, 2), (3, 1)])
def test_rows_that_share_prefixes_stay_with_their_group(ranks: int, per_micro: int) -> None:
    played = trajectories(*["Env"] * 4)
    made = StepPlan.of(played, ranks, {"actor": ModelPass(1, per_micro)}, shares=True)
    keys = padded_keys(made)
    lengths = [37 * row % 11 + 1 for row in range(len(keys))]
    order = made.order(keys, lengths, (0, 1))
    assert sorted(order) == list(range(len(keys)))
    for start in range(0, len(order), per_micro):
        assert len({keys[row].partition("_")[0] for row in order[start : start + per_micro]}) == 1


# -- the planner's sizes ----------------------------------------------------------------------------------------------


def planner(
    kept: int,
    *,
    rows_each: int = 1,
    mini: int = 4,
    micro: int = 2,
    critic: bool = False,
    ranks: int = 1,
    **keys: object,
) -> Planner:
    """A planner in a step that keeps `kept` trajectories."""
    block = {"ppo_mini_batch_size": mini, "ppo_micro_batch_size_per_gpu": micro, "use_dynamic_bsz": False}
    config = OmegaConf.create(
        {
            "actor_rollout_ref": {
                "actor": block,
                "rollout": {"n": N, "log_prob_micro_batch_size_per_gpu": 8},
                "ref": {},
            },
            "critic": block | {"forward_micro_batch_size_per_gpu": 8},
        }
    )
    split = {"envs": [{"id": "Bandit-v0", "groups": GROUPS}], "seed": 0}
    blocks = {"train": split, "val": split | {"seed": 10**6}, "run": {"dir": "."}, "filter": keys}
    ragen = RagenConfig.from_omegaconf(blocks | {"share_prefixes": False})
    made = Planner(config, ragen)
    made.begin(trajectories(*["Env"] * kept, members=1, rows=rows_each), ranks, reference=False, critic=critic)
    return made


@pytest.mark.parametrize(
    ("kept", "updates"), [(64, 4), (48, 3), (32, 2), (16, 1), (8, 1), (2, 1), (39, 2), (40, 3), (41, 3), (128, 8)]
)
def test_proportional_updates_follow_the_kept_trajectories(kept: int, updates: int) -> None:
    assert planner(kept).plan.passes["actor"].updates == updates
    # rows of one trajectory are no further trajectories
    assert planner(kept, rows_each=3).plan.passes["actor"].updates == updates


@pytest.mark.parametrize("kept", [64, 48, 17, 8, 4])
def test_constant_updates_do_not(kept: int) -> None:
    made = planner(kept, updates="constant")
    assert made.plan.passes["actor"].updates == 4
    assert made.plan.padded % 4 == 0


@pytest.mark.parametrize("rows", [2, 13, 24, 40, 64])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_padded_size_serves_every_pass(rows: int, ranks: int) -> None:
    made = planner(rows, critic=True, ranks=ranks)
    whole = made.plan.padded
    assert rows <= whole and whole % ranks == 0
    assert set(made.plan.passes) == {"actor", "critic", "old_log_prob", "values"}
    assert all(one.fits(whole // ranks) for one in made.plan.passes.values())


class Workers:
    """A worker group that notes what its calls carry."""

    def update_actor(self, batch: KVBatchMeta) -> str:
        self.told = dict(batch.extra_info)
        return "done"


def test_an_update_is_told_its_real_rows_and_no_longer() -> None:
    made = planner(13)
    trainer = SimpleNamespace(actor_rollout_wg=(workers := Workers()))
    assert made.plan.padded == 14
    rollout, actor = made.config.actor_rollout_ref.rollout, made.config.actor_rollout_ref.actor
    batch = KVBatchMeta(partition_id="train", keys=["a_0_0"], tags=[{}], extra_info={"global_batch_size": 14})
    with made.cut(trainer, "actor", "actor_rollout_wg", actor):
        assert actor.ppo_mini_batch_size * rollout.n == 14
        assert trainer.actor_rollout_wg.update_actor(batch) == "done"
    assert workers.told == {"global_batch_size": 13.0, "micro_batch_size_per_gpu": 2, "use_dynamic_bsz": False}
    assert (actor.ppo_mini_batch_size, rollout.n) == (4, N)
    assert trainer.actor_rollout_wg is workers


def test_workers_are_verls_again_after_an_error() -> None:
    made = planner(13)
    trainer = SimpleNamespace(actor_rollout_wg=(workers := Workers()))
    with pytest.raises(KeyError), made.cut(trainer, "actor", "actor_rollout_wg", made.config.actor_rollout_ref.actor):
        raise KeyError
    assert trainer.actor_rollout_wg is workers
    assert isinstance(workers, Workers) and not isinstance(workers, WorkerGroupProxy)


@pytest.mark.parametrize("mode", ["seq-mean-token-mean", "seq-mean-token-sum", "token-mean"])
def test_padding_and_cuts_do_not_change_verls_losses(mode: str) -> None:
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
    assert planner(GROUPS * N // 4, **keys).loss_scale() == factor
    assert planner(2 * GROUPS * N, **keys).loss_scale() == 1
