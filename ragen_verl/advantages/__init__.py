"""Advantage estimation: from the rewards of turns to an advantage for every sampled token.

`registry` names the estimators and what each needs, and imports no torch. `estimate` runs one on a
`batch.AdvantageBatch`; `gae`, `outcome` and `turn` hold their formulas, `scan` and `statistics` the arithmetic. Nothing
here knows of verl: `ragen_verl.training.advantages` is the join.
"""

from ragen_verl.advantages.registry import ESTIMATORS, Estimator

__all__ = ["ESTIMATORS", "Estimator"]
