"""A figure with the curves of an experiment's runs and the curves digitised from the paper."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from ragen_lab.reproduce.sweep import Sweep

__all__ = ["figure"]


def figure(sweep: Sweep, result: Mapping[str, Any], out: Path) -> Path:
    """Draw a panel for each metric: thin lines are runs, thick lines means of a variant, dashed lines the paper's.

    Args:
        sweep: a sweep with a protocol.
        result: its result, with at least one run.
        out: the PNG file to write.

    Returns:
        `out`.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    titles = list(sweep.panels)
    variants = [name for name in sweep.variants if any(run["variant"] == name for run in result["runs"])]
    colours = {name: f"C{number % 10}" for number, name in enumerate(sweep.variants)}
    styles = {name: "-" if number < 10 else ":" for number, name in enumerate(sweep.variants)}
    rows = -(-len(titles) // 2)
    picture = Figure(figsize=(11, 2.8 * rows), layout="constrained")
    axes = picture.subplots(rows, 2, squeeze=False).ravel()
    for panel, title in zip(axes, titles, strict=False):
        for name in variants:
            curves = [run["curves"][title] for run in result["runs"] if run["variant"] == name and run["curves"][title]]
            for curve in curves:
                panel.plot(*zip(*curve, strict=True), styles[name], color=colours[name], alpha=0.2, linewidth=0.8)
            if curves:
                panel.plot(*zip(*_mean(curves), strict=True), styles[name], color=colours[name], linewidth=1.8)
        for curve in sweep.protocol.curves:
            if curve.panel == title:
                panel.plot(*zip(*curve.points, strict=True), "--", color=colours[curve.variant], linewidth=1.2)
        panel.set_title(title, fontsize="medium")
        panel.set_xlabel("step")
        panel.grid(alpha=0.3)
    for panel in axes[len(titles) :]:
        panel.set_visible(False)
    for name in variants:
        axes[0].plot([], [], styles[name], color=colours[name], label=name)
    if sweep.protocol.curves:
        axes[0].plot([], [], "--", color="grey", label="the paper's, digitised")
    axes[0].legend(fontsize="xx-small", ncols=2)
    FigureCanvasAgg(picture).print_png(str(out))
    return out


def _mean(curves: list[list[list[float]]]) -> list[tuple[float, float]]:
    """(step, mean over runs) for every step that all runs have."""
    shared = sorted(set.intersection(*({step for step, _ in one} for one in curves)))
    found = [dict((step, value) for step, value in one) for one in curves]
    return [(step, float(np.mean([one[step] for one in found]))) for step in shared]
