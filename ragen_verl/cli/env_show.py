"""`ragen-verl env show`."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

import typer
from rich.markdown import Markdown
from rich.text import Text

from ragen_verl.cli.console import console
from ragen_verl.cli.env_arguments import ID, KWARGS, parse_kwargs, variant
from ragen_verl.cli.env_prompt import sections
from ragen_verl.env import make
from ragen_verl.env.registry import resolve
from ragen_verl.errors import RecipeError

__all__ = ["show"]


def show(
    id: str = ID,
    kwargs: list[str] = KWARGS,
    seed: int = typer.Option(0, min=0, help="Seed of the initial state to draw."),
    prompt: bool = typer.Option(False, "--prompt", help="Print what a model is sent at the start instead."),
    recipe: str = typer.Option(None, help="With --prompt: use the texts, budgets and arguments of this recipe."),
    model: str = typer.Option(None, help="With --prompt: also show it as this model's chat template renders it."),
) -> None:
    """Describe an environment and draw one of its initial states, with a plan that solves it where one is known."""
    if prompt:
        _print(sections(id, parse_kwargs(kwargs or []), seed, recipe, model))
        return
    for name, value in {"--recipe": recipe, "--model": model}.items():
        if value is not None:
            raise RecipeError(f"{name} is for --prompt and does nothing without it: add --prompt, or leave it out.")
    env = make(id, **parse_kwargs(kwargs or []))
    observation, _ = env.reset(seed=seed)
    out = console()
    full = resolve(id)
    out.print(Text.assemble((full, "bold"), str(inspect.signature(type(env)))))
    if variant(full):
        out.print(f"with {variant(full)}")
    out.print()
    out.print(Markdown(inspect.getdoc(type(env)) or "no description"))
    out.print()
    parts = {
        "Instruction": env.instruction,
        "Symbols": "\n".join(f"{symbol}  {meaning}" for symbol, meaning in env.symbols.items()),
        "Actions": ", ".join(env.actions) if env.actions else "free text",
        f"Initial state of seed {seed}": observation,
        "A plan that solves it": ", ".join(getattr(env, "oracle", list)()),
    }
    _print((title, text) for title, text in parts.items() if text)


def _print(parts: Iterable[tuple[str, str]]) -> None:
    out = console()
    for title, text in parts:
        out.print(title, style="bold")
        out.print(f"{text}\n", soft_wrap=True)
