"""Numerical thresholds that several parts share."""

from __future__ import annotations

__all__ = ["ZERO_STD"]

ZERO_STD = 1e-6
"""The returns of a group count as equal when their standard deviation is at most this.

Rewards are float32, and at the size of an episode's return (10) their rounding error is 1e-6. A smaller difference is
rounding: a group-relative advantage would magnify it, and a filter would keep a group that teaches nothing.
"""
