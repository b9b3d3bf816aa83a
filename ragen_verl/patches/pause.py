"""A patch with which vLLM 0.32 accepts the argument that verl 0.9.1 uses to pause its engine.

verl pauses the engine with `wait_for_inflight_requests=False` (verl/workers/rollout/vllm_rollout/
vllm_async_server.py:991). vLLM first deprecated this argument in favour of `mode`, and then removed it.
"""

from __future__ import annotations

import inspect
from functools import wraps
from types import ModuleType
from typing import Any

__all__ = ["pause_as_verl_asks"]


def pause_as_verl_asks(module: ModuleType) -> None:
    """Say `mode` to an engine that has no other argument."""
    pause = module.AsyncLLM.pause_generation
    if "wait_for_inflight_requests" in inspect.signature(pause).parameters:
        return

    @wraps(pause)
    async def pausing(self: Any, *, wait_for_inflight_requests: bool | None = None, **kwargs: Any) -> None:
        if wait_for_inflight_requests is not None:
            kwargs["mode"] = "wait" if wait_for_inflight_requests else "abort"
        await pause(self, **kwargs)

    module.AsyncLLM.pause_generation = pausing
