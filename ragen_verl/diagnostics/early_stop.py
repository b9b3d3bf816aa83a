"""RAGEN-2's early-stop rules, under its names (arXiv 2604.06268, appendix; released code).

reward_variance_collapse   the in-group std of returns stays below 10 % of the mean of its first ten steps
low_validation_success     held-out success of some environment stays below 1 %

And one of this package:

failed_episodes            more than this share of the episodes fail, in three steps in a row

Its third rule, empty_filtered_steps, is the filter's own: `ragen.filter.on_empty` and `stop_after`.

They are coarser than the verdict's rules and fire later. They exist so that a rerun of RAGEN-2 ends where RAGEN-2 ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from ragen_verl.config.diagnostics import Stop
from ragen_verl.diagnostics.series import number
from ragen_verl.names import EARLY_STOPPED, EMPTY_STEP, FAILED, HELD_OUT, REWARD_STD, SUCCESS

__all__ = ["EarlyStop"]

_BASELINE_STEPS = 10  # the baseline is the mean of these steps; a step in which the filter kept nothing does not count
_STD_RATIO = 0.1
_LOW_SUCCESS = 0.01
_FAILED_STEPS = 3


class EarlyStop:
    """Applies the rules step by step; like `Monitor` it is rebuilt by replaying metrics.jsonl.

    Args:
        config: `ragen.stop`; a rule whose number of steps is null is off.
    """

    def __init__(self, config: Stop) -> None:
        self.config = config
        self.reason: str | None = None
        self._baseline: list[float] = []
        self._low_std = 0
        self._low_success: dict[str, int] = {}
        self._failed = 0

    def update(self, metrics: Mapping[str, Any]) -> str | None:
        """Take one step's metrics; return the first rule that ever applied (failed_episodes: that still does), or None.

        Args:
            metrics: those that are read are `rollout/in_group_reward_std` (not where `rollout/empty_after_filter` is
                above 0: the filter kept nothing and the step does not count) and, on steps with a validation,
                `val-env/{environment}/success`: one environment that stays low is enough.
        """
        std = number(metrics, REWARD_STD)
        if std is not None and not number(metrics, EMPTY_STEP):
            self._count_std(std)
        for name in metrics:
            if name.startswith(f"{HELD_OUT}/") and name.endswith(f"/{SUCCESS}") and name.count("/") == 2:
                value = number(metrics, name)
                low = value is not None and value < _LOW_SUCCESS
                self._low_success[name] = self._low_success.get(name, 0) + 1 if low else 0
        failed, most = number(metrics, FAILED), self.config.failed_episodes
        if failed is not None and most is not None:
            self._failed = self._failed + 1 if failed > most else 0
        if self.reason in (None, "failed_episodes"):  # a resumed run may have an environment that was mended
            self.reason = self._rule()
        return self.reason

    def _count_std(self, std: float) -> None:
        if len(self._baseline) < _BASELINE_STEPS:
            self._baseline.append(std)
            return
        self._low_std = self._low_std + 1 if std < _STD_RATIO * fmean(self._baseline) else 0

    def _rule(self) -> str | None:
        counts = {
            "reward_variance_collapse": self._low_std,
            "low_validation_success": max(self._low_success.values(), default=0),
        }
        for name, count in counts.items():
            limit = getattr(self.config, name)
            if limit is not None and count >= limit:
                return name
        return "failed_episodes" if self._failed >= _FAILED_STEPS else None

    def metrics(self) -> dict[str, float]:
        """`early_stopped/{rule}` with the value 1 for the rule that applied; empty while none did."""
        return {f"{EARLY_STOPPED}/{self.reason}": 1.0} if self.reason else {}
