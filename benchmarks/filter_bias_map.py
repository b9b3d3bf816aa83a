"""Where does StarPO-S's filter turn the push around? Exact, over the steady arm's payout, the chance of a risky pull
and the skew of what the risky arm pays.

As in filter_bias.py: 16 groups of 8 pulls, the 4 with the largest standard deviation are kept, advantages are
centred. Two risky arms: one skewed to the right (1 in a quarter of the pulls, 0.25 on average) and one skewed to the
left (0.6 in three quarters, 0.45 on average); and, at a chance of a risky pull of 0.2, arms that pay 0.3 on average in
one tenth to nine tenths of the pulls. A number is the expected push of a kept pull over that of a pull
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
MEAN, PULLED = 0.3, 0.2  # of the arms that differ in skew
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


def skew(chance: float) -> float:
    """Of a payout that comes with a chance: the third standardised moment."""
    return (1 - 2 * chance) / (chance * (1 - chance)) ** 0.5


def tables() -> dict[str, np.ndarray]:
    """Title -> pushes, float64 of shape (PULLS, LOWS); the last one has the chance to pay in the place of PULLS."""
    found = {
        f"risky arm: {name}": np.array([[push(p, low, *arm) for low in LOWS] for p in PULLS])
        for name, arm in ARMS.items()
    }
    by_skew = [[push(PULLED, low, MEAN / chance, chance) for low in LOWS] for chance in PULLS]
    return {**found, f"risky arm: {MEAN:g} on average": np.array(by_skew)}


def main() -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    picture = Figure(figsize=(15, 4.2), layout="constrained")
    found = tables()
    means = [win * chance for win, chance in ARMS.values()] + [MEAN]
    for panel, mean, (name, table) in zip(picture.subplots(1, 3), means, found.items(), strict=True):
        edges = (LOWS[0] - 0.01, LOWS[-1] + 0.01, PULLS[0] - 0.025, PULLS[-1] + 0.025)
        shown = panel.imshow(table, origin="lower", aspect="auto", extent=edges, cmap="RdBu", vmin=-4, vmax=4)
        panel.contour(LOWS, PULLS, table, levels=[0.0], colors="black", linewidths=1)
        panel.axvline(mean, color="black", linestyle=":")
        panel.set(title=name, xlabel="steady arm's payout", ylabel="chance of a risky pull")
    ticks = (0.1, 0.25, 0.5, 0.75, 0.9)
    panel.set_ylabel(f"how often it pays (skew); risky pull: {PULLED:g}")
    panel.set_yticks(ticks, [f"{one:g} ({skew(one):+.1f})" for one in ticks])
    picture.colorbar(shown, ax=panel, label="push, filtered / unfiltered")
    FigureCanvasAgg(picture).print_png(str(RESULT.with_suffix(".png")))
    saved = {name: {"low": LOWS, "p": PULLS, "push": np.round(one, 3).tolist()} for name, one in found.items()}
    RESULT.write_text(json.dumps(saved).replace("NaN", "null") + "\n")
    for name, table in found.items():
        wrong = np.argwhere(table < 0)
        lows = sorted({LOWS[low] for _, low in wrong})
        print(f"{name}: wrong sign in {len(wrong)} of {table.size} cells, steady arm {lows[0]} to {lows[-1]}")


if __name__ == "__main__":
    main()
