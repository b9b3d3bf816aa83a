"""`ragen-verl sft`."""

from __future__ import annotations

from pathlib import Path

import typer

from ragen_verl.cli.console import console

__all__ = ["EPILOG", "sft"]

EPILOG = """Examples:

ragen-verl collect nano/frozen_lake --out lake.parquet

ragen-verl sft nano/frozen_lake --data lake.parquet --out runs/sft/lake sft.epochs=5

ragen-verl train nano/frozen_lake actor_rollout_ref.model.path=runs/sft/lake/model"""


def sft(
    recipe: str = typer.Argument(help="The recipe of the demonstrations."),
    overrides: list[str] = typer.Argument(
        None,
        metavar="[KEY=VALUE]...",
        help="Hydra overrides of the recipe, and of sft: lr, batch_size, epochs, warmup.",
    ),
    data: Path = typer.Option(..., help="Chats that `ragen-verl collect` wrote."),
    out: Path = typer.Option(..., help="The run's folder; the model will be in OUT/model."),
) -> None:
    """Train a recipe's model on demonstrations with verl's supervised trainer: the SFT baseline, or a start for RL.

    The loss is on the tokens that the model would sample in a rollout: not on prompts, observations or the prefill.
    """
    from ragen_lab.sft.check import prepare
    from ragen_lab.sft.run import train

    from ragen_verl.cli.recipes import check
    from ragen_verl.runs.folder import RunFolder
    from ragen_verl.runs.launch import say, typed

    check(recipe)
    prepared = prepare(recipe, list(overrides or []), data, out)
    out_console = console()
    say(out_console, f"{prepared.chats} chats, {prepared.steps} steps, in {out} (log: log.txt)", style="bold")
    model = train(prepared.config, prepared.steps, RunFolder(out), out_console)
    given = [one for one in overrides or () if not one.startswith("sft.") and "model.path=" not in one]
    say(out_console, f"Its held-out success: {typed('eval', recipe, *given, '--policy', f'hf:{model}')}")
    say(out_console, f"Train on: {typed('train', recipe, *given, f'actor_rollout_ref.model.path={model}')}")
