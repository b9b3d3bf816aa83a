"""`ragen-verl env list`."""

from __future__ import annotations

from functools import partial
from typing import Any

from rich.table import Table
from rich.text import Text

from ragen_verl.cli.console import console
from ragen_verl.cli.env_arguments import spelled, summary
from ragen_verl.env import registry

__all__ = ["list_environments"]


def list_environments() -> None:
    """List every installed environment with its actions, and its variants below it.

    Environments of other packages come last, by the prefix of their ids. Nothing is built, so the list is always quick.
    """
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("id", no_wrap=True)
    table.add_column("what it is")
    table.add_column("actions")
    broken: list[tuple[str, str]] = []
    for kind, found in _families(broken).items():
        first, *others = found
        table.add_row(Text(first, "bold"), summary(kind), _actions(kind))
        for id in others:
            table.add_row(f"  {id}", Text(found[id] or "the same", "dim"), "")
    for id, error in broken:
        table.add_row(id, Text(error, "red"), "")
    for prefix in registry.adapters():
        if prefix.startswith("http"):
            continue
        table.add_row(Text(f"{prefix}:NAME", "bold"), "an environment of that package", "")
    table.add_row(Text("http://HOST:PORT/ID", "bold"), "an environment of `ragen-verl env serve`", "")
    for fault in registry.faults():
        table.add_row("", Text(fault, "red"), "")
    console().print(table)


def _families(broken: list[tuple[str, str]]) -> dict[Any, dict[str, str]]:
    """Class -> its ids, each with the arguments it fixes; the plain class first, then by name.

    Args:
        broken: gets the ids that cannot be imported, with the reason: they must not hide the others.
    """
    found: dict[Any, dict[str, str]] = {}
    for id in registry.ids():
        try:
            target = registry.builder(id)
        except Exception as error:
            broken.append((id, " ".join(str(error).split())))
            continue
        kind = target.func if isinstance(target, partial) else target
        found.setdefault(kind, {})[id] = spelled(target) if isinstance(target, partial) else ""

    def order(one: tuple[str, str], kind: Any) -> tuple:
        id, arguments = one
        return bool(arguments), not id.startswith(f"{getattr(kind, '__name__', '')}-v"), id

    return {kind: dict(sorted(ids.items(), key=lambda one: order(one, kind))) for kind, ids in found.items()}


def _actions(kind: Any) -> str:
    """The action names where the class fixes them."""
    names = getattr(kind, "actions", None)
    if isinstance(names, tuple):
        return " | ".join(names)
    return "free text" if hasattr(kind, "random_action") else "see `env show`"
