"""Saved trajectories looked at again: one number per trajectory and evaluator, by cohort, and a gate for two runs.

`saved` reads them, `replay` plays them in a fresh environment, `registry` has the decorator `@evaluator`, `cohorts`
puts the numbers together, `gate` compares two sets. No service is needed; `judge` asks a language model where one is
given.
"""

from ragen_verl.evaluators.registry import evaluator
from ragen_verl.evaluators.saved import Played

__all__ = ["Played", "evaluator"]
