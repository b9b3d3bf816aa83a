"""Causes that need no baseline: a run that cannot learn shows them in its first step.

Their effects come later, so at the same step they are named before the causes of `causes`.
"""

from __future__ import annotations

from ragen_verl.diagnostics.registry import Evidence, cause
from ragen_verl.diagnostics.series import Trace
from ragen_verl.names import CONTEXT_FULL, TRAIN_VALID

__all__ = ["context_full", "no_valid_turns"]

_MOST = 0.5  # of a step's episodes: from here on what is missing is more than what is left
_LEAST_VALID = 0.05  # of the turns


@cause(
    "context_full",
    reads=(CONTEXT_FULL,),
    advice="Let an episode fit: raise data.max_response_length (and actor_rollout_ref.rollout.max_model_len), lower "
    "ragen.rollout.response_length or max_turns, or show fewer turns (ragen.rollout.context: window).",
)
def context_full(trace: Trace) -> Evidence | None:
    """Most episodes are cut because no further turn fits, so they cannot end by themselves."""
    now = trace[CONTEXT_FULL].values[-1:]
    return Evidence(CONTEXT_FULL, None, now[0], "of the episodes are cut") if now and now[0] > _MOST else None


@cause(
    "no_valid_turns",
    reads=(TRAIN_VALID,),
    advice="Look at what the model answers (ragen-verl show RUN): a longer ragen.rollout.response_length where answers "
    "are cut, ragen.rollout.think: false where it does not think, or imitation first (ragen-verl sft).",
)
def no_valid_turns(trace: Trace) -> Evidence | None:
    """Hardly any turn had a valid action, so the environment is not played and only the format can be learned."""
    values = trace[TRAIN_VALID].values
    if not values or max(values) >= _LEAST_VALID:
        return None
    return Evidence(TRAIN_VALID, None, values[-1], "of the turns, and never more than a twentieth")
