"""Read the product files of the original WebShop: items_shuffle, items_ins_v2 and items_human_ins.

The WebShop paper (arXiv 2207.01206) and its released data describe their format. Any subset in that format can be used,
also under the names that end in _1000.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from itertools import product as combinations
from pathlib import Path
from typing import Any

import numpy as np
from ragen_envs.common.lines import sanitise
from ragen_envs.webshop.catalogue import Catalogue, Goal, Product, clickable_options, price_limit, typable, with_limit

from ragen_verl.errors import RecipeError

__all__ = ["load"]

_NO_PRICE = 100.0
_MOST_COMBINATIONS = 100
_AMOUNT = re.compile(r"\d[\d,]*(?:\.\d+)?")


def load(data_dir: str, products: int | None = None) -> Catalogue:
    """Read a folder; `products` limits the number of products, from the first on.

    If the file items_human_ins exists, the goals are those that people wrote; else they are the synthetic ones of
    items_ins_v2: one for every combination of options, at most 100 per product. Goals without attributes are left out.

    Raises:
        RecipeError: a file is missing or is not in this format, or no goal is left.
    """
    folder = Path(data_dir)
    items = _read(folder, "items_shuffle", list)
    attributes = _read(folder, "items_ins_v2", dict)
    human = _read(folder, "items_human_ins", dict, optional=True)
    found: dict[str, Product] = {}
    goals: list[Goal] = []
    try:
        for item in items[:products]:
            asin = typable(item["asin"])
            if not asin or asin == "nan" or len(asin) > 10 or asin in found:
                continue
            made = attributes.get(asin) or {}
            found[asin] = _product(asin, item, made.get("attributes") or ())
            rng = np.random.default_rng(zlib.crc32(asin.encode()))
            goals += _synthetic(found[asin], made, rng) if human is None else _human(found[asin], human, rng)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RecipeError(
            f"WebShop's data_dir {data_dir!r} holds a product that is not in the original format: {error!r}."
        ) from error
    if not goals:
        raise RecipeError(f"WebShop's data_dir {data_dir!r} gives no goal: its products need instruction attributes.")
    return Catalogue.of(list(found.values()), goals)


def _read(folder: Path, name: str, kind: type, optional: bool = False) -> Any:
    path = next((path for path in (folder / f"{name}.json", folder / f"{name}_1000.json") if path.is_file()), None)
    if path is None:
        if optional:
            return None
        raise RecipeError(f"WebShop's data_dir {str(folder)!r} has no {name}.json: put the original's files there.")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RecipeError(f"{path} is no JSON ({error}).") from error
    if not isinstance(content, kind):
        raise RecipeError(f"{path} must hold a JSON {'array' if kind is list else 'object'}.")
    return content


def _product(asin: str, item: Mapping[str, Any], attributes: tuple[str, ...]) -> Product:
    bullets = item.get("small_description") or ()
    raw = item.get("customization_options") or {}
    options = {
        name: [entry["value"].strip().replace("/", " | ") for entry in entries]
        for name, entries in raw.items()
        if entries
    }
    return Product(
        asin=asin,
        title=sanitise(item["name"], 400),
        description=sanitise(item.get("full_description") or "", 4000),
        features=tuple(sanitise(line, 600) for line in ([bullets] if isinstance(bullets, str) else bullets)),
        attributes=tuple(sanitise(attribute, 200) for attribute in attributes),
        options=clickable_options(options),
        price=_price(asin, item.get("pricing")),
        query=sanitise(item["query"], 200).lower(),
        product_category=sanitise(item["product_category"], 400),
    )


def _price(asin: str, tag: str | None) -> float:
    """Return the price in a tag such as "$12.99"; for "$10 to $15" a price between, which depends on the asin alone."""
    amounts = [float(text.replace(",", "")) for text in _AMOUNT.findall(tag or "")][:2]
    if not amounts:
        return _NO_PRICE
    if len(amounts) == 1:
        return amounts[0]
    return round(float(np.random.default_rng(zlib.crc32(asin.encode())).uniform(min(amounts), max(amounts))), 2)


def _human(product: Product, human: Mapping[str, Any], rng: np.random.Generator) -> list[Goal]:
    goals = []
    for entry in human.get(product.asin, ()):
        asked = entry["instruction_options"]
        values = asked.values() if isinstance(asked, Mapping) else asked
        goals.append(_goal(product, entry["instruction"].strip("."), entry["instruction_attributes"], values, rng))
    return [goal for goal in goals if goal.attributes]


def _synthetic(product: Product, made: Mapping[str, Any], rng: np.random.Generator) -> list[Goal]:
    instruction, attributes = made.get("instruction"), made.get("instruction_attributes")
    if not instruction or not attributes:
        return []
    names = sorted(product.options)
    goals = []
    for values in list(_first_combinations(product, names)):
        wanted = ", and ".join(f"{name}: {value}" for name, value in zip(names, values, strict=True))
        text = f"{instruction} with {wanted}" if wanted else instruction
        goals.append(_goal(product, text, attributes, values, rng))
    return goals


def _first_combinations(product: Product, names: list[str]) -> list[tuple[str, ...]]:
    ways = combinations(*(product.options[name] for name in names))
    return [way for way, _ in zip(ways, range(_MOST_COMBINATIONS), strict=False)]


def _goal(product: Product, text: str, attributes: Any, values: Any, rng: np.random.Generator) -> Goal:
    limit = price_limit(product.price, rng)
    return Goal(
        product=product,
        instruction=with_limit(sanitise(text, 1000), limit),
        attributes=tuple(sanitise(attribute, 200).lower() for attribute in attributes),
        options=tuple(typable(value).lower() for value in values),
        price_upper=limit,
    )
