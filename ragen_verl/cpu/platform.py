"""verl's platform "cpu": FSDP2 over gloo, vLLM's CPU build, Ray's GPU resource as a count of logical devices.

verl 0.9.1 knows NVIDIA, AMD and Ascend and falls back to NVIDIA where it finds none
(verl/plugin/platform/platform_manager.py:83-127). This platform is registered only when none of them is there.
"""

from __future__ import annotations

import os
import resource
from contextlib import nullcontext
from types import ModuleType
from typing import Any

import torch
from verl.plugin.platform.platform_base import PlatformBase

__all__ = ["CpuDevice", "PlatformCPU", "complete_torch_cpu"]


class CpuDevice(str):
    """`"cpu"` where verl wants a device for `.to()`, `0` where it formats an index into `"cpu:{index}"`."""

    def __format__(self, spec: str) -> str:
        return "0"


def _peak_memory(*_: Any) -> int:
    """Peak resident memory of this process in bytes; returned where verl asks for allocated device memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def complete_torch_cpu() -> None:
    """Adds to `torch.cpu` what verl calls on every device module (fsdp_utils, engine_workers, checkpoint_manager)."""
    calls = {
        "empty_cache": lambda: None,
        "ipc_collect": lambda: None,
        "max_memory_allocated": _peak_memory,
        "max_memory_reserved": _peak_memory,
        "memory_allocated": _peak_memory,
        "memory_reserved": _peak_memory,
        "reset_peak_memory_stats": lambda *_: None,
        "mem_get_info": _free_and_total_memory,
        "get_rng_state": lambda *_: torch.get_rng_state(),
        "set_rng_state": lambda state, *_: torch.set_rng_state(state),
        "get_device_name": lambda *_: "cpu",
    }
    for name, call in calls.items():
        if not hasattr(torch.cpu, name):
            setattr(torch.cpu, name, call)


def _free_and_total_memory(*_: Any) -> tuple[int, int]:
    page = os.sysconf("SC_PAGE_SIZE")
    return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page


class PlatformCPU(PlatformBase):
    """The machine's processor as verl's only device. One Ray "GPU" is one training or rollout process."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module: ModuleType = torch.cpu

    def is_available(self) -> bool:
        """Always: it is registered only where no accelerator was found."""
        return True

    def current_device(self) -> CpuDevice:
        """The one device there is."""
        return CpuDevice("cpu")

    def device_count(self) -> int:
        """One device a process."""
        return 1

    def set_device(self, device_index: int) -> None:
        """Nothing to choose from."""

    def synchronize(self, device_index: int | None = None) -> None:
        """CPU kernels are done when they return."""

    def manual_seed(self, seed: int) -> None:
        """Seeds torch's only generator."""
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def set_allocator_settings(self, settings: str) -> None:
        """The CPU allocator has none."""

    def empty_cache(self) -> None:
        """The CPU allocator keeps none."""

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        """No compute capability."""
        return None, None

    def communication_backend_name(self) -> str:
        """gloo, the one backend for CPU tensors."""
        return "gloo"

    def visible_devices_envvar(self) -> str:
        """The variable Ray sets for its GPU resource; nothing on this platform reads it."""
        return "CUDA_VISIBLE_DEVICES"

    def nvtx_range(self, msg: str) -> Any:
        """No profiler ranges."""
        return nullcontext()

    def profiler_start(self) -> None:
        """No device profiler."""

    def profiler_stop(self) -> None:
        """No device profiler."""

    def ray_resource_name(self) -> str:
        """verl's resource pools count this resource (single_controller/ray/base.py:226-242)."""
        return "GPU"

    def ray_resource_options(self, num_gpus: float) -> dict[str, Any]:
        """Actors ask for their share of the logical devices."""
        return {"num_gpus": num_gpus}

    def ray_noset_envvars(self) -> list[str]:
        """Ray may set its variables: nothing reads them."""
        return []

    def is_ipc_supported(self) -> bool:
        """Weights go to the engine through shared memory, not CUDA IPC."""
        return False

    def cudart(self) -> None:
        """No CUDA runtime."""
        return None
