"""Causes of collapse in runs with tools, which are loaded for runs with the protocol `tools` alone."""

from __future__ import annotations

from ragen_verl.diagnostics.performance import Performance, performance
from ragen_verl.diagnostics.registry import NOTE, WARNING, Evidence, cause
from ragen_verl.diagnostics.series import Trace
from ragen_verl.names import TRAIN

__all__ = ["call_storm", "calls_stopped"]

_CALLS, _WITHOUT_CALL = f"{TRAIN}/calls", f"{TRAIN}/turns_without_call"


@cause(
    "calls_stopped",
    reads=(_WITHOUT_CALL,),
    advice="Look at what is said instead of a call (ragen-verl show RUN), and whether a failed call costs more than to "
    "give up; go back to the last good checkpoint with a lower actor_rollout_ref.actor.optim.lr.",
)
def calls_stopped(trace: Trace) -> Evidence | None:
    """Replies come in the place of calls; with performance held, a note: fewer calls may be enough."""
    return _risen(trace, _WITHOUT_CALL, 1.0, 0.3, "of the turns")


@cause(
    "call_storm",
    reads=(_CALLS,),
    advice="Look at which call is repeated (ragen-verl report RUN); lower ragen.rollout.max_actions_per_turn or "
    "max_turns, or let each call cost something in the environment.",
)
def call_storm(trace: Trace) -> Evidence | None:
    """Episodes have three times the calls, to no effect; with performance held, a note: they may be needed."""
    return _risen(trace, _CALLS, 3.0, 2.0, "calls of an episode, refused ones included")


def _risen(trace: Trace, name: str, factor: float, distance: float, words: str) -> Evidence | None:
    """The evidence if a metric is above its baseline by more than noise, by this factor and by this distance."""
    one = trace[name]
    if not one.above(factor) or one.recent - one.baseline < distance:
        return None
    level = NOTE if performance(trace) is Performance.HELD else WARNING
    return Evidence(name, one.baseline, one.recent, words, level)
