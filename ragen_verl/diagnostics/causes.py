"""Why runs collapse: one rule per cause, each with what it reads, when it warns, and what to change.

A rule warns when the centre of the last steps has left the run's own early baseline, by a factor that says something
and by more than the noise between steps. What also happens in healthy runs (entropy and reasoning length decline as
success rises, arXiv 2504.20073 figure 6 and the RAGEN-2 paper; returns inside a group agree once everything is
solved) is only a warning while performance is not held: see `Performance`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from math import sqrt

from ragen_verl.diagnostics.series import ACCURACY, CHANCE, PERFORMANCE, SKILL, STD, Series, Trace

NOISE = 4.0  # standard errors that a metric has to be away from its baseline: a run looks a thousand times
SOLVED = 0.95  # success rate from which there is nothing left to learn: groups agree because they all succeed

WARNING, NOTE = "warning", "note"
BEST = "best of the run against now"


@dataclass(frozen=True)
class Evidence:
    """Why a rule fired: the metric, what it was, what it is, in words where numbers are not enough."""

    metric: str
    baseline: float | None
    value: float
    words: str = ""
    level: str = WARNING


@dataclass(frozen=True)
class Cause:
    """A named cause of failure.

    Attributes:
        name: as in the verdict and in `verdict/{name}`.
        reads: the metrics it looks at, performance aside.
        test: the evidence if the rule fires on the trace so far, else None.
        advice: what to change, with the keys of the recipe.
    """

    name: str
    reads: tuple[str, ...]
    test: Callable[[Trace], Evidence | None]
    advice: str


# -- performance -------------------------------------------------------------------------------------------------------

HELD_OUT = "val-env/success"

# In standard deviations of the noise between steps. A mean of ten steps scatters by 0.3 of it, the best of many such
# means is 0.8 above the true one.
GAIN_NOISE, LOSS_NOISE, FALL_NOISE = 0.5, 2.0, 3.0
GAIN_POINTS, LOSS_POINTS = 0.02, 0.05  # of success rate that count as gained, as lost
GAIN_STD, LOSS_STD = 0.1, 0.2  # where performance is a reward, which has any scale: of its spread inside groups
KEPT = 0.5  # the share of the gain so far that performance has to keep to count as held
FALLEN = 0.5  # the share of its best that success has to lose to count as collapsed
FALLEN_POINTS = 0.08  # and in success rate: rates of a few per cent halve by chance


class Performance(Enum):
    """Success or reward now, against the run's start and its best.

    HELD: above the start, with most of the gain still there, or everything is solved. What alarms elsewhere is then
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
    found = {name: _performance(trace, name) for name in PERFORMANCE if trace[name].baseline is not None}
    if Performance.HELD in found.values():
        return Performance.HELD
    success, reward = PERFORMANCE
    return found.get(success if trace[success].best else reward, Performance.FLAT)


def _performance(trace: Trace, name: str) -> Performance:
    one = trace[name]
    base, now, best = one.baseline, one.recent, one.best
    gain, loss = GAIN_POINTS, LOSS_POINTS
    if name != "train/success":
        gain, loss = (share * (trace[STD].baseline or 0.0) for share in (GAIN_STD, LOSS_STD))
    loss = max(LOSS_NOISE * one.noise, loss)
    kept = base + KEPT * (best - base)
    if now > base + max(GAIN_NOISE * one.noise, gain) and now >= kept:
        return Performance.HELD
    gone = now < kept and best > base + loss and now < best - loss
    return Performance.LOST if gone or now < base - loss else Performance.FLAT


def solved(trace: Trace) -> bool:
    """Whether nearly every episode succeeds."""
    success = trace["train/success"].recent
    return success is not None and success >= SOLVED


