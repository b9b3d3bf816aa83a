"""`ragen-verl env list` and `ragen-verl env show`."""

from __future__ import annotations

import inspect
from functools import partial
from importlib.metadata import entry_points

import typer
import yaml
from rich.markdown import Markdown
from rich.markup import escape
from rich.table import Table

from ragen_verl.cli.app import Group, app, console
from ragen_verl.env import Env, make
from ragen_verl.env.registry import GROUP, ids, resolve
from ragen_verl.errors import RecipeError

group = typer.Typer(no_args_is_help=True, cls=Group, help="Look at the environments.")
app.add_typer(group, name="env")


def summary(env: Env) -> str:
    """The first sentence of the environment's docstring; Markdown headings are none."""
    paragraphs = (inspect.getdoc(type(env)) or "").split("\n\n")
    text = next((paragraph for paragraph in paragraphs if not paragraph.startswith("#")), "no description")
    return " ".join(text.split()).partition(". ")[0].rstrip(".")


def variant(id: str) -> str:
    """The arguments that the declaration of `id` fixes, as "name=value, ...", empty for a plain class."""
    for point in entry_points(group=GROUP, name=id):
        target = point.load()
        if isinstance(target, partial):
            return ", ".join(f"{name}={value!r}" for name, value in target.keywords.items())
    return ""


def parse_kwargs(pairs: list[str]) -> dict:
    """`["dim=[8, 8]", "slippery=false"]` as a dictionary, values in YAML.

    Raises:
        RecipeError: if a pair has no "=" or its value is no YAML.
    """
    kwargs = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise RecipeError(f"{pair!r} is no argument of an environment: write it as key=value.")
        try:
            kwargs[key] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise RecipeError(f"The value of {key!r} cannot be read: {value!r} is no YAML.") from None
    return kwargs


@group.command("list")
def list_environments() -> None:
    """List every installed environment with its actions."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("id", no_wrap=True)
    table.add_column("what it is")
    table.add_column("actions")
    for name in ids():
        try:
            env = make(name)
            env.reset(seed=0)
            with_ = f" [dim]({escape(variant(name))})[/]" if variant(name) else ""
            actions = " ".join(env.actions) if env.actions else "free text"
            table.add_row(name, escape(summary(env)) + with_, escape(actions))
        except Exception as error:  # a package that is broken must not hide the others
            table.add_row(name, f"[red]{escape(str(error))}", "")
    console().print(table)


@group.command()
def show(
    id: str = typer.Argument(help="An id that `ragen-verl env list` shows; without a version: the highest."),
    kwargs: list[str] = typer.Argument(None, metavar="[KEY=VALUE]...", help="Arguments, as in a recipe's kwargs."),
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
