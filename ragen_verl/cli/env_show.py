"""`ragen-verl env show`."""

from __future__ import annotations

import inspect

import typer
from rich.markdown import Markdown
from rich.markup import escape

from ragen_verl.cli.console import console
from ragen_verl.cli.env_arguments import ID, KWARGS, parse_kwargs, variant
from ragen_verl.env import make
from ragen_verl.env.registry import resolve


def show(
    id: str = ID,
    kwargs: list[str] = KWARGS,
    seed: int = typer.Option(0, min=0, help="Seed of the initial state to draw."),
) -> None:
    """Describe an environment and draw one of its initial states, with a plan that solves it where one is known."""
    env = make(id, **parse_kwargs(kwargs or []))
    observation, _ = env.reset(seed=seed)
    out = console()
    full = resolve(id)
    out.print(f"[bold]{escape(full)}[/]{escape(str(inspect.signature(type(env))))}")
    if variant(full):
        out.print(f"with {variant(full)}", markup=False)
    out.print()
    out.print(Markdown(inspect.getdoc(type(env)) or "no description"))
    out.print()
    sections = {
        "Instruction": env.instruction,
        "Symbols": "\n".join(f"{symbol}  {meaning}" for symbol, meaning in env.symbols.items()),
        "Actions": ", ".join(env.actions) if env.actions else "free text",
        f"Initial state of seed {seed}": observation,
        "A plan that solves it": ", ".join(getattr(env, "oracle", list)()),
    }
    for title, text in sections.items():
        if text:
            out.print(f"[bold]{title}[/]")
            out.print(f"{text}\n", markup=False, soft_wrap=True)
