"""A figure with the curves of an experiment's runs and the curves digitised from the paper."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from ragen_lab.reproduce.judgement import mean_of
from ragen_lab.reproduce.measure import label
from ragen_lab.reproduce.survival import survival_curve
from ragen_lab.reproduce.sweep import Sweep

__all__ = ["figure"]


def figure(sweep: Sweep, result: Mapping[str, Any], out: Path) -> Path:
    """Draw what decides first: survival steps with a tick for each run, or a dot for each run and a line at the mean.

    Then a panel for each metric: thin lines are runs, thick lines means of a variant up to the last step that all its
    runs have, dashed lines the paper's.

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
    rows = -(-(len(titles) + 1) // 2)
    picture = Figure(figsize=(11, 2.8 * rows), layout="constrained")
    deciding, *axes = picture.subplots(rows, 2, squeeze=False).ravel()
    _decides(deciding, sweep, result, variants, colours)
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


def _decides(
    panel: Any, sweep: Sweep, result: Mapping[str, Any], variants: list[str], colours: Mapping[str, str]
) -> None:
    """What the first deciding comparison is about: steps of survival with a tick a run, or a dot a run."""
    comparison = next((one for one in sweep.protocol.comparisons if one.decides), sweep.protocol.comparisons[0])
    statistic = sweep.protocol.statistic_of(comparison)
    name = label(statistic)
    values = {
        v: [run["values"][name] for run in result["runs"] if run["variant"] == v and _has(run, name)] for v in variants
    }
    values = {variant: found for variant, found in values.items() if found}
    panel.set_title(name, fontsize="small")
    panel.grid(alpha=0.3)
    if statistic.kind == "collapse":
        for variant, found in values.items():
            times = [(one["step"], one["collapsed"]) for one in found]
            last = max(step for step, _ in times)
            curve = [*survival_curve(times), (last, survival_curve(times)[-1][1])]
            panel.step(*zip(*curve, strict=True), where="post", color=colours[variant], linewidth=1.8)
            shares = [[share for step, share in curve if step <= at][-1] for at, _ in times]
            panel.plot([at for at, _ in times], shares, "|", color=colours[variant], markersize=9)
        panel.set(xlabel="step", ylim=(-0.03, 1.03))
        panel.set_ylabel("share of runs not collapsed", fontsize="small")
        return
    for place, (variant, found) in enumerate(values.items()):
        numbers = [mean_of(one) for one in found]
        panel.plot([place] * len(numbers), numbers, "o", color=colours[variant], alpha=0.7)
        panel.plot([place - 0.2, place + 0.2], [np.mean(numbers)] * 2, "-", color=colours[variant])
    panel.set_xticks(range(len(values)), list(values), fontsize="xx-small", rotation=12)


def _has(run: Mapping[str, Any], name: str) -> bool:
    return run["values"].get(name) is not None


def _mean(curves: list[list[list[float]]]) -> list[tuple[float, float]]:
    """(step, mean over runs) for every step that all runs have."""
    shared = sorted(set.intersection(*({step for step, _ in one} for one in curves)))
    found = [dict((step, value) for step, value in one) for one in curves]
    return [(step, float(np.mean([one[step] for one in found]))) for step in shared]
