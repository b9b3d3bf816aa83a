"""Evaluators of the reasoning: proxies that count words without understanding them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import numpy as np
from annotated_types import Ge
from ragen_lab.score.registry import evaluator
from ragen_lab.score.saved import Played

from ragen_verl.diagnostics.repetition import NGRAM, repetition

__all__ = ["Words", "input_dependence", "reasoning_repetition", "reasoning_trend", "reasoning_words", "stated_action"]

Words = Annotated[int, Ge(1)]


@evaluator("input_dependence", better="higher", bounded=True, together=True)
def input_dependence(trajectories: Sequence[Played], *, n: Words = NGRAM) -> list[float | None]:
    """Share of other initial states in whose reasoning an n-gram of this one does not occur; 0 is one text for all.

    A text of random words is not shared either: the evaluator does not see how the words relate to the state.

    Args:
        trajectories: those of one environment and step.
        n: words of an n-gram; a shorter thought counts as one n-gram.
    """
    grams = [{gram for text in _thoughts(one) for gram in _grams(text, n)} for one in trajectories]
    states = {one.seed for one in trajectories}
    pairs = {(one.seed, gram) for one, found in zip(trajectories, grams, strict=True) for gram in found}
    having = Counter(gram for _, gram in pairs)
    if len(states) < 2:
        return [None] * len(trajectories)
    return [
        float(np.mean([1 - (having[gram] - 1) / (len(states) - 1) for gram in found])) if found else None
        for found in grams
    ]


@evaluator("reasoning_repetition", better="lower", bounded=True)
def reasoning_repetition(trajectory: Played, *, n: Words = NGRAM) -> float | None:
    """Share of the n-grams of an episode's reasoning that it has said before."""
    found = 1 - repetition([_thoughts(trajectory)], [0], n).distinct_within
    return None if np.isnan(found) else found


@evaluator("reasoning_words", better=None)
def reasoning_words(trajectory: Played) -> float | None:
    """Words of reasoning a turn."""
    return float(np.mean(_lengths(trajectory))) if trajectory.turns else None


@evaluator("reasoning_trend", better=None)
def reasoning_trend(trajectory: Played) -> float | None:
    """Growth of the reasoning from turn to turn as a share of its mean length (least squares); below 0 it shrinks."""
    lengths = _lengths(trajectory)
    if len(lengths) < 2 or not any(lengths):
        return None
    return float(np.polyfit(np.arange(len(lengths)), lengths, 1)[0] / np.mean(lengths))


@evaluator("stated_action", better="higher", bounded=True)
def stated_action(trajectory: Played) -> float | None:
    """Share of turns whose last action is the last one that their reasoning names, of turns that name one."""
    names = trajectory.replay.actions if trajectory.replay else None
    if not names:
        return None
    words = "|".join(re.escape(name.strip()) for name in sorted(names, key=len, reverse=True))
    pattern = re.compile(rf"(?<!\w)(?:{words})(?!\w)", re.IGNORECASE)
    agree = []
    for turn in trajectory.turns:
        named = pattern.findall(turn["reasoning"])
        if named and turn["actions"]:
            agree.append(named[-1].casefold() == turn["actions"][-1].strip().casefold())
    return float(np.mean(agree)) if agree else None


def _thoughts(trajectory: Played) -> list[str]:
    return [turn["reasoning"] for turn in trajectory.turns]


def _lengths(trajectory: Played) -> list[int]:
    return [len(text.split()) for text in _thoughts(trajectory)]


def _grams(text: str, n: int) -> set[tuple[str, ...]]:
    words = text.split()
    size = min(n, len(words))
    return {tuple(words[i : i + size]) for i in range(len(words) - size + 1)} if size else set()
