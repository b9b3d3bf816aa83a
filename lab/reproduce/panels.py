"""The panels of a sweep: one plot a metric."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["sweep_figure"]


def sweep_figure(found: dict[str, Any], out: Path) -> Path:
    """Draw `ragen_lab.reproduce.sweep.results`: one panel per metric, one colour per variant, one line per seed.

    Args:
        found: the results; every run has the same panels.
        out: the PNG file to write.

    Returns:
        `out`.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    titles = list(found["runs"][0]["series"])
    variants = list(dict.fromkeys(run["variant"] for run in found["runs"]))
    rows = -(-len(titles) // 2)
    figure = Figure(figsize=(10, 2.6 * rows), layout="constrained")
    panels = figure.subplots(rows, 2, squeeze=False, sharex=True).ravel()
    for axes, title in zip(panels, titles, strict=False):
        for run in found["runs"]:
            colour, points = f"C{variants.index(run['variant'])}", run["series"][title]
            if not points:
                continue
            axes.plot(*zip(*points, strict=True), color=colour, alpha=0.7, linewidth=1)
            warned = run["verdict"]["first_warning"]
            at_warning = [point for point in points if point[0] == warned]
            axes.plot(*zip(*at_warning, strict=True), "v", color=colour) if at_warning else None
        axes.set_title(title, fontsize="medium")
        axes.grid(alpha=0.3)
    for number, variant in enumerate(variants):
        panels[0].plot([], [], color=f"C{number}", label=variant)
    panels[0].plot([], [], "v", color="grey", label="first warning")
    panels[0].legend(fontsize="small")
    for axes in panels[len(titles) :]:
        axes.set_visible(False)
    for axes in panels[len(titles) - 2 : len(titles)]:
        axes.set_xlabel("step")
        axes.tick_params(labelbottom=True)
    FigureCanvasAgg(figure).print_png(str(out))
    return out
