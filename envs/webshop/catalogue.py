"""The contents of a shop: products, goals and the search index."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from ragen_envs.common.bm25 import Bm25
from ragen_envs.common.lines import sanitise

__all__ = [
    "BUTTONS",
    "SPLITS",
    "Catalogue",
    "Goal",
    "Product",
    "clickable_options",
    "price_limit",
    "typable",
    "with_limit",
]

BUTTONS = ("back to search", "< prev", "next >", "description", "features", "attributes", "buy now")
SPLITS = ("train", "val", "test")
_UNTYPABLE = re.compile(r"</?(?:think|answer)>|<\|.{0,40}?\|>", re.IGNORECASE)
_MOST_OPTIONS = 300


@dataclass(frozen=True)
class Product:
    """A product; every text is one line, and `options` maps the name of a choice to its values."""

    asin: str
    title: str
    description: str
    features: tuple[str, ...]
    attributes: tuple[str, ...]
    options: Mapping[str, tuple[str, ...]]
    price: float
    query: str
    product_category: str

    @property
    def text(self) -> str:
        """The text that is searched."""
        options = " ".join(value for values in self.options.values() for value in values)
        return f"{self.title} {self.query} {self.description} {' '.join(self.features)} {options}"


@dataclass(frozen=True)
class Goal:
    """A purchase to make; the goal was made for `product`, and `options` are the wanted values."""

    product: Product
    instruction: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]
    price_upper: float


@dataclass(frozen=True)
class Catalogue:
    """Products, goals and the search index; instances and threads share it, so it is never changed."""

    products: tuple[Product, ...]
    goals: tuple[Goal, ...]
    index: Bm25 = field(repr=False)
    by_asin: Mapping[str, Product] = field(repr=False)

    @classmethod
    def of(cls, products: Sequence[Product], goals: Sequence[Goal]) -> Catalogue:
        """Index the products and put the goals into their fixed order."""
        order = np.random.default_rng(42).permutation(len(goals))
        index = Bm25([product.text for product in products])
        by_asin = {product.asin.lower(): product for product in products}
        return cls(tuple(products), tuple(goals[i] for i in order), index, by_asin)

    def span(self, split: str) -> range:
        """Return the positions of a split's goals: 500 for test, 1,000 for val, the rest for train.

        With fewer than 3,000 goals test gets a sixth and val a third of them, rounded down.
        """
        total = len(self.goals)
        test, val = min(500, total // 6), min(1000, total // 3)
        return {"test": range(test), "val": range(test, test + val), "train": range(test + val, total)}[split]


def typable(text: Any, limit: int = 200) -> str:
    """Return `text` sanitised, without parts that an answer cannot contain: answer tags, chat tokens, separators."""
    return sanitise(re.sub(r"\|(?:\s*\|)+", "|", _UNTYPABLE.sub(" ", str(text))), limit)


def clickable_options(raw: Mapping[str, Sequence[Any]]) -> dict[str, tuple[str, ...]]:
    """Return options in lower case, without empty values and names of buttons, and at most 300 values of each."""
    options: dict[str, tuple[str, ...]] = {}
    for name, values in raw.items():
        texts = dict.fromkeys(typable(value).lower() for value in values)
        kept = tuple(text for text in texts if text and text not in BUTTONS)[:_MOST_OPTIONS]
        if kept:
            options[typable(name).lower()] = kept
    return options


def price_limit(price: float, rng: np.random.Generator) -> float:
    """Draw a limit above `price`: the larger of two of the next four multiples of ten, as the original does.

    The limit is infinite where fewer than two of them are below 1,000.
    """
    above = [10.0 * tens for tens in range(1, 100) if 10.0 * tens > price][:4]
    return float(rng.choice(above, 2, replace=False).max()) if len(above) >= 2 else float("inf")


def with_limit(instruction: str, price_upper: float) -> str:
    """Return the instruction with its price limit, if there is one."""
    return (
        instruction if price_upper == float("inf") else f"{instruction}, and price lower than {price_upper:.2f} dollars"
    )
