"""A generated shop for offline use: products and goals from word lists, the same in every process."""

from __future__ import annotations

import numpy as np
from ragen_envs.webshop.catalogue import Catalogue, Goal, Product, price_limit, with_limit

__all__ = ["build"]

_PRODUCTS = 1500
_GOALS_EACH = 2
_SEED = 20_220_704

_COLOUR = ("black", "white", "grey", "navy blue", "dark green", "red", "pink", "beige", "light brown", "purple")
_CLOTHING = ("x-small", "small", "medium", "large", "x-large", "xx-large")
_SHOE = tuple(f"{size}" for size in range(5, 13))
_WEAR: tuple[str, ...] = (
    "machine washable",
    "hand washable",
    "long sleeve",
    "short sleeve",
    "quick drying",
    "stretch fabric",
)
_WEAR += ("cotton spandex", "regular fit", "slim fit", "loose fit", "moisture wicking", "polyester lined")
_FEET = (
    "slip resistant",
    "rubber sole",
    "memory foam",
    "arch support",
    "lace up",
    "ankle strap",
    "wide toe",
    "leather",
)
_SKIN: tuple[str, ...] = (
    "cruelty free",
    "fragrance free",
    "paraben free",
    "long lasting",
    "alcohol free",
    "for sensitive skin",
    "vegan",
)
_SKIN += ("with vitamin c", "with coconut oil", "with hyaluronic acid")
_FOOD: tuple[str, ...] = (
    "gluten free",
    "low sugar",
    "non gmo",
    "keto friendly",
    "plant based",
    "high protein",
    "low carb",
    "dairy free",
)
_FOOD += ("certified organic", "no artificial colors", "resealable bag", "individually wrapped")
_TECH: tuple[str, ...] = (
    "fast charging",
    "easy to install",
    "noise cancelling",
    "water resistant",
    "wireless",
    "high speed",
    "plug and play",
)
_TECH += ("carrying case included", "long battery life", "gold plated", "light weight", "heavy duty")
_HOME: tuple[str, ...] = (
    "easy to clean",
    "easy to assemble",
    "space saving",
    "solid wood",
    "steel frame",
    "non slip",
    "eco friendly",
)
_HOME += ("dishwasher safe", "bpa free", "scratch resistant", "hand painted", "heat resistant")

#: (noun, levels of category, attributes, options, lowest and highest price)
_KINDS = (
    ("rain jacket", "Fashion › Women › Coats", _WEAR, {"size": _CLOTHING, "color": _COLOUR}, (20, 90)),
    ("hoodie", "Fashion › Men › Sweatshirts", _WEAR, {"size": _CLOTHING, "color": _COLOUR}, (15, 60)),
    ("yoga pants", "Fashion › Women › Trousers", _WEAR, {"size": _CLOTHING, "color": _COLOUR}, (12, 50)),
    ("swim shorts", "Fashion › Men › Swimwear", _WEAR, {"size": _CLOTHING, "color": _COLOUR}, (10, 45)),
    ("summer dress", "Fashion › Women › Dresses", _WEAR, {"size": _CLOTHING, "color": _COLOUR}, (18, 80)),
    ("polo shirt", "Fashion › Men › Shirts", _WEAR, {"size": _CLOTHING, "color": _COLOUR}, (12, 55)),
    ("hiking boots", "Fashion › Men › Shoes", _FEET, {"size": _SHOE, "color": _COLOUR}, (35, 160)),
    ("running sneakers", "Fashion › Women › Shoes", _FEET, {"size": _SHOE, "color": _COLOUR}, (30, 140)),
    ("garden clogs", "Fashion › Unisex › Shoes", _FEET, {"size": _SHOE, "color": _COLOUR}, (15, 60)),
    ("face cream", "Beauty › Skin Care › Moisturizers", _SKIN, {"size": ("1 ounce", "2 ounce", "4 ounce")}, (8, 60)),
    ("shampoo", "Beauty › Hair Care › Shampoos", _SKIN, {"scent": ("lemon", "rosemary", "unscented")}, (6, 35)),
    ("lip balm", "Beauty › Makeup › Lips", _SKIN, {"flavor name": ("cherry", "mint", "vanilla", "honey")}, (3, 18)),
    ("body lotion", "Beauty › Skin Care › Body", _SKIN, {"scent": ("lavender", "almond", "citrus")}, (7, 40)),
    ("granola bars", "Grocery › Snacks › Bars", _FOOD, {"flavor name": ("berry", "cocoa", "peanut", "apple")}, (5, 30)),
    ("green tea", "Grocery › Drinks › Tea", _FOOD, {"size": ("20 count", "50 count", "100 count")}, (5, 35)),
    ("protein powder", "Grocery › Health › Powders", _FOOD, {"flavor name": ("vanilla", "cocoa", "plain")}, (18, 75)),
    ("potato chips", "Grocery › Snacks › Chips", _FOOD, {"flavor name": ("salt", "paprika", "vinegar")}, (3, 25)),
    ("headphones", "Electronics › Audio › Headphones", _TECH, {"color": _COLOUR[:5]}, (20, 250)),
    ("usb cable", "Electronics › Accessories › Cables", _TECH, {"size": ("3 feet", "6 feet", "10 feet")}, (5, 30)),
    ("phone case", "Electronics › Accessories › Cases", _TECH, {"color": _COLOUR}, (6, 40)),
    ("portable speaker", "Electronics › Audio › Speakers", _TECH, {"color": _COLOUR[:6]}, (18, 180)),
    ("tablet stand", "Electronics › Accessories › Stands", _TECH, {"style": ("foldable", "fixed")}, (9, 50)),
    ("bookshelf", "Home › Furniture › Shelves", _HOME, {"color": _COLOUR[:4], "size": ("3-tier", "5-tier")}, (40, 220)),
    ("desk lamp", "Home › Lighting › Lamps", _HOME, {"color": _COLOUR[:5]}, (15, 90)),
    ("coffee mug", "Home › Kitchen › Mugs", _HOME, {"color": _COLOUR, "size": ("10 ounce", "16 ounce")}, (6, 30)),
    ("throw pillow", "Home › Bedding › Pillows", _HOME, {"color": _COLOUR, "size": ("16 inch", "20 inch")}, (9, 45)),
    ("bath mat", "Home › Bath › Mats", _HOME, {"color": _COLOUR, "size": ("17 x 24", "20 x 32")}, (9, 50)),
    ("office chair", "Home › Furniture › Chairs", _HOME, {"color": _COLOUR[:4]}, (60, 350)),
)
_words = str.split
_FIRST = _words("Al Ber Cor Dal El Fen Gor Hal Ist Jun Kel Lor Mar Nor Or Pel Quin Ros Sol Tar Ul Ver Wil Yar Zen")
_LAST = _words("ado bex dine evo fora gan ika lux mira nova olt pira quo rana sta tiva vane wick xo yra")
_SERIES = _words("Classic Daily Prime Nordic Urban Alpine Coastal Studio Family Travel Heritage Meadow Harbor Summit")


