"""Metrics of runs that never took place: families of healthy runs, and failures put on top of them.

The thresholds of the diagnostics were set with the families of `TUNING`; those of `HELD_OUT` have other noise, other
sizes and other shapes, and are for measuring only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ragen_verl.diagnostics import calls as calls  # registers the causes of runs with tools

Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class Family:
    """How a healthy run looks.

    Attributes:
        shape: success rate over the run's share that is done (0 to 1), both arrays of shape (steps,).
        groups, members: P and N.
        correlation: of the noise of one step with that of the step before (AR(1)); 0 is independent noise.
        wobble: standard deviation of the policy's own ups and downs, in log-odds of success.
        noise: standard deviation of the logarithm of entropy and lengths; the gradient norm has five times as much.
        heavy: Student's t with 3 degrees of freedom instead of normal noise.
        entropy, decline: nats at the start, and how many factors of e it comes down.
        episodes, every: held-out episodes, and steps between two evaluations.
        changes: shares of the run at which training gets harder environments.
    """

    shape: Callable[[np.ndarray], np.ndarray]
    groups: int = 8
    members: int = 16
    correlation: float = 0.0
    wobble: float = 0.0
    noise: float = 0.06
    heavy: bool = False
    entropy: float = 1.2
    decline: float = 1.0
    episodes: int = 128
    every: int = 10
    changes: tuple[float, ...] = ()


def _rise(start: float, end: float, power: float = 0.7) -> Callable:
    return lambda done: start + (end - start) * done**power


def _late(start: float, end: float, middle: float) -> Callable:
    return lambda done: start + (end - start) / (1 + np.exp(-20 * (done - middle)))


def _flat(rate: float) -> Callable:
    return lambda done: np.full_like(done, rate)


TUNING = {
    "steady": Family(_rise(0.2, 0.8)),
    "late": Family(_late(0.03, 0.6, 0.5), groups=16, members=8, decline=0.7),
    "flat": Family(_flat(0.3), groups=16, members=8, decline=0.3),
    "autocorrelated": Family(_rise(0.25, 0.6), members=8, correlation=0.7, wobble=0.2, noise=0.1),
    "curriculum": Family(_rise(0.3, 0.7), changes=(0.3, 0.6)),
    "slow ups and downs": Family(_rise(0.3, 0.6, 1.0), groups=32, members=8, correlation=0.9, wobble=0.3, noise=0.08),
    "rare successes": Family(_flat(0.03), groups=16, members=8, decline=0.4, episodes=256, every=5),
    "few groups": Family(_flat(0.12), groups=4, members=8, decline=0.3, noise=0.1),
    "heavy tails": Family(_rise(0.15, 0.5, 0.5), heavy=True, noise=0.1, members=4, groups=16, entropy=0.6),
    "quickly solved": Family(lambda done: 0.3 + 0.68 * np.minimum(1, 5 * done), decline=2.0, episodes=64),
    "very late": Family(_late(0.01, 0.45, 0.8), groups=32, members=4, correlation=0.4, decline=0.6, episodes=512),
    "harder twice": Family(_rise(0.15, 0.8, 0.5), groups=6, members=8, changes=(0.25, 0.5), correlation=0.3),
}
HELD_OUT = {
    "waves": Family(_rise(0.4, 0.7, 1.5), groups=24, members=4, correlation=0.8, wobble=0.35, noise=0.05, decline=0.8),
    "rarer": Family(_flat(0.05), groups=8, members=8, decline=0.2, episodes=200, every=4),
    "one in seven": Family(_flat(0.14), groups=5, members=16, decline=0.5, noise=0.12, episodes=100),
    "heavier tails": Family(_rise(0.1, 0.9, 1.0), heavy=True, noise=0.12, members=5, groups=12, correlation=0.5),
    "steps of learning": Family(lambda done: 0.2 + 0.2 * np.floor(4 * np.minimum(done, 0.99)), entropy=0.5),
    "rise and rest": Family(lambda done: 0.1 + 0.4 * np.minimum(1, 3 * done), groups=64, members=4, noise=0.03),
    "harder three times": Family(_rise(0.25, 0.6), groups=12, members=6, changes=(0.2, 0.45, 0.7), wobble=0.15),
}


def healthy(family: Family, seed: int, steps: int, probe: bool) -> list[dict]:
    """One run, a line per step; with `probe` mutual information is measured at every fifth step."""
    return _lines(_columns(family, np.random.default_rng(seed), steps), probe)


def changes(family: Family, steps: int) -> tuple[int, ...]:
    """The steps at which the run's environments change."""
    return tuple(1 + round(share * steps) for share in family.changes)


def broken(family: Family, cause: str, seed: int, steps: int = 160, probe: bool = True) -> list[dict]:
    """A run that stops learning between the steps 40 and 80, as the failure of this name begins; it takes 5 to 40."""
    random = np.random.default_rng((seed, 1))
    onset, length = random.uniform(40, 80), random.uniform(5, 40)
    shape = family.shape
    family = replace(family, shape=lambda done: shape(np.minimum(done, onset / steps)), changes=())
    columns = _columns(family, random, steps)
    FAILURES[cause](columns, np.clip((np.arange(1, steps + 1) - onset) / length, 0, 1), random)
    return _lines(columns, probe)


