"""RAGEN on stock verl: environments, a multi-turn rollout, uncertainty filtering and recipes.

Importing this package is cheap: neither verl nor torch is loaded until a training starts.
"""

from ragen_verl.env import Env, FreeTextEnv, Step, make, register

__all__ = ["Env", "FreeTextEnv", "Step", "make", "register"]
__version__ = "0.1.0"
