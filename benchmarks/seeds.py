"""Does the default recipe learn? Three seeds, one after another: a table, a picture and a JSON file.

    python benchmarks/seeds.py [--recipe nano/frozen_lake] [--seeds 10000 20000 30000] [--runs runs/seeds]

A seed whose run folder has a summary is not run again, so an interrupted sweep goes on where it stopped. A seed sets
the training levels and the sampling; the held-out levels are the same for all, and training never sees them.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import mean, stdev

from rich.console import Console
from rich.table import Table

from ragen_verl.runs.folder import RunFolder
from ragen_verl.runs.launch import train
from ragen_verl.runs.plots import learning_curve

ROOT = Path(__file__).parent.parent
COLUMNS = ("success", "return", "valid")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="nano/frozen_lake")
    parser.add_argument("--seeds", type=int, nargs="+", default=[10000, 20000, 30000])
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "seeds")
    options = parser.parse_args()
    console = Console()
    name = options.recipe.replace("/", "-")
    folders = [RunFolder(options.runs / f"{name}-seed{seed}") for seed in options.seeds]
    for seed, folder in zip(options.seeds, folders, strict=True):
        if not folder.summary.exists():
            code = train(options.recipe, [f"ragen.train.seed={seed}", f"ragen.run.dir={folder.path}"], folder, console)
            if code:
                raise SystemExit(code)
    summaries = [json.loads(folder.summary.read_text()) for folder in folders]
    versions = json.loads((folders[0].path / "versions.json").read_text())
    result = {"recipe": options.recipe, "runs": summaries, "gain": _gain(summaries), "versions": versions}
    (ROOT / "benchmarks" / "results" / f"{name}_seeds.json").write_text(json.dumps(result, indent=2) + "\n")
    picture = learning_curve(folders, ROOT / "docs" / f"{name}.png", f"{options.recipe}, {len(folders)} seeds")
    console.print(_table(summaries))
    console.print("held-out success gained: {mean:+.3f} ± {stdev:.3f} (mean and deviation)".format(**result["gain"]))
    console.print(f"picture: {picture}")


def _gain(summaries: list[dict]) -> dict[str, float]:
    gains = [one["after"]["success"] - one["before"]["success"] for one in summaries]
    return {"mean": mean(gains), "stdev": stdev(gains) if len(gains) > 1 else 0.0}


def _table(summaries: list[dict]) -> Table:
    table = Table(title="held out, before -> after")
    for column in ("seed", *COLUMNS, "steps", "seconds"):
        table.add_column(column, justify="right")
    for one in summaries:
        values = [f"{one['before'][key]:.3f} -> {one['after'][key]:.3f}" for key in COLUMNS]
        table.add_row(str(one["seed"]), *values, str(one["steps"]), f"{one['seconds']:.0f}")
    return table


if __name__ == "__main__":
    main()
