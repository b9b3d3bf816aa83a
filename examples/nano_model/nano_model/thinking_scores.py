"""What a model with sentences for thoughts does: success, format, length of its thoughts, and what they depend on.

Plain PyTorch, no engine, no Ray; episodes on seeds that no training uses. `python -m nano_model.thinking_scores --model
FOLDER` prints its rows and writes them to `thinking_scores.json` in the folder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
import typer
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from nano_model import sentences, thinkers
from nano_model.evaluate import played
from nano_model.players import CHARACTERS, cells
from nano_model.worlds import World
from ragen_verl.diagnostics.mutual_information import measure
from ragen_verl.rollout.trajectory import Trajectory

_GRIDS = thinkers.WORLDS[:3]
_BANDITS = (World("Bandit", "Bandit-v0", single_turn=True), World("BanditTest", "BanditTest-v0", single_turn=True))
_CELL = re.compile(r"\bon ([a-f]\d)")
_OWN = re.compile(r"\barms are\b|\bI see [A-Z]")


def is_described(thought: str) -> bool:
    """Whether a thought speaks of the state: it names cells, or arms."""
    return bool(_CELL.search(thought) or _OWN.search(thought))


def is_true(thought: str, state: str) -> bool:
    """Whether a thought names the cells of the player and of its aim (the goal, or the box), and names them rightly."""
    player, aim = cells(state, "PS"), cells(state, "X") or cells(state, "G")
    return bool(player and aim) and _CELL.findall(thought)[:2] == [sentences.named(one[0]) for one in (player, aim)]


def character_of(thought: str) -> str | None:
    """Who begins a thought like this one; None for nobody."""
    found = (name for name in CHARACTERS if thought.startswith(sentences.OPENINGS[name]))
    return next(found, None)


@torch.inference_mode()
def cross_scores(
    model: PreTrainedModel, prompts: Sequence[Sequence[int]], thoughts: Sequence[Sequence[int]]
) -> np.ndarray:
    """log p(thought i | prompt j), summed over tokens, in nats: shape (thoughts, prompts)."""
    longest = max(map(len, thoughts))
    said = torch.tensor([[*one, *[0] * (longest - len(one))] for one in thoughts])
    mask = torch.tensor([[k < len(one) for k in range(longest)] for one in thoughts])
    columns = []
    for prompt in prompts:
        ids = torch.cat([torch.tensor([list(prompt)] * len(thoughts)), said], 1)
        logits = model(input_ids=ids).logits[:, len(prompt) - 1 : -1]
        scores = logits.log_softmax(-1).gather(-1, said[..., None])[..., 0]
        columns.append((scores * mask).sum(1).double().numpy())
    return np.stack(columns, 1)


def dependence(model: PreTrainedModel, tokenizer: Any, found: Sequence[Trajectory], most: int = 32) -> dict[str, float]:
    """How much first thoughts depend on the state: ragen_verl's retrieval and estimate of the mutual information.

    Args:
        model, tokenizer: who thought.
        found: episodes; each different prompt and its first thought count once.
        most: prompts at most.

    Returns:
        `retrieval`, `chance` and `estimate` (nats per token); nothing where there are fewer than eight prompts.
    """
    pairs = {tuple(one.prompt_ids): tokenizer.encode(one.turns[0].think, add_special_tokens=False) for one in found}
    pairs = dict([(prompt, thought) for prompt, thought in pairs.items() if thought][:most])
    if len(pairs) < 8:
        return {}
    lengths = [len(one) for one in pairs.values()]
    values = measure(cross_scores(model, list(pairs), list(pairs.values())), range(len(pairs)), lengths)
    names = {"retrieval": "retrieval_accuracy", "chance": "retrieval_chance", "estimate": "estimate"}
    return {name: values[key] for name, key in names.items()}


def row(model: PreTrainedModel, tokenizer: Any, world: World, *, episodes: int, think: bool, temperature: float = 1.0):
    """One row of the table: averages over episodes, turns and first thoughts."""
    found = played(model, tokenizer, world, episodes=episodes, think=think, temperature=temperature)
    turns = [turn for one in found for turn in one.turns]
    shown = {"world": world.name, "think": think, "temperature": temperature, "episodes": episodes}
    shown |= {"success": mean(one.success for one in found), "valid": mean(turn.valid for turn in turns)}
    shown |= {"turns": len(turns) / episodes}
    if not think:
        return shown
    thoughts = [turn for turn in turns if turn.think]
    lengths = [len(tokenizer.encode(turn.think, add_special_tokens=False)) for turn in thoughts]
    shown |= {"length": mean(lengths), "within": mean(sentences.LEAST <= one <= sentences.MOST for one in lengths)}
    described = [turn for turn in thoughts if is_described(turn.think)]
    shown |= {"described": len(described) / len(thoughts)}
    if world in _GRIDS and described:
        shown |= {"true": mean(is_true(turn.think, turn.state) for turn in described)}
    for kind, wanted in (("described", True), ("stock", False)):
        mine = [one for one in found if one.turns[0].think and is_described(one.turns[0].think) is wanted]
        careful = [one.success for one in mine if character_of(one.turns[0].think) == "careful"]
        shown[kind + " episodes"] = {
            "episodes": len(mine),
            "success": mean(one.success for one in mine) if mine else None,
            "careful": len(careful),
            "careful success": mean(careful) if careful else None,
            **dependence(model, tokenizer, mine),
        }
    return shown


def main(
    model: Path = typer.Option(help="The model's folder."),
    episodes: int = typer.Option(512, help="Episodes of a row."),
) -> None:
    """Play with a model and write its table."""
    nano = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(model)
    rows = []
    for world in (*_GRIDS, *_BANDITS):
        for think in (True, False):
            rows.append(row(nano, tokenizer, world, episodes=episodes, think=think))
            print(json.dumps(rows[-1]), flush=True)
    (model / "thinking_scores.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
