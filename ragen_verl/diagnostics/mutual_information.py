"""Template collapse: how much of the reasoning Z depends on the prompt X (RAGEN-2, arXiv 2604.06268).

Reasoning can stay diverse, H(Z|X) high, while it no longer depends on the prompt that it answers, I(X;Z) near 0. The
proxies come from a matrix of cross scores L[i, j] = log p(z_i | x_j): every reasoning under every prompt ("in-batch
cross-scoring"). Everything here uses numpy, in nats; `ragen_verl.training.probes` fills the matrix.

Two things differ from the released code. Identical prompts are one column, weighted by their frequency: two groups with
the same start then do not cost twice, and are not counted as confused with each other. And the code's marginal averages
length-normalised scores, which is not the paper's formula: both are given, and `estimate` is the paper's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ragen_verl.errors import RecipeError

__all__ = [
    "EMA_DECAY",
    "RANKS",
    "STD_EPS",
    "Pair",
    "Plan",
    "RunningStd",
    "budget",
    "due",
    "marginal",
    "measure",
    "plan",
    "retrieval",
    "sampled_turns",
    "step_tokens",
    "thought_of",
    "turns_of",
]

STD_EPS = 1e-3  # RAGEN-2: added to the marginal's standard deviation, in nats
EMA_DECAY = 0.9  # RAGEN-2
RANKS = (2, 4, 8)  # k of retrieval accuracy at k


# -- the formulas -----------------------------------------------------------------------------------------------------


def _matched(scores: np.ndarray, own: np.ndarray) -> np.ndarray:
    """log p(z_i | x_own(i)), summed over the tokens of z_i: shape (rows,)."""
    return scores[np.arange(len(scores)), own]


def marginal(scores: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """log sum_j w_j p(z_i | x_j), the marginal of the paper for a whole reasoning: shape (rows,).

    Args:
        scores: log p(z_i | x_j), summed over tokens, shape (rows, columns).
        weights: p(x_j), summing to 1, shape (columns,).
    """
    logits = scores + np.log(weights)
    top = logits.max(axis=1)
    return top + np.log(np.exp(logits - top[:, None]).sum(axis=1))


def _marginal_of_code(scores: np.ndarray, lengths: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The released code's marginal per token: the mixture is taken of exp(L / |z|), not of p(z | x). Shape (rows,)."""
    return marginal(scores / lengths[:, None], weights)


def retrieval(scores: np.ndarray, own: np.ndarray, k: int = 1) -> float:
    """The share of reasonings whose own prompt is among the k under which they are likeliest.

    Equal scores count as if their order were random (its expectation): with all scores equal the result is k / columns.
    """
    mine = _matched(scores, own)[:, None]
    better, equal = (scores > mine).sum(axis=1), (scores == mine).sum(axis=1)
    return float(np.clip((k - better) / equal, 0.0, 1.0).mean())


@dataclass
class RunningStd:
    """A moving average of the marginal's standard deviation: `decay` x the old average + (1 - `decay`) x the new value.

    The first value starts the average. It is not stored in checkpoints, so a resumed run starts it again.
    """

    decay: float = EMA_DECAY
    values: dict[str, float] = field(default_factory=dict)

    def update(self, name: str, value: float) -> float:
        """Add a value to the average of that name and return the average."""
        old = self.values.get(name, value)
        self.values[name] = self.decay * old + (1 - self.decay) * value
        return self.values[name]


