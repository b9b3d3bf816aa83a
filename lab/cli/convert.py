"""`ragen-verl convert`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TextIO

import typer

from ragen_verl.cli.console import console
from ragen_verl.errors import RecipeError

_HELD_OUT = ("val", "generalisation")

__all__ = ["EPILOG", "Format", "convert"]

EPILOG = """Examples:

ragen-verl convert runs/RUN --to sft --success --out sft.jsonl

ragen-verl convert runs/RUN --to preferences --margin 0.5 --out pairs.jsonl

ragen-verl convert runs/eval/RECIPE/POLICY --to otel --endpoint http://127.0.0.1:4318"""


class Format(str, Enum):
    """The formats in which trajectories can be written."""

    sft = "sft"
    preferences = "preferences"
    otel = "otel"


def convert(
    path: Path = typer.Argument(help="A run's folder, an evaluation's, or a JSONL file of trajectories."),
    to: Format = typer.Option(help="Chats for fine-tuning, pairs of a group, or OpenTelemetry spans."),
    out: Path = typer.Option(None, help="JSONL file to write."),
    endpoint: str = typer.Option(None, help="otel: an OTLP/HTTP collector, such as http://127.0.0.1:4318."),
    split: str = typer.Option(None, help="train, val or generalisation.  \\[default: what is not held out; otel: all]"),
    step: list[int] = typer.Option((), help="A step of a run; may be repeated.  \\[default: all]"),
    env: str = typer.Option(None, help="An environment's name in the metrics.  \\[default: all]"),
    success: bool = typer.Option(
        None, "--success/--failed", help="sft, otel: only solved trajectories, or only the others."
    ),
    min_return: float = typer.Option(None, help="sft, otel: the smallest return."),
    margin: float = typer.Option(None, min=0.0, help="preferences: the smallest difference of returns in a pair."),
) -> None:
    """Write saved trajectories as chats (trl's SFT format), preference pairs (trl's), or OpenTelemetry spans.

    Messages are exactly those that the model saw. Chats and pairs leave out trajectories in which environment or
    engine failed, and those of held-out episodes (val, generalisation) unless --split asks for them.
    """
    from ragen_lab.convert import chats, spans

    from ragen_verl.runs.trajectories import read

    given = {"--margin": margin, "--endpoint": endpoint, "--success": success, "--min-return": min_return}
    fits = {"--margin": "preferences", "--endpoint": "otel", "--success": "sft, otel", "--min-return": "sft, otel"}
    for name, value in given.items():
        if value is not None and to.value not in fits[name].split(", "):
            raise RecipeError(f"{name} is for --to {fits[name]} and does nothing with {to.value}: leave it out.")
    if (out is None) == (endpoint is None):
        raise RecipeError("Say where it goes: --out FILE" + (", or --endpoint URL." if to is Format.otel else "."))
    learnt, held_out = to is not Format.otel, 0

    def wanted(record: dict) -> bool:
        nonlocal held_out
        aside = learnt and split is None and record["split"] in _HELD_OUT
        held_out += aside
        return not aside

    records = read(path, split=split, steps=step or None, env=env, success=success, min_return=min_return, where=wanted)
    if endpoint:
        count = spans.export(records, spans.otlp(endpoint), path.name)
    else:
        with _in_one_piece(out) as file:
            if to is Format.otel:
                count = spans.export(records, spans.jsonl(file), path.name)
            else:
                rows = chats.sft(records) if to is Format.sft else chats.preferences(records, margin or 0.0)
                count = sum(bool(file.write(json.dumps(row, ensure_ascii=False) + "\n")) for row in rows)
    what = {"sft": "chats", "preferences": "pairs", "otel": "trajectories as spans"}[to.value]
    if not count:
        only = f", and {held_out} held-out ones are left out: --split val takes them" if held_out else ""
        raise RecipeError(f"{path} gave no {what}: no trajectory fits the options{only}.")
    console().print(f"{count} {what} written to {out or endpoint}.", soft_wrap=True)
    if learnt and split in _HELD_OUT:
        told = f"These are held-out episodes ({split}): on them a model that learns from this file cannot be evaluated."
        console(stderr=True).print(told, style="yellow", soft_wrap=True)


@contextmanager
def _in_one_piece(out: Path) -> Iterator[TextIO]:
    """A file that replaces `out` at the end, unless it is empty or an error ended the block."""
    out.parent.mkdir(parents=True, exist_ok=True)
    beside = out.with_name(out.name + ".part")
    try:
        with beside.open("w", encoding="utf-8") as file:
            yield file
        if beside.stat().st_size:
            os.replace(beside, out)
    finally:
        beside.unlink(missing_ok=True)
