"""How a run performs: held, lost or flat against its start and its best, and whether it has collapsed."""

from __future__ import annotations

from enum import Enum

from ragen_verl.diagnostics.registry import Evidence
from ragen_verl.diagnostics.series import PERFORMANCE, Trace
from ragen_verl.names import HELD_OUT_SUCCESS, REWARD_MEAN, REWARD_STD, TRAIN_SUCCESS

SOLVED = 0.95  # success rate from which there is nothing left to learn: groups agree because they all succeed
BEST = "best of the run against now"

# In standard deviations of the noise between steps. A mean of ten steps scatters by 0.3 of it, the best of many such
# means is 0.8 above the true one.
GAIN_NOISE, LOSS_NOISE, FALL_NOISE = 0.5, 2.0, 3.0
SLOW_NOISE = 6.0  # the same between windows, whose best and worst are up to so far apart in a thousand steps
GAIN_POINTS, LOSS_POINTS = 0.02, 0.05  # of success rate that count as gained, as lost
GAIN_STD, LOSS_STD = (
    0.1,
    0.2,
)  # where performance is a reward, of any scale: of its in-group std
KEPT = 0.5  # the share of the gain so far that performance has to keep to count as held
FALL_ERRORS = 4.5  # standard errors, where the number of episodes is known; the best is the best of many
FALLEN = 0.5  # the share of its best that success has to lose to count as collapsed
FALLEN_POINTS = 0.08  # and in success rate: rates of a few per cent halve by chance


class Performance(Enum):
    """Success or reward now, against the run's start and its best.

    HELD: above the start, with most of the gain still there, or everything is solved. What is a reason to warn in other
        runs is then
    how learning looks.
    LOST: gained once and gone, or below the start.
    FLAT: neither.
    """

    HELD = "held"
    LOST = "lost"
    FLAT = "flat"


def performance(trace: Trace) -> Performance:
    """How the run does: held if success or reward is; otherwise success decides, reward where nothing ever succeeded.

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
    gain, loss = GAIN_POINTS, LOSS_POINTS
    if name != TRAIN_SUCCESS:
        gain, loss = (share * (trace[REWARD_STD].baseline or 0.0) for share in (GAIN_STD, LOSS_STD))
    loss = max(LOSS_NOISE * one.noise, SLOW_NOISE * one.slow_noise, loss)
    kept = base + KEPT * (best - base)
    if now > base + max(GAIN_NOISE * one.noise, gain) and now >= kept:
        return Performance.HELD
    gone = now < kept and best > base + loss and now < best - loss
    return Performance.LOST if gone or now < base - loss else Performance.FLAT


def solved(trace: Trace) -> bool:
    """Whether nearly every episode succeeds."""
    success = trace[TRAIN_SUCCESS].recent
    return success is not None and success >= SOLVED


def fallen(trace: Trace) -> Evidence | None:
    """Confirmed collapse: half of the best success is lost, held out or in training, or all the reward gained is.

    Reward has no natural zero: it has fallen when it is below its baseline by more than the noise, and by half of its
    best; it only counts where success is never above 0.
    """
    for name in (HELD_OUT_SUCCESS, TRAIN_SUCCESS):
        one = trace[name]
        if one.best is None:
            continue
        # held-out points are few and rise fast at first, so the distances between them are not noise
        noise = FALL_NOISE * one.noise if name == TRAIN_SUCCESS else FALL_ERRORS * (one.fall_error or 0.0)
        noise = max(noise, SLOW_NOISE * one.slow_noise)
        now = one.lately if name == TRAIN_SUCCESS else one.recent  # a policy has its ups and downs
        if one.best - now >= max(FALLEN * one.best, FALLEN_POINTS, noise):
            return Evidence(name, one.best, one.recent, BEST)
    reward = trace[REWARD_MEAN]
    if reward.baseline is None or trace[TRAIN_SUCCESS].best:
        return None
    drop = reward.best - reward.recent
    if reward.recent < reward.baseline - FALL_NOISE * reward.noise and drop > FALLEN * abs(reward.best):
        return Evidence(REWARD_MEAN, reward.best, reward.recent, BEST)
    return None