def measure(
    scores: np.ndarray, own: Any, lengths: Any, ema: RunningStd | None = None, name: str = ""
) -> dict[str, float]:
    """The proxies of one matrix of cross scores.

    Args:
        scores: log p(z_i | x_j) summed over the tokens of z_i, nats, shape (rows, columns); no two columns have the
            same prompt.
        own: column of the prompt that row i answered, shape (rows,); the frequencies of the columns are p(x_j).
        lengths: tokens of z_i, 1 or more, shape (rows,).
        ema: the average of the marginal's standard deviation; without it there is no `z_score_ema`.
        name: the name of this matrix in `ema`.

    Returns:
        Per token, that is after division by |z_i|: `estimate` of I(X;Z) (paper: log p(z|x) - log p(z), mean over the
        rows), `estimate_code` (marginal of the released code), `conditional_entropy` -E log p(z|x),
        `marginal_entropy` -E log p(z), `marginal_std`, `z_score` (mean of the same difference over `marginal_std` +
        `STD_EPS`) and `z_score_ema`. Per whole reasoning, with `_per_sequence`: the same without `estimate_code`,
        which would equal the paper's. Besides: `upper_bound` H(X), the highest possible `estimate_per_sequence` (log
        of the number of columns if they are equally frequent); `retrieval_accuracy`, `retrieval_chance`,
        `retrieval_above_chance` and the same with `_at_<k>` for the k in `RANKS` below the number of columns;
        `prompts` and `responses`, the matrix's size.

    Raises:
        ValueError: the shapes do not fit, a score is not finite, or a column was answered by no row.
    """
    scores, lengths = np.asarray(scores, dtype=np.float64), np.asarray(lengths, dtype=np.float64)
    own = np.asarray(own, dtype=np.int64)
    rows, columns = scores.shape
    if own.shape != (rows,) or lengths.shape != (rows,) or not rows:
        raise ValueError(f"{rows} rows of scores need as many own columns {own.shape} and lengths {lengths.shape}")
    if not np.isfinite(scores).all() or (lengths < 1).any():
        raise ValueError("a score is not a finite number, or a reasoning has no token")
    counts = np.bincount(own, minlength=columns)
    if len(counts) != columns or not counts.all():
        raise ValueError("every prompt has to be the own prompt of some row")
    weights = counts / rows
    result = {
        "estimate_code": float((_matched(scores, own) / lengths - _marginal_of_code(scores, lengths, weights)).mean()),
        "upper_bound": float(-(weights * np.log(weights)).sum()),
        "prompts": float(columns),
        "responses": float(rows),
    }
    pairs = {"": lengths, "_per_sequence": np.ones(rows)}
    for suffix, divisor in pairs.items():
        given, mixed = _matched(scores, own) / divisor, marginal(scores, weights) / divisor
        std = float(mixed.std())
        result[f"estimate{suffix}"] = float((given - mixed).mean())
        result[f"conditional_entropy{suffix}"] = float(-given.mean())
        result[f"marginal_entropy{suffix}"] = float(-mixed.mean())
        result[f"marginal_std{suffix}"] = std
        result[f"z_score{suffix}"] = float((given - mixed).mean() / (std + STD_EPS))
        if ema is not None:
            average = ema.update(f"{name}{suffix}", std)
            result[f"z_score_ema{suffix}"] = float((given - mixed).mean() / (average + STD_EPS))
    for k in (1, *(k for k in RANKS if k < columns)):
        suffix = "" if k == 1 else f"_at_{k}"
        accuracy, chance = retrieval(scores, own, k), min(1.0, k / columns)
        result[f"retrieval_accuracy{suffix}"] = accuracy
        result[f"retrieval_chance{suffix}"] = chance
        result[f"retrieval_above_chance{suffix}"] = accuracy - chance
    return result


# -- the scored reasonings --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """A reasoning and its context, as token ids: `context` is everything that the model had read by then."""

    context: tuple[int, ...]
    thought: tuple[int, ...]


def turns_of(prompt: Sequence[int], response: Sequence[int], counts: Sequence[tuple[int, int]]) -> list[Pair]:
    """The turns of one training row.

    Args:
        prompt: ids before the row's first response.
        response: all ids after them.
        counts: for each turn the number of ids that are new since the last response, and of those sampled; the first
            turn's new ids are `prompt`.
    """
    turns, end = [], 0
    for number, (new, sampled) in enumerate(counts):
        start = end + (new if number else 0)
        end = start + sampled
        turns.append(Pair((*prompt, *response[:start]), tuple(response[start:end])))
    return turns


