"""Trajectories read off verl's rows: once, in an order of their own, with their turns; and what is written back."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_queue import MemoryQueue

from ragen_verl.rollout.trajectory import RECORD
from ragen_verl.training import batch as episodes
from ragen_verl.training import data_plane
from ragen_verl.training.batch import TrajectoryReader
from ragen_verl.training.losses import turn_weights


def record(seed: int, rollout_index: int, *, turns: int = 1, **values: object) -> dict:
    states = [{"state": f"{seed}.{rollout_index}.{turn}"} for turn in range(1, turns + 1)]
    metrics = {"response_length": 7.0}
    base = {"seed": seed, "rollout_index": rollout_index, "return": 0.0, "excluded": False, "metrics": metrics}
    return {**base, "turns": states, **values}


def row(index: int, text: str, turns: list[int] = (1,), ends: list[int] = (0,)) -> dict:
    text = "" if index else text
    return {"extra_fields": {"turns": list(turns), "turn_ends": list(ends), "reward_extra_info": {}, RECORD: text}}


def use(monkeypatch: pytest.MonkeyPatch, rows: dict[str, dict]) -> MemoryQueue:
    queue = MemoryQueue(rows)
    monkeypatch.setattr(data_plane, "tq", queue)
    return queue


@settings(deadline=None)
@given(st.randoms(use_true_random=False), st.lists(st.integers(1, 4), min_size=1, max_size=8))
def test_a_trajectory_of_several_rows_counts_once(rng: random.Random, rows_each: list[int]) -> None:
    rows = {}
    for i, count in enumerate(rows_each):
        text = json.dumps(record(i // 2, i % 2, turns=count))
        rows |= {f"u{i // 2}_{i % 2}_{place}": row(place, text, [place + 1]) for place in range(count)}
    shuffled = dict(rng.sample(sorted(rows.items()), len(rows)))
    with pytest.MonkeyPatch.context() as patch:
        played = TrajectoryReader().read(use(patch, shuffled).batch())
    assert [(one["seed"], one["rollout_index"]) for one in played.records] == [
        (i // 2, i % 2) for i in range(len(rows_each))
    ]
    assert played.keys == tuple(
        tuple(f"u{i // 2}_{i % 2}_{place}" for place in range(count)) for i, count in enumerate(rows_each)
    )
    assert played.row_keys == list(rows)
    assert played.states(["pad_0_0", *rows])[0] == []
    states = [state for states in played.states(list(rows)) for state in states]
    assert states == [turn["state"] for one in played.records for turn in one["turns"]]


def test_order_does_not_depend_on_who_ended_first(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = {"aa": 5, "bb": 4}
    keys = ["bb_1_0", "aa_0_0", "bb_0_0", "aa_1_0"]
    rows = {key: row(0, json.dumps(record(seeds[key[:2]], int(key[3])))) for key in keys}
    played = TrajectoryReader().read(use(monkeypatch, rows).batch())
    assert played.groups == ("bb", "bb", "aa", "aa")
    assert played.row_keys == ["bb_0_0", "bb_1_0", "aa_0_0", "aa_1_0"]
    chosen = played.select({3, 0})
    assert chosen.keys == (("bb_0_0",), ("aa_1_0",)) and chosen.ends(["aa_1_0", "pad_0_0"]) == [(0,), ()]


def test_a_row_is_read_once_however_often_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {f"u_{i}_0": row(0, json.dumps(record(3, i))) for i in range(4)}
    queue, reader = use(monkeypatch, rows), TrajectoryReader()
    first = queue.batch().select_keys(["u_0_0", "u_1_0"])
    assert len(reader.read(first)) == 2
    assert len(reader.read(queue.batch())) == 4
    assert reader.read(queue.batch()).records == reader.read(queue.batch()).records
    assert queue.asked == [("extra_fields",), ("extra_fields",)]
    reader.clear()
    assert len(reader.read(first)) == 2 and len(queue.asked) == 3


def test_failed_and_unbegun_trajectories_are_not_learned_from(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [record(1, 0), record(1, 1, excluded=True), record(1, 2, turns=0)]
    rows = {f"u_{i}_0": row(0, json.dumps(text), [], []) for i, text in enumerate(texts)}
    assert TrajectoryReader().read(use(monkeypatch, rows).batch()).excluded == [False, True, True]


def test_entropy_is_the_mean_surprise_of_all_sampled_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [json.dumps(record(1, i)) for i in range(2)]
    rows = {
        "u_0_0": row(0, texts[0])
        | {"rollout_log_probs": torch.tensor([-1.0, -9.0, -3.0]), "response_mask": torch.tensor([1, 0, 1])},
        "u_0_1": row(1, texts[0]) | {"rollout_log_probs": torch.tensor([-5.0]), "response_mask": torch.tensor([1])},
        "u_1_0": row(0, texts[1]) | {"rollout_log_probs": torch.tensor([0.0]), "response_mask": torch.tensor([0])},
    }
    batch = use(monkeypatch, rows).batch()
    found = episodes.entropies(batch, TrajectoryReader().read(batch))
    assert found == pytest.approx([3.0, 0.0]) and np.isfinite(found).all()


def test_rows_that_are_not_kept_leave_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = use(monkeypatch, {f"u_{i}_0": {} for i in range(3)})
    kept = episodes.keep_rows(queue.batch(), ["u_2_0", "u_0_0"])
    assert kept.keys == ["u_2_0", "u_0_0"] and sorted(queue.rows) == ["u_0_0", "u_2_0"]


def test_advantages_are_weighed_by_turns_that_are_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mask of row u has a loss on everything and that of row v lost a token; neither shows where turns end."""
    rows = {
        "u_0_0": {"advantages": torch.ones(6), "response_mask": torch.ones(6, dtype=torch.int64)},
        "v_0_0": {"advantages": torch.full((4,), -2.0), "response_mask": torch.tensor([1, 0, 1, 1])},
    }
    queue = use(monkeypatch, rows)
    ends = [(1, 5), (2, 3)]
    episodes.weigh_advantages(queue.batch(), lambda mask: 0.5 * turn_weights(mask, ends))
    # two turns of 2 and 4 tokens of 6: 6 / (2 * 2) and 6 / (2 * 4); of 2 and 1 tokens of 3: 3 / (2 * 2) and 3 / 2
    assert queue.rows["u_0_0"]["advantages"].tolist() == pytest.approx([0.75, 0.75, *[0.375] * 4])
    assert queue.rows["v_0_0"]["advantages"].tolist() == pytest.approx([-0.75, 0.0, -0.75, -1.5])


