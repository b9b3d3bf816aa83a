"""The plugin that verl loads: it registers everything and imports nothing heavy.

verl imports this module at the end of `import verl` in each of its processes (entry point `verl.plugins`), even in
those of other runs. Where `ragen_verl.switch` is off it does nothing. Where it is on, the work is put off until
the module concerned is imported. verl drops exceptions of entry points (verl/__init__.py:71-76). A failure is therefore
kept in `STATUS` and printed on stderr.
"""

from __future__ import annotations

import sys
import traceback
from functools import wraps
from importlib import import_module
from typing import Any

from ragen_verl import switch

__all__ = ["STATUS", "activate", "register_verl"]

STATUS: dict = {"loaded": False, "error": None, "registered": []}
"""loaded: bool, error: the traceback or None, registered: names of what was registered in this process."""


def activate() -> None:
    """Turn the plugin on in this process and in those that it starts; a recipe that has been composed calls it.

    Raises:
        RecipeError: the user keeps it out, leaves out a patch that does not exist, or verl has gone too far without it.
    """
    from ragen_verl.patches import check_left_out

    switch.turn_on()
    check_left_out()
    if not STATUS["loaded"]:
        register_verl()
        STATUS["loaded"] = True


def register_verl() -> None:
    """Register the config resolvers, the agent loop and the trainers, and apply the patches of verl."""
    from ragen_verl.cpu.accelerator import accelerator_present
    from ragen_verl.hooks import after_import
    from ragen_verl.names import AGENT_LOOP, ASYNC_TRAINER, DISAGGREGATED_TRAINER, TRAINER
    from ragen_verl.patches import apply_patches
    from ragen_verl.resolvers import find_verl, open_options, register_resolvers

    register_resolvers()
    after_import("hydra.core.config_store", open_options)
    after_import("hydra.core.plugins", find_verl)
    patches = apply_patches("verl", cpu=not accelerator_present())
    after_import("verl.trainer.ppo.v1", _find_trainers)
    after_import("verl.experimental.agent_loop.agent_loop", _register_agent_loop)
    after_import("verl.trainer.ppo.core_algos", _register_losses)
    after_import("verl.trainer.ppo.core_algos", _register_estimators)
    trainers = [f"trainer:{name}" for name in (TRAINER, ASYNC_TRAINER, DISAGGREGATED_TRAINER)]
    STATUS["registered"] += [
        "resolvers",
        *(f"patch:{name}" for name in patches),
        *trainers,
        f"agent_loop:{AGENT_LOOP}",
    ]


def _find_trainers(module: Any) -> None:
    """Import the trainers, which register themselves, when verl looks one of them up by name (main_ppo.py:141).

    Not before: verl imports this package also in processes without a trainer, and while the trainers import verl.
    """
    from ragen_verl.names import ASYNC_TRAINER, DISAGGREGATED_TRAINER, TRAINER

    find = module.get_trainer_cls

    @wraps(find)
    def with_ours(name: str) -> type:
        if name in (TRAINER, ASYNC_TRAINER, DISAGGREGATED_TRAINER):
            import_module("ragen_verl.training.trainer_modes")
        return find(name)

    module.get_trainer_cls = with_ours


def _register_agent_loop(module: Any) -> None:
    """Register the agent loop by its class's name: verl imports the class when it instantiates it for an episode."""
    from ragen_verl.names import AGENT_LOOP

    module._agent_loop_registry[AGENT_LOOP] = {"_target_": "ragen_verl.training.agent_loop.RagenAgentLoop"}


def _register_losses(module: Any) -> None:
    """Import the policy losses, which register themselves, and the plugins, which may register others with verl.

    Workers look a policy loss up by name when they compute it (workers/utils/losses.py:103).
    """
    from ragen_verl.extensions import load_plugins

    import_module("ragen_verl.training.losses")
    load_plugins()


def _register_estimators(module: Any) -> None:
    """Register the estimators under one name: verl uses its own `gae` and `grpo` before it looks up any name."""
    from ragen_verl.training.advantages import register

    register(module.register_adv_est)


def _load() -> None:
    if STATUS["loaded"] or not switch.is_on():
        return
    try:
        activate()
    except Exception:
        STATUS["error"] = traceback.format_exc()
        print(
            f"ragen_verl: the plugin could not be loaded; run `ragen-verl doctor`.\n{STATUS['error']}", file=sys.stderr
        )
        raise


_load()