def thought_of(ids: Sequence[int], decode: Callable[[Sequence[int]], str], end: str | None = "</think>") -> list[int]:
    """The leading ids whose text is before the tag `end`; none where the tag is missing or comes first.

    A token that holds the first characters of the tag belongs to the tag. Without `end`, all ids.
    """
    if end is None:
        return list(ids)
    place = decode(ids).find(end)
    if place <= 0:
        return []
    return list(ids[: bisect_right(range(len(ids) + 1), place, key=lambda count: len(decode(ids[:count]))) - 1])


def due(step: int, every: int) -> bool:
    """Whether step 1, 2, ... is one of the measured ones: 1, 1 + every, 1 + 2 x every, ..."""
    return (step - 1) % every == 0


# -- the budget -------------------------------------------------------------------------------------------------------


def step_tokens(generated: int, kept: float) -> float:
    """The least number of forward tokens of a training step: one pass by the engine, three by the update.

    A backward pass counts as two forward ones. Passes that a recipe may add (old log-probs, reference, critic, further
    epochs, reading the context again at each turn) are left out, so that the true share is never above the stated one.

    Args:
        generated: prompt and response tokens of all trajectories of the step.
        kept: the share of them that the update uses.
    """
    return generated * (1 + 3 * kept)


def budget(tokens: float, share: float, every: int) -> int:
    """Forward tokens of one measurement that is made every `every` steps of `tokens` forward tokens each."""
    return int(tokens * share * every)


@dataclass(frozen=True)
class Plan:
    """Which reasonings are scored under which prompts.

    Attributes:
        contexts: the distinct prompts, the matrix's columns.
        rows: indices into the pairs, the matrix's rows.
        own: the column of each row's own prompt.
        tokens: forward tokens of the whole matrix.
    """

    contexts: tuple[tuple[int, ...], ...]
    rows: tuple[int, ...]
    own: tuple[int, ...]
    tokens: int


def plan(pairs: Sequence[Pair], tokens: int, rng: np.random.Generator) -> Plan | None:
    """Draw prompts and reasonings: as many prompts as the budget allows, then further reasonings of each.

    Prompts have priority because I(X;Z) cannot exceed the log of their number. Identical contexts are one prompt.

    Args:
        pairs: the candidates; those without a thought are skipped.
        tokens: the budget in forward tokens; a cell of the matrix costs the tokens of its prompt and its reasoning.
        rng: draws the order of the prompts, and of the reasonings of each.

    Returns:
        A plan of at least two prompts and two reasonings that costs `tokens` or less; None where there are fewer than
        two different prompts.

    Raises:
        RecipeError: the budget is below the cost of the smallest matrix.
    """
    answers: dict[tuple[int, ...], list[int]] = {}
    for index in rng.permutation(len(pairs)).tolist():
        if pairs[index].thought:
            answers.setdefault(pairs[index].context, []).append(index)
    if len(answers) < 2:
        return None
    firsts = [len(context) + len(pairs[found[0]].thought) for context, found in answers.items()]
    costs = np.arange(1, len(answers) + 1) * np.cumsum(firsts)  # of the first n prompts and one reasoning of each
    count = int(np.searchsorted(costs, tokens, side="right"))
    if count < 2:
        raise RecipeError(
            f"ragen.diagnostics.mutual_information has {tokens} forward tokens for one measurement, and two prompts by "
            f"two responses take {costs[1]}: raise its share or its every."
        )
    chosen = list(answers)[:count]
    read, cost = sum(map(len, chosen)), int(costs[count - 1])
    rows, own = [answers[context][0] for context in chosen], list(range(count))
    for rank in range(1, max(len(answers[context]) for context in chosen)):
        for column, context in enumerate(chosen):
            if rank >= len(answers[context]):
                continue
            row = answers[context][rank]
            extra = read + count * len(pairs[row].thought)
            if cost + extra > tokens:
                return Plan(tuple(chosen), tuple(rows), tuple(own), cost)
            rows.append(row)
            own.append(column)
            cost += extra
    return Plan(tuple(chosen), tuple(rows), tuple(own), cost)


def sampled_turns(trajectories: Sequence[Sequence[Pair]], rng: np.random.Generator) -> list[Pair]:
    """One turn of each trajectory, drawn uniformly from its turns: short and long trajectories count the same."""
    return [turns[int(rng.integers(len(turns)))] for turns in trajectories if turns]