# -- healthy ----------------------------------------------------------------------------------------------------------


def _noise(family: Family, random: np.random.Generator, steps: int) -> np.ndarray:
    """Noise of variance 1 (t has more), AR(1) with the family's correlation."""
    shocks = random.standard_t(3, steps) / 3**0.5 if family.heavy else random.normal(size=steps)
    values, rho = np.empty(steps), family.correlation
    values[0] = shocks[0]
    for i in range(1, steps):
        values[i] = rho * values[i - 1] + (1 - rho**2) ** 0.5 * shocks[i]
    return values


def _columns(family: Family, random: np.random.Generator, steps: int) -> Columns:
    step = np.arange(1, steps + 1)
    done = step / max(steps, 60)
    rate = np.clip(family.shape(done), 1e-3, 1 - 1e-3)
    fixed = rate  # held-out environments stay as they are
    for change in changes(family, steps):  # harder: the log-odds fall by 1.2 and come back over a fifth of the run
        behind = (step - change) / max(steps, 60)
        fall = np.where(behind >= 0, 1.2 * np.exp(-behind / 0.1), 0)
        rate = 1 / (1 + (1 / rate - 1) * np.exp(fall))
    wobble = np.exp(-family.wobble * _noise(family, random, steps))
    rate, fixed = (1 / (1 + (1 / one - 1) * wobble) for one in (rate, fixed))
    levels = random.beta(*(3 * np.stack([rate, 1 - rate])[..., None] + 1e-9), size=(steps, family.groups))
    wins = random.binomial(family.members, levels) / family.members
    turns = family.groups * family.members * 4
    prompts = max(8, min(64, family.groups * 4))

    def lognormal(level: np.ndarray | float, size: float) -> np.ndarray:
        return level * np.exp(size * _noise(family, random, steps))

    return {
        "step": step,
        "train/success": wins.mean(axis=1),
        "train/valid": random.binomial(turns, 0.97, steps) / turns,
        "rollout/in_group_reward_mean": wins.mean(axis=1) - 0.02,
        "rollout/in_group_reward_std": np.sqrt(wins * (1 - wins) * family.members / (family.members - 1)).mean(axis=1),
        "rollout/selected_return_excess": random.normal(0, 0.05, steps),
        "rollout/selected_return_excess_error": np.full(steps, 0.05),
        "actor/entropy": lognormal(family.entropy * np.exp(-family.decline * done), family.noise),
        "actor/grad_norm": lognormal(1.0, 5 * family.noise),
        "echo/reasoning_words": lognormal(45 * np.exp(-family.decline * done), 1.5 * family.noise),
        "echo/format_valid": random.binomial(turns, 0.98, steps) / turns,
        "echo/distinct_within": 0.7 - 0.2 * np.minimum(1, done) + 0.03 * _noise(family, random, steps),
        "echo/shared": 0.2 + 0.3 * np.minimum(1, done) + 0.03 * _noise(family, random, steps),
        "update/not_finite": np.zeros(steps),
        "train/stop/context_full": np.zeros(steps),
        "train/excluded_ratio": np.zeros(steps),
        "mismatch/mean": np.abs(random.normal(0.01, 0.002, steps)),
        "mismatch/share": random.binomial(20000, 0.0005, steps) / 20000,
        "mi/responses": np.full(steps, float(prompts)),
        "mi/retrieval_chance": np.full(steps, 1 / prompts),
        "mi/retrieval_accuracy": random.binomial(prompts, 0.85 - 0.15 * np.minimum(1, done)) / prompts,
        "mi/conditional_entropy": lognormal(1.0 * np.exp(-0.3 * np.minimum(1, done)), family.noise),
        "rollout/staleness_mean": 1 + 0.3 * np.sin(step),  # no random number, which would change all runs below
        **_calls(rate, random.spawn(1)[0]),
        "val-env/success": np.where(
            step % family.every == 0, random.binomial(family.episodes, fixed) / family.episodes, np.nan
        ),
        "val-env/episodes": np.where(step % family.every == 0, float(family.episodes), np.nan),
    }


def _calls(rate: np.ndarray, random: np.random.Generator) -> Columns:
    """Calls of an episode, which grow with success or do not; the share of turns without one, which falls with it."""
    progress = (rate - rate[0]) / max(rate.max() - rate[0], 0.2)
    more, few = random.uniform(-0.3, 0.9), random.uniform(0.01, 0.3)
    steps = len(rate)
    return {
        "train/calls": random.uniform(1, 4) * np.exp(random.normal(0, 0.05, steps) + more * progress.clip(-1, 1)),
        "train/turns_without_call": random.binomial(300, few * np.exp(-progress.clip(-0.3, 2))) / 300,
    }


