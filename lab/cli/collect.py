"""`ragen-verl collect`."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

import typer
from ragen_lab.cli.eval import bar

from ragen_verl.cli.console import console
from ragen_verl.cli.recipes import composed, named
from ragen_verl.errors import RecipeError

__all__ = ["EPILOG", "Thoughts", "collect"]

EPILOG = """Examples:

ragen-verl collect nano/frozen_lake --out lake.parquet

ragen-verl collect paper/sokoban_starpo_s --thoughts none --episodes 1000 --out sokoban.parquet"""


class Thoughts(str, Enum):
    """The text between the think tags."""

    plan = "plan"
    none = "none"


def collect(
    recipe: str = typer.Argument(
        help="A name that `ragen-verl recipes` lists, or a YAML file of your own.", autocompletion=named
    ),
    overrides: list[str] = typer.Argument(None, metavar="[KEY=VALUE]...", help="Hydra overrides, as in train."),
    out: Path = typer.Option(..., help="Parquet file to write."),
    episodes: int = typer.Option(1000, min=1, help="Number of episodes, each with its own initial state."),
    optimal: float = typer.Option(
        1.0, min=0.0, max=1.0, help="Share of turns that the oracle plays; others are random."
    ),
    thoughts: Thoughts = typer.Option(
        None, help="Between the think tags: the planned actions, or nothing.  \\[default: plan]"
    ),
    seed: int = typer.Option(
        None, min=0, help="Seed of the first episode; also decides which turns are random.  \\[default: 1000000000]"
    ),
) -> None:
    """Play a recipe's training environments with their oracles and write chats for `ragen-verl sft`.

    Prompts and answer format are those of the recipe: `ragen.rollout.think=false` gives answers without thoughts. No
    seed is one of the recipe's training or held-out seeds. The same arguments give the same chats.
    """
    from ragen_lab.convert.chats import sft
    from ragen_lab.sft.demonstrations import SEED, Demonstrator, plan_of
    from ragen_lab.sft.demonstrations import collect as play
    from ragen_lab.sft.parquet import LAST_ONLY, SUFFIX, dialogue, write

    from ragen_verl.config import RagenConfig

    if out.suffix != SUFFIX:
        raise RecipeError(f"--out is {out} but chats are written as Parquet, which verl reads: end it with {SUFFIX}.")
    config = composed(recipe, overrides or [])
    ragen = RagenConfig.from_omegaconf(config)
    if thoughts is not None and not ragen.rollout.think:
        raise RecipeError("--thoughts does nothing, for ragen.rollout.think is false: leave it out.")
    policy = Demonstrator(optimal, (thoughts or Thoughts.plan).value)
    first = SEED if seed is None else seed
    plan = plan_of(ragen, episodes, first, config.trainer.total_training_steps)
    with bar("demonstrations") as progress:
        records = play(ragen, policy, plan, progress)
    last_only = ragen.rollout.chat_context().row_per_turn
    note = {
        "recipe": recipe,
        "overrides": list(overrides or []),
        "dialogue": dialogue(ragen),
        "seeds": [first, first + episodes],
        "optimal": optimal,
        "thoughts": policy.thoughts if ragen.rollout.think else None,
    }
    count = write(({**chat, LAST_ONLY: last_only} for chat in sft(records)), note, out)
    solved = sum(one["success"] for one in records) / len(records)
    console().print(f"{count} chats written to {out}; {solved:.1%} of the episodes succeeded.", soft_wrap=True)
