"""How well a model plays, by a batched sampler in plain PyTorch: no engine, no Ray, real prompts and environments."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache, PreTrainedModel

from nano_model.episodes import Batcher, episode
from nano_model.worlds import EVALUATION_SEEDS, WORLDS, World
from ragen_verl.cpu.nano_model import nano_model_path
from ragen_verl.env import make
from ragen_verl.env.hosting.threads import EnvWorkers
from ragen_verl.rollout.chat import ChatTokens
from ragen_verl.rollout.episode import Generation
from ragen_verl.rollout.protocol import Protocol
from ragen_verl.rollout.protocols.ragen import Ragen
from ragen_verl.rollout.rows import rows_of
from ragen_verl.rollout.trajectory import Trajectory

_ROWS = 256  # sequences sampled side by side


@dataclass(frozen=True)
class Score:
    """Averages over episodes: shares of 1, except `ret` (per episode) and the token and turn counts."""

    success: float
    valid: float
    ret: float
    turns: float
    tokens: float
    said: float


@torch.inference_mode()
def sample(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    *,
    temperature: float,
    max_tokens: int,
    eos_ids: Sequence[int],
    generator: torch.Generator,
) -> list[list[int]]:
    """One response per prompt, the end-of-turn id included if it was sampled; temperature 0 takes the likeliest id."""
    rows, longest = len(prompts), max(map(len, prompts))
    ids = torch.zeros(rows, longest, dtype=torch.long)
    mask = torch.zeros(rows, longest, dtype=torch.long)
    for row, prompt in enumerate(prompts):  # padding on the left, so that all continue at the same column
        ids[row, longest - len(prompt) :] = torch.tensor(prompt)
        mask[row, longest - len(prompt) :] = 1
    cache, positions = DynamicCache(), (mask.cumsum(1) - 1).clamp(min=0)
    responses: list[list[int]] = [[] for _ in prompts]
    alive = torch.ones(rows, dtype=torch.bool)
    ends = torch.tensor(list(eos_ids))
    for _ in range(max_tokens):
        logits = model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]
        if temperature == 0:
            chosen = logits.argmax(-1)
        else:
            chosen = torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)[:, 0]
        for row in alive.nonzero()[:, 0].tolist():
            responses[row].append(int(chosen[row]))
        alive &= ~torch.isin(chosen, ends)
        if not alive.any():
            break
        ids, positions = chosen[:, None], positions[:, -1:] + 1
        mask = torch.cat([mask, torch.ones(rows, 1, dtype=torch.long)], 1)
    return responses


def played(
    model: PreTrainedModel,
    tokenizer: Any,
    world: World,
    *,
    episodes: int = 256,
    temperature: float = 1.0,
    think: bool = True,
    prefix: str = "",
    first_seed: int = EVALUATION_SEEDS,
    max_tokens: int = 96,
    seed: int = 0,
    protocol: Protocol | None = None,
) -> list[Trajectory]:
    """Let the model play one episode on each of `episodes` seeds from `first_seed` up.

    Args:
        model, tokenizer: any causal model with a chat template.
        world: where to play.
        episodes: how many.
        temperature: of sampling; 0 is greedy.
        think: which form of the protocol.
        prefix: what every response is made to start with, after the prefill: "P" makes the nano model careful.
        first_seed: of the levels.
        max_tokens: per response.
        seed: of the sampling.
        protocol: another one, for which `think` has no meaning.
    """
    protocol = protocol or Ragen(think=think, **world.budgets)
    chat = protocol.chat(tokenizer)
    forced = tokenizer.encode(prefix, add_special_tokens=False)
    generator = torch.Generator().manual_seed(seed)

    def answer(prompts: list[list[int]]) -> list[list[int]]:
        forward = {"temperature": temperature, "max_tokens": max_tokens, "eos_ids": chat.eos_ids}
        said = sample(model, [[*ids, *forced] for ids in prompts], generator=generator, **forward)
        return [[*forced, *one] for one in said]

    return asyncio.run(_play_all(world, protocol, chat, range(first_seed, first_seed + episodes), answer))


async def _play_all(
    world: World,
    protocol: Protocol,
    chat: ChatTokens,
    seeds: Sequence[int],
    answer: Callable[[list[list[int]]], list[list[int]]],
) -> list[Trajectory]:
    batcher = Batcher(len(seeds), answer, _ROWS)
    with EnvWorkers(2) as workers:

        async def one(number: int) -> Trajectory:
            async def generate(ids: list[int], most: int) -> Generation:
                return Generation(await batcher.ask(number, ids))

            try:
                env = make(world.env_id, **world.kwargs)
                return await episode(env, protocol, chat, seeds[number], generate, workers)
            finally:
                batcher.leave()

        return await asyncio.gather(*map(one, range(len(seeds))))


def score(found: Sequence[Trajectory]) -> Score:
    """Averages over one episode or more."""
    turns = [turn for one in found for turn in one.turns]
    rows = [rows_of(one)[0] for one in found]
    return Score(
        success=sum(one.success for one in found) / len(found),
        valid=sum(turn.valid for turn in turns) / len(turns),
        ret=sum(one.ret for one in found) / len(found),
        turns=len(turns) / len(found),
        tokens=sum(len(row.prompt_ids) + len(row.response_ids) for row in rows) / len(found),
        said=sum(len(turn.response_ids) for turn in turns) / len(found),
    )


_COMMAND = "python -m nano_model.evaluate"
# World, form of the protocol, and what an answer is made to begin with to see what the careful player in it can do.
_TABLE = (
    ("FrozenLake", True, ""),
    ("FrozenLake", True, "P"),
    ("FrozenLake", False, ""),
    ("FrozenLake, slippery", True, ""),
    ("Sokoban", True, ""),
    ("Sokoban", True, "P"),
    ("Sokoban", False, ""),
    ("Bandit", True, ""),
    ("BanditTest", True, ""),
)
_TEMPERATURES = (0.0, 0.5, 1.0)


def table(model: PreTrainedModel, tokenizer: Any, episodes: int) -> list[dict[str, Any]]:
    """The rows of the shipped table: one per world, form and temperature."""
    by_name = {world.name: world for world in WORLDS}
    rows = []
    for name, think, prefix in _TABLE:
        for temperature in _TEMPERATURES:
            world = by_name[name]
            options: dict[str, Any] = {"think": think, "prefix": prefix, "temperature": temperature}
            found = score(played(model, tokenizer, world, episodes=episodes, **options))
            head = {"world": name, **options, "episodes": episodes}
            rows.append(head | {key: round(value, 4) for key, value in asdict(found).items()})
    return rows


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """The table as text, with what it means and the command that makes it."""
    lines = [
        "# The nano model",
        "",
        "A Qwen2 of about 1 M parameters, trained from scratch on scripted play by `examples/nano_model` (recipe in",
        f"`build.json`). Made by `{_COMMAND}`: {rows[0]['episodes']} episodes a row on seeds from {EVALUATION_SEEDS},",
        "which no training uses. *Careful*: every answer is made to begin like the careful player's, which shows what",
        "the model could do if it always chose to be careful. FrozenLake is the one without slips (4 x 4,",
        "frozen 0.8) unless it says slippery, Sokoban 6 x 6 with one box.",
        "",
        "| environment | answers | temperature | success | valid turns | return | turns | tokens per episode |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        form = "careful" if row["prefix"] else "free" if row["think"] else "no thoughts"
        lines.append(
            f"| {row['world']} | {form} | {row['temperature']:g} | {row['success']:.1%} | {row['valid']:.1%} "
            f"| {row['ret']:.2f} | {row['turns']:.1f} | {row['tokens']:.0f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Evaluate a model and write the table (README.md) and its numbers (evaluation.json) into its folder."""
    parser = argparse.ArgumentParser(prog=_COMMAND, description=main.__doc__)
    parser.add_argument("--model", type=Path, help="folder of the model [default: the shipped weights]")
    parser.add_argument("--episodes", type=int, default=512, help="episodes per row")
    arguments = parser.parse_args()
    folder = arguments.model or nano_model_path()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    rows = table(model, AutoTokenizer.from_pretrained(folder), arguments.episodes)
    (folder / "evaluation.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(markdown(rows), encoding="utf-8")
    print(markdown(rows))


if __name__ == "__main__":
    main()
