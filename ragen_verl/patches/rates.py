"""A patch with which a resumed run has the learning rate, weight decay and betas of its present configuration.

verl 0.9.1 loads the optimiser's groups and the scheduler's base rates from the checkpoint over those that it has just
made from the configuration (utils/checkpoint/fsdp_checkpoint_manager.py:237, 254).
"""

from __future__ import annotations

from functools import wraps
from typing import Any

__all__ = ["keep_the_configured", "use_configured_rates"]


def use_configured_rates(module: Any) -> None:
    """Give the optimiser its configured settings back after a checkpoint has been loaded."""
    manager = module.FSDPCheckpointManager
    load = manager.load_checkpoint

    @wraps(load)
    def loading(self: Any, *args: Any, **kwargs: Any) -> None:
        groups = self.optimizer.param_groups if self.optimizer else []
        asked = [{name: value for name, value in group.items() if name != "params"} for group in groups]
        load(self, *args, **kwargs)
        if asked:
            keep_the_configured(self.optimizer, self.lr_scheduler, asked)

    manager.load_checkpoint = loading


def keep_the_configured(optimizer: Any, scheduler: Any, asked: list[dict[str, Any]]) -> None:
    """Set every group's settings to those asked for; the schedule continues at the step that it had reached.

    Args:
        optimizer: after a checkpoint has been loaded.
        scheduler: its LambdaLR, also loaded; None or another kind leaves rates without a schedule.
        asked: the settings of each group as configured, without its parameters.
    """
    for group, settings in zip(optimizer.param_groups, asked, strict=True):
        group.update(settings)
    if hasattr(scheduler, "lr_lambdas"):
        scheduler.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        pairs = zip(scheduler.base_lrs, scheduler.lr_lambdas, strict=True)
        scheduler._last_lr = [base * factor(scheduler.last_epoch) for base, factor in pairs]
        for group, rate in zip(optimizer.param_groups, scheduler._last_lr, strict=True):
            group["lr"] = rate
