"""The plugin that verl loads: it registers everything and imports nothing heavy.

verl imports this module at the end of `import verl` in each of its processes (entry point `verl.plugins`). That is
early and frequent, so the work is put off until the module concerned is imported. verl drops exceptions of entry points
(verl/__init__.py:71-76). A failure is therefore kept in `STATUS` and printed on stderr.
"""

from __future__ import annotations

import sys
import traceback
from functools import wraps
from importlib import import_module
from typing import Any

from ragen_verl.extensions import load_plugins
from ragen_verl.hooks import after_import
from ragen_verl.names import AGENT_LOOP, ASYNC_TRAINER, SEPARATE_TRAINER, TRAINER

__all__ = ["STATUS", "register_verl"]

STATUS: dict = {"loaded": False, "error": None, "registered": []}
"""loaded: bool, error: the traceback or None, registered: names of what was registered in this process."""


_TRAINERS = (TRAINER, ASYNC_TRAINER, SEPARATE_TRAINER)


def register_verl() -> None:
    """Register the config resolvers, the CPU platform, the agent loop and the trainers; safe to call twice."""
    from ragen_verl.config import register_resolvers
    from ragen_verl.cpu.patches import apply_verl_patches
    from ragen_verl.patches import PATCHES

    register_resolvers()
    for name, patch in PATCHES.items():
        after_import(name, patch)
    STATUS["registered"] += ["resolvers", *(f"patch:{name}" for name in PATCHES), *apply_verl_patches()]
    after_import("verl.trainer.ppo.v1", _find_trainers)
    after_import("verl.experimental.agent_loop.agent_loop", _register_agent_loop)
    after_import("verl.trainer.ppo.core_algos", _register_losses)
    after_import("verl.trainer.ppo.core_algos", _register_estimators)
    STATUS["registered"] += [*(f"trainer:{name}" for name in _TRAINERS), f"agent_loop:{AGENT_LOOP}"]


def _find_trainers(module: Any) -> None:
    """Import the trainers, which register themselves, when verl looks one of them up by name (main_ppo.py:141).

    Not before: verl imports this package also in processes without a trainer, and while the trainers import verl.
    """
    find = module.get_trainer_cls

    @wraps(find)
    def with_ours(name: str) -> type:
        if name in _TRAINERS:
            import_module("ragen_verl.training.trainer_modes")
        return find(name)

    module.get_trainer_cls = with_ours


def _register_agent_loop(module: Any) -> None:
    """Register the agent loop by its class's name: verl imports the class when it instantiates it for an episode."""
    module._agent_loop_registry[AGENT_LOOP] = {"_target_": "ragen_verl.training.agent_loop.RagenAgentLoop"}


def _register_losses(module: Any) -> None:
    """Import the policy losses, which register themselves, and the plugins, which may register others with verl.

    Workers look a policy loss up by name when they compute it (workers/utils/losses.py:103).
    """
    import_module("ragen_verl.training.losses")
    load_plugins()


def _register_estimators(module: Any) -> None:
    """Register the estimators under one name: verl uses its own `gae` and `grpo` before it looks up any name."""
    from ragen_verl.training.advantages import register

    register(module.register_adv_est)


def _load() -> None:
    if STATUS["loaded"]:
        return
    try:
        register_verl()
        STATUS["loaded"] = True
    except Exception:
        STATUS["error"] = traceback.format_exc()
        print(
            f"ragen_verl: the plugin could not be loaded; run `ragen-verl doctor`.\n{STATUS['error']}", file=sys.stderr
        )
        raise


_load()
