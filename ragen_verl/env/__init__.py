"""Environments: the base class and the registry. This package imports gymnasium and numpy, never verl or torch."""

from ragen_verl.env.core import Env, Names, Step
from ragen_verl.env.registry import check, ids, make, register
from ragen_verl.env.text import FreeTextEnv

__all__ = ["Env", "FreeTextEnv", "Names", "Step", "check", "ids", "make", "register"]
