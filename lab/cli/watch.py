"""`ragen-verl watch`."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from pathlib import Path

import typer
from ragen_lab.cli.report import TRAJECTORIES

from ragen_verl.cli.console import console

__all__ = ["watch"]


def watch(
    run: Path = typer.Argument(help="A run's folder (ragen.run.dir), going on or finished."),
    every: float = typer.Option(2.0, min=0.1, help="Seconds between two looks."),
    serve: bool = typer.Option(False, "--serve", help="Serve the report as well; the page follows the run."),
    host: str = typer.Option("127.0.0.1", help="Where to serve it; 0.0.0.0 lets other machines read it."),
    port: int = typer.Option(8080, min=0, max=65535, help="0 takes a free one."),
    trajectories: int = TRAJECTORIES,
) -> None:
    """Show a run live: its progress, its curves, the verdict, where the time goes; ends with the run.

    With --serve it continues until Ctrl-C. Without a terminal it prints one plain line a step.
    """
    from ragen_lab.report.reading import read_run
    from ragen_lab.report.serve import Pages, server

    read_run(run)
    pages = server(Pages(run, trajectories), host, port) if serve else None
    if pages:
        threading.Thread(target=pages.serve_forever, daemon=True).start()
        console().print(f"http://{host}:{pages.server_port}/")
    try:
        _follow(run, every, forever=serve)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None
    finally:
        if pages:
            pages.shutdown()
            pages.server_close()


def _follow(folder: Path, every: float, forever: bool) -> None:
    from ragen_lab.report.reading import read_run
    from ragen_lab.report.terminal import dashboard, line
    from rich.live import Live

    out, seen = console(), -1
    run = read_run(folder)
    with ExitStack() as stack:
        live = stack.enter_context(Live(console=out, auto_refresh=False)) if out.is_terminal else None
        while True:
            if live:
                live.update(dashboard(run), refresh=True)
            else:
                for row in run.rows:
                    if row["step"] > seen:
                        out.print(line(run, row), soft_wrap=True)
                        seen = row["step"]
            if (run.cause() or run.state() == "finished") and not forever:
                return
            time.sleep(every)
            run = read_run(folder)
