"""Sweeps: several variants of a recipe with several seeds each. Missing runs are made, then all are compared.

    ragen-verl sweep benchmarks/sweeps/stability.yaml
    ragen-verl sweep tables/ragen_figure9     # of the package: its results beside those of a paper

A run whose folder has a summary is done, and an interrupted run is resumed, so the same command continues a sweep. Runs
are made one after the other, seed by seed, so that the present runs can be compared at any time.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import yaml
from ragen_lab.reproduce.experiment_protocol import ExperimentProtocol
from rich.console import Console
from rich.table import Table

from ragen_verl.config.schema import FILLED, parse
from ragen_verl.diagnostics.monitor import MonitorConfig, judge
from ragen_verl.errors import RecipeError, nearest
from ragen_verl.names import HELD_OUT_SUCCESS, STEP_SECONDS, SWEEPS
from ragen_verl.runs.folder import RunFolder
from ragen_verl.runs.launch import say, train
from ragen_verl.validation.composition import quoted

__all__ = ["Sweep", "commands", "comparison", "mean_and_deviation", "packaged", "results", "run", "table"]


@dataclass(frozen=True)
class Sweep:
    """A sweep's file.

    Attributes:
        name: the name of the folder of runs and of the results.
        recipe: the recipe of every run.
        seeds: `ragen.train.seed` of the repetitions.
        variants: name -> Hydra overrides; a list among them stands for its elements, so that YAML's anchors can be
            used.
        overrides: Hydra overrides of all runs.
        runs_of: variant -> `sweep/variant`, another one with equal settings, whose runs are taken.
        panels: title -> metric, for the plot.
        source: the publication of `published`.
        published: variant -> title of a panel -> the published best value of the run.
        protocol: the question to the runs and its decision rule; `ragen-verl reproduce` reads it.
    """

    name: str = field(metadata=FILLED)
    recipe: str = field(metadata=FILLED)
    seeds: tuple[int, ...] = field(metadata=FILLED)
    variants: dict[str, Any] = field(metadata=FILLED)
    overrides: tuple[str, ...] = ()
    runs_of: dict[str, Any] = field(default_factory=dict)
    panels: dict[str, Any] = field(default_factory=lambda: {"held-out success": HELD_OUT_SUCCESS})
    source: str = ""
    published: dict[str, Any] = field(default_factory=dict)
    protocol: ExperimentProtocol | None = None

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.runs_of) - set(self.variants)):
            raise RecipeError(f"runs_of.{unknown[0]} of the sweep {self.name} names a variant that it does not have.")
        for variant, values in self.published.items():
            if variant not in self.variants or not set(values) <= set(self.panels):
                raise RecipeError(
                    f"published.{variant} of the sweep {self.name} names a variant or a panel that it does not have."
                )
        if self.protocol:
            named = {panel for values in self.published.values() for panel in values}
            self.protocol.check(self.name, self.seeds, list(self.variants), list(self.panels), named)

    @classmethod
    def read(cls, path: Path) -> Sweep:
        """Read a sweep from its YAML file, or one of the package by its name.

        Raises:
            RecipeError: there is no such sweep, or a key is unknown, missing or of the wrong type.
        """
        if not path.is_file():
            known = packaged()
            if str(path) not in known:
                raise RecipeError(
                    f"There is no sweep {path}, as a YAML file or in the package: {nearest(path, list(known))}"
                )
            path = known[str(path)]
        try:
            found = yaml.safe_load(path.read_text("utf-8"))
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            raise RecipeError(f"{path} is no YAML, line {mark.line + 1}: {error.problem}.") from error
        except (OSError, ValueError) as error:
            raise RecipeError(f"{path} cannot be read: {error}.") from error
        return parse(cls, found, path.name)

    def runs(
        self, root: Path, only: Collection[str] = (), seeds: Collection[int] = ()
    ) -> Iterator[tuple[str, int, RunFolder]]:
        """Variant, seed and folder of every run, or of the runs of some variants or seeds, in their order.

        Raises:
            RecipeError: `only` names an unknown variant.
        """
        if unknown := sorted(set(only) - set(self.variants)):
            raise RecipeError(
                f"The sweep {self.name} has no variant {unknown[0]!r}; it has {', '.join(self.variants)}."
            )
        for seed in self.seeds:
            for variant in self.variants if not seeds or seed in seeds else ():
                if not only or variant in only:
                    yield variant, seed, RunFolder(root / self._runs_of(variant) / f"seed{seed}")

    def _runs_of(self, variant: str) -> str:
        return self.runs_of.get(variant, f"{self.name}/{variant}")

    def overrides_of(self, variant: str, seed: int, folder: RunFolder) -> list[str]:
        """The overrides of a run."""
        own = [f"ragen.train.seed={seed}", f"ragen.run.dir={quoted(str(folder.path))}"]
        variants = [one for part in self.variants[variant] for one in ([part] if isinstance(part, str) else part)]
        name = self._runs_of(variant).replace("/", "-")
        shown = name if re.fullmatch(r"[\w.-]+", name) else quoted(name)
        return [*self.overrides, *variants, *own, f"trainer.experiment_name={shown}"]


def packaged() -> dict[str, Path]:
    """Name -> file of the sweeps that come with the package."""
    root = Path(str(files("ragen_verl.recipes")))
    found = [path for folder in SWEEPS for path in sorted((root / folder).glob("*.yaml"))]
    return {f"{path.parent.name}/{path.stem}": path for path in found}


def commands(sweep: Sweep, root: Path, only: Collection[str] = ()) -> Iterator[str]:
    """The commands of the missing runs, for users with their own queue."""
    for variant, seed, folder in sweep.runs(root, only):
        if not folder.summary.exists():
            yield shlex.join(["ragen-verl", "train", sweep.recipe, *sweep.overrides_of(variant, seed, folder)])


def run(sweep: Sweep, root: Path, console: Console, only: Collection[str] = ()) -> int:
    """Make the missing runs.

    Args:
        sweep: the sweep.
        root: parent of the sweep's folder.
        console: the console on which runs show their progress.
        only: names of the variants to run; if there are none, all are run.

    Returns:
        The number of runs that failed; after a failed run the others still run.
    """
    failed = 0
    runs = list(sweep.runs(root, only))
    for number, (variant, seed, folder) in enumerate(runs, start=1):
        if folder.summary.exists():
            continue
        say(console, f"{sweep.name} {number}/{len(runs)}: {variant}, seed {seed}", style="bold")
        failed += train(sweep.recipe, sweep.overrides_of(variant, seed, folder), folder, console) != 0
    return failed


def results(sweep: Sweep, root: Path) -> dict[str, Any]:
    """The data for the table and the plot, from the runs that have been started.

    Returns:
        `runs`: for each run its variant, seed, summary (None while it runs), verdict, and the (step, value) pairs of
        held-out success and of every panel.
    """
    found = []
    for variant, seed, folder in sweep.runs(root):
        rows = folder.rows()
        if not rows:
            continue
        config = MonitorConfig.from_recipe(folder.ragen_block())
        found.append(
            {
                "variant": variant,
                "seed": seed,
                "summary": json.loads(folder.summary.read_text()) if folder.summary.exists() else None,
                "verdict": judge((row for row in rows if row["step"] > 0), config).record(),
                "step_seconds": mean(times)
                if (times := [row[STEP_SECONDS] for row in rows if STEP_SECONDS in row])
                else None,
                "held_out": _points(rows, HELD_OUT_SUCCESS),
                "series": {title: _points(rows, metric) for title, metric in sweep.panels.items()},
            }
        )
    return {"sweep": sweep.name, "recipe": sweep.recipe, "overrides": list(sweep.overrides), "runs": found}


def _points(rows: list[dict[str, Any]], metric: str) -> list[tuple[int, float]]:
    """(step, value) of the rows that have a metric."""
    return [(row["step"], row[metric]) for row in rows if metric in row]


def table(sweep: Sweep, found: dict[str, Any]) -> Table:
    """A table with one row per variant: mean and standard deviation over the finished seeds."""
    out = Table(title=f"{sweep.name}: held-out success, mean ± deviation over seeds", box=None, header_style="bold")
    for column in ("variant", "seeds", "before", "best", "last", "s a step", "verdicts"):
        out.add_column(column, justify="left" if column in ("variant", "verdicts") else "right")
    for variant in sweep.variants:
        runs = [one for one in found["runs"] if one["variant"] == variant and one["summary"]]
        held_out = [[value for _, value in one["held_out"]] for one in runs]
        held_out = [values for values in held_out if values]
        first, best, last = ([pick(values) for values in held_out] for pick in (lambda v: v[0], max, lambda v: v[-1]))
        verdicts = [_words(one["verdict"]) for one in runs]
        seconds = [one["step_seconds"] for one in runs]
        cells = [mean_and_deviation(values) for values in (first, best, last, seconds)]
        out.add_row(variant, str(len(runs)), *cells, "; ".join(verdicts))
    return out


def _words(verdict: dict[str, Any]) -> str:
    """A verdict's record in words: its findings, and what its status adds."""
    found = [f"{one['evidence']['level']}: {one['cause']} at {one['step']}" for one in verdict["findings"]]
    lost = [f"collapsed at {verdict['collapsed']['step']}"] if verdict["collapsed"] else []
    return ", ".join([*lost, *found]) or verdict["status"]


def comparison(sweep: Sweep, found: dict[str, Any]) -> Table:
    """A table of the best values of the runs beside the published ones, with a row for each published number."""
    out = Table(title=f"{sweep.name}: the best of a run, beside {sweep.source}", box=None, header_style="bold")
    for column in ("variant", "panel", "seeds", "here", "published"):
        out.add_column(column, justify="left" if column in ("variant", "panel") else "right")
    for variant, values in sweep.published.items():
        runs = [one["series"] for one in found["runs"] if one["variant"] == variant and one["summary"]]
        for title, value in values.items():
            best = [max(number for _, number in series[title]) for series in runs if series.get(title)]
            out.add_row(variant, title, str(len(best)), mean_and_deviation(best), f"{value:.3f}")
    return out


def mean_and_deviation(values: list[float]) -> str:
    """`mean ± deviation`; for one value the value, without values "-"."""
    if not values:
        return "-"
    return f"{mean(values):.3f} ± {stdev(values):.3f}" if len(values) > 1 else f"{values[0]:.3f}"
