"""RAGEN on stock verl: environments, a multi-turn rollout, uncertainty filtering and recipes.

Importing this package is cheap: what it offers is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragen_verl.env import Env, FreeTextEnv, Step, make, register

__all__ = ["Env", "FreeTextEnv", "Step", "make", "register"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("ragen_verl.env"), name)
    raise AttributeError(f"module 'ragen_verl' has no attribute {name!r}")
