"""Search by BM25 over a fixed list of texts, through the package bm25s."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from ragen_verl.errors import MissingExtra, adding

__all__ = ["Bm25", "words"]

_WORD = re.compile(r"\w+")
_QUERY_WORDS = 64


def words(text: str) -> list[str]:
    """Return the lower-case words of `text`, without the last s of plurals."""
    found = _WORD.findall(text.lower())
    return [word[:-1] if len(word) > 3 and word.endswith("s") and word[-2] != "s" else word for word in found]


class Bm25:
    """An index to search from any number of threads; nothing in it changes after it is built.

    Args:
        texts: the texts to search; results are positions in this list.

    Raises:
        MissingExtra: bm25s is not installed.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        try:
            import bm25s
        except ImportError:
            raise MissingExtra(f"Search needs bm25s: run {adding('search')}.") from None
        self._index = bm25s.BM25()
        self._index.index([words(text) or [""] for text in texts], show_progress=False)

    def search(self, query: str, k: int) -> list[int]:
        """Return the positions of up to `k` texts that share a word with `query`, the best first.

        Only the query's first 64 words count. Texts with equal scores keep their order.
        """
        known = [word for word in words(query[:10_000])[:_QUERY_WORDS] if word in self._index.vocab_dict]
        if not known:
            return []
        scores = self._index.get_scores(known)
        best = np.flatnonzero(scores > 0)
        if len(best) > k:
            best = best[scores[best] >= np.partition(scores[best], -k)[-k]]
        return best[np.argsort(-scores[best], kind="stable")][:k].tolist()
