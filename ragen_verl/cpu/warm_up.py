"""Imports for the actors that verl starts later, on the core that would be idle meanwhile.

verl starts its processes one after another, and each spends 6 to 12 s of one core on imports. Ray keeps the process of
a finished task and gives it to the next actor with the same environment, modules already loaded.
"""

from __future__ import annotations

from importlib import import_module

import ray

MODULES = (
    "verl.workers.rollout.vllm_rollout.vllm_async_server",
    "verl.experimental.agent_loop",
    "verl.workers.rollout.router",
)
"""What the actors import that come after the training worker: vLLM's server, the agent loops, the load balancer."""


def _load(module: str) -> None:
    import_module(module)


def start() -> None:
    """Starts one process per module and does not wait for it."""
    for module in MODULES:
        ray.remote(num_cpus=0)(_load).remote(module)
