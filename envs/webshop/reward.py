"""The score of a purchase: WebShop's formula (arXiv 2207.01206, section 3, and its released code).

score = r_type * (matched attributes + matched options + [price within the limit])
               / (attributes asked for + options asked for + 1)
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ragen_envs.webshop.catalogue import Goal, Product

__all__ = ["common_subsequence", "score", "token_set_ratio", "type_score"]

_ALIKE = 85
_WORD = re.compile(r"[^\W_]+")
# In alphabetical order, as in the original, so that "navy blue" counts as blue.
_COLOURS = _WORD.findall(
    "aqua beige black blue bronze brown burgundy copper coral cream cyan gold gray green grey indigo ivory khaki "
    "lavender lime magenta maroon mint multicolor mustard navy olive orange peach pink purple red rose silver tan teal "
    "turquoise violet walnut white yellow"
)
# Words of titles that are no nouns. The original uses a tagger; here these words, words with certain suffixes, and
# numbers are left out.
_NO_NOUN = re.compile(
    r"an?|and|as|at|by|extra|for|from|great|high|in|its|large|long|low|mini|more|new|of|on|or|our|pack|per|premium|small"
    r"|super|the|this|to|ultra|very|with|without|your?|\d.*|.{2,}(?:able|ible|proof|less|ful|ous|free|(?<!e)ed)"
)


def score(product: Product, chosen: Mapping[str, str], goal: Goal) -> float:
    """Return the score, 0 to 1, of buying `product` with the options `chosen` (name -> value)."""
    attributes = sum(_has_attribute(product, attribute) for attribute in goal.attributes)
    options = _matched_options(chosen, goal)
    within = product.price <= goal.price_upper
    asked = len(goal.attributes) + len(goal.options) + 1
    return type_score(product, goal.product) * (attributes + options + within) / asked


def type_score(bought: Product, wanted: Product) -> float:
    """Return how well the kinds of two products agree: 1, 0.5, 0.1 or 0.

    It is lower the fewer of the wanted title's nouns the bought title has; 0.5 needs neither the same query nor two
    common levels of category.
    """
    nouns, wanted_nouns = _nouns(bought.title), _nouns(wanted.title)
    share = len(nouns & wanted_nouns) / len(wanted_nouns) if wanted_nouns else 0.2
    if share == 0.0:
        return 0.0
    if share < 0.1:
        return 0.1
    levels = [{level.strip() for level in one.product_category.split("›")} for one in (bought, wanted)]
    alike = bought.query == wanted.query or len(levels[0] & levels[1]) >= 2 or share > 0.2
    return 1.0 if alike else 0.5


def _nouns(title: str) -> set[str]:
    words = _WORD.findall(title.lower())
    return {word for word in words if not _NO_NOUN.fullmatch(word)}


def _has_attribute(product: Product, attribute: str) -> bool:
    return any(token_set_ratio(own, attribute) > _ALIKE for own in product.attributes) or _mentions(product, attribute)


def _matched_options(chosen: Mapping[str, str], goal: Goal) -> int:
    """Return how many of the wanted options are among the chosen ones; the product's texts do not count."""
    values = [_plain_colour(value) for value in chosen.values()]
    wanted = [_plain_colour(value) for value in goal.options]
    return sum(any(token_set_ratio(value, other) > _ALIKE for value in values) for other in wanted)


def _mentions(product: Product, text: str) -> bool:
    return any(text in part.lower() for part in (product.title, " ".join(product.features), product.description))


def _plain_colour(value: str) -> str:
    return next((colour for colour in _COLOURS if colour in value), value)


def token_set_ratio(one: str, other: str) -> int:
    """Return the similarity of two texts as sets of words, 0 to 100 (the measure of that name in fuzzy matching).

    There are three strings: the common words, and the common words followed by the rest of either text. They are
    compared pairwise, and the best result counts. It is 100 if one text has all words of the other.
    """
    first, second = set(_WORD.findall(one.lower())), set(_WORD.findall(other.lower()))
    if not first or not second:
        return 0
    common = " ".join(sorted(first & second))
    if common and (first <= second or second <= first):
        return 100
    with_first, with_second = (
        f"{common} {' '.join(sorted(rest))}".strip() for rest in (first - second, second - first)
    )
    pairs = ((common, with_first), (common, with_second), (with_first, with_second))
    return round(max(_ratio(a, b) for a, b in pairs))


def _ratio(one: str, other: str) -> float:
    total = len(one) + len(other)
    return 200.0 * common_subsequence(one, other) / total if total else 0.0


def common_subsequence(one: str, other: str) -> int:
    """Return the length of the longest common subsequence, one bit of an integer per character of `one`."""
    places: dict[str, int] = {}
    for place, sign in enumerate(one):
        places[sign] = places.get(sign, 0) | 1 << place
    everything = unmatched = (1 << len(one)) - 1
    for sign in other:
        met = unmatched & places.get(sign, 0)
        unmatched = ((unmatched + met) | (unmatched - met)) & everything
    return len(one) - unmatched.bit_count()
