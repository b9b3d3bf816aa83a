"""A run's learning curve as a picture: success in training and on the held-out seeds over the steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ragen_verl.run_folder import RunFolder

TRAIN, HELD_OUT = "train/success", "val-env/success"
SMOOTHING = 0.3
"""Weight of a new step in the moving average of training success, which is measured on few start states a step."""


def learning_curve(folders: Sequence[RunFolder], out: Path, title: str = "") -> Path:
    """Draws runs of one recipe into one picture.

    Args:
        folders: the runs, one colour each; more than one gets a legend by seed.
        out: where the PNG goes.
        title: above the axes.

    Returns:
        `out`.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for number, folder in enumerate(folders):
        rows, colour = folder.rows(), f"C{number}"
        train = [(row["step"], row[TRAIN]) for row in rows if TRAIN in row]
        held_out = [(row["step"], row[HELD_OUT]) for row in rows if HELD_OUT in row]
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
        smooth.append((step, value if not smooth else SMOOTHING * value + (1 - SMOOTHING) * smooth[-1][1]))
    return smooth
