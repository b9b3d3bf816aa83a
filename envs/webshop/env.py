"""WebShop: find a product by search, choose its options, buy it."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from ragen_envs.common.lines import parse_call
from ragen_envs.webshop.catalogue import BUTTONS, SPLITS, Catalogue, Goal, Product
from ragen_envs.webshop.reward import score
from ragen_envs.webshop.shops import open_shop

from ragen_verl.env import Step
from ragen_verl.env.arguments import check_choice, check_switch, check_whole
from ragen_verl.env.text import FreeTextEnv
from ragen_verl.errors import RecipeError

__all__ = ["WebShop"]

_FOUND = 50
_PER_PAGE = 10
_MAX_STEPS = 100
_MOST_MADE_UP = 20_000  # a client of a server could otherwise fill its memory with made-up products
_HOME, _PREVIOUS, _NEXT, *_DETAILS, _BUY = BUTTONS


class WebShop(FreeTextEnv):
    """## Description

    A web shop and an instruction that says what to buy: kind of product, attributes, options, price limit. It has the
    task, actions, pages and score of WebShop (arXiv 2207.01206) with the rules of RAGEN (arXiv 2504.20073), in pure
    Python. Search is BM25 by the package bm25s:
    `make add PACKAGE="ragen-verl[search]"`, or outside a checkout `pip install "ragen-verl[search]"`.

    ## Action Space

    Text: `search[keywords]` on the search page, and `click[...]` with a listed name on the other pages; in any case.
    Every observation ends with the available actions.

    ## Observation Space

    Text: the instruction, the page, the available actions. The pages are: search; results (at most 50, ten on each
    page); item, with price and options; its description, features and, with `show_attributes`, attributes; the receipt.

    ## Starting State

    The search page with a goal drawn uniformly from `split`. It depends on the seed alone.

    ## Rewards

    On buying, with score = type * (attributes matched + options matched + price kept) / (attributes + options asked for
    + 1) from the paper: the score itself (`reward="dense"`, as in the paper and RAGEN), or 1 for a score of 1 and
    0 for any other ("binary", as in RAGEN-2). 0 before.

    ## Episode End

    Terminates on `click[buy now]`; success is a score of 1. Truncates after 100 actions.

    ## Arguments

    - `reward="dense"`: or "binary".
    - `split="train"`: "train", "val" or "test": in a fixed order the first 500 goals are for test, the next 1,000
      for val, all others for train; with fewer than 3,000 goals test gets a sixth and val a third.
    - `products=None`: the number of products; by default 1,500 generated ones (20,000 at most), or all of
      `data_dir`.
    - `data_dir=None`: folder with the original's items_shuffle.json, items_ins_v2.json and items_human_ins.json (if the
      last one is missing, goals are synthetic).
    - `show_attributes=False`: whether items have a page with their attributes.

    ## Version History

    - v0: first version. Differences from the original: BM25 is by another library, so ranks differ; lists, not a
      tagger, decide which words of a title are nouns; prices drawn from ranges and price limits depend on the product
      alone; there are no reviews. Unlike in RAGEN, no sentence names a wrong budget.
    """

    max_actions = 9
    instruction = (
        "You are shopping: find a product that fits the instruction, choose the options it asks for and buy it. Search "
        "with a few words for the kind of product and its properties, and leave sizes and colors for the item's page. "
        "An action is search[words] or click[something listed]. Buying ends the game and earns up to 1, the closer the "
        "product, the more: something similar is better than nothing."
    )
    external_arguments = ("data_dir",)

    def __init__(
        self,
        reward: Literal["dense", "binary"] = "dense",
        split: Literal["train", "val", "test"] = "train",
        products: int | None = None,
        data_dir: str | None = None,
        show_attributes: bool = False,
    ) -> None:
        if reward not in ("dense", "binary"):
            raise RecipeError(f"WebShop's reward must be 'dense' or 'binary', not {reward!r}.")
        check_choice("WebShop's split", split, SPLITS)
        if products is not None:
            check_whole("WebShop's products", products, 1, _MOST_MADE_UP if data_dir is None else float("inf"))
        if data_dir is not None and not isinstance(data_dir, str):
            raise RecipeError(f"WebShop's data_dir must be the path of a folder, not {data_dir!r}.")
        check_switch("WebShop's show_attributes", show_attributes)
        self.binary, self.split, self._shop = reward == "binary", split, open_shop(data_dir, products)
        self._details = tuple(name for name in _DETAILS if show_attributes or name != "attributes")
        if not self.catalogue.span(split):
            raise RecipeError(f"WebShop has {len(self.catalogue.goals)} goals, too few for the split {split!r}.")
        self._goal_number: int | None = None
        self._clear()

    def _clear(self) -> None:
        """Go to the search page of a new session."""
        self.results: list[int] = []
        self.page = "search"
        self.results_page = 0
        self.asin = ""
        self.chosen: dict[str, str] = {}
        self.score: float | None = None
        self._actions_made = 0

    @property
    def catalogue(self) -> Catalogue:
        """The shop, shared by all instances of this process and therefore not part of a copy."""
        return self._shop.value

    @property
    def goal(self) -> Goal | None:
        """The goal of the episode; None before the first reset."""
        return None if self._goal_number is None else self.catalogue.goals[self._goal_number]

    @property
    def product(self) -> Product | None:
        """The product of the item page."""
        return self.catalogue.by_asin.get(self.asin)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Draw a goal and open the search page."""
        super().reset(seed=seed)
        span = self.catalogue.span(self.split)
        self._goal_number = span[int(self.np_random.integers(len(span)))]
        self._clear()
        return self.render(), {}

    def step(self, action: str) -> Step:
        """Search or click; an action that the page does not offer changes nothing."""
        _ = self.dynamics  # before the first reset this raises gymnasium's ResetNeeded
        call = parse_call(action, ("search", "click"))
        before = self._state()
        if call is None or self.score is not None or not self._act(*call):
            return self._result(0.0, valid=False, effective=False)
        self._actions_made += 1
        reward = 0.0 if self.score is None else float(self.score == 1.0) if self.binary else self.score
        return self._result(reward, valid=True, effective=self._state() != before)

    def _state(self) -> tuple:
        return self.page, self.results, self.results_page, self.asin, tuple(self.chosen.items())

    def _result(self, reward: float, *, valid: bool, effective: bool) -> Step:
        bought = self.score is not None
        return self.outcome(
            reward,
            terminated=bought,
            truncated=not bought and self._actions_made >= _MAX_STEPS,
            success=self.score == 1.0,
            valid=valid,
            effective=effective,
            score=self.score or 0.0,
            purchase=float(bought),
        )

    # -- the shop -----------------------------------------------------------------------------------------------------

    def _act(self, name: str, argument: str) -> bool:
        """Do an action if the page offers it; return whether it does."""
        if name == "search":
            if self.page != "search" or not argument:
                return False
            self.results, self.results_page, self.page = self.catalogue.index.search(argument, _FOUND), 0, "results"
            return True
        target = argument.lower()
        if target not in self.clickables():
            return False
        if target in BUTTONS:
            self._press(target)
        elif self.page == "results":
            self.asin, self.page, self.chosen = target, "item", {}
        else:
            self._choose(target)
        return True

    def _press(self, button: str) -> None:
        if button == _HOME:
            self.page = "search"
        elif button == _BUY:
            self.score, self.page = round(score(self.product, self.chosen, self.goal), 6), "receipt"
        elif button in _DETAILS:
            self.page = button
        elif self.page == "results":
            self.results_page += 1 if button == _NEXT else -1
        else:
            self.page = "results" if self.page == "item" else "item"

    def _choose(self, value: str) -> None:
        names = [name for name, values in self.product.options.items() if value in values]
        # In the rare case of one value under two names, the second click chooses it under the second name.
        self.chosen[next((name for name in names if self.chosen.get(name) != value), names[0])] = value

    def _shown(self) -> list[Product]:
        first = self.results_page * _PER_PAGE
        return [self.catalogue.products[place] for place in self.results[first : first + _PER_PAGE]]

    def clickables(self) -> list[str]:
        """Return the names that can be clicked on the page, in lower case."""
        if self.page == "results":
            last_page = (self.results_page + 1) * _PER_PAGE >= len(self.results)
            links = [_HOME] + [_PREVIOUS] * (self.results_page > 0) + [_NEXT] * (not last_page)
            return links + [product.asin.lower() for product in self._shown()]
        if self.page == "item":
            values = dict.fromkeys(value for values in self.product.options.values() for value in values)
            return [_HOME, _PREVIOUS, *self._details, _BUY, *values]
        return [_HOME, _PREVIOUS] if self.page in _DETAILS else []

    def available_actions(self) -> list[str]:
        """Return the available actions as the observation lists them."""
        return ["search[<words>]"] * (self.page == "search") + [f"click[{name}]" for name in self.clickables()]

    # -- pages as text ------------------------------------------------------------------------------------------------

    def render(self) -> str:
        """Return the instruction, the page and the available actions."""
        if self.goal is None:
            return ""
        lines = [f"Instruction: {self.goal.instruction}", *self._body()]
        if self.page != "receipt":
            lines.append(f"Available actions: {', '.join(self.available_actions())}")
        return "\n".join(lines)

    def _body(self) -> list[str]:
        if self.page == "search":
            return ["Search page"]
        if self.page == "results":
            lines = [f"Page {self.results_page + 1} (Total results: {len(self.results)})"]
            return lines + [f"[{p.asin.lower()}] {p.title}, ${p.price:.2f}" for p in self._shown()]
        product = self.product
        if self.page == "receipt":
            return [f"Bought {product.title}.", f"Score: {self.score:.3g}"]
        if self.page != "item":
            texts = {"description": (product.description,), "features": product.features}
            return [f"{self.page.capitalize()} of {product.title}", *texts.get(self.page, product.attributes)]
        lines = [product.title, f"Price: ${product.price:.2f}"]
        for name, values in product.options.items():
            picked = f" (chosen: {self.chosen[name]})" if name in self.chosen else ""
            lines.append(f"{name}: {', '.join(values)}{picked}")
        return lines

    # -- players ------------------------------------------------------------------------------------------------------

    def random_action(self, rng: np.random.Generator) -> str:
        """Return one of the available actions, each equally likely; a search is for two words of the instruction."""
        if self.page == "search":
            words = self.goal.instruction.split()
            return f"search[{' '.join(words[k] for k in rng.integers(len(words), size=2))}]"
        offered = self.available_actions()
        return offered[int(rng.integers(len(offered)))] if offered else ""

    def oracle(self) -> list[str]:
        """Return the actions that buy the goal's own product with its options; [] once something is bought.

        If a search for its title does not find it, the actions buy the best of the products found.
        """
        if self.goal is None or self.score is not None:
            return []
        title, catalogue = self.goal.product.title, self.catalogue
        found = catalogue.index.search(title, _FOUND)
        if not found:
            return []
        target = self._best(found)
        product = catalogue.products[target]
        on_item = self.page not in ("search", "results")
        if on_item and self.product is product:
            return [f"click[{_PREVIOUS}]"] * (self.page != "item") + self._finish(product, self.chosen)
        if self.page == "results" and target in self.results:
            return self._turn_pages(self.results.index(target), self.results_page) + self._open(product)
        plan = [f"click[{_HOME}]"] * (self.page != "search") + [f"search[{title}]"]
        return plan + self._turn_pages(found.index(target), 0) + self._open(product)

    def _best(self, found: list[int]) -> int:
        """Return the position of the goal's own product if it is among `found`, else of the one with the best score."""
        goal, products = self.goal, self.catalogue.products
        own = next((place for place in found if products[place] is goal.product), None)
        if own is not None:
            return own
        return max(found, key=lambda place: score(products[place], _wanted(products[place], goal), goal))

    def _turn_pages(self, place: int, page: int) -> list[str]:
        pages = place // _PER_PAGE - page
        return [f"click[{_NEXT if pages > 0 else _PREVIOUS}]"] * abs(pages)

    def _open(self, product: Product) -> list[str]:
        return [f"click[{product.asin.lower()}]", *self._finish(product, {})]

    def _finish(self, product: Product, chosen: dict[str, str]) -> list[str]:
        wanted = _wanted(product, self.goal)
        clicks = [f"click[{value}]" for name, value in wanted.items() if chosen.get(name) != value]
        return [*clicks, f"click[{_BUY}]"]


def _wanted(product: Product, goal: Goal) -> dict[str, str]:
    """Return the options of a product that the goal asks for, by name."""
    return {name: value for name, values in product.options.items() for value in values if value in goal.options}
