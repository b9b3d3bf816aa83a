"""Uncertainty filtering: which groups of a step the update uses (StarPO-S, arXiv 2504.20073, section 4; RAGEN-2).

`registry` finds scores and strategies by name, `scores` computes the score of a group, `strategies` choose groups by
their scores, `selection` applies both to a batch. Everything here uses numpy, counts trajectories and not rows, and
does not import verl.
"""

from ragen_verl.filter.registry import SCORES, STRATEGIES, Candidates, Score, Strategy, score, strategy
from ragen_verl.filter.scores import Groups, group_scores
from ragen_verl.filter.selection import Rule, Selection, select
from ragen_verl.filter.strategies import keep_count

__all__ = [
    "SCORES",
    "STRATEGIES",
    "Candidates",
    "Groups",
    "Rule",
    "Score",
    "Selection",
    "Strategy",
    "group_scores",
    "keep_count",
    "score",
    "select",
    "strategy",
]
