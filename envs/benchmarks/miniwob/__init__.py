"""MiniWoB++: the environment, the browser, and rules that solve some of its pages."""

from ragen_envs.benchmarks.miniwob.env import MiniWoB

__all__ = ["MiniWoB"]
