"""verl's asynchronous buffer as it is used here, verl's code included; groups in flight are a dict with a clock."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import verl.trainer.ppo.v1.replay_buffer as replay_buffer
from hypothesis import given, settings
from hypothesis import strategies as st
from transfer_queue import KVBatchMeta

from ragen_verl.training.oldest_groups import OldestGroups, oldest
from ragen_verl.training.sampler import DynamicSampling

P, N, THRESHOLD = 3, 2, 4


class Sampler(DynamicSampling, OldestGroups):
    """As `sampler` builds it."""


class Flight:
    """verl's queue with the groups that are played; a poll of the buffer is a tick of the clock.

    Args:
        lasts: number of a group -> ticks that it takes.
        kind: the buffer, with arguments of its own.
    """

    def __init__(self, lasts: Callable[[int], int] = lambda number: 1, kind: type = OldestGroups, **own) -> None:
        self.lasts, self.items, self.ends = lasts, {}, {}
        self.time, self.step, self.drawn = 0, 1, 0
        self.buffer = kind(
            **own,
            trainer_mode="colocate_async",
            trainer_config={},
            max_off_policy_threshold=THRESHOLD,
            max_off_policy_strategy="wait",
            sampler_kwargs={},
            refill_fn=self.submit,
        )
        self.buffer._wait_for_next_poll = lambda partition_id, last: self.tick() or last

    def submit(self, count: int) -> None:
        for _ in range(count):
            uid = f"u{self.drawn}"
            self.items[uid] = {"is_prompt": True, "status": "running", "global_steps": self.step}
            self.ends[uid] = self.time + self.lasts(self.drawn)
            self.drawn += 1

    def tick(self) -> None:
        assert any(tag.get("status") == "running" for tag in self.items.values()), "nothing is left to wait for"
        self.time += 1
        for uid, end in self.ends.items():
            if end == self.time and self.items.get(uid, {}).get("status") == "running":
                self.end(uid)

    def end(self, uid: str, rows: int = N, status: str = "finished") -> None:
        self.items |= {f"{uid}_{member}_0": {"seq_len": 5} for member in range(rows)}
        self.items[uid]["status"] = status

    def kv_list(self) -> dict:
        return {"train": dict(self.items)}

    def kv_clear(self, keys: list[str], partition_id: str) -> None:
        for key in keys:
            del self.items[key]

    def sample(self, count: int = P) -> list[str]:
        batch, _ = self.buffer.sample(self.step, "train", count)
        return taken(batch)


def taken(batch: KVBatchMeta) -> list[str]:
    """The groups of a batch, in the order of submission; each is whole."""
    uids = [key.split("_")[0] for key in batch.keys]
    assert all(uids.count(uid) == N for uid in uids)
    return sorted(set(uids), key=lambda uid: int(uid[1:]))


@pytest.fixture(autouse=True)
def queue(monkeypatch: pytest.MonkeyPatch) -> Callable[[Flight], Flight]:
    def use(flight: Flight) -> Flight:
        monkeypatch.setattr(replay_buffer, "tq", flight)
        return flight

    return use


# -- which groups ------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(st.integers(1, 5), max_size=20), st.data())
def test_oldest_is_what_sorting_by_step_and_place_gives(steps: list[int], data: st.DataObject) -> None:
    submitted = {f"u{place}": step for place, step in enumerate(steps)}
    finished = set(data.draw(st.lists(st.sampled_from(sorted(submitted)), unique=True))) if submitted else set()
    count = data.draw(st.integers(0, 25))
    slow = sorted((step, place) for place, step in enumerate(steps) if f"u{place}" in finished)
    assert oldest(submitted, finished, count) == [f"u{place}" for _, place in slow][:count]


def test_a_slow_group_is_left_for_the_next_step(queue) -> None:
    flight = queue(Flight(lambda number: 5 if number == 1 else 1))
    flight.submit(2 * P)
    assert flight.sample() == ["u0", "u2", "u3"]
    flight.step = 2
    flight.submit(P)
    assert flight.sample() == ["u4", "u5", "u6"]  # u1 is still played
    flight.step = 3
    flight.submit(P)
    while flight.time < 5:
        flight.tick()
    assert flight.sample() == ["u1", "u7", "u8"]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=30), st.integers(0, 2), st.integers(1, 8))
def test_each_group_is_taken_once_whole_in_time_and_in_order(lasts: list[int], warmup: int, steps: int) -> None:
    flight, seen = Flight(lambda number: lasts[number % len(lasts)]), set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay_buffer, "tq", flight)
        flight.submit(warmup * P)
        for flight.step in range(1, steps + 1):
            flight.submit(P)
            before = {uid: tag["global_steps"] for uid, tag in flight.items.items() if tag.get("is_prompt")}
            found = flight.sample()
            assert len(found) == P and not seen & {*found}
            seen |= {*found}
            number = {uid: int(uid[1:]) for uid in before}
            left = [uid for uid, tag in flight.items.items() if tag.get("status") == "finished"]
            assert all(number[uid] > number[one] for uid in left for one in found)
            assert all(flight.step - before[uid] < THRESHOLD for uid in found)
            assert sum(tag.get("is_prompt", False) for tag in flight.items.values()) == warmup * P


# -- dynamic sampling --------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 6), st.integers(1, 9), st.floats(0, 1), st.integers(0, 99), st.lists(st.integers(1, 6), min_size=1)
)
def test_dynamic_sampling_takes_finished_groups_within_its_bound(
    target: int, limit: int, share: float, salt: int, lasts: list[int]
) -> None:
    def differs(uid: str) -> bool:
        return (int(uid[1:]) * 37 + salt) % 100 < 100 * share

    flight = Flight(lambda number: lasts[number % len(lasts)], Sampler, target=target, limit=limit)
    flight.buffer.count = lambda batch: sum(differs(uid) for uid in taken(batch))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay_buffer, "tq", flight)
        flight.submit(P)
        for flight.step in (1, 2, 3):
            flight.submit(P)
            batch, metrics = flight.buffer.sample(flight.step, "train", P)
            found = taken(batch)
            assert len(found) == metrics["rollout/groups_generated"] <= P + limit
            assert sum(map(differs, found)) >= target or len(found) == P + limit
            assert sum(tag.get("is_prompt", False) for tag in flight.items.values()) == P  # as many as before


# -- failures ----------------------------------------------------------------------------------------------------------


def test_a_failed_group_is_trained_on_as_far_as_it_is_there(queue) -> None:
    flight = queue(Flight())
    flight.submit(P)
    flight.end("u0", rows=1, status="failure")
    flight.end("u1"), flight.end("u2")
    batch, _ = flight.buffer.sample(1, "train", P)
    assert [key.split("_")[0] for key in batch.keys] == ["u0", "u1", "u1", "u2", "u2"]


def test_a_group_without_a_row_is_replaced(queue) -> None:
    flight = queue(Flight())
    flight.submit(P)
    flight.end("u1", rows=0, status="failure")
    assert flight.sample() == ["u0", "u2", "u3"]
    assert not any(key.startswith("u1") for key in flight.items)


def test_groups_that_all_fail_end_the_run(queue) -> None:
    flight = queue(Flight())
    flight.end = lambda uid: Flight.end(flight, uid, rows=0, status="failure")
    flight.submit(P)
    with pytest.raises(RuntimeError, match="6 groups of step 1 failed without a trajectory"):
        flight.sample()
