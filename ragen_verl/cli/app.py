"""The application: every command by its name, in the order of `--help`."""

from __future__ import annotations

import typer

from ragen_verl.cli.assess import EPILOG as ASSESS_EPILOG
from ragen_verl.cli.assess import assess
from ragen_verl.cli.console import TRACEBACK, Group
from ragen_verl.cli.convert import EPILOG as CONVERT_EPILOG
from ragen_verl.cli.convert import convert
from ragen_verl.cli.demonstrate import EPILOG as DEMONSTRATE_EPILOG
from ragen_verl.cli.demonstrate import demonstrate
from ragen_verl.cli.doctor import doctor
from ragen_verl.cli.env import group
from ragen_verl.cli.eval import EPILOG as EVAL_EPILOG
from ragen_verl.cli.eval import evaluate
from ragen_verl.cli.export import export
from ragen_verl.cli.gate import EPILOG as GATE_EPILOG
from ragen_verl.cli.gate import gate
from ragen_verl.cli.leaderboard import EPILOG as BOARD_EPILOG
from ragen_verl.cli.leaderboard import leaderboard
from ragen_verl.cli.qualify import EPILOG as QUALIFY_EPILOG
from ragen_verl.cli.qualify import qualify
from ragen_verl.cli.recipes import recipes
from ragen_verl.cli.report import report
from ragen_verl.cli.reproduce import EPILOG as REPRODUCE_EPILOG
from ragen_verl.cli.reproduce import reproduce
from ragen_verl.cli.resume import resume
from ragen_verl.cli.runs import group as runs
from ragen_verl.cli.sft import EPILOG as SFT_EPILOG
from ragen_verl.cli.sft import sft
from ragen_verl.cli.show import EPILOG as SHOW_EPILOG
from ragen_verl.cli.show import show
from ragen_verl.cli.sweep import sweep
from ragen_verl.cli.train import EPILOG, train
from ragen_verl.cli.verdict import verdict
from ragen_verl.cli.watch import watch

__all__ = ["app", "main"]

app = typer.Typer(
    name="ragen-verl",
    cls=Group,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Train language-model agents over many turns with stock verl.",
    epilog=f"{TRACEBACK}=1 shows where an error came from.",
)


def _version(wanted: bool) -> None:
    if wanted:
        from ragen_verl import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def main(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Train language-model agents over many turns with stock verl."""


app.command(epilog=EPILOG)(train)
app.command()(resume)
app.command(epilog=DEMONSTRATE_EPILOG)(demonstrate)
app.command(epilog=SFT_EPILOG)(sft)
app.command("eval", epilog=EVAL_EPILOG)(evaluate)
app.command(epilog=BOARD_EPILOG)(leaderboard)
app.command(epilog=ASSESS_EPILOG)(assess)
app.command(epilog=GATE_EPILOG)(gate)
app.command()(watch)
app.command()(report)
app.command(epilog=SHOW_EPILOG)(show)
app.command(epilog=CONVERT_EPILOG)(convert)
app.command(epilog=REPRODUCE_EPILOG)(reproduce)
for command in (sweep, verdict, export, doctor):
    app.command()(command)
app.command(epilog=QUALIFY_EPILOG)(qualify)
app.add_typer(runs, name="runs")
app.add_typer(group, name="env")
app.command()(recipes)
