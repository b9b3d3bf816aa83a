"""Advantage estimation: from the rewards of turns to an advantage for every sampled token.

`registry` has the decorator `estimator` and the registry that it fills; `gae`, `outcome` and `turn` hold the built-in
estimators, each with its decorator; other packages and files add theirs (`ragen_verl.extensions`). `estimate` runs one
on a `batch.AdvantageBatch`; `scan` and `moments` hold the arithmetic. Nothing here imports verl:
`ragen_verl.training.advantages` connects the estimators to verl.
"""

from ragen_verl.advantages.registry import ESTIMATORS, WEIGHTS, Estimator, estimator

__all__ = ["ESTIMATORS", "WEIGHTS", "Estimator", "estimator"]
