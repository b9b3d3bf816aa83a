"""Weights sent over gloo by two ranks of a trainer to two ranks of engines: all arrive, exactly."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from verl.checkpoint_engine.base import CheckpointEngineRegistry

from ragen_verl.training.gloo_weights import GlooWeights

RANKS, ENGINES = 2, 2
DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool)


@pytest.fixture(autouse=True)
def one_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.util.get_node_ip_address", lambda: "127.0.0.1")


def pushed(
    weights: list[tuple[str, torch.Tensor]], bucket: int = 1 << 20, dtype: str | None = None
) -> tuple[list[list[tuple[str, torch.Tensor]]], list[int]]:
    """What each engine receives, and how many weights each rank of the trainer has gathered."""
    trainer = [GlooWeights(bucket, is_master=rank == 0, dtype=dtype) for rank in range(RANKS)]
    engines = [GlooWeights(bucket, dtype=dtype) for _ in range(ENGINES)]
    members = [*trainer, *engines]
    gathered = [0] * RANKS

    def gather(rank: int):
        for weight in weights:
            gathered[rank] += 1
            yield weight

    async def receive(engine: GlooWeights) -> list[tuple[str, torch.Tensor]]:
        return [(name, weight.clone()) async for name, weight in engine.receive_weights()]

    def part(member: int):
        if member < RANKS:
            return asyncio.run(trainer[member].send_weights(gather(member)))
        return asyncio.run(receive(engines[member - RANKS]))

    metadata = [member.prepare() for member in members]
    sides = GlooWeights.build_topology(RANKS, ENGINES, metadata)
    arguments = [dict(zip(side, values, strict=True)) for side in sides for values in zip(*side.values(), strict=True)]
    with ThreadPoolExecutor(len(members)) as threads:
        list(threads.map(lambda one: one[0].init_process_group(**one[1]), zip(members, arguments, strict=True)))
        found = list(threads.map(part, range(len(members))))
    for member in members:
        member.finalize()
    return found[RANKS:], gathered


@settings(max_examples=8, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 5), max_size=3), st.integers(0, 2**31)), max_size=4
    ),
    st.sampled_from([1, 64, 1 << 20]),
)
def test_every_engine_receives_all_weights(shapes: list[tuple[torch.dtype, list[int], int]], bucket: int) -> None:
    weights = []
    for number, (dtype, shape, seed) in enumerate(shapes):
        values = torch.randint(0, 100, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
        weights.append((f"layer.{number}", values))
    received, gathered = pushed(weights, bucket)
    assert gathered == [len(weights)] * RANKS  # the ranks that send nothing take part in gathering
    for engine in received:
        assert [name for name, _ in engine] == [name for name, _ in weights]
        for (_, there), (_, here) in zip(engine, weights, strict=True):
            assert there.dtype == here.dtype and torch.equal(there, here)


def test_a_slice_and_a_parameter_arrive_as_they_are() -> None:
    parameter = torch.nn.Parameter(torch.arange(12.0).reshape(3, 4))
    weights = [("parameter", parameter), ("column", parameter[:, 1]), ("transposed", parameter.T)]
    for engine in pushed(weights)[0]:
        assert all(torch.equal(there, here) for (_, there), (_, here) in zip(engine, weights, strict=True))


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_the_engine_gets_its_own_type(kind: torch.dtype) -> None:
    weights = [("weight", torch.randn(5, 3).to(kind)), ("places", torch.arange(4)), ("bias", torch.randn(7).to(kind))]
    for engine in pushed(weights, dtype="bfloat16")[0]:
        assert [there.dtype for _, there in engine] == [torch.bfloat16, torch.int64, torch.bfloat16]
        for (_, there), (_, here) in zip(engine, weights, strict=True):
            assert torch.equal(there, here.to(there.dtype))


def test_small_weights_share_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """50 weights of 16 bytes: one bucket of 800, or nine of at most 100."""
    messages: list[list[str]] = []
    send = GlooWeights._send

    async def sending(self: GlooWeights, weights: list[tuple[str, torch.Tensor]]) -> None:
        messages.append([name for name, _ in weights])
        await send(self, weights)

    monkeypatch.setattr(GlooWeights, "_send", sending)
    weights = [(f"layer.{number}", torch.full((4,), float(number))) for number in range(50)]
    for bucket, count in ((1 << 20, 1), (100, 9)):
        messages.clear()
        received, _ = pushed(weights, bucket)
        assert len(messages) == count and [name for one in messages for name in one] == [name for name, _ in weights]
        assert all(torch.equal(there, here) for (_, there), (_, here) in zip(received[1], weights, strict=True))


def test_verl_finds_it_by_name() -> None:
    assert CheckpointEngineRegistry.get("gloo") is GlooWeights
