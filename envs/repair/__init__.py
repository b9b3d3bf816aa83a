"""Repair: faults are put into a small package (`almanac`), which is mended by calling tools."""

from ragen_envs.repair.repair import Repair

__all__ = ["Repair"]