def fallen(trace: Trace) -> Evidence | None:
    """Confirmed collapse: half of the best success is lost, held out or in training, or all the reward gained is.

    Reward has no natural zero: it has fallen when it is below its baseline by more than the noise, and by half of its
    best; it only counts where success is never above 0.
    """
    for name in (HELD_OUT, "train/success"):
        one = trace[name]
        # held-out points are few and rise fast at first, so the distances between them are not noise
        noise = 0.0 if name == HELD_OUT else FALL_NOISE * one.noise
        if one.best is not None and one.best - one.recent >= max(FALLEN * one.best, FALLEN_POINTS, noise):
            return Evidence(name, one.best, one.recent, BEST)
    reward = trace["rollout/in_group_reward_mean"]
    if reward.baseline is None or trace["train/success"].best:
        return None
    drop = reward.best - reward.recent
    if reward.recent < reward.baseline - FALL_NOISE * reward.noise and drop > FALLEN * abs(reward.best):
        return Evidence("rollout/in_group_reward_mean", reward.best, reward.recent, BEST)
    return None


# -- the rules ---------------------------------------------------------------------------------------------------------

# FrozenLake-PPO and Sokoban-PPO pass a half well before the spread is gone (figure 6); at level or rising success it
# takes more, as rare successes scatter it. With performance held only what the success rate does not explain counts.
STD_LOW = {Performance.LOST: 0.5, Performance.FLAT: 0.35, Performance.HELD: 0.5}
NOTHING = 1e-8  # a spread that is none


def variance_death(trace: Trace) -> Evidence | None:
    """The members of a group earn the same, so there is no advantage to learn from."""
    one = trace[STD]
    if one.baseline is None or solved(trace):
        return None
    if max(one.values) <= NOTHING:
        return Evidence(STD, one.baseline, one.recent, "no group ever had a spread of returns")
    state = performance(trace)
    if state is not Performance.HELD:
        return Evidence(STD, one.baseline, one.recent) if _below(one, STD_LOW[state]) else None
    if not _below(one, STD_LOW[state] * _explained(trace)):
        return None
    return Evidence(STD, one.baseline, one.recent, f"success plateau, not a collapse: {_progress(trace)}", NOTE)


def _explained(trace: Trace) -> float:
    """What a higher success rate p alone makes of the spread: returns of 0 and 1 have the std sqrt(p (1 - p))."""
    success = trace["train/success"]
    if success.baseline is None or not 0 < success.baseline < 1:
        return 1.0
    before, now = (sqrt(p * (1 - p)) for p in (success.baseline, success.recent))
    return min(1.0, now / before)


# Entropy declines in every run. FrozenLake-GRPO, which is stable, comes down to 0.32 of its start; Bandit-PPO passes
# 0.35 when its reward has begun to fall.
ENTROPY_LOW = {Performance.LOST: 0.35, Performance.FLAT: 0.25}


def entropy_collapse(trace: Trace) -> Evidence | None:
    """The policy has become deterministic without having become better."""
    one, state = trace["actor/entropy"], performance(trace)
    if state is Performance.HELD or not _below(one, ENTROPY_LOW[state]):
        return None
    return Evidence("actor/entropy", one.baseline, one.recent)


ENTROPY_HIGH, ENTROPY_RUNAWAY = 2.0, 3.0  # Bandit-GRPO ends at 2.7, Sokoban-GRPO at 7 times its start
ENTROPY_RISE = 0.5  # nats: a model of nearly no entropy doubles it by exploring at all


def entropy_explosion(trace: Trace) -> Evidence | None:
    """Tokens have become noise: twice the entropy without being better, or three times whatever the reward."""
    one = trace["actor/entropy"]
    if one.baseline is None:
        return None
    factor = ENTROPY_RUNAWAY if performance(trace) is Performance.HELD else ENTROPY_HIGH
    if not _above(one, factor) or one.recent - one.baseline < ENTROPY_RISE:
        return None
    return Evidence("actor/entropy", one.baseline, one.recent)


GRAD_HIGH = 10.0  # FrozenLake-GRPO and Bandit-PPO reach 4 to 5 times their start and go on learning
GRAD_FLOOR = 1.0  # verl's default optim.clip_grad: a norm below it is not even clipped


