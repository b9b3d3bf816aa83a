"""Evaluators of saved trajectories: one number per trajectory and evaluator, tables by cohort, and a gate for two runs.

`saved` reads the trajectories, `replay` plays them in a fresh environment, `registry` has the decorator `@evaluator`,
`cohorts` summarises the numbers, `gate` compares two sets. No service is needed; only `judge` asks a language model.
"""

from ragen_lab.score.registry import evaluator
from ragen_lab.score.saved import Played

__all__ = ["Played", "evaluator"]
