"""The probes that `doctor` runs in a process of their own: `python -m ragen_verl.doctor.probes NAME...`.

Each prints one line, `MARK` followed by JSON. They load gigabytes and may hang or crash, and the loading of the plugin
has to be observed in a process that has not imported it yet. One process runs several one after the other, since most
of the time goes into importing torch.
"""

from __future__ import annotations

import gc
import importlib
import importlib.metadata
import importlib.util
import json
import os
import sys
import time
import traceback

from ragen_verl.switch import SWITCH, WITHOUT

__all__ = ["MARK", "PROBES", "driver", "ray_worker", "torch_build", "vllm_engine"]

MARK = "ragen-doctor:"
_PLUGIN = "ragen_verl.plugin"


def _check_plugin() -> dict:
    """Import verl and report the state of the plugin.

    verl logs the exception of an entry point at DEBUG and continues (verl/__init__.py:71-76); importing the plugin once
    more raises it again visibly. `by_itself` tells whether `import verl` alone had loaded it.
    """
    try:
        importlib.import_module("verl")
        by_itself = _PLUGIN in sys.modules
        status = dict(importlib.import_module(_PLUGIN).STATUS)
    except Exception:
        return {"loaded": False, "by_itself": False, "error": traceback.format_exc(), "registered": []}
    return {**status, "by_itself": by_itself}


def driver() -> dict:
    """The process that starts a run."""
    return _check_plugin()


def _surroundings() -> dict:
    """What decides whether the plugin loads in a process, besides the installed files."""
    names = ("verl", "ragen_verl.plugin")
    variables = (SWITCH, WITHOUT, "VERL_USE_EXTERNAL_PLUGINS", "VERL_PLATFORM", "CUDA_VISIBLE_DEVICES")
    return {
        "python": sys.executable,
        "files": [getattr(importlib.util.find_spec(name), "origin", None) for name in names],
        "points": sorted(point.value for point in importlib.metadata.entry_points(group="verl.plugins")),
        "variables": {name: os.environ.get(name) for name in variables},
    }


def ray_worker() -> dict:
    """A worker of a separate Ray cluster; `RAY_ADDRESS` is ignored, and running clusters are not touched.

    The plugin is loaded there unless it has been in this process, and the worker has the same Python, files, entry
    points and variables.
    """
    import logging

    import ray
    from ray.cluster_utils import Cluster

    # without autoscaler and log monitor, a second of the processor each; 80 MB is the least that Ray accepts
    head = {"num_cpus": 1, "object_store_memory": 80 * 1024**2, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={**head, "include_log_monitor": False, "no_monitor": True})
    ray.init(address=cluster.address, logging_level=logging.ERROR, log_to_driver=False)
    try:
        same = _PLUGIN in sys.modules and ray.get(ray.remote(_surroundings).remote()) == _surroundings()
        return _check_plugin() if same else ray.get(ray.remote(_check_plugin).remote())
    finally:
        ray.shutdown()
        cluster.shutdown()


def vllm_engine() -> dict:
    """The start of a vLLM engine process: load the group `vllm.general_plugins` and call the plugins."""
    try:
        plugins = importlib.import_module("vllm.plugins")
        found = plugins.load_plugins_by_group(plugins.DEFAULT_PLUGINS_GROUP)
        if "ragen_verl" not in found:  # vLLM logs the exception and continues: raise it in sight
            points = importlib.metadata.entry_points(group=plugins.DEFAULT_PLUGINS_GROUP)
            for point in points.select(name="ragen_verl"):
                point.load()
            return {"loaded": False, "by_itself": False, "error": None, "registered": []}
        found["ragen_verl"]()
    except Exception:
        return {"loaded": False, "by_itself": False, "error": traceback.format_exc(), "registered": []}
    return {"loaded": True, "by_itself": True, "error": None, "registered": ["register_vllm"]}


def torch_build() -> dict:
    """torch's build and GPUs, and which of its companions are installed and fail to import next to it."""
    import torch

    gpus = []
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            gpus.append({"name": properties.name, "memory_gb": round(properties.total_memory / 1024**3, 1)})
    broken = {}
    for name in ("torchvision", "torchaudio", "torchcodec"):
        if importlib.util.find_spec(name) is not None:
            try:
                importlib.import_module(name)
            except Exception as error:
                broken[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    return {"cuda": torch.version.cuda, "hip": torch.version.hip, "gpus": gpus, "broken": broken}


PROBES = {"driver": driver, "ray_worker": ray_worker, "vllm_engine": vllm_engine, "torch_build": torch_build}

if __name__ == "__main__":
    gc.disable()  # a tenth of the time of these imports is looking for rubbish that they do not leave
    for name in sys.argv[1:]:
        start = time.monotonic()
        found = {"answer": PROBES[name](), "seconds": round(time.monotonic() - start, 1)}
        sys.stdout.flush()
        os.write(1, f"\n{MARK}{json.dumps(found)}\n".encode())