def gradient_spike(trace: Trace) -> Evidence | None:
    """The gradient norm has left its scale and stays there; a single outlier is clipped and forgotten."""
    one = trace["actor/grad_norm"]
    if not _above(one, GRAD_HIGH) or one.recent < GRAD_FLOOR:
        return None
    return Evidence("actor/grad_norm", one.baseline, one.recent)


FORMAT_DROP = 0.3  # of all turns; healthy nano runs stay within 0.04 of their best


def format_collapse(trace: Trace) -> Evidence | None:
    """Turns without a valid action come back after the format was known; measured from the best, not the start."""
    for name in ("echo/format_valid", "train/valid"):
        one = trace[name]
        if one.best is not None and one.best - one.recent >= max(FORMAT_DROP, NOISE * one.error):
            return Evidence(name, one.best, one.recent, BEST)
    return None


MI_LOW = 0.5  # of the early retrieval skill; 64 samples scatter by 0.06, a median of three by 0.04
MI_MEANINGFUL = 0.2  # above chance at the start: with less, thoughts never told prompts apart
MI_ENTROPY = 0.5  # of the early conditional entropy: below it thoughts are fixed, which is entropy collapse
SHARED_HIGH, SHARED_START = 0.8, 0.5  # one text for every prompt, and a start at which there were several
REPEATED = 0.4  # of the early share of distinct n-grams inside a trajectory


def template_collapse(trace: Trace) -> Evidence | None:
    """Thoughts no longer depend on the prompt: low mutual information at live entropy (RAGEN-2).

    Mutual information decides where it is measured. Without it, n-grams do: they see the same words only, so they
    count while performance is not held.
    """
    skill, accuracy, entropy = trace[SKILL], trace[ACCURACY], trace["mi/conditional_entropy"]
    if skill.baseline is not None:
        fixed = entropy.baseline is not None and entropy.recent < MI_ENTROPY * entropy.baseline
        if skill.baseline < MI_MEANINGFUL or not _below(skill, MI_LOW) or fixed:
            return None
        return Evidence(ACCURACY, accuracy.baseline, accuracy.recent, f"by chance {trace[CHANCE].recent:.2g}")
    if performance(trace) is Performance.HELD:
        return None
    shared, within = trace["echo/shared"], trace["echo/distinct_within"]
    if shared.baseline is not None and shared.baseline <= SHARED_START and shared.recent >= SHARED_HIGH:
        return Evidence("echo/shared", shared.baseline, shared.recent, "prompts get the same words")
    if _below(within, REPEATED):
        return Evidence("echo/distinct_within", within.baseline, within.recent, "turns get the same words")
    return None


LENGTH_LOW, LENGTH_GONE = 0.2, 0.05  # reasoning gets shorter in all eight settings that RAGEN-2 studied
LENGTH_MEANINGFUL = 5.0  # words per turn at the start


def length_collapse(trace: Trace) -> Evidence | None:
    """The thoughts are nearly empty; with performance held, a note once they are gone."""
    one = trace["echo/reasoning_words"]
    if one.baseline is None or one.baseline < LENGTH_MEANINGFUL or not _below(one, LENGTH_LOW):
        return None
    if performance(trace) is not Performance.HELD:
        return Evidence("echo/reasoning_words", one.baseline, one.recent)
    if not _below(one, LENGTH_GONE):
        return None
    words = f"the model answers without reasoning and success holds: {_progress(trace)}"
    return Evidence("echo/reasoning_words", one.baseline, one.recent, words, NOTE)


DRIFT_MEAN = 0.05  # nats per token: bfloat16 kernels differ by about 0.01, wrong weights by more than 0.1
DRIFT_SHARE = 0.01  # of tokens beyond `diagnostics.drift.threshold`: single ones are rounding at low probabilities
DRIFT_TIMES = 2  # measurements in a row


