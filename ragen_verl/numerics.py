"""Numbers that several parts have to agree on."""

from __future__ import annotations

ZERO_STD = 1e-6
"""The standard deviation of a group's returns up to which the returns count as equal.

Rewards are float32, whose rounding at the size of an episode's return (10) is 1e-6. What differs by less is rounding:
a group-relative advantage would blow it up, and a filter would keep a group that teaches nothing.
"""
