"""Every estimator against slow loops on ragged batches, and against verl's functions where both define the case."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import reference_advantages as slow
import torch

from ragen_verl.advantages import ESTIMATORS
from ragen_verl.advantages.batch import AdvantageBatch
from ragen_verl.advantages.estimate import estimate

NAMES = sorted(ESTIMATORS)
REWARDS = np.array([0.0, 0.0, 0.0, -0.1, 0.3, 1.0, 10.0])


def ragged(rng: np.random.Generator, *, one_row: bool = False, kl: bool | None = None, padding: bool = True):
    """A small batch: groups of unequal size, several rows per trajectory, turns without reward, rows of padding.

    Observation tokens carry nonsense, which no estimator may see.
    """
    width = int(rng.integers(6, 24))
    kl = rng.random() < 0.3 if kl is None else kl
    rows: list[tuple] = []
    trajectory = 0
    for group in range(rng.integers(1, 4)):
        for _ in range(rng.integers(2 if one_row else 1, 5)):
            for order in range(1 if one_row else rng.integers(1, 4)):
                mask = np.zeros(width, dtype=np.int64)
                at = int(rng.integers(0, 2)) if not one_row else 0
                while at < width:
                    stop = min(width, at + int(rng.integers(1, 6)))
                    mask[at:stop] = 1
                    at = stop + int(rng.integers(1, 5))
                    if rng.random() < 0.2:
                        break
                if padding and rng.random() < 0.05:
                    mask[:] = 0
                ends = np.flatnonzero(np.diff(np.append(mask, 0)) == -1)
                reward = rng.normal(size=width) * 100
                reward[mask == 1] = 0.01 * rng.normal(size=mask.sum()) if kl else 0.0
                reward[ends] += rng.choice(REWARDS, size=len(ends))
                states = [str(state) for state in rng.integers(0, 4, size=len(ends))]
                rows.append((reward, mask, 7 * group, 100 - trajectory, order, rng.normal(size=width), states))
            trajectory += 1
    if padding:
        rows.append((np.full(width, np.nan), np.zeros(width), 3, 1000, 0, np.full(width, np.nan), []))
    rows = [rows[i] for i in rng.permutation(len(rows))]
    columns = list(zip(*rows, strict=True))
    return AdvantageBatch(
        rewards=torch.tensor(np.array(columns[0]), dtype=torch.float32),
        mask=torch.tensor(np.array(columns[1])),
        groups=torch.tensor(columns[2]),
        trajectories=torch.tensor(columns[3]),
        order=torch.tensor(columns[4]),
        values=torch.tensor(np.array(columns[5]), dtype=torch.float32),
        states=list(columns[6]),
    )


def some_options(name: str, rng: np.random.Generator) -> dict:
    """Half the time the defaults, else other values."""
    if rng.random() < 0.5:
        return {}
    draw = {True: lambda: bool(rng.integers(2)), False: lambda: float(rng.choice([0.0, 0.5, 0.9, 0.99, 1.0]))}
    return {key: draw[isinstance(default, bool)]() for key, default in ESTIMATORS[name].options.items()}


@pytest.fixture(scope="module", params=[100, pytest.param(1000, marks=pytest.mark.slow)])
def batches(request: pytest.FixtureRequest) -> list[AdvantageBatch]:
    rng = np.random.default_rng(0)
    return [ragged(rng) for _ in range(request.param)]


@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_the_slow_way_on_ragged_batches(name: str, batches: list[AdvantageBatch]) -> None:
    rng = np.random.default_rng(NAMES.index(name))
    for batch in batches:
        options = some_options(name, rng)
        advantages, returns = estimate(name, batch, options)
        expected = getattr(slow, name)(batch, **options)
        assert torch.allclose(advantages, torch.tensor(expected.advantages), rtol=1e-5, atol=1e-5), options
        assert torch.allclose(returns, torch.tensor(expected.returns), rtol=1e-5, atol=1e-5), options


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("weight", ["length", "turns"])
def test_weighting_agrees_with_the_slow_way(name: str, weight: str) -> None:
    rng = np.random.default_rng(1)
    for _ in range(30):
        batch = ragged(rng)
        advantages, returns = estimate(name, batch, {"weight": weight})
        expected = slow.weighted(batch, getattr(slow, name)(batch), weight)
        assert torch.allclose(advantages, torch.tensor(expected.advantages), rtol=1e-5, atol=1e-5)
        assert torch.equal(returns, estimate(name, batch)[1])  # the critic's target is not weighted


def verls(name: str, batch: AdvantageBatch, gamma: float, lam: float) -> tuple[torch.Tensor, torch.Tensor]:
    """verl's own function on the same rows; observation tokens carry no reward there."""
    from verl.trainer.ppo import core_algos

    rewards = torch.where(batch.mask.bool(), batch.rewards, 0)
    given = {"token_level_rewards": rewards, "response_mask": batch.mask}
    if name == "gae":
        return core_algos.compute_gae_advantage_return(**given, values=batch.values, gamma=gamma, lam=lam)
    return core_algos.get_adv_estimator_fn("grpo" if name == "dr_grpo" else name)(
        **given,
        index=batch.groups.numpy(),
        config=SimpleNamespace(gamma=gamma),
        **({"norm_adv_by_std_in_grpo": name == "grpo"} if name.endswith("grpo") else {}),
    )


