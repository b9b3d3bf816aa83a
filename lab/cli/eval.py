"""`ragen-verl eval`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from ragen_verl.cli.console import console
from ragen_verl.cli.recipes import composed, named
from ragen_verl.cli.waiting import waiting
from ragen_verl.errors import RecipeError

_RESPONSE_LENGTH = 4096
"""Tokens of a response of a model behind an API: it may think, and a recipe's number is that of the model it trains."""

__all__ = [
    "CONCURRENCY",
    "EPILOG",
    "PER_MINUTE",
    "RETRIES",
    "TIMEOUT",
    "asked",
    "bar",
    "conclude",
    "evaluate",
    "played",
]

EPILOG = """Policies: random, oracle, human, api:MODEL[@URL], hf:FOLDER. Examples:

ragen-verl eval nano/frozen_lake --policy random --policy oracle

ragen-verl eval nano/sokoban --policy api:my-model@http://127.0.0.1:8000/v1 --samples 8 --states 64"""
CONCURRENCY = typer.Option(32, min=1, help="Episodes that a model plays at the same time.")
PER_MINUTE = typer.Option(None, min=0.01, help="Most requests started in a minute.")
TIMEOUT = typer.Option(120.0, min=0.1, help="Seconds for one request.")
RETRIES = typer.Option(6, min=0, help="Retries of a request that timed out or was refused (429, 5xx).")


def evaluate(
    recipe: str = typer.Argument(
        help="A name that `ragen-verl recipes` lists, or a YAML file of your own.", autocompletion=named
    ),
    overrides: list[str] = typer.Argument(None, metavar="[KEY=VALUE]...", help="Hydra overrides, as in train."),
    policy: list[str] = typer.Option(..., help="A policy; may be repeated, and each is compared with the first."),
    samples: int = typer.Option(1, min=1, help="Episodes for each initial state."),
    states: int = typer.Option(None, min=1, help="Initial states of each split.  \\[default: all of the recipe]"),
    out: Path = typer.Option(None, help="Folder of the results.  \\[default: runs/eval/RECIPE]"),
    temperature: float = typer.Option(
        None, min=0.0, help="Temperature of models.  \\[default: the recipe's held-out one]"
    ),
    response_length: int = typer.Option(
        None, min=1, help="Most tokens of one response of a model behind an API.  \\[default: 4096]"
    ),
    concurrency: int = CONCURRENCY,
    per_minute: float = PER_MINUTE,
    timeout: float = TIMEOUT,
    retries: int = RETRIES,
    prices: tuple[float, float] = typer.Option((0.0, 0.0), help="Prices of a million tokens in and out."),
    price_table: Path = typer.Option(None, help="YAML file with a line POLICY: [IN, OUT], for policies that differ."),
) -> None:
    """Play a recipe's held-out episodes with any policy: same environments, seeds, prompts and code as in training.

    The same command resumes an interrupted evaluation; episodes in which the server failed are played again. Results: a
    table here, results.json, results.md, and every trajectory in POLICY/episodes.jsonl. The exit code is 1 if an
    episode could not be played.
    """
    from ragen_lab.evaluate.endpoint import Sampling
    from ragen_lab.evaluate.plan import closed_envs, episodes
    from ragen_lab.evaluate.spec import Setting, Spec
    from ragen_lab.evaluate.summary import read_prices, results

    from ragen_verl.config import RagenConfig
    from ragen_verl.validation.tasks import check_tasks

    config = composed(recipe, overrides or [])
    ragen = RagenConfig.from_omegaconf(config)  # before the policies, which may be in its plugins
    specs = [Spec.parse(text) for text in policy]
    if response_length and not any(spec.form.name == "api" for spec in specs):
        raise RecipeError(
            "--response-length is for a policy behind an API; for others set ragen.rollout.response_length=N."
        )
    check_tasks({name: ragen.splits[name] for name in ragen.splits if name != "train"}, closed_envs(ragen))
    plan = episodes(ragen, samples, states)
    held_out = config.actor_rollout_ref.rollout.val_kwargs
    sampling = Sampling(
        temperature=held_out.temperature * held_out.do_sample if temperature is None else temperature,
        response_length=response_length or _RESPONSE_LENGTH,
        timeout=timeout,
        retries=retries,
        concurrency=concurrency,
        per_minute=per_minute,
    )
    rollout = config.actor_rollout_ref.rollout
    length = rollout.max_model_len or rollout.prompt_length + rollout.response_length
    setting = Setting(sampling, str(rollout.dtype), length, asked)
    table = read_prices(price_table) if price_table else {}
    folder = out or Path("runs/eval") / recipe.replace("/", "-").removesuffix(".yaml")
    settings = {"recipe": recipe, "overrides": list(overrides or []), "ragen": _decisive(ragen)}
    lengths = (rollout.prompt_length, rollout.response_length)
    every = played(specs, setting, {"": (ragen, plan)}, folder, lengths=lengths, settings=settings)
    records = {name: rows[""] for name, rows in every.items()}
    same = dict.fromkeys(records, prices) if any(prices) else {}
    found = results(records, same | table)
    title = f"{recipe}: {len(plan)} held-out episodes"
    conclude(found, title, folder, {"recipe": recipe})
    if any(one["excluded"] for environments in found["policies"].values() for one in environments.values()):
        raise typer.Exit(1)


