"""The causes of collapse. Each has one rule: the metrics that it reads, when it warns, and what to change.

A rule compares the centre of the last steps with the run's own early baseline. It warns when they differ by a
meaningful factor and by more than the noise between steps. Some changes also happen in healthy runs: entropy and
reasoning length decline as success rises (arXiv 2504.20073 figure 6 and the RAGEN-2 paper), and the returns inside a
group agree once everything is solved. They are a warning only while performance is not held: see `Performance`.

If two causes appear at the same step, the one that comes first in this file is named first. A fault of the set-up comes
before its effects.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log, sqrt

from ragen_verl.diagnostics.performance import BEST, SOLVED, Performance, performance, performance_by, solved
from ragen_verl.diagnostics.registry import NOTE, WARNING, Evidence, cause
from ragen_verl.diagnostics.series import ACCURACY, CHANCE, CONDITIONAL_ENTROPY, NOISE, PERFORMANCE, SKILL, Trace
from ragen_verl.filter.scores import ZERO_STD
from ragen_verl.names import (
    DISTINCT_WITHIN,
    EFFECTIVE_SAMPLES,
    ENTROPY,
    FAILED,
    FIRST_ERROR,
    FORMAT_VALID,
    GRADIENT_NORM,
    MISMATCH,
    NOT_FINITE,
    REASONING_WORDS,
    RETURN_EXCESS,
    RETURN_EXCESS_ERROR,
    REWARD_STD,
    SHARED,
    STALENESS_MEAN,
    TRAIN_SUCCESS,
    TRAIN_VALID,
)

__all__ = [
    "entropy_collapse",
    "entropy_explosion",
    "episodes_failed",
    "format_collapse",
    "gradient_spike",
    "length_collapse",
    "not_finite",
    "selection_bias",
    "stale_samples",
    "template_collapse",
    "train_inference_mismatch",
    "variance_death",
]

# FrozenLake-PPO and Sokoban-PPO fall below a half well before nothing is left (figure 6). While success is level, a
# lower value is needed, since rare successes make the standard deviation scatter. With performance held, only the part
# of the fall counts that the success rate does not explain.
_STD_LOW = {Performance.LOST: 0.5, Performance.FLAT: 0.35, Performance.HELD: 0.5}


_NEVER_STEPS = 5
_DEAD_LEVEL = 0.1  # of the baseline; so little counts as none
_DEAD_STEPS = 10  # at least so many steps in a row
_DEAD_ODDS = 14.0  # a natural logarithm: one in a million, since it could happen at any of a thousand steps

_BY_STD = (
    "If the better choice pays rarely and much, stop dividing returns by the group's standard deviation "
    "(algorithm.norm_adv_by_std_in_grpo: false, or algorithm.adv_estimator: dr_grpo): divided, one rare gain weighs no "
    "more than one of many small losses. Filtering or a larger learning rate would make that worse. Otherwise go back "
    "to the last good checkpoint with more trajectories per group (actor_rollout_ref.rollout.n) or a higher "
    "temperature."
)


@cause(
    "variance_death",
    reads=(REWARD_STD,),
    advice="Filter groups by the standard deviation of their returns (ragen.filter), use more trajectories per group "
    "(actor_rollout_ref.rollout.n), a higher temperature, or environments of another difficulty.",
)
def variance_death(trace: Trace) -> Evidence | None:
    """The trajectories of a group earn the same, so there is no advantage to learn from."""
    one = trace[REWARD_STD]
    if solved(trace) or (trace[TRAIN_SUCCESS].values[-1:] or [0.0])[0] >= SOLVED:
        return None
    if one.values and max(one.values) <= ZERO_STD:
        level = WARNING if len(one.values) >= _NEVER_STEPS else NOTE  # where success is rare, a step can have none
        return Evidence(REWARD_STD, None, 0.0, "no group ever had returns that differ: nothing is learned yet", level)
    if one.baseline is None:
        return None
    state = performance(trace)
    advice = _BY_STD if state is Performance.LOST else ""
    if state is not Performance.HELD:
        dead = _dead(one.values, _DEAD_LEVEL * one.baseline)
        if dead:
            return Evidence(REWARD_STD, one.baseline, one.recent, f"next to none in {dead} steps", advice=advice)
        return Evidence(REWARD_STD, one.baseline, one.recent, advice=advice) if one.below(_STD_LOW[state]) else None
    if not one.below(_STD_LOW[state] * _explained(trace)):
        return None
    return Evidence(REWARD_STD, one.baseline, one.recent, f"success plateau, not a collapse: {_progress(trace)}", NOTE)


def _dead(values: Sequence[float], level: float) -> int:
    """The number of last steps in a row at or below `level`, if that is too many to be chance; else 0.

    Where success is rare, such steps are common, so their share in the steps before decides how many are too many.
    """
    count = next((i for i, value in enumerate(reversed(values)) if value > level), len(values))
    before = values[: len(values) - count]
    if count < _DEAD_STEPS or not before:
        return 0
    alive = (sum(value > level for value in before) + 1) / (len(before) + 2)
    return count if count * -log(1 - alive) > _DEAD_ODDS else 0


def _explained(trace: Trace) -> float:
    """The factor by which the success rate p alone changes the std: returns of 0 and 1 have sqrt(p (1 - p))."""
    success = trace[TRAIN_SUCCESS]
    if success.baseline is None or not 0 < success.baseline < 1:
        return 1.0
    before, now = (sqrt(p * (1 - p)) for p in (success.baseline, success.recent))
    return min(1.0, now / before)


# Entropy declines in every run. In FrozenLake-GRPO, which is stable, it falls to 0.32 of its start. In Bandit-PPO it
# falls below 0.35 after the reward has begun to fall.
_ENTROPY_LOW = {Performance.LOST: 0.35, Performance.FLAT: 0.25}


@cause(
    "entropy_collapse",
    reads=(ENTROPY,),
    advice="Raise actor_rollout_ref.actor.clip_ratio_high (0.28), drop the KL loss, filter groups (ragen.filter), "
    "or lower the learning rate.",
)
def entropy_collapse(trace: Trace) -> Evidence | None:
    """The policy has become deterministic without having become better."""
    one, state = trace[ENTROPY], performance(trace)
    if state is Performance.HELD or not one.below(_ENTROPY_LOW[state]):
        return None
    return Evidence(ENTROPY, one.baseline, one.recent)


_ENTROPY_HIGH, _ENTROPY_RUNAWAY = 2.0, 3.0  # Bandit-GRPO ends at 2.7, Sokoban-GRPO at 7 times its start
_ENTROPY_RISE = 0.5  # nats; a model with almost no entropy doubles it as soon as it explores


@cause(
    "entropy_explosion",
    reads=(ENTROPY,),
    advice="Lower actor_rollout_ref.actor.entropy_coeff and the learning rate; check that returns differ inside "
    "groups, since where they do not only noise is left to follow.",
)
def entropy_explosion(trace: Trace) -> Evidence | None:
    """Tokens have become noise: twice the entropy without being better, or three times whatever the reward."""
    one = trace[ENTROPY]
    if one.baseline is None:
        return None
    factor = _ENTROPY_RUNAWAY if performance(trace) is Performance.HELD else _ENTROPY_HIGH
    if not one.above(factor) or one.recent - one.baseline < _ENTROPY_RISE:
        return None
    return Evidence(ENTROPY, one.baseline, one.recent)


_NOT_FINITE_STEPS = 2  # in a row; a single batch can fail, and verl then skips its update


@cause(
    "not_finite",
    reads=(NOT_FINITE,),
    advice="Go back to the last good checkpoint with a lower learning rate (actor_rollout_ref.actor.optim.lr, "
    "critic.optim.lr); in bfloat16 or float16 try float32; look for a division by nothing in a loss of your own.",
)
def not_finite(trace: Trace) -> Evidence | None:
    """Loss or gradient is not finite, so verl skips the update; no baseline, since it can happen at the first step."""
    now = min(trace[NOT_FINITE].last(_NOT_FINITE_STEPS), default=0.0)
    return Evidence(NOT_FINITE, None, now, "losses and gradient norms of a step") if now > 0 else None


_FAILED_SHARE, _FAILED_STEPS = 0.05, 3  # a mean over the last steps


@cause(
    "episodes_failed",
    reads=(FAILED, FIRST_ERROR),
    advice='Mend the environment or its server: `ragen-verl env check ID` finds such errors, isolation = "process" '
    "keeps episodes apart, ragen.rollout.step_timeout gives them more time. The update never sees the episodes that "
    "fail, which are seldom a random choice; ragen.stop.failed_episodes ends a run with too many.",
)
def episodes_failed(trace: Trace) -> Evidence | None:
    """Episodes end in an error of environment or engine and are left out; no baseline, as it may be so from step 1."""
    last = trace[FAILED].values[-_FAILED_STEPS:]
    share = sum(last) / len(last) if last else 0.0
    if share < _FAILED_SHARE or not last[-1]:
        return None
    return Evidence(FAILED, None, share, f"first error: {trace.texts.get(FIRST_ERROR, 'unknown')}")


_GRAD_HIGH = 10.0  # FrozenLake-GRPO and Bandit-PPO reach 4 to 5 times their start and continue to learn
_GRAD_FLOOR = 1.0  # verl's default optim.clip_grad; a norm below it is not clipped


@cause(
    "gradient_spike",
    reads=(GRADIENT_NORM,),
    advice="Go back to the last good checkpoint; lower the learning rate and actor_rollout_ref.actor.optim.clip_grad; "
    "filter groups of equal returns (ragen.filter).",
)
def gradient_spike(trace: Trace) -> Evidence | None:
    """The gradient norm is far above its baseline and stays there; a single outlier is clipped and does not count."""
    one = trace[GRADIENT_NORM]
    if not one.above(_GRAD_HIGH) or one.recent < _GRAD_FLOOR:
        return None
    return Evidence(GRADIENT_NORM, one.baseline, one.recent)


_FORMAT_DROP = 0.3  # a share of all turns; healthy nano runs stay within 0.04 of their best


@cause(
    "format_collapse",
    reads=(FORMAT_VALID, TRAIN_VALID),
    advice="Go back to the last good checkpoint with a lower actor_rollout_ref.actor.optim.lr or fewer updates per "
    "step; check that ragen.rollout.response_length does not cut answers off. If returns rise meanwhile, an answer "
    "that is not valid costs less than a move: set ragen.rollout.format_penalty further below 0.",
)
def format_collapse(trace: Trace) -> Evidence | None:
    """Turns without a valid action come back after the format was known; measured from the best, not the start."""
    for name in (FORMAT_VALID, TRAIN_VALID):
        one = trace[name]
        if one.best is not None and one.best - one.recent >= max(_FORMAT_DROP, NOISE * one.error):
            return Evidence(name, one.best, one.recent, BEST)
    return None


_MI_LOW = 0.5  # of the early retrieval skill; 64 samples scatter by 0.06, a median of three by 0.04
_MI_MEANINGFUL = 0.2  # above chance at the start; with less, thoughts never differed between prompts
_MI_ENTROPY = 0.5  # of the early conditional entropy; below it thoughts are fixed, which is entropy collapse
_SHARED_HIGH, _SHARED_START = 0.8, 0.5  # now nearly one text for every prompt, and at the start several
_REPEATED = 0.4  # of the early share of distinct n-grams inside a trajectory


@cause(
    "template_collapse",
    reads=(ACCURACY, CHANCE, CONDITIONAL_ENTROPY, SHARED, DISTINCT_WITHIN),
    advice="Filter groups by the standard deviation of their returns (ragen.filter), and weaken what does not "
    "depend on the task: actor_rollout_ref.actor.kl_loss_coef and entropy_coeff.",
)
def template_collapse(trace: Trace) -> Evidence | None:
    """Thoughts no longer depend on the prompt: low mutual information at live entropy (RAGEN-2).

    Mutual information shows this, where it is measured. N-grams only show that the words are the same, so they count
    while performance is not held.
    """
    skill, accuracy, entropy = trace[SKILL], trace[ACCURACY], trace[CONDITIONAL_ENTROPY]
    fixed = entropy.baseline is not None and entropy.recent < _MI_ENTROPY * entropy.baseline
    if skill.baseline is not None and skill.baseline >= _MI_MEANINGFUL and skill.below(_MI_LOW) and not fixed:
        return Evidence(ACCURACY, accuracy.baseline, accuracy.recent, f"by chance {trace[CHANCE].recent:.2g}")
    if performance(trace) is Performance.HELD:
        return None
    shared, within = trace[SHARED], trace[DISTINCT_WITHIN]
    if shared.baseline is not None and shared.baseline <= _SHARED_START and shared.recent >= _SHARED_HIGH:
        return Evidence(SHARED, shared.baseline, shared.recent, "prompts get the same words")
    if within.below(_REPEATED):
        return Evidence(DISTINCT_WITHIN, within.baseline, within.recent, "turns get the same words")
    return None


_LENGTH_LOW, _LENGTH_GONE = 0.2, 0.05  # reasoning gets shorter in all eight settings that RAGEN-2 studied
_LENGTH_MEANINGFUL = 5.0  # words per turn at the start


@cause(
    "length_collapse",
    reads=(REASONING_WORDS,),
    advice="Reward or ask for reasoning (ragen.rollout.stated_length), weaken length-dependent terms "
    "(loss_agg_mode token-mean), or set ragen.rollout.think to false if reasoning does not pay.",
)
def length_collapse(trace: Trace) -> Evidence | None:
    """The thoughts are nearly empty; with performance held, a note once they are gone."""
    one = trace[REASONING_WORDS]
    if one.baseline is None or one.baseline < _LENGTH_MEANINGFUL or not one.below(_LENGTH_LOW):
        return None
    if performance(trace) is not Performance.HELD:
        return Evidence(REASONING_WORDS, one.baseline, one.recent)
    if not one.below(_LENGTH_GONE):
        return None
    words = f"the model answers without reasoning and success holds: {_progress(trace)}"
    return Evidence(REASONING_WORDS, one.baseline, one.recent, words, NOTE)


_EXCESS_STEPS = 20
_EXCESS_ERRORS = 5.0  # of the sum over these steps
_EXCESS_SHARE = 0.75  # of the steps with an excess above 0


@cause(
    "selection_bias",
    reads=(RETURN_EXCESS, RETURN_EXCESS_ERROR),
    advice="If rewards are random, decide about one half of a group by the returns of the other "
    "(ragen.filter.cross_fit: true), or use no filter (ragen.filter.strategy: none).",
)
def selection_bias(trace: Trace) -> Evidence | None:
    """The filter keeps groups whose returns were high by chance: they return more than all groups do, step after step.

    Groups whose start is easier also return more and may vary more, so alone this is a note.
    """
    excess, error = trace[RETURN_EXCESS].last(_EXCESS_STEPS), trace[RETURN_EXCESS_ERROR].last(_EXCESS_STEPS)
    if not excess or len(error) < len(excess):
        return None
    total, noise = sum(excess), sqrt(sum(one**2 for one in error))
    positive = sum(one > 0 for one in excess) / len(excess)
    if total <= _EXCESS_ERRORS * noise or positive < _EXCESS_SHARE:
        return None
    level = WARNING if performance(trace) is Performance.LOST else NOTE
    words = f"mean of {_EXCESS_STEPS} steps, standard error {noise / len(excess):.2g}"
    return Evidence(RETURN_EXCESS, None, total / len(excess), words, level)


_MISMATCH_MEAN = 0.05  # nats per token: bfloat16 kernels differ by about 0.01, wrong weights by more than 0.1
_MISMATCH_SHARE = 0.01  # of tokens beyond `mismatch.threshold`; single ones are rounding at low probabilities
_MISMATCH_TIMES = 2  # measurements in a row


@cause(
    "train_inference_mismatch",
    reads=(f"{MISMATCH}/mean", f"{MISMATCH}/share"),
    advice="Check that engine and trainer use one dtype, one temperature and the same weights; turn on "
    "algorithm.rollout_correction (rollout_is: token), or set its bypass_mode to false.",
)
def train_inference_mismatch(trace: Trace) -> Evidence | None:
    """The engine samples from another policy than the trainer updates; no baseline, as a fault can be there at once."""
    for name, limit in ((f"{MISMATCH}/mean", _MISMATCH_MEAN), (f"{MISMATCH}/share", _MISMATCH_SHARE)):
        now = min(trace[name].last(_MISMATCH_TIMES), default=0.0)
        if now >= limit:
            return Evidence(name, None, now, f"from {limit:g} on it is more than rounding")
    return None


_STALE = 4.0  # steps, as a mean over trajectories; half of the age at which verl drops a trajectory by default
_FEW_LEFT = 0.5  # of the samples; weights that are cut at 2 reach it when about half of the tokens have no weight


@cause(
    "stale_samples",
    reads=(STALENESS_MEAN, EFFECTIVE_SAMPLES),
    advice="Lower trainer.v1.sampler.max_off_policy_threshold or num_warmup_batches (trainer.v1.colocate_async, or "
    "separate_async with mode=disaggregated), lower the learning rate, or train with mode=sync.",
)
def stale_samples(trace: Trace) -> Evidence | None:
    """Asynchronous training learns from what much older weights played; a note while performance is held."""
    age, left = trace[STALENESS_MEAN], trace[EFFECTIVE_SAMPLES]
    level = NOTE if performance(trace) is Performance.HELD else WARNING
    if age.recent is not None and age.recent >= _STALE:
        return Evidence(STALENESS_MEAN, None, age.recent, "steps behind the weights that are trained", level)
    if left.recent is not None and left.recent < _FEW_LEFT:
        return Evidence(EFFECTIVE_SAMPLES, None, left.recent, "of the samples count under importance weights", level)
    return None


def _progress(trace: Trace) -> str:
    """Performance at the start and now, in words."""
    for name in PERFORMANCE:
        one = trace[name]
        if one.baseline is not None and performance_by(trace, name) is Performance.HELD:
            return f"{name} {one.baseline:.2g} at the start, {one.recent:.2g} now"
    return "performance is above its start"
