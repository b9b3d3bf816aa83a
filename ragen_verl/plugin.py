"""What verl loads by itself: every registration, and nothing heavy.

verl imports this module at the end of `import verl` in each of its processes (entry point `verl.plugins`). That is
early and frequent, so the work is put off until the module concerned is imported. verl drops exceptions of entry points
(verl/__init__.py:71-76), hence `STATUS` and the message on stderr: a plugin that failed is never silent.
"""

from __future__ import annotations

import sys
import traceback
from importlib import import_module
from typing import Any

import wrapt

from ragen_verl.names import AGENT_LOOP, TRAINER
from ragen_verl.plugins import load_plugins

STATUS: dict = {"loaded": False, "error": None, "registered": []}
"""loaded: bool, error: the traceback or None, registered: names of what was registered in this process."""


def register_verl() -> None:
    """Registers the config resolvers, the CPU platform, the agent loop and the trainer; safe to call twice."""
    from ragen_verl.config import register_resolvers
    from ragen_verl.cpu.patches import apply_verl_patches
    from ragen_verl.patches import PATCHES

    register_resolvers()
    for name, patch in PATCHES.items():
        wrapt.register_post_import_hook(patch, name)
    STATUS["registered"] += ["resolvers", *(f"patch:{name}" for name in PATCHES), *apply_verl_patches()]
    # verl looks trainers up by name as soon as this package is imported (main_ppo.py:141), before any other seam
    wrapt.register_post_import_hook(lambda _: import_module("ragen_verl.training.trainer"), "verl.trainer.ppo.v1")
    wrapt.register_post_import_hook(_register_agent_loop, "verl.experimental.agent_loop.agent_loop")
    wrapt.register_post_import_hook(_register_losses, "verl.trainer.ppo.core_algos")
    wrapt.register_post_import_hook(_register_estimators, "verl.trainer.ppo.core_algos")
    STATUS["registered"] += [f"trainer:{TRAINER}", f"agent_loop:{AGENT_LOOP}"]


def _register_agent_loop(module: Any) -> None:
    """verl instantiates `_target_` once an episode; the registry takes names, so the class is imported only then."""
    module._agent_loop_registry[AGENT_LOOP] = {"_target_": "ragen_verl.training.agent_loop.RagenAgentLoop"}


def _register_losses(module: Any) -> None:
    """Workers look the policy loss up by name when they compute it (workers/utils/losses.py:103).

    Each registers itself when it is imported; the plugins are, so that what they register with verl is there too.
    """
    import_module("ragen_verl.training.losses")
    load_plugins()


def _register_estimators(module: Any) -> None:
    """Under a name of their own: verl sends `gae` and `grpo` to its own functions before it looks any up."""
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
