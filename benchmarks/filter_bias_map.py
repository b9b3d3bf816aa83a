"""Where does StarPO-S's filter turn the push around? Exact, over the steady arm's payout and the chance of a risky
pull.

As in filter_bias.py: 16 groups of 8 pulls, the 4 with the largest standard deviation are kept, advantages are
centred. Two risky arms: one skewed to the right (1 in a quarter of the pulls, 0.25 on average) and one skewed to the
left (0.6 in three quarters, 0.45 on average). A number is the expected push of a kept pull over that of a pull
without a filter; below 0 the worse arm is learned.

    python benchmarks/filter_bias_map.py
"""

from __future__ import annotations

import json
from math import factorial
from pathlib import Path

import numpy as np
from filter_bias import SIZE, Kind, expected, top_k

from ragen_verl.filter.scores import std

RESULT = Path(__file__).parent / "results" / "filter_bias_map.json"
ARMS = {"1 in a quarter of the pulls": (1.0, 0.25), "0.6 in three quarters of the pulls": (0.6, 0.75)}
LOWS = tuple(round(0.02 * place, 2) for place in range(1, 31))
PULLS = tuple(round(0.05 * place, 2) for place in range(1, 20))


def groups_of(p: float, low: float, win: float, chance: float) -> tuple[Kind, ...]:
    """Every count (steady, paid, unpaid) of a group of 8 pulls."""
    found = []
    for paid in range(SIZE + 1):
        for unpaid in range(SIZE + 1 - paid):
            steady = SIZE - paid - unpaid
            ways = factorial(SIZE) // (factorial(steady) * factorial(paid) * factorial(unpaid))
            share = ways * (1 - p) ** steady * (p * chance) ** paid * (p * (1 - chance)) ** unpaid
            returns = np.array([low] * steady + [win] * paid + [0.0] * unpaid)
            arms = np.array([0] * steady + [1] * (paid + unpaid))
            push = {name: float((returns - returns.mean()) @ (arms - p)) for name in ("centred", "value")}
            found.append(Kind(share, round(std(returns), 12), push, tuple(returns.tolist()), tuple(arms.tolist())))
    return tuple(found)


def push(p: float, low: float, win: float, chance: float) -> float:
    """The push of a kept pull over that of a pull without a filter; nan where both arms pay the same."""
    groups = groups_of(p, low, win, chance)
    free = expected(groups, [1.0] * len(groups))["centred"]
    return expected(groups, top_k(groups, 4, 16))["centred"] / free if abs(free) > 1e-12 else float("nan")


def main() -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    picture = Figure(figsize=(11, 4.2), layout="constrained")
    found = {}
    for panel, (name, (win, chance)) in zip(picture.subplots(1, 2), ARMS.items(), strict=True):
        table = np.array([[push(p, low, win, chance) for low in LOWS] for p in PULLS])
        found[name] = {"low": LOWS, "p": PULLS, "push": np.round(table, 3).tolist()}
        edges = (LOWS[0] - 0.01, LOWS[-1] + 0.01, PULLS[0] - 0.025, PULLS[-1] + 0.025)
        shown = panel.imshow(table, origin="lower", aspect="auto", extent=edges, cmap="RdBu", vmin=-4, vmax=4)
        panel.contour(LOWS, PULLS, table, levels=[0.0], colors="black", linewidths=1)
        panel.axvline(win * chance, color="black", linestyle=":")
        panel.set(title=f"risky arm: {name}", xlabel="steady arm's payout", ylabel="chance of a risky pull")
        picture.colorbar(shown, ax=panel, label="push, filtered / unfiltered")
    FigureCanvasAgg(picture).print_png(str(RESULT.with_suffix(".png")))
    RESULT.write_text(json.dumps(found).replace("NaN", "null") + "\n")
    for name, one in found.items():
        wrong = [
            (low, p)
            for p, row in zip(PULLS, one["push"], strict=True)
            for low, x in zip(LOWS, row, strict=True)
            if x < 0
        ]
        lows = sorted({low for low, _ in wrong})
        print(
            f"{name}: wrong sign in {len(wrong)} of {len(LOWS) * len(PULLS)} cells, steady arm {lows[0]} to {lows[-1]}"
        )


if __name__ == "__main__":
    main()