def _lines(columns: Columns, probe: bool) -> list[dict]:
    lines = []
    for i, step in enumerate(columns["step"]):
        measured = probe and step % 5 == 1
        lines.append(
            {
                name: int(step) if name == "step" else float(values[i])
                for name, values in columns.items()
                if not np.isnan(values[i]) and (measured or not name.startswith("mi/"))
            }
        )
    return lines


# -- failures: (columns, how far it has gone: 0 to 1 at each step, random numbers) -------------------------------------


def _succeed_less(columns: Columns, left: np.ndarray) -> None:
    """Success falls to this part of itself, and returns by as much."""
    columns["rollout/in_group_reward_mean"] -= columns["train/success"] * (1 - left)
    columns["train/success"] *= left
    columns["val-env/success"] *= left


def _lose(columns: Columns, t: np.ndarray, random: np.random.Generator) -> None:
    """Success goes, to nothing or to a part; so does what the returns of a group differ by."""
    left = 1 - t * random.uniform(0.8, 1.0)
    _succeed_less(columns, left)
    columns["rollout/in_group_reward_std"] *= np.sqrt(left)


def _scale(name: str, low: float, high: float, lost: bool = True) -> Callable:
    def fail(columns: Columns, t: np.ndarray, random: np.random.Generator) -> None:
        columns[name] *= np.exp(t * np.log(random.uniform(low, high)))
        if lost:
            _lose(columns, t**2, random)

    return fail


def _shift(values: dict[str, tuple[float, float]], lost: bool = True) -> Callable:
    def fail(columns: Columns, t: np.ndarray, random: np.random.Generator) -> None:
        for name, between in values.items():
            columns[name] += t * (random.uniform(*between) - columns[name])
        if lost:
            _lose(columns, t**2, random)

    return fail


def _variance(columns: Columns, t: np.ndarray, random: np.random.Generator) -> None:
    """Every member does the same, and that does not succeed; in half of the runs penalties still differ a little."""
    _succeed_less(columns, 1 - t)
    std = columns["rollout/in_group_reward_std"]
    rest = random.choice([0.0, random.uniform(0, 0.05)]) * std.mean() * random.uniform(0.5, 1.5, len(std))
    columns["rollout/in_group_reward_std"] = std * (1 - t) + rest * t


def _template(columns: Columns, t: np.ndarray, random: np.random.Generator) -> None:
    """Thoughts stop telling prompts apart: a count of hits around chance, in words that still differ."""
    prompts = columns["mi/responses"].astype(int)
    rate = columns["mi/retrieval_accuracy"] * (1 - t) + t * (1 / prompts + random.uniform(0, 0.1))
    columns["mi/retrieval_accuracy"] = random.binomial(prompts, rate) / prompts
    _lose(columns, t**2, random)


def _same_words(columns: Columns, t: np.ndarray, random: np.random.Generator) -> None:
    """The same in one text for every prompt."""
    columns["echo/shared"] += t * (random.uniform(0.87, 0.99) - columns["echo/shared"])
    _template(columns, t, random)


def _selection(columns: Columns, t: np.ndarray, random: np.random.Generator) -> None:
    columns["rollout/selected_return_excess"] += random.uniform(0.08, 0.3)
    _lose(columns, t, random)


def _not_finite(columns: Columns, t: np.ndarray, random: np.random.Generator) -> None:
    """Gradients of more and more steps are no numbers, in the end of all."""
    columns["update/not_finite"] = (random.uniform(size=len(t)) < t).astype(float)
    columns["actor/grad_norm"][columns["update/not_finite"] > 0] = np.nan


def _never_valid(columns: Columns, t: np.ndarray, random: np.random.Generator) -> None:
    """The model never knew the format."""
    columns["train/valid"] = random.uniform(0, 0.04, len(t))
    _lose(columns, np.ones_like(t), random)


FAILURES: dict[str, Callable] = {
    "context_full": _shift({"train/stop/context_full": (0.7, 1.0)}),
    "episodes_failed": _shift({"train/excluded_ratio": (0.08, 0.3)}, lost=False),
    "no_valid_turns": _never_valid,
    "train_inference_mismatch": _shift({"mismatch/mean": (0.08, 0.5), "mismatch/share": (0.02, 0.2)}, lost=False),
    "format_collapse": _shift({"echo/format_valid": (0, 0.5), "train/valid": (0, 0.5)}),
    "variance_death": _variance,
    "template_collapse": _same_words,
    "template_collapse (in other words)": _template,
    "entropy_collapse": _scale("actor/entropy", 0.03, 0.12),
    "entropy_explosion": _scale("actor/entropy", 6, 15),
    "length_collapse": _scale("echo/reasoning_words", 0.01, 0.08),
    "gradient_spike": _scale("actor/grad_norm", 50, 1000, lost=False),
    "selection_bias": _selection,
    "stale_samples": _shift({"rollout/staleness_mean": (5, 9)}),
    "not_finite": _not_finite,
    "calls_stopped": _shift({"train/turns_without_call": (0.6, 1.0)}),
    "call_storm": _scale("train/calls", 4, 10),
    "collapsed": _lose,
}
