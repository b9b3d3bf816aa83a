"""`ragen-verl doctor model FOLDER`: what a model's chat template does with conversations and with calls of tools."""

from __future__ import annotations

from typing import Any

import typer

from ragen_verl.errors import RecipeError

__all__ = ["doctor_model", "facts_of"]


def doctor_model(path: str) -> None:
    """Print what the protocol `tools` makes of a model; the exit code is 1 if its template cannot be continued."""
    found = facts_of(path)
    for name, value in found.items():
        typer.echo(f"{name:<20} {value}")
    raise typer.Exit(int("cannot be continued" in found))


def facts_of(path: str) -> dict[str, Any]:
    """The wire form of calls, how many a reply may have, the stop ids, and why a template cannot be continued.

    Args:
        path: a folder with a tokenizer, or a name of the hub.

    Raises:
        RecipeError: no tokenizer can be loaded from there.
    """
    from transformers import AutoTokenizer

    from ragen_verl.rollout.protocols.tools import Tools

    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
    except Exception as error:  # a folder without a tokenizer, an unknown name, no network
        first = str(error).splitlines()[0][:200]
        raise RecipeError(f"No tokenizer can be loaded from {path} ({first}): give a model's folder.") from error
    chat: Any  # of the protocol, which knows the form
    try:
        chat, why = Tools(think=False).chat(tokenizer), None
    except RecipeError as error:
        why = str(error)
    if why is not None:
        try:
            chat = Tools(think=False, wire="text").chat(tokenizer)
        except RecipeError as error:
            return {"cannot be continued": str(error)}
    about = {
        "calls": chat.form.name if chat.rendered else "text: its template shows no calls, or in no form that is known",
        "calls in a reply": "any number" if chat.several else "1",
        "a reply begins with": repr("<think>" if chat.opened else ""),
        "stop ids": ", ".join(f"{index} ({tokenizer.convert_ids_to_tokens(index)})" for index in chat.eos_ids),
    }
    return about | ({"as text because": why} if why else {})