def test_tokens_get_mask_and_advantages_of_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row of two turns with observations between them, and a trajectory with a row for each turn."""

    def with_tokens(index: int, sizes: tuple[int, ...]) -> dict:
        turns = [{"tokens": {"ids": [1] * size, "mask": [1] * size, "advantages": []}} for size in sizes]
        return record(1, index) | {"turns": turns}

    def values(index: int, text: str, turns: list[int], ends: list[int], advantages: list[float], mask: list[int]):
        fields = {"advantages": torch.tensor(advantages), "response_mask": torch.tensor(mask)}
        return row(index, text, turns, ends) | fields

    one, two = json.dumps(with_tokens(0, (2, 1))), json.dumps(with_tokens(1, (1, 2)))
    rows = {
        "u_0_0": values(0, one, [1, 2], [1, 4], [0.5, 0.5000001, 0, 0, float("nan")], [1, 0, 0, 0, 1]),
        "u_1_0": values(0, two, [1], [0], [-1.0], [1]),
        "u_1_1": values(1, two, [2], [1], [-2.0, -3.0], [1, 1]),
        "pad_0_0": values(0, one, [], [], [0.0], [0]),
    }
    batch = use(monkeypatch, rows).batch()
    played = TrajectoryReader().read(batch.select_keys(["u_0_0", "u_1_0", "u_1_1"]))
    episodes.fill_tokens(batch, played)
    found = [
        [(turn["tokens"]["mask"], turn["tokens"]["advantages"]) for turn in one["turns"]] for one in played.records
    ]
    assert found == [
        [([1, 0], [0.5, 0.5]), ([1], [None])],
        [([1], [-1.0]), ([1, 1], [-2.0, -3.0])],
    ]
