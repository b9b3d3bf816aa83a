"""A household in ALFWorld's text format that needs no download."""

from ragen_envs.household.env import Household

__all__ = ["Household"]
