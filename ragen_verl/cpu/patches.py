"""Patches for places where stock verl 0.9.1 and vLLM 0.24 to 0.32 fail without an accelerator.

They are applied only where none was found, as `ragen_verl.patches.table` says. Each names the line that makes it
necessary, and does not change a version without that line.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from functools import wraps
from typing import Any

from ragen_verl.cpu.fork_client import PYTHON
from ragen_verl.errors import RecipeError
from ragen_verl.switch import SWITCH

__all__ = [
    "answer_for_vllm",
    "engine_threads",
    "fork_engine",
    "fsdp_engine",
    "not_in_ray_actor",
    "one_gloo_backend",
    "register_platform",
    "set_environment",
    "start_fork_server",
    "stay_alone",
]

_SPLIT = 512
"""From this width of a model on, several threads compute its matrix products."""

_DRIVER = "verl.trainer.main_ppo"
"""The module that starts a run: verl's main."""


def register_platform() -> None:
    """Register verl's platform "cpu", and add to `torch.cpu` what verl calls on every device.

    Raises:
        RecipeError: verl has chosen another one in this process.
    """
    from verl.plugin.platform import platform_manager

    from ragen_verl.cpu.platform import PlatformCPU, complete_torch_cpu

    chosen = platform_manager._current_platform
    if chosen is not None and chosen.device_name != "cpu":
        raise RecipeError(
            f"verl chose the device {chosen.device_name!r} before it composed a recipe of ragen_verl: set {SWITCH}=1 "
            "in the environment of the command."
        )
    if platform_manager.PlatformRegistry.get("cpu") is None:  # a verl that brings its own CPU platform keeps it
        platform_manager.PlatformRegistry.register(platform="cpu")(PlatformCPU)
    complete_torch_cpu()


def stay_alone() -> None:
    """Keep the driver out of a Ray cluster that runs on this machine; its devices here are logical ones."""
    if _DRIVER in (*sys.orig_argv, sys.argv[0]):  # the latter in a process that was forked
        # Ray gives out no more devices than this names, and refuses to start; those of a recipe for the CPU are logical
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        # Ray would join a cluster that runs on this machine, and refuse the recipe's numbers of cores and devices
        os.environ.setdefault("RAY_ADDRESS", "local")


def start_fork_server() -> None:
    """Start the fork server at the very start of a driver, so that it imports at the same time."""
    if _DRIVER in sys.orig_argv:
        from ragen_verl.cpu import fork_server

        fork_server.start()


def set_environment() -> None:
    """Set variables that verl, Ray and vLLM read from the environment; values of the user stay."""
    cores = str(os.cpu_count() or 1)
    for name, value in {
        # FSDP engines are registered for cuda and npu only; verl's own override (engine/base.py:399-429)
        "VERL_ENGINE_DEVICE": "cuda",
        # Ray gives an actor one OpenMP thread unless the variable is there when it starts
        "OMP_NUM_THREADS": cores,
        # what recipes/hardware/cpu.yaml has Ray start its workers with, unless a fork server was started
        PYTHON: sys.executable,
        # Ray starts a worker for each logical core in advance; here they are more than the machine's, and unused
        "RAY_prestart_worker_first_driver": "0",
        # vLLM's engine in one process: between two, each waits for the other by spinning (platforms/cpu.py:333-341)
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        # several processes share the cores: pinning each to the same ones makes them wait for each other
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    }.items():
        os.environ.setdefault(name, value)


def answer_for_vllm() -> None:
    """verl asks for the version of "vllm" (third_party/vllm/__init__.py:23-40); the CPU build's name is "vllm-cpu".

    vLLM recognises its own CPU build by the suffix (vllm/platforms/__init__.py:26).
    """
    version = importlib.metadata.version
    try:
        version("vllm")
    except importlib.metadata.PackageNotFoundError:

        @wraps(version)
        def of_either_build(name: str) -> str:
            return f"{version('vllm-cpu')}+cpu" if name == "vllm" else version(name)

        importlib.metadata.version = of_either_build  # type: ignore[assignment]


def one_gloo_backend(module: Any) -> None:
    """The backend "cpu:gloo,cpu:gloo" names a device twice, which torch refuses (verl/utils/distributed.py:89)."""
    initialize = module.initialize_global_process_group_ray

    @wraps(initialize)
    def with_gloo(timeout_second: int | None = None, backend: str | None = None) -> None:
        return initialize(timeout_second, backend or "cpu:gloo")

    module.initialize_global_process_group_ray = with_gloo

    def of_torchrun(timeout_second: int = 36000) -> tuple[int, int, int]:
        """verl's own for processes that torchrun started, as supervised training's is (utils/distributed.py:62)."""
        with_gloo(timeout_second)
        return tuple(int(os.environ[name]) for name in ("LOCAL_RANK", "RANK", "WORLD_SIZE"))  # type: ignore[return-value]

    module.initialize_global_process_group = of_torchrun


def fsdp_engine(module: Any) -> None:
    """The reference model is offloaded with pinned memory, which needs a GPU (fsdp/transformer_impl.py:459-462).

    And the engine gets its threads before it builds its model (line 207), see `_fewer_threads`.
    """
    policy, initialize = module.CPUOffloadPolicy, module.FSDPEngine.initialize

    @wraps(initialize)
    def with_threads(self: Any) -> None:
        _fewer_threads(self.model_config.hf_config)
        initialize(self)

    module.CPUOffloadPolicy = lambda pin_memory=True: policy(pin_memory=False)
    module.FSDPEngine.initialize = with_threads


def fork_engine(module: Any) -> None:
    """vLLM's CPU platform spawns the engine's process, which imports everything again (platforms/cpu.py:409).

    That takes 14 s. What forbids a fork is CUDA; the engine itself never calls Ray (utils/system_utils.py:130-137).
    """
    platform, method = module.CpuPlatform, "VLLM_WORKER_MULTIPROC_METHOD"
    update = platform.check_and_update_config

    @wraps(update)
    def with_fork(vllm_config: Any) -> None:
        update(vllm_config)
        os.environ[method] = "fork"

    platform.check_and_update_config = staticmethod(with_fork)


def not_in_ray_actor(module: Any) -> None:
    """The other half of `fork_engine`: inside a Ray actor vLLM overrules the choice of a fork."""
    if hasattr(module, "is_in_ray_actor"):
        module.is_in_ray_actor = lambda: False


def engine_threads(module: Any) -> None:
    """The threads of vLLM's engine, set before it forbids another number (v1/worker/cpu_worker.py:145)."""
    init_device = module.CPUWorker.init_device

    @wraps(init_device)
    def with_threads(self: Any) -> None:
        _fewer_threads(self.model_config.hf_config)
        init_device(self)

    module.CPUWorker.init_device = with_threads


def _fewer_threads(config: Any) -> None:
    """One OpenMP thread for a small model, whose matrix products take less time than it takes threads to meet.

    On two quiet cores a step of the nano model is 5 % slower with one; next to another process it was up to six times
    as fast.
    """
    if getattr(config, "hidden_size", _SPLIT) < _SPLIT:
        import torch

        torch.set_num_threads(1)
