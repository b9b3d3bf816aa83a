"""The learning curve of runs of one recipe."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from ragen_verl.names import HELD_OUT_SUCCESS, TRAIN_SUCCESS
from ragen_verl.runs.folder import RunFolder

__all__ = ["learning_curve"]

_SMOOTHING = 0.3
"""Weight of a new step in the moving average of training success, which has few initial states in each step."""


def learning_curve(folders: Sequence[RunFolder], out: Path, title: str = "") -> Path | None:
    """Draw runs of one recipe in one plot.

    Args:
        folders: the runs, one colour each; several runs get a legend with their seeds.
        out: the PNG file to write.
        title: the title above the axes.

    Returns:
        `out`; None, and nothing is drawn, where matplotlib is missing, which a run does not need.
    """
    if find_spec("matplotlib") is None:
        return None
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for number, folder in enumerate(folders):
        rows, colour = folder.rows(), f"C{number}"
        train = [(row["step"], row[TRAIN_SUCCESS]) for row in rows if TRAIN_SUCCESS in row]
        held_out = [(row["step"], row[HELD_OUT_SUCCESS]) for row in rows if HELD_OUT_SUCCESS in row]
        axes.plot(*zip(*_smooth(train), strict=True), color=colour, alpha=0.5, linewidth=1)
        axes.plot(*zip(*held_out, strict=True), color=colour, marker="o", label=folder.path.name)
    axes.plot([], [], color="grey", alpha=0.5, linewidth=1, label="in training (moving average)")
    axes.plot([], [], color="grey", marker="o", label="on held-out seeds")
    axes.set(xlabel="step", ylabel="success", title=title, ylim=(0, 1))
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", fontsize="small")
    FigureCanvasAgg(figure).print_png(str(out))
    return out


def _smooth(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    smooth: list[tuple[int, float]] = []
    for step, value in points:
        smooth.append((step, value if not smooth else _SMOOTHING * value + (1 - _SMOOTHING) * smooth[-1][1]))
    return smooth
