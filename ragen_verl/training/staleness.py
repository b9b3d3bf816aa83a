"""How old the weights are that sampled a trajectory, in updates of the policy's weights (steps).

verl notes on every row the step after which the weights were pushed that sampled its first and its last token (tags
`min_global_steps` and `max_global_steps`). The weights that step `s` trains have the number `s - 1`.
"""

from __future__ import annotations

from ragen_verl.names import MIXED_WEIGHTS, STALENESS_MAX, STALENESS_MEAN
from ragen_verl.training.batch import TrajectoryBatch, padding_rows
from ragen_verl.training.data_plane import Batch

__all__ = ["fresh_rows", "staleness"]


def staleness(batch: Batch, played: TrajectoryBatch, step: int) -> dict[str, float]:
    """How far behind the trajectories of a step are.

    Args:
        batch: the rows as verl's buffer gave them.
        played: their trajectories.
        step: the step that trains on them.

    Returns:
        `rollout/staleness_mean` and `rollout/staleness_max`: steps between the oldest weights that sampled a token of a
        trajectory and those that are trained; `rollout/mixed_weights`: share of trajectories that several weights
        sampled. Trajectories without a sampled token are ignored; {} where there is no other.
    """
    tags = dict(zip(batch.keys, batch.tags, strict=True))
    spans = [
        (min(tags[key]["min_global_steps"] for key in keys), max(tags[key]["max_global_steps"] for key in keys))
        for keys, length in zip(played.keys, played.lengths, strict=True)
        if length
    ]
    if not spans:
        return {}
    behind = [step - 1 - first for first, _ in spans]
    return {
        STALENESS_MEAN: sum(behind) / len(behind),
        STALENESS_MAX: float(max(behind)),
        MIXED_WEIGHTS: sum(first != last for first, last in spans) / len(spans),
    }


def fresh_rows(batch: Batch, step: int) -> list[str]:
    """The keys of the rows that the weights before this step's update sampled from the first token to the last.

    verl's rows of padding are not among them.
    """
    return [
        key
        for key, tag, padding in zip(batch.keys, batch.tags, padding_rows(batch), strict=True)
        if not padding and (tag or {}).get("min_global_steps", step - 1) == step - 1
    ]
