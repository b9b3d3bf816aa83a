"""`ragen-verl leaderboard`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer
from ragen_lab.cli.eval import CONCURRENCY, PER_MINUTE, RETRIES, TIMEOUT, asked, played

from ragen_verl.cli.console import console

__all__ = ["EPILOG", "leaderboard"]

EPILOG = """Policies are named as in `ragen-verl eval`. Examples:

ragen-verl leaderboard --policy random --policy oracle --instances 16

ragen-verl leaderboard --policy hf:my-model --policy api:my-model@http://127.0.0.1:8000/v1

ragen-verl leaderboard          # the board so far"""


def leaderboard(
    policy: list[str] = typer.Option((), help="A policy; may be repeated.  \\[default: none, show the board so far]"),
    env: list[str] = typer.Option((), help="An environment of the board; may be repeated.  \\[default: all six]"),
    instances: int = typer.Option(128, min=2, help="Initial states of each environment."),
    samples: int = typer.Option(8, min=1, help="Episodes of each initial state: k of Mean@k."),
    out: Path = typer.Option(Path("runs/leaderboard"), help="Folder of the board; policies are added to it."),
    temperature: float = typer.Option(0.5, min=0.0, help="Temperature of models."),
    response_length: int = typer.Option(512, min=1, help="Most tokens of one response."),
    context: int = typer.Option(8192, min=64, help="Most tokens of a conversation with a model that is served here."),
    dtype: str = typer.Option("auto", help="Type of a model that is served here, as vLLM takes it."),
    concurrency: int = CONCURRENCY,
    per_minute: float = PER_MINUTE,
    timeout: float = TIMEOUT,
    retries: int = RETRIES,
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of a table."),
) -> None:
    """Rank policies on a fixed set: FrozenLake, Sokoban, WebShop, Twenty Questions, Countdown, Blocksworld.

    The score is Mean@8 over the same instances for everyone, with intervals; policies that do not differ share a rank.
    No episode is played twice, so an interrupted board can be resumed, and policies can be added one by one.
    Results: a table here, leaderboard.json, leaderboard.md, and each POLICY/ENVIRONMENT/episodes.jsonl.
    """
    from ragen_lab.evaluate import leaderboard as boards
    from ragen_lab.evaluate.endpoint import Sampling
    from ragen_lab.evaluate.runner import recorded
    from ragen_lab.evaluate.spec import Setting, Spec

    board = boards.Board(tuple(dict.fromkeys(env)) or tuple(boards.GAMES), instances, samples, response_length)
    specs = [Spec.parse(text) for text in policy]
    sampling = Sampling(
        temperature=temperature, timeout=timeout, retries=retries, concurrency=concurrency, per_minute=per_minute
    )
    setting = Setting(sampling, dtype, context, asked)
    parts = {game: (board.recipe(game), board.plan(game)) for game in board.games}
    played(specs, setting, parts, out, lengths=(0, context), settings=board.settings())
    records: dict[str, dict[str, list[dict[str, Any]]]] = {
        name: {game: list(recorded(place, parts[game][1]).values()) for game, place in places.items()}
        for name, places in boards.earlier(out, board)
    }
    found = boards.ranked(records, board)
    if records:
        (out / "leaderboard.json").write_text(json.dumps(found, indent=2))
        (out / "leaderboard.md").write_text(boards.markdown(found))
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    if not records:
        console().print(f"{out} holds no results of these settings: add --policy.")
        return
    console().print(boards.table(found))
    for sentence in boards.remarks(found):
        console().print(sentence, soft_wrap=True)
    console().print(f"Written to {out}: leaderboard.json, leaderboard.md.")
