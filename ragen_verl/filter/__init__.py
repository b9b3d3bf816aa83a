"""Uncertainty filtering: which groups of a step the update sees (StarPO-S, arXiv 2504.20073, section 4; RAGEN-2).

`scores` says what a group is worth, `strategies` which groups are kept by it, `selection` joins the two. Everything
here is numpy, counts trajectories and not rows, and knows nothing of verl.
"""

from ragen_verl.filter.scores import SCORES, SPREADS, ZERO, Groups, group_scores
from ragen_verl.filter.selection import Selection, select
from ragen_verl.filter.strategies import SELECTORS, STRATEGIES, Rule, keep_count

__all__ = [
    "SCORES",
    "SELECTORS",
    "SPREADS",
    "STRATEGIES",
    "ZERO",
    "Groups",
    "Rule",
    "Selection",
    "group_scores",
    "keep_count",
    "select",
]