def build(products: int | None = None) -> Catalogue:
    """Generate the shop: `products` products, by default 1,500, with two goals each."""
    rng = np.random.default_rng(_SEED)
    made = [_product(number, rng) for number in range(products or _PRODUCTS)]
    return Catalogue.of(made, [goal for product in made for goal in _goals(product, rng)])


def _some(rng: np.random.Generator, things: tuple[str, ...], number: int) -> list[str]:
    return [things[k] for k in rng.choice(len(things), min(number, len(things)), replace=False)]


def _product(number: int, rng: np.random.Generator) -> Product:
    noun, category, pool, options, (low, high) = _KINDS[number % len(_KINDS)]
    brand = _FIRST[rng.integers(len(_FIRST))] + _LAST[rng.integers(len(_LAST))]
    attributes = _some(rng, pool, int(rng.integers(3, 6)))
    offered = {}
    for name, values in options.items():
        kept = set(_some(rng, values, int(rng.integers(2, 8))))
        offered[name] = tuple(value for value in values if value in kept)
    letters = "BCDFGHJKLMNPQRSTVWXZ"
    asin = "B0" + "".join(letters[k] for k in rng.integers(20, size=4)) + f"{number:04d}"
    series = _SERIES[rng.integers(len(_SERIES))]
    return Product(
        asin=asin,
        title=f"{brand} {series} {noun.title()}, {attributes[0].title()}, {attributes[1].title()}",
        description=f"The {series} {noun} by {brand} is {', '.join(attributes[:-1])} and {attributes[-1]}.",
        features=tuple(f"{attribute.capitalize()}: made for every day." for attribute in attributes),
        attributes=tuple(attributes),
        options=offered,
        price=round(float(rng.uniform(low, high)), 2),
        query=noun,
        product_category=category,
    )


def _goals(product: Product, rng: np.random.Generator) -> list[Goal]:
    """Draw different goals, since the same goal must not be in two splits."""
    goals: dict[tuple, Goal] = {}
    while len(goals) < _GOALS_EACH:
        goal = _goal(product, rng)
        goals.setdefault((frozenset(goal.attributes), goal.options), goal)
    return list(goals.values())


def _goal(product: Product, rng: np.random.Generator) -> Goal:
    attributes = _some(rng, product.attributes, int(rng.integers(2, 4)))
    options = {name: values[rng.integers(len(values))] for name, values in product.options.items()}
    limit = price_limit(product.price, rng)
    wanted = ", and ".join(f"{name}: {value}" for name, value in options.items())
    text = f"Find me {product.query}, {', '.join(attributes)}, with {wanted}"
    return Goal(product, with_limit(text, limit), tuple(attributes), tuple(options.values()), limit)