def train_rollout_drift(trace: Trace) -> Evidence | None:
    """The engine samples from another policy than the trainer updates; no baseline, as a fault can be there at once."""
    for name, limit in (("drift/mean", DRIFT_MEAN), ("drift/share", DRIFT_SHARE)):
        now = min(trace[name].last(DRIFT_TIMES), default=0.0)
        if now >= limit:
            return Evidence(name, None, now, f"from {limit:g} on it is more than rounding")
    return None


def _below(series: Series, factor: float) -> bool:
    """Whether the metric is below a fraction of its baseline, and by more than noise."""
    base, now = series.baseline, series.recent
    return base is not None and now < factor * base and now < base - NOISE * series.error


def _above(series: Series, factor: float) -> bool:
    base, now = series.baseline, series.recent
    return base is not None and now > factor * base and now > base + NOISE * series.error


def _progress(trace: Trace) -> str:
    """Performance at the start and now, in words."""
    for name in PERFORMANCE:
        one = trace[name]
        if one.baseline is not None and _performance(trace, name) is Performance.HELD:
            return f"{name} {one.baseline:.2g} at the start, {one.recent:.2g} now"
    return "performance is above its start"


# In this order where two fire at the same step: a fault of the set-up before its effects.
CAUSES = (
    Cause(
        "train_rollout_drift",
        ("drift/mean", "drift/share"),
        train_rollout_drift,
        "Check that engine and trainer use one dtype, one temperature and the same weights; turn on "
        "algorithm.rollout_correction (rollout_is: token), or set its bypass_mode to false.",
    ),
    Cause(
        "format_collapse",
        ("echo/format_valid", "train/valid"),
        format_collapse,
        "Go back to the last good checkpoint with a lower actor_rollout_ref.actor.optim.lr or fewer updates per step; "
        "check that ragen.rollout.response_length does not cut answers off. If returns rise meanwhile, an answer that "
        "is not valid costs less than a move: set ragen.rollout.format_penalty further below 0.",
    ),
    Cause(
        "variance_death",
        ("rollout/in_group_reward_std",),
        variance_death,
        "Filter groups by the spread of their returns (ragen.filter), use more members per group "
        "(actor_rollout_ref.rollout.n), a higher temperature, or environments of another difficulty.",
    ),
    Cause(
        "template_collapse",
        (
            *(ACCURACY, CHANCE, "mi/conditional_entropy"),
            *("echo/shared", "echo/distinct_within"),
        ),
        template_collapse,
        "Filter groups by the spread of their returns (ragen.filter), and weaken what does not depend on the task: "
        "actor_rollout_ref.actor.kl_loss_coef and entropy_coeff.",
    ),
    Cause(
        "entropy_collapse",
        ("actor/entropy",),
        entropy_collapse,
        "Raise actor_rollout_ref.actor.clip_ratio_high (0.28), drop the KL loss, filter groups (ragen.filter), "
        "or lower the learning rate.",
    ),
    Cause(
        "entropy_explosion",
        ("actor/entropy",),
        entropy_explosion,
        "Lower actor_rollout_ref.actor.entropy_coeff and the learning rate; check that groups have any spread of "
        "returns, since without one only noise is left to follow.",
    ),
    Cause(
        "length_collapse",
        ("echo/reasoning_words",),
        length_collapse,
        "Reward or ask for reasoning (ragen.rollout.max_tokens), weaken length-dependent terms "
        "(loss_agg_mode token-mean), or set ragen.rollout.think to false if reasoning does not pay.",
    ),
    Cause(
        "gradient_spike",
        ("actor/grad_norm",),
        gradient_spike,
        "Go back to the last good checkpoint; lower the learning rate and actor_rollout_ref.actor.optim.clip_grad; "
        "filter groups without spread (ragen.filter).",
    ),
)

READS = frozenset([name for cause in CAUSES for name in cause.reads]) | {*PERFORMANCE, HELD_OUT}
