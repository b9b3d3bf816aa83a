"""Repetition in the trajectories of a step: n-grams inside one trajectory, and across prompts."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["NGRAM", "Repetition", "repetition"]

NGRAM = 3  # words: two are shared by chance, four are too rare in short thoughts


@dataclass(frozen=True)
class Repetition:
    """Repetition of one step's texts; nan where nothing could be counted.

    Attributes:
        distinct_within: a trajectory's distinct n-grams divided by all of its n-grams, mean over trajectories. 1 means
            no repetition; it falls when every turn says the same.
        distinct_across: distinct n-grams of the step divided by all of its n-grams.
        shared: the chance that an n-gram of a trajectory also occurs in another prompt's trajectories, mean over
            n-grams and over the other prompts. 1 means one text for every prompt. Unlike the other two it does not
            depend on the length or the number of the texts.
    """

    distinct_within: float
    distinct_across: float
    shared: float


def repetition(texts: Sequence[Sequence[str]], prompts: Sequence[Hashable], n: int = NGRAM) -> Repetition:
    """Count the n-grams of words of one step.

    Args:
        texts: for each trajectory the text of each turn; no n-gram spans two turns.
        prompts: for each trajectory its prompt (initial state); trajectories with equal prompts are a group.
        n: words per n-gram.

    Raises:
        ValueError: `texts` and `prompts` differ in length, or n is less than 1.
    """
    if len(texts) != len(prompts):
        raise ValueError(f"{len(texts)} trajectories and {len(prompts)} prompts are not one step")
    if n < 1:
        raise ValueError(f"an n-gram has one word or more, not {n}")
    grams, rows = _grams(texts, n)
    if not len(grams):
        return Repetition(float("nan"), float("nan"), float("nan"))
    kinds = int(grams.max()) + 1
    totals = np.bincount(rows)
    pairs = np.unique(rows * kinds + grams)  # each trajectory's distinct n-grams
    distinct = np.bincount(pairs // kinds, minlength=len(totals))
    counted = totals > 0
    return Repetition(
        distinct_within=float((distinct[counted] / totals[counted]).mean()),
        distinct_across=kinds / len(grams),
        shared=_shared(pairs // kinds, pairs % kinds, prompts),
    )


def _grams(texts: Sequence[Sequence[str]], n: int) -> tuple[np.ndarray, np.ndarray]:
    """The n-grams of all turns as numbers 0, 1, ... and the trajectory of each."""
    words: dict[str, int] = {}
    spans, rows = [], []
    for row, turns in enumerate(texts):
        for text in turns:
            ids = np.array([words.setdefault(word, len(words)) for word in text.split()], dtype=np.int64)
            if len(ids) >= n:
                spans.append(np.lib.stride_tricks.sliding_window_view(ids, n))
                rows.append(np.full(len(ids) - n + 1, row, dtype=np.int64))
    if not spans:
        return np.array([], dtype=np.int64), np.array([], dtype=np.int64)
    windows = np.concatenate(spans)
    code = windows[:, 0]
    for column in range(1, n):  # renumbered for every word, so that no product overflows
        code = np.unique(code * len(words) + windows[:, column], return_inverse=True)[1].reshape(-1)
    return np.unique(code, return_inverse=True)[1].reshape(-1), np.concatenate(rows)


def _shared(rows: np.ndarray, grams: np.ndarray, prompts: Sequence[Hashable]) -> float:
    """Mean over trajectories of the share of other prompts that have its distinct n-grams; nan with one prompt."""
    labels: dict[Hashable, int] = {}
    group = np.array([labels.setdefault(prompt, len(labels)) for prompt in prompts], dtype=np.int64)[rows]
    present = len(np.unique(group))
    if present < 2:
        return float("nan")
    kinds = int(grams.max()) + 1
    having = np.bincount(np.unique(group * kinds + grams) % kinds, minlength=kinds)  # prompts that have the n-gram
    others = (having[grams] - 1) / (present - 1)
    sizes = np.bincount(rows)
    return float((np.bincount(rows, weights=others)[sizes > 0] / sizes[sizes > 0]).mean())
