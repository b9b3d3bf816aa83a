"""`ragen-verl reproduce`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table

from ragen_verl.cli.console import console
from ragen_verl.errors import RecipeError

if TYPE_CHECKING:
    from ragen_lab.reproduce.sweep import Sweep

__all__ = ["EPILOG", "reproduce"]

_PAGE, _OUT = Path("docs/reproduction.md"), Path("benchmarks/results/reproduction")

EPILOG = """Examples:

ragen-verl reproduce --list

ragen-verl reproduce e5 --seeds 1010000,2010000

ragen-verl reproduce ragen_figure9 --scale nano --dry-run

ragen-verl reproduce --report-only"""


def reproduce(
    item: str = typer.Argument(None, help="An experiment, such as e5, or a figure or table, such as ragen_figure9."),
    scale: str = typer.Option(
        None, "--scale", help="nano (two CPU cores) or paper (GPUs).  \\[default: the item's own]"
    ),
    seeds: str = typer.Option(None, "--seeds", help="Only these, separated by commas.  \\[default: the protocol's]"),
    only: list[str] = typer.Option((), "--only", help="A variant to run; may be repeated.  \\[default: all]"),
    list_items: bool = typer.Option(False, "--list", help="List all items: what they cost and their state."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Run nothing, print the commands of the missing runs."),
    report_only: bool = typer.Option(
        False, "--report-only", help=f"Run nothing; judge the finished runs. Without an item: all, and write {_PAGE}."
    ),
    jobs: int = typer.Option(1, "--jobs", min=1, help="Runs at a time without a GPU; what they print is in *.out."),
    page: bool = typer.Option(False, "--page", help=f"Write {_PAGE} from the results."),
    runs: Path = typer.Option(Path("runs/sweeps"), help="The folder of the runs; finished ones are not repeated."),
    out: Path = typer.Option(
        _OUT,
        help="The folder of results and pictures. Runs that a result there holds count and are not repeated.",
    ),
) -> None:
    """Run an experiment on a claim of the papers, judge it by its protocol, and keep every outcome.

    Finished runs are not repeated. With GPUs, as many runs go at once as fit. A run of other settings does not count
    and is named; a damaged one is set aside and repeated.
    """
    from ragen_lab.reproduce.catalogue import experiments, find

    if list_items:
        _list(list(experiments().values()), out)
    elif page:
        _write_page(out)
    elif item is None and report_only:
        for sweep in experiments().values():
            if (out / f"{sweep.name}.json").exists() or (runs / sweep.name).exists():
                _report(sweep, runs, out)
        _write_page(out)
    elif item is None:
        raise RecipeError("Name an item, or use --list or --page.")
    else:
        chosen = [_with_seeds(one, seeds) for one in find(item, scale)]
        wanted = _numbers(seeds)
        if dry_run:
            for sweep in chosen:
                _print_commands(sweep, runs, out, only, wanted)
            return
        failed = 0 if report_only else sum(_run(sweep, runs, out, only, wanted, jobs) for sweep in chosen)
        for sweep in chosen:
            _report(sweep, runs, out)
        raise typer.Exit(1 if failed else 0)


def _write_page(out: Path) -> None:
    from ragen_lab.reproduce.catalogue import experiments
    from ragen_lab.reproduce.page import page

    _PAGE.write_text(page(list(experiments().values()), out), "utf-8")
    _say(str(_PAGE))


def _numbers(seeds: str | None) -> list[int]:
    try:
        return [int(one) for one in seeds.split(",")] if seeds else []
    except ValueError:
        raise RecipeError(f"--seeds is {seeds!r} but has to be whole numbers separated by commas.") from None


def _with_seeds(sweep: Sweep, seeds: str | None) -> Sweep:
    """The sweep with further seeds; the protocol refuses those that come too near to others."""
    from dataclasses import replace

    return replace(sweep, seeds=tuple(dict.fromkeys([*sweep.seeds, *_numbers(seeds)])))


def _compose(recipe: str, overrides: list[str]) -> Mapping[str, Any]:
    from omegaconf import OmegaConf

    from ragen_verl.cli.prepare import prepare

    return OmegaConf.to_container(prepare(recipe, overrides, machine=False).config)


def _open_runs(
    sweep: Sweep, root: Path, out: Path, only: list[str], seeds: list[int]
) -> list[tuple[str, int, Any, Any]]:
    """Variant, seed, folder and state of the runs to start; what keeps others from counting is printed."""
    from ragen_lab.reproduce.results import DAMAGED, MISSING, OTHER, UNFINISHED, collect, earlier_result

    found = collect(sweep, root, _compose, only, earlier_result(sweep, out))
    left_out = {(one["variant"], one["seed"]): one for one in found["left_out"]}
    done = {(one["variant"], one["seed"]) for one in found["runs"]}
    wanted = []
    for variant, seed, folder in sweep.runs(root, only, seeds):
        one = left_out.get((variant, seed))
        state = one["state"] if one else MISSING
        if one and state == OTHER and folder.path.exists():
            _say(f"{folder.path} does not count, its settings differ: {one['why']}. Move it away to run it again.")
        if (variant, seed) not in done and (state in (MISSING, UNFINISHED, DAMAGED) or not folder.path.exists()):
            wanted.append((variant, seed, folder, state))
    return wanted


def _check(sweep: Sweep, variant: str, seed: int, folder: Any) -> None:
    """Refuse a variant before anything starts, or say what its episodes can need; its seeds are alike."""
    from ragen_verl.cli.fit import fit
    from ragen_verl.cli.prepare import prepare

    try:
        told = fit(prepare(sweep.recipe, sweep.overrides_of(variant, seed, folder)).config)
    except RecipeError as error:
        raise RecipeError(f"{sweep.name}, variant {variant}: {error}") from error
    if told:
        typer.echo(f"{variant}: {told}", err=True)


def _print_commands(sweep: Sweep, root: Path, out: Path, only: list[str], seeds: list[int]) -> None:
    from ragen_lab.reproduce.results import DAMAGED

    for variant, seed, folder, state in _open_runs(sweep, root, out, only, seeds):
        if state == DAMAGED:
            typer.echo(shlex.join(["mv", str(folder.path), f"{folder.path}.damaged"]))
        typer.echo(shlex.join(["ragen-verl", "train", sweep.recipe, *sweep.overrides_of(variant, seed, folder)]))


def _run(sweep: Sweep, root: Path, out: Path, only: list[str], seeds: list[int], jobs: int) -> int:
    """Runs what is missing and returns how many runs failed."""
    from ragen_lab.reproduce.results import DAMAGED, set_aside
    from ragen_lab.reproduce.schedule import Task, devices, spread

    from ragen_verl.runs.launch import train

    waiting = _open_runs(sweep, root, out, only, seeds)
    for variant in dict.fromkeys(variant for variant, *_ in waiting):
        _check(sweep, *next(one for one in waiting if one[0] == variant)[:3])
    for _, _, folder, state in waiting:
        if state == DAMAGED:
            _say(f"A damaged run is kept in {set_aside(folder)} and repeated.")
    calls = [(folder, sweep.overrides_of(variant, seed, folder)) for variant, seed, folder, _ in waiting]
    each = int(_compose(sweep.recipe, calls[0][1])["trainer"]["n_gpus_per_node"]) if calls else 1
    gpus = devices() if sweep.protocol.scale == "paper" else []
    if len(gpus) >= 2 * each or jobs > 1:
        tasks = [
            Task([sys.executable, "-m", "ragen_verl", "train", sweep.recipe, *overrides],
                 folder.path.with_name(f"{folder.path.name}.out"))
            for folder, overrides in calls
        ]  # fmt: skip
        places, each = (gpus, each) if len(gpus) >= 2 * each else ([""] * jobs, 1)
        _say(f"{len(tasks)} runs of {sweep.name}, {len(places) // each} at a time; what they print is in *.out.")
        return sum(code != 0 for code in spread(tasks, places, each))
    failed = 0
    for number, (folder, overrides) in enumerate(calls, start=1):
        _say(f"{sweep.name} {number}/{len(calls)}: {folder.path.parent.name}, {folder.path.name}")
        failed += train(sweep.recipe, overrides, folder, console()) != 0
    return failed


def _report(sweep: Sweep, root: Path, out: Path) -> None:
    from ragen_lab.reproduce.figures import figure
    from ragen_lab.reproduce.judgement import judge_result
    from ragen_lab.reproduce.page import COMPARISON_COLUMNS, LEVEL_COLUMNS, comparison_rows, level_rows
    from ragen_lab.reproduce.results import collect, earlier_result, write

    earlier = earlier_result(sweep, out)
    result = collect(sweep, root, _compose, earlier=earlier)
    for one in result["left_out"]:
        _say(f"{one['variant']}, seed {one['seed']}, is {one['state']}. {one['why']}")
    found = judge_result(sweep, result)
    if (lost := len(earlier["runs"]) - len(result["runs"])) > 0:
        _say(f"{lost} runs of {out / sweep.name}.json do not count today, so that it stays as it is.")
        return
    if not result["runs"]:
        _say(f"{found.sentence} Runs are looked for in {root / sweep.name}.")
        return
    tables = [(COMPARISON_COLUMNS, comparison_rows(found)), (LEVEL_COLUMNS, level_rows(found.levels))]
    for columns, rows in tables:
        if rows:
            console().print(_table(columns, rows))
    _say(found.sentence)
    _say(f"{write(result, out)} and {figure(sweep, result, out / f'{sweep.name}.png')}")


def _list(sweeps: list[Sweep], out: Path) -> None:
    from ragen_lab.reproduce.judgement import judge_result
    from ragen_lab.reproduce.page import cost, states
    from ragen_lab.reproduce.results import read

    there = any(out.glob("*.json"))
    results = {one.name: read(one.name, out) for one in sweeps}
    known = states([judge_result(one, results[one.name]) for one in sweeps]) if there else {}
    rows = [
        (
            one.name,
            ", ".join(one.protocol.covers),
            one.protocol.scale,
            cost(one, results[one.name]),
            known.get(one.name, "-"),
        )
        for one in sweeps
    ]
    console().print(_table(("item", "covers", "scale", "cost", "state"), rows))
    if not there:
        _say(
            f"The outcomes are not here: {out} has no results. The project's are in its repository, in {_OUT} "
            f"({_PAGE} there is the page of them): start the command there, or name the folder with --out."
        )


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*row)
    return table


def _say(text: str) -> None:
    console().print(text, highlight=False, soft_wrap=True)
