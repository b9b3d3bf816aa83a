"""Every command of the laboratory by its name, in the order of `--help`."""

from __future__ import annotations

import typer
from ragen_lab.cli.bench import EPILOG as BENCH_EPILOG
from ragen_lab.cli.bench import bench
from ragen_lab.cli.collect import EPILOG as COLLECT_EPILOG
from ragen_lab.cli.collect import collect
from ragen_lab.cli.convert import EPILOG as CONVERT_EPILOG
from ragen_lab.cli.convert import convert
from ragen_lab.cli.diagnose import diagnose
from ragen_lab.cli.eval import EPILOG as EVAL_EPILOG
from ragen_lab.cli.eval import evaluate
from ragen_lab.cli.export import export
from ragen_lab.cli.gate import EPILOG as GATE_EPILOG
from ragen_lab.cli.gate import gate
from ragen_lab.cli.leaderboard import EPILOG as BOARD_EPILOG
from ragen_lab.cli.leaderboard import leaderboard
from ragen_lab.cli.qualify import EPILOG as QUALIFY_EPILOG
from ragen_lab.cli.qualify import qualify
from ragen_lab.cli.report import report
from ragen_lab.cli.reproduce import EPILOG as REPRODUCE_EPILOG
from ragen_lab.cli.reproduce import reproduce
from ragen_lab.cli.runs import group as runs
from ragen_lab.cli.score import EPILOG as SCORE_EPILOG
from ragen_lab.cli.score import score
from ragen_lab.cli.sft import EPILOG as SFT_EPILOG
from ragen_lab.cli.sft import sft
from ragen_lab.cli.show import EPILOG as SHOW_EPILOG
from ragen_lab.cli.show import show
from ragen_lab.cli.sweep import sweep
from ragen_lab.cli.watch import watch

__all__ = ["add_commands", "add_env_commands"]

_PANEL = "Laboratory"
_COMMANDS = (
    (watch, None),
    (report, None),
    (show, SHOW_EPILOG),
    (diagnose, None),
    (evaluate, EVAL_EPILOG),
    (leaderboard, BOARD_EPILOG),
    (bench, BENCH_EPILOG),
    (score, SCORE_EPILOG),
    (gate, GATE_EPILOG),
    (sweep, None),
    (reproduce, REPRODUCE_EPILOG),
    (collect, COLLECT_EPILOG),
    (sft, SFT_EPILOG),
    (export, None),
    (convert, CONVERT_EPILOG),
    (qualify, QUALIFY_EPILOG),
)


def add_commands(app: typer.Typer) -> None:
    """Add the laboratory's commands to the application."""
    for command, epilog in _COMMANDS:
        name = "eval" if command is evaluate else None
        app.command(name, epilog=epilog, rich_help_panel=_PANEL)(command)
    app.add_typer(runs, name="runs", rich_help_panel=_PANEL)


def add_env_commands(env: typer.Typer) -> None:
    """Add `check` to the group `env`."""
    from ragen_lab.cli.env_check import check_environment  # it loads gymnasium

    env.command("check")(check_environment)
