"""`ragen-verl env serve`: environments behind HTTP."""

from __future__ import annotations

import os
import socket

import typer

from ragen_verl.cli.console import console
from ragen_verl.errors import MissingExtra, RecipeError, adding

__all__ = ["serve"]


def serve(
    ids: list[str] = typer.Argument(None, metavar="[IDS]...", help="Environments to serve; none: all installed."),
    host: str = typer.Option("127.0.0.1", help="Address to listen at; any but a loopback one needs a token."),
    port: int = typer.Option(8200, min=0, max=65535, help="Port; 0 takes a free one."),
    token: str = typer.Option("", envvar="RAGEN_VERL_ENV_TOKEN", help="Token that clients have to send."),
    max_sessions: int = typer.Option(4096, help="Environments alive at the same time."),
    idle_seconds: float = typer.Option(600.0, help="Close an environment after this time without a request."),
    step_seconds: float = typer.Option(60.0, help="Time that one call of an environment may take."),
    threads: int = typer.Option(16, help="Threads that environments run in."),
    processes: int = typer.Option(4, help="Processes for environments that ask for one."),
    allow_files: list[str] = typer.Option([], metavar="DIR", help="Folder whose files clients may name in arguments."),
    allow_urls: list[str] = typer.Option(
        [], metavar="PREFIX", help="Beginning of addresses that clients may name in arguments."
    ),
) -> None:
    """Serve environments over HTTP; their addresses, http://HOST:PORT/ID, are ids in recipes."""
    try:
        import uvicorn
        from ragen_envs.serving.deadline import with_deadline
        from ragen_envs.serving.server import LOOPBACK, Settings, create_app
    except ImportError as error:
        if isinstance(error, MissingExtra):
            raise
        raise MissingExtra(f"An environment server needs uvicorn: run {adding('serve')}.") from None
    if host not in LOOPBACK and not token:
        raise RecipeError(
            f"The host {host} can be reached from other machines: set a token in the environment variable "
            "RAGEN_VERL_ENV_TOKEN, or leave out --host."
        )
    settings = Settings(
        ids or (),
        token,
        max_sessions,
        idle_seconds,
        step_seconds,
        threads,
        processes,
        files=allow_files,
        urls=allow_urls,
    )
    listener = _listen(host, port)
    name = f"[{host}]" if ":" in host else host
    what = ", ".join(settings.served()) if ids else f"all {len(settings.served())} environments"
    console().print(
        f"Serving {what} at http://{name}:{listener.getsockname()[1]}/ID (process {os.getpid()}); Ctrl-C ends it.",
        soft_wrap=True,
    )
    protocol = with_deadline(settings.request_seconds)
    config = uvicorn.Config(create_app(settings), http=protocol, log_level="warning", access_log=False)
    uvicorn.Server(config).run(sockets=[listener])


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=2048)
    except OSError as error:
        raise RecipeError(f"Cannot listen at {host}, port {port} ({error}): choose another --host or --port.") from None
