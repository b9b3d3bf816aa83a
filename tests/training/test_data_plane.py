"""What a step reads and writes is the same through verl's data plane and through one that knows nothing of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from memory_queue import MemoryQueue

from ragen_verl.rollout.trajectory import RECORD
from ragen_verl.training import data_plane
from ragen_verl.training.batch import TrajectoryReader, entropies, fill_tokens, keep_rows, weigh_advantages
from ragen_verl.training.batch_mismatch import batch_mismatch
from ragen_verl.training.data_plane import DataPlane, joined

LENGTHS = {"u_0_0": 4, "u_1_0": 2, "v_0_0": 3, "v_0_1": 1, "v_1_0": 3}


@dataclass
class Names:
    """A batch without TransferQueue."""

    keys: list[str]
    tags: list[dict]
    partition_id: str = "train"
    extra_info: dict = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.keys)

    def select_keys(self, keys: list[str]) -> Names:
        return replace(self, keys=keys, tags=[self.tags[self.keys.index(key)] for key in keys])


class Memory:
    """A data plane without TransferQueue: a dict."""

    def __init__(self, rows: dict[str, dict[str, Any]]) -> None:
        self.rows = rows

    def get(self, batch: Names, keys: list[str], fields: list[str]) -> dict[str, list]:
        known = [name for name in fields if any(name in self.rows[key] for key in keys)]
        return {name: [self.rows[key][name] for key in keys] for name in known}

    def put(self, batch: Names, fields: dict[str, list]) -> None:
        for name, values in fields.items():
            for key, value in zip(batch.keys, values, strict=True):
                self.rows[key][name] = value

    def clear(self, batch: Names, keys: list[str]) -> None:
        for key in keys:
            del self.rows[key]


def rows() -> dict[str, dict[str, Any]]:
    generator = torch.Generator().manual_seed(1)
    found = {}
    for key, length in LENGTHS.items():
        uid, member, index = key.split("_")
        last = index == "1" or uid == "u" or member == "1"
        count = 2 if key == "v_0_0" or key == "v_0_1" else 1
        turns = [{"state": f"{key}{n}", "tokens": {"ids": [1], "mask": [], "advantages": []}} for n in range(count)]
        record = {
            "seed": ord(uid), "rollout_index": int(member), "return": 1.0, "excluded": False,
            "metrics": {"response_length": 3.0}, "turns": turns,
        }  # fmt: skip
        found[key] = {
            name: torch.randn(length, generator=generator)
            for name in ("advantages", "rollout_log_probs", "old_log_probs", "values")
        } | {
            "response_mask": torch.ones(length, dtype=torch.int64),
            "extra_fields": {
                "turns": [1 if not last or index == "0" else 2],
                "turn_ends": [length - 1],
                RECORD: json.dumps(record) if index == "0" else "",
            },
        }
    return found


def names(kind: type = Names) -> Any:
    return kind(keys=list(LENGTHS), tags=[{} for _ in LENGTHS], partition_id="train", extra_info={"one": 1})


def a_step(batch: Any) -> dict[str, Any]:
    """Everything of a step that reads or writes rows."""
    found: dict[str, Any] = {}
    played = TrajectoryReader().read(batch)
    found["played"] = played
    found["entropies"] = entropies(batch, played)
    found["mismatch"] = batch_mismatch(batch, step=1)
    batch = keep_rows(batch, [key for key in batch.keys if key != "u_1_0"])
    weigh_advantages(batch, lambda mask: 0.5 * mask)
    trained = TrajectoryReader().read(batch)
    fill_tokens(batch, trained)
    found["tokens"] = [record["turns"] for record in trained.records]
    found["rows"] = data_plane.current.get(batch, batch.keys, ["advantages", "nobody_has_it"])
    halves = [batch.select_keys(batch.keys[:1]), batch.select_keys(batch.keys[1:])]
    found["joined"] = joined(*halves).keys
    return found


def plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=lambda one: one.tolist() if torch.is_tensor(one) else vars(one)))


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a step finds without TransferQueue."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_plane, "current", Memory(rows()))
        return plain(a_step(names()))


@pytest.fixture
def transfer_queue() -> Iterator[Any]:
    """The real one, in a Ray of its own."""
    import ray
    import transfer_queue as tq
    from omegaconf import OmegaConf
    from tensordict import NonTensorStack, TensorDict

    ray.init(num_cpus=4, include_dashboard=False, logging_level="error")
    tq.init(OmegaConf.create({"backend": {"SimpleStorage": {"num_data_storage_units": 1}}}))
    for key, row in rows().items():  # one by one, as episodes end
        tensors = {name: data_plane.nested([one]) for name, one in row.items() if torch.is_tensor(one)}
        fields = TensorDict(tensors | {"extra_fields": NonTensorStack(row["extra_fields"])}, batch_size=1)
        tq.kv_batch_put(keys=[key], partition_id="train", fields=fields, tags=[{}])
    yield tq
    tq.close()
    ray.shutdown()


def test_a_step_without_transfer_queue_is_the_same(without: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_plane, "tq", MemoryQueue(rows()))
    assert plain(a_step(names(data_plane.Batch))) == without
    assert without["rows"].keys() == {"advantages"} and len(without["rows"]["advantages"]) == len(LENGTHS) - 1


@pytest.mark.train
def test_a_step_with_the_real_transfer_queue_is_the_same(without: dict[str, Any], transfer_queue: Any) -> None:
    assert isinstance(data_plane.current, DataPlane)
    assert plain(a_step(names(data_plane.Batch))) == without
    left = transfer_queue.kv_list("train")["train"]
    assert sorted(left) == sorted(set(LENGTHS) - {"u_1_0"})