def played(
    specs: Sequence[Any], setting: Any, parts: Mapping[str, tuple[Any, list[Any]]], folder: Path, **same: Any
) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Play every part (folder's name -> recipe, episodes) with every policy: policy -> part -> its records."""
    from ragen_lab.evaluate.runner import evaluate as play
    from ragen_lab.evaluate.server import Servers

    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    with Servers() as servers:
        setting = replace(setting, serving=servers.serving)
        for spec in specs:
            with ExitStack() as stack:
                with waiting(f"{spec.text}: starting (a model takes a minute or more) ..."):
                    player = stack.enter_context(spec.opened(setting))
                name = player.name if player.name not in found else spec.text
                place, rows = folder / re.sub(r"[^\w.-]+", "_", name), found.setdefault(name, {})
                for part, (ragen, plan) in parts.items():
                    with bar(f"{name}: {part}" if part else name) as progress:
                        rows[part] = play(ragen, player, plan, place / part, progress=progress, **same)
    return found


def conclude(
    found: dict[str, Any], title: str, folder: Path, about: Mapping[str, Any], lines: Sequence[str] = ()
) -> None:
    """Write the results, `about` them in front and `lines` behind the table, and print them."""
    from ragen_lab.evaluate.summary import comparisons, markdown, remarks, table

    (folder / "results.json").write_text(json.dumps({**about, **found}, indent=2))
    listed = "\n".join(["", *(f"- {one}" for one in lines), ""]) if lines else ""
    (folder / "results.md").write_text(markdown(found, title) + listed)
    console().print(table(found, title))
    for sentence in (*lines, *comparisons(found), *found["costs"], *remarks(found)):
        console().print(sentence, soft_wrap=True)
    console().print(f"Written to {folder}: results.json, results.md, and each policy's episodes.jsonl.")


def _decisive(ragen: Any) -> str:
    """All that determines an episode besides the policy, as text; evaluations that differ in it are not mixed."""
    return repr((ragen.splits, ragen.rollout, ragen.rewards))


def asked(text: str) -> str:
    """Show a text to the person at the keyboard and return the answer."""
    console().print(text)
    return typer.prompt("actions")


@contextmanager
def bar(name: str) -> Iterator[Callable[[int, int], None]]:
    """A bar of episodes on stderr; yields a function that takes how many are done, and of how many."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    shown = (TextColumn(one, markup=False) if isinstance(one, str) else one for one in columns)
    with Progress(*shown, console=console(stderr=True)) as display:
        task = display.add_task(name, total=None)
        yield lambda done, total: display.update(task, completed=done, total=total)
