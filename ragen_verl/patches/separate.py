"""A patch with which verl 0.9.1 starts an engine on devices of its own without a second one on the trainer's.

With `actor_rollout_ref.hybrid_engine: false` verl passes print's argument `flush` to a logger, which refuses it
(verl/trainer/ppo/v1/trainer_separate_async.py:182).
"""

from __future__ import annotations

from typing import Any

import wrapt

__all__ = ["log_as_verl_asks"]


class _Logger(wrapt.ObjectProxy):
    def info(self, *args: Any, flush: bool = False, **kwargs: Any) -> None:
        self.__wrapped__.info(*args, **kwargs)


def log_as_verl_asks(module: Any) -> None:
    """Give the module a logger that takes `flush`."""
    module.logger = _Logger(module.logger)