@pytest.mark.parametrize(
    "name", ["gae", "grpo", "dr_grpo", "rloo", "reinforce_plus_plus", "reinforce_plus_plus_baseline"]
)
def test_agrees_with_verl_where_it_has_the_estimator(name: str) -> None:
    rng = np.random.default_rng(2)
    for i in range(100):
        batch = ragged(rng, one_row=True, padding=False)
        gamma, lam = [(1.0, 1.0), (0.99, 0.95), (0.9, 0.0)][i % 3]
        both = {"gamma": gamma, "lam": lam}
        options = {key: both[key] for key in ESTIMATORS[name].options if key in both}
        mask = batch.mask.bool()
        for ours, theirs in zip(estimate(name, batch, options), verls(name, batch, gamma, lam), strict=True):
            assert torch.allclose(ours[mask], theirs[mask], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_observation_tokens_change_nothing(name: str) -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        batch = ragged(rng)
        sampled = batch.mask.bool()
        other = replace(
            batch,
            rewards=torch.where(sampled, batch.rewards, float("nan")),
            values=torch.where(sampled, batch.values, float("inf")),
        )
        for one, two in zip(estimate(name, batch), estimate(name, other), strict=True):
            assert torch.equal(one, two)
            assert (one[~sampled] == 0).all()
            assert one.dtype == torch.float32 and torch.isfinite(one).all()


@pytest.mark.parametrize("name", NAMES)
def stretched(batch: AdvantageBatch, rng: np.random.Generator) -> tuple[AdvantageBatch, torch.Tensor]:
    """The same turns between observations of other lengths, and the new column of each (row, column)."""
    mask = batch.mask.bool().numpy()
    starts = mask & ~np.pad(mask, ((0, 0), (1, 0)))[:, :-1]
    moved = np.cumsum(starts * rng.integers(0, 4, size=mask.shape), axis=1) + np.arange(mask.shape[1])
    moved = torch.tensor(moved)
    wide = torch.full((len(mask), int(moved.max()) + 1), float("nan"))
    sampled = torch.tensor(mask)
    row, column = sampled.nonzero(as_tuple=True)

    def move(field: torch.Tensor, empty: torch.Tensor) -> torch.Tensor:
        empty = empty.clone()
        empty[row, moved[row, column]] = field[row, column].to(empty.dtype)
        return empty

    return replace(
        batch,
        rewards=move(batch.rewards, wide),
        mask=move(batch.mask, torch.zeros_like(wide)),
        values=move(batch.values, wide),
    ), moved


@pytest.mark.parametrize("name", NAMES)
def test_the_length_of_observations_changes_nothing(name: str) -> None:
    rng = np.random.default_rng(4)
    for _ in range(20):
        batch = ragged(rng)
        other, moved = stretched(batch, rng)
        row, column = batch.mask.bool().nonzero(as_tuple=True)
        for one, two in zip(estimate(name, batch), estimate(name, other), strict=True):
            assert torch.equal(one[row, column], two[row, moved[row, column]])


@pytest.mark.parametrize("name", NAMES)
def test_rows_can_come_in_any_order_under_any_labels(name: str) -> None:
    rng = np.random.default_rng(5)
    for _ in range(20):
        batch = ragged(rng)
        order = torch.tensor(rng.permutation(len(batch.mask)))
        other = AdvantageBatch(
            rewards=batch.rewards[order],
            mask=batch.mask[order],
            groups=1000 - batch.groups[order],
            trajectories=5 * batch.trajectories[order],
            order=2 * batch.order[order],
            values=batch.values[order],
            states=[batch.states[i] for i in order.tolist()],
        )
        for one, two in zip(estimate(name, batch), estimate(name, other), strict=True):
            assert torch.allclose(one[order], two, atol=1e-5)


def both(one: AdvantageBatch, two: AdvantageBatch) -> AdvantageBatch:
    """The rows of two batches of one width, their groups and trajectories kept apart."""
    joined = {key: torch.cat([getattr(one, key), getattr(two, key)]) for key in ("rewards", "mask", "order", "values")}
    return AdvantageBatch(
        **joined,
        groups=torch.cat([one.groups, two.groups + 10**6]),
        trajectories=torch.cat([one.trajectories, two.trajectories + 10**6]),
        states=one.states + two.states,
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_of_the_groups_leaves_the_others_alone(name: str) -> None:
    rng = np.random.default_rng(6)
    for _ in range(20):
        batch = ragged(rng)
        alone, twice = estimate(name, batch), estimate(name, both(batch, batch))
        rows = len(batch.mask)
        assert torch.allclose(twice[1][:rows], twice[1][rows:], atol=1e-5)
        assert torch.allclose(twice[0][:rows], twice[0][rows:], atol=1e-5)
        if name in ("grpo", "dr_grpo", "rloo", "gigpo", "turn_grpo"):  # the others whiten: a larger sample's n - 1
            assert torch.allclose(alone[0], twice[0][:rows], atol=1e-5)


@pytest.mark.parametrize("name", [name for name in NAMES if "turn" not in name or name == "turn_gae"])
def test_one_row_or_a_row_per_turn_is_the_same(name: str) -> None:
    rewards = torch.tensor([[0.0, 1.0, 0.0, 0.0, -0.1], [0.0, 0.0, 0.0, 0.0, 5.0]])
    mask = torch.tensor([[1, 1, 0, 1, 1], [1, 0, 1, 1, 1]])
    values = torch.tensor([[0.3, 0.2, 9.0, 0.1, 0.5], [0.4, 9.0, 0.7, 0.6, 0.1]])
    one = AdvantageBatch(
        rewards,
        mask,
        torch.tensor([0, 0]),
        torch.tensor([0, 1]),
        torch.tensor([0, 0]),
        values,
        [["s", "t"], ["s", "s"]],
    )
    split, last = torch.tensor([[1, 1, 0, 0, 0], [1, 0, 0, 0, 0]]), torch.tensor([[0, 0, 0, 1, 1], [0, 0, 1, 1, 1]])
    two = AdvantageBatch(
        torch.cat([rewards, rewards]),
        torch.cat([last, split]),
        torch.zeros(4, dtype=torch.int64),
        torch.tensor([0, 1, 0, 1]),
        torch.tensor([1, 1, 0, 0]),
        torch.cat([values, values]),
        [["t"], ["s"], ["s"], ["s"]],
    )
    for whole, parts in zip(estimate(name, one), estimate(name, two), strict=True):
        assert torch.allclose(whole, parts[:2] + parts[2:], atol=1e-6)
