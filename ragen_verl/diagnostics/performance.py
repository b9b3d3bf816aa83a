"""The performance of a run: held, lost or flat compared with its start and its best; and whether it has collapsed."""

from __future__ import annotations

from enum import Enum

from ragen_verl.diagnostics.registry import Evidence
from ragen_verl.diagnostics.series import PERFORMANCE, Trace
from ragen_verl.names import HELD_OUT_SUCCESS, REWARD_MEAN, REWARD_STD, TRAIN_SUCCESS

__all__ = ["BEST", "SOLVED", "Performance", "fallen", "performance", "performance_by", "solved"]

SOLVED = 0.95  # from this success rate on nothing is left to learn: returns of a group agree because all succeed
BEST = "best of the run against now"

# In standard deviations of the noise between steps. A mean of ten steps has a standard deviation of 0.3 of it, and the
# best of many such means lies 0.8 of it above the true mean.
_GAIN_NOISE, _LOSS_NOISE, _FALL_NOISE = 0.5, 2.0, 3.0
_SLOW_NOISE = 6.0  # the same between windows; in a thousand steps the best and worst window are up to this far apart
_GAIN_POINTS, _LOSS_POINTS = 0.02, 0.05  # changes of the success rate that count as a gain, as a loss
_GAIN_STD, _LOSS_STD = (
    0.1,
    0.2,
)  # the same for a reward, which can have any scale: shares of its in-group standard deviation
_KEPT = 0.5  # the share of the gain so far that performance has to keep to count as held
_FALL_ERRORS = 4.5  # in standard errors, where the number of episodes is known; many, since the best is one of many
_FALLEN = 0.5  # success has to lose this share of its best to count as collapsed
_FALLEN_POINTS = 0.08  # and this much of the success rate: rates of a few per cent halve by chance


class Performance(Enum):
    """Success or reward now, compared with the run's start and its best.

    HELD: above the start and most of the gain is kept, or everything is solved. Signs that would be warnings in other
        runs then belong to learning.
    LOST: there was a gain and it is gone, or the value is below the start.
    FLAT: neither.
    """

    HELD = "held"
    LOST = "lost"
    FLAT = "flat"


def performance(trace: Trace) -> Performance:
    """The run's performance: held if success or reward is; otherwise success decides, or reward if nothing succeeded.

    A confirmed collapse is a loss.
    """
    if solved(trace):
        return Performance.HELD
    if fallen(trace):
        return Performance.LOST
    found = {name: performance_by(trace, name) for name in PERFORMANCE if trace[name].baseline is not None}
    if Performance.HELD in found.values():
        return Performance.HELD
    success, reward = PERFORMANCE
    return found.get(success if trace[success].best else reward, Performance.FLAT)


def performance_by(trace: Trace, name: str) -> Performance:
    """The same by one metric of `PERFORMANCE` that has a baseline."""
    one = trace[name]
    base, now, best = one.baseline, one.recent, one.best
    gain, loss = _GAIN_POINTS, _LOSS_POINTS
    if name != TRAIN_SUCCESS:
        gain, loss = (share * (trace[REWARD_STD].baseline or 0.0) for share in (_GAIN_STD, _LOSS_STD))
    loss = max(_LOSS_NOISE * one.noise, _SLOW_NOISE * one.slow_noise, loss)
    kept = base + _KEPT * (best - base)
    if now > base + max(_GAIN_NOISE * one.noise, gain) and now >= kept:
        return Performance.HELD
    gone = now < kept and best > base + loss and now < best - loss
    return Performance.LOST if gone or now < base - loss else Performance.FLAT


def solved(trace: Trace) -> bool:
    """Whether nearly every episode succeeds."""
    success = trace[TRAIN_SUCCESS].recent
    return success is not None and success >= SOLVED


def fallen(trace: Trace) -> Evidence | None:
    """The evidence of a confirmed collapse: half of the best success, or all gained reward, is lost.

    Reward has no natural zero. It has collapsed when it is below its baseline by more than the noise and has lost more
    than half of its best; it only counts where success was never above 0.
    """
    for name in (HELD_OUT_SUCCESS, TRAIN_SUCCESS):
        one = trace[name]
        if one.best is None:
            continue
        # held-out points are few and rise fast at first, so the distances between them are not noise
        noise = _FALL_NOISE * one.noise if name == TRAIN_SUCCESS else _FALL_ERRORS * (one.fall_error or 0.0)
        noise = max(noise, _SLOW_NOISE * one.slow_noise)
        now = one.lately if name == TRAIN_SUCCESS else one.recent  # one low window of training proves nothing
        if one.best - now >= max(_FALLEN * one.best, _FALLEN_POINTS, noise):
            return Evidence(name, one.best, one.recent, BEST)
    reward = trace[REWARD_MEAN]
    if reward.baseline is None or trace[TRAIN_SUCCESS].best:
        return None
    drop = reward.best - reward.recent
    if reward.recent < reward.baseline - _FALL_NOISE * reward.noise and drop > _FALLEN * abs(reward.best):
        return Evidence(REWARD_MEAN, reward.best, reward.recent, BEST)
    return None
