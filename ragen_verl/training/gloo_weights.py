"""Send weights from the trainer to engines on other devices over gloo: verl's checkpoint engine "gloo".

verl 0.9.1 has such engines for NCCL, NIXL and others, which need a GPU and packages of their own. This one needs only
torch, goes over host memory, and works between machines. `mode=disaggregated` uses it unless a recipe says otherwise;
verl imports this module through `actor_rollout_ref.rollout.checkpoint_engine.custom_backend_module`.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncGenerator, Iterable
from datetime import timedelta
from itertools import accumulate
from typing import Any

import ray
import torch
from torch.distributed import ProcessGroupGloo, TCPStore
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry

__all__ = ["PATIENCE", "GlooWeights"]

PATIENCE = timedelta(seconds=600)
"""The longest time that one side waits for the other."""


@CheckpointEngineRegistry.register("gloo")
class GlooWeights(CheckpointEngine):
    """One push of weights from the trainer's first rank to all ranks of all engines.

    The trainer's other ranks only take part in gathering the weights. verl calls `prepare`, `build_topology`,
    `init_process_group`, `send_weights` or `receive_weights`, and `finalize`, in this order for every push.

    Args:
        bucket_size: bytes of a message, which holds many small tensors or one that is larger.
        is_master: whether this is the trainer's first rank.
        dtype: that of the engine, "bfloat16" for example; other floating types are cast before they leave the device.
    """

    def __init__(self, bucket_size: int, is_master: bool = False, dtype: str | None = None) -> None:
        self.is_master, self.bucket_size = is_master, bucket_size
        self.dtype: torch.dtype | None = getattr(torch, dtype) if dtype else None
        self._store: TCPStore | None = None
        self._group: ProcessGroupGloo | None = None

    def prepare(self) -> tuple[str, int] | None:
        """Open the meeting point: its host and port on the trainer's first rank, None elsewhere."""
        if not self.is_master:
            return None
        host = ray.util.get_node_ip_address().strip("[]")
        self._store = TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=PATIENCE)
        return host, self._store.port

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[Any]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """The arguments of `init_process_group` for the trainer's ranks and for the engines' ranks."""
        meeting_point, members = metadata[0], 1 + rollout_world_size
        ranks = [0] + [-1] * (actor_wg_world_size - 1), list(range(1, members))
        trainer, engines = (
            {"rank": one, "world_size": [members] * len(one), "meeting_point": [meeting_point] * len(one)}
            for one in ranks
        )
        return trainer, engines

    def init_process_group(self, rank: int, world_size: int, meeting_point: tuple[str, int]) -> None:
        """Join the group of this push; rank -1 stays outside."""
        if rank < 0:
            return
        store = self._store or TCPStore(*meeting_point, is_master=False, timeout=PATIENCE)
        self._store, self._group = store, ProcessGroupGloo(store, rank, world_size, PATIENCE)

    def finalize(self) -> None:
        """Leave the group."""
        self._group = self._store = None

    @torch.no_grad()
    async def send_weights(self, weights: Iterable[tuple[str, torch.Tensor]], global_steps: int | None = None) -> None:
        """Send all weights; a rank outside the group only walks through them, since each is gathered from all ranks."""
        waiting: list[tuple[str, torch.Tensor]] = []
        for name, weight in weights:
            if self._group is None:
                continue
            cast = weight.detach().to(self.dtype) if self.dtype and weight.is_floating_point() else weight.detach()
            if waiting and _places([*waiting, (name, cast)])[-1] > self.bucket_size:
                await self._send(waiting)
                waiting = []
            waiting.append((name, cast.cpu()))
        if self._group is not None:
            if waiting:
                await self._send(waiting)
            await self._broadcast_object(None)

    async def receive_weights(self, global_steps: int | None = None) -> AsyncGenerator[tuple[str, torch.Tensor]]:
        """Names and weights, on the CPU, in the order in which they are sent."""
        while (heads := await self._broadcast_object()) is not None:
            weights = [(name, torch.empty(shape, dtype=dtype, device="meta")) for name, shape, dtype in heads]
            bucket = torch.empty(_places(weights)[-1], dtype=torch.uint8)
            await self._broadcast(bucket)
            for (name, like), start in zip(weights, _places(weights), strict=False):
                yield name, bucket[start : start + like.nbytes].view(like.dtype).reshape(like.shape)

    async def _send(self, weights: list[tuple[str, torch.Tensor]]) -> None:
        await self._broadcast_object([(name, tuple(weight.shape), weight.dtype) for name, weight in weights])
        bucket = torch.empty(_places(weights)[-1], dtype=torch.uint8)
        for (_, weight), start in zip(weights, _places(weights), strict=False):
            bucket[start : start + weight.nbytes] = weight.contiguous().reshape(-1).view(torch.uint8)
        await self._broadcast(bucket)

    async def _broadcast_object(self, value: Any = None) -> Any:
        data = torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)
        size = torch.tensor([len(data)])
        await self._broadcast(size)
        if not self.is_master:
            data = torch.empty(int(size), dtype=torch.uint8)
        await self._broadcast(data)
        return pickle.loads(data.numpy().tobytes())

    async def _broadcast(self, tensor: torch.Tensor) -> None:
        """Send the trainer's tensor, or receive into this one, in a thread, so that the event loop continues."""
        if tensor.numel():
            await asyncio.to_thread(lambda: self._group.broadcast(tensor, root=0).wait())


def _places(weights: list[tuple[str, torch.Tensor]]) -> list[int]:
    """Where each weight begins in a bucket, in bytes, at multiples of 16; and the bucket's size."""
    return list(accumulate((-(-weight.nbytes // 16) * 16 for _, weight in weights), initial=0))
