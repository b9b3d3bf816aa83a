"""Dynamic sampling with verl's dataset, data loader and batches; one in memory plays verl's queue and engine."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from torchdata.stateful_dataloader import StatefulDataLoader
from transfer_queue import KVBatchMeta
from verl.utils.dataset.rl_dataset import collate_fn

from ragen_verl.config import RagenConfig
from ragen_verl.filter import select
from ragen_verl.training.dataset import EnvDataset
from ragen_verl.training.sampler import DynamicSampling, informative, round_size

P, N = 8, 2
BLOCK = {
    "train": {"envs": [{"id": "FrozenLake-v0", "groups": P}], "seed": 1000},
    "val": {"envs": [{"id": "FrozenLake-v0", "groups": 1}], "seed": 1},
    "run": {"dir": "unused"},
    "filter": {"on_empty": "dynamic_sampling"},
}


class Buffer:
    """Groups as they come off verl's data loader, in a buffer that has finished them at once."""

    def __init__(self) -> None:
        data = EnvDataset("env://train", None, OmegaConf.create({"ragen": BLOCK}))
        self.loader = StatefulDataLoader(data, batch_size=1, num_workers=0, drop_last=True, collate_fn=collate_fn)
        self.iterator, self.waiting, self.sizes = None, [], []

    def refill_fn(self, count: int) -> None:
        self.iterator = self.iterator or iter(self.loader)
        self.sizes.append(count)
        self.waiting += [next(self.iterator)["extra_info"][0]["seed"] for _ in range(count)]

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[KVBatchMeta, dict]:
        assert len(self.waiting) == batch_size  # nothing is left over for the next step
        seeds, self.waiting = self.waiting, []
        keys = [f"{seed}_{rollout_index}_0" for seed in seeds for rollout_index in range(N)]
        return KVBatchMeta(partition_id=partition_id, keys=keys, tags=[{} for _ in keys]), {}


class Stream(DynamicSampling, Buffer):
    """The buffer with dynamic sampling.

    Args:
        differs: whether the group of a seed has returns that differ.
    """

    def __init__(self, differs) -> None:
        super().__init__(target=None, limit=0)
        self.differs = differs

    def count(self, batch: KVBatchMeta) -> int:
        seeds = {int(key.split("_")[0]) for key in batch.keys}
        return sum(self.differs(seed) for seed in seeds)

    def step(self, target: int, limit: int) -> tuple[list[int], dict]:
        self.target, self.limit = target, limit
        self.refill_fn(P)
        batch, metrics = self.sample(1, "train", P)
        return list(dict.fromkeys(int(key.split("_")[0]) for key in batch.keys)), metrics


def test_full_batch_is_not_topped_up() -> None:
    seeds, metrics = Stream(lambda seed: True).step(P, 16)
    assert seeds == list(range(1000, 1008))
    assert metrics == {"rollout/groups_generated": P, "rollout/dynamic_sampling_rounds": 0}


def test_rounds_by_hand() -> None:
    stream = Stream(lambda seed: seed % 4 == 0)  # 1000, 1004, 1008, ...
    seeds, metrics = stream.step(4, 16)
    # 2 of 8 found, 2 missing: 2 * 9 / 3 = 6 more, of which 1008 and 1012 are informative
    assert stream.sizes == [8, 6]
    assert seeds == list(range(1000, 1014))
    assert metrics == {"rollout/groups_generated": 14, "rollout/dynamic_sampling_rounds": 1}


def test_a_bound_ends_dynamic_sampling_and_rounds_fit_a_step() -> None:
    stream = Stream(lambda seed: False)
    _, metrics = stream.step(P, 19)
    assert stream.sizes == [8, 8, 8, 3]
    assert metrics == {"rollout/groups_generated": 27, "rollout/dynamic_sampling_rounds": 3}


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 12), st.integers(1, 30), st.floats(0, 1), st.integers(0, 99))
def test_sampling_is_bounded_complete_and_the_same_again(target: int, limit: int, share: float, salt: int) -> None:
    def differs(seed: int) -> bool:
        return random.Random(seed * 100 + salt).random() < share

    seeds, metrics = Stream(differs).step(target, limit)
    found = sum(differs(seed) for seed in seeds)
    assert seeds == list(range(1000, 1000 + metrics["rollout/groups_generated"]))
    assert len(seeds) <= P + limit
    assert found >= target or len(seeds) == P + limit
    assert Stream(differs).step(target, limit) == (seeds, metrics)


def test_resumed_run_continues_after_the_sampled_groups() -> None:
    stream = Stream(lambda seed: seed % 4 == 0)
    first, _ = stream.step(4, 16)
    state = stream.loader.state_dict()  # what verl writes to data.pt
    second, _ = stream.step(4, 16)
    resumed = Stream(stream.differs)
    resumed.loader.load_state_dict(state)
    assert resumed.step(4, 16)[0] == second
    assert second[0] == first[-1] + 1


def test_validation_is_left_alone() -> None:
    stream = Stream(lambda seed: False)
    stream.refill_fn(3)
    stream.target, stream.limit = 9, 9
    batch, metrics = stream.sample(0, "val", 3)
    assert len(batch) == 3 * N and metrics == {}
    assert stream.sizes == [3]


@settings(deadline=None)
@given(st.integers(1, 50), st.integers(0, 50), st.integers(1, 50), st.integers(1, 50))
def test_round_has_at_least_what_is_missing_or_the_most_allowed(
    missing: int, found: int, generated: int, most: int
) -> None:
    size = round_size(missing, min(found, generated), generated, most)
    assert size == most or missing <= size <= most


def test_informative_groups_have_members_that_differ() -> None:
    returns, groups = [1.0, 2.0, 1.0, 1.0, 5.0, 3.0, 4.0], list("aabbcdd")
    assert informative(returns, groups, [False] * 7) == 2
    assert informative(returns, groups, [True, *[False] * 6]) == 1
    assert informative([], [], []) == 0


def test_dynamic_sampling_trains_on_the_first_groups() -> None:
    config = RagenConfig.from_omegaconf(
        {**BLOCK, "filter": {"on_empty": "dynamic_sampling", "dynamic_sampling_groups": 2}}
    )
    rule = config.filter.rule(P, N)
    groups = [label for label in "abcd" for _ in range(N)]
    found = select([0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0], groups, rule=rule)
    assert found.groups == ("b", "c")
