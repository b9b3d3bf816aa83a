"""The page docs/estimates.md: every paper recipe on one and on eight H100s.

python -m ragen_lab.qualify.estimates_page docs/estimates.md
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from omegaconf import OmegaConf
from ragen_lab.qualify.cards import CARDS, Card
from ragen_lab.qualify.estimate import ASSUMED, Estimate, estimate
from ragen_lab.qualify.memory_map import paper_recipes

from ragen_verl.validation.composition import compose

__all__ = ["estimated", "page", "section"]

_EIGHT = "hardware=gpu_h100_8"


def estimated(recipe: str, overrides: Sequence[str], card: Card) -> Estimate:
    """The estimate of a recipe.

    Raises:
        RecipeError: the recipe cannot be composed, or its model's shape is not known.
    """
    config = compose(recipe, overrides)
    OmegaConf.resolve(config)
    return estimate(OmegaConf.to_container(config), card)


def section(recipe: str) -> str:
    """A recipe's table: a row for each part, on one GPU as the recipe is, and on eight."""
    one, eight = (estimated(recipe, more, CARDS["h100"]) for more in ((), (_EIGHT,)))
    work = one.work
    lines = [
        f"## {recipe}",
        "",
        f"{work.rows} trajectories of {work.length:,} tokens in {work.turns} turn{'s' * (work.turns > 1)}, {work.kept} "
        f"of them for training in {work.updates} update{'s' * (work.updates > 1)}.",
        "",
        "| part | one: roofline, s | bound by | estimate, s | eight: roofline, s | bound by | estimate, s |",
        "|---|---|---|---|---|---|---|",
    ]
    for part, other in zip(one.parts, eight.parts, strict=True):
        cells = (f"{x.roofline:.2f} | {x.bound} | {x.estimate:.1f}" for x in (part, other))
        lines.append(f"| {part.name} | {' | '.join(cells)} |")
    sums = (f"**{x.roofline:.1f}** | | **{x.seconds:.1f}**" for x in (one, eight))
    lines += [f"| step | {' | '.join(sums)} |", ""]
    for name, found in (("one", one), ("eight", eight)):
        need = found.need
        lines.append(
            f"Memory of {name}, GB of {CARDS['h100'].gb:.1f}: {need.generating:.0f} generating, {need.pushing:.0f} "
            f"pushing weights, {need.updating:.0f} in the {need.moment}"
            + (f"; {need.host:.0f} wait in main memory." if need.host >= 1 else ".")
        )
    return "\n".join(lines) + "\n"


def page() -> str:
    """The whole page."""
    head = (
        "# Estimates for H100s\n\n"
        "Computed by `python -m ragen_lab.qualify.estimates_page docs/estimates.md`; nothing here was measured. For "
        "another recipe or card: `ragen-verl qualify --estimate RECIPE [overrides] --card h200`.\n\n"
        "The roofline is the time at the rates of the data sheet (`lab/qualify/cards.py`), whichever bounds the "
        "part: arithmetic, memory bandwidth, the links between GPUs, or the way to main memory. The estimate is for "
        "what is installed without flash-attention, with the recipe's own hardware on one GPU and "
        "`hardware=gpu_h100_8` on eight (`lab/qualify/estimate.py`). With `mode=sync` the parts follow one another. "
        f"Assumed: {ASSUMED}\n\n"
        "Memory is computed with every row at its longest (`lab/qualify/memory.py`). RAGEN took 25 s for a step with a "
        "quarter of the groups, and 68 s with all.\n\n"
    )
    return head + "\n".join(section(recipe) for recipe in paper_recipes())


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), "utf-8")
