"""How well a model that calls tools plays: `python -m nano_model.calling_scores` writes the card of the shipped one."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import torch
import typer
from transformers import AutoModelForCausalLM, AutoTokenizer

from nano_model.callers import WORLDS
from nano_model.evaluate import played, score
from nano_model.worlds import EVALUATION_SEEDS
from ragen_verl.cpu.nano_model import nano_model_path
from ragen_verl.rollout.protocols.tools import Tools

TEMPERATURES = (0.5, 1.0)


def main(
    model: Path = typer.Option(None, help="Folder of the model; the shipped one where none is given."),
    episodes: int = typer.Option(512, help="Episodes of a row."),
) -> None:
    """Evaluate a model that calls tools; writes README.md and evaluation.json into its folder."""
    folder = model or nano_model_path("tools")
    nano, tokens = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval(), AutoTokenizer
    rows = []
    for world in WORLDS:
        for temperature in TEMPERATURES:
            options = {"episodes": episodes, "temperature": temperature, "protocol": Tools(think=False)}
            found = asdict(score(played(nano, tokens.from_pretrained(folder), world, **options)))
            head = {"world": world.name, "temperature": temperature, "episodes": episodes}
            rows.append(head | {key: round(value, 4) for key, value in found.items()})
    lines = [
        "# The nano model that calls tools",
        "",
        "A Qwen2 of 0.9 M parameters, trained from scratch on scripted calls by `examples/nano_model` (recipe",
        "in `build.json`; `python -m nano_model --thoughts none`). `python -m nano_model.calling_scores` made this",
        f"table: {episodes} episodes a row on seeds from {EVALUATION_SEEDS}, which no training uses. Lockbox has three",
        "boxes and a code of three digits; ToolWorld has the arguments it has by default.",
        "",
        "| environment | temperature | success | valid turns | turns | tokens per episode |",
        "|---|---|---|---|---|---|",
        *(
            f"| {one['world']} | {one['temperature']:g} | {one['success']:.1%} | {one['valid']:.1%} "
            f"| {one['turns']:.1f} | {one['tokens']:.0f} |"
            for one in rows
        ),
    ]
    (folder / "evaluation.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    (folder / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    typer.echo("\n".join(lines))


if __name__ == "__main__":
    typer.run(main)
