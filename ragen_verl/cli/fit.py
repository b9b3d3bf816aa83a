"""How many turns of an episode fit into the context, measured with the recipe's own tokenizer and environments."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from omegaconf import DictConfig

from ragen_verl.config import RagenConfig
from ragen_verl.env import make, registry
from ragen_verl.env.hosting.threads import EnvWorkers
from ragen_verl.errors import RecipeError
from ragen_verl.rollout.chat import ChatTokens
from ragen_verl.rollout.episode import Generation, Limits, play
from ragen_verl.validation.model import tokenizer_of

__all__ = ["fit"]

_SECONDS = 20.0  # for a call of an environment; a slower one is not measured
_ENDLESS = 1_000_000_000


def fit(config: DictConfig) -> str | None:
    """A sentence on the training environment that needs most tokens; None where nothing can be measured.

    Args:
        config: verl's whole configuration, checked and resolved.

    Raises:
        RecipeError: the first prompt of an environment is longer than prompts may be.
    """
    tokenizer = tokenizer_of(config, local=True)
    if tokenizer is None:
        return None
    ragen = RagenConfig.from_omegaconf(config)
    chat = ChatTokens(tokenizer, ragen.rollout.chat_protocol(), config.data.apply_chat_template_kwargs)
    with EnvWorkers(1) as threads:
        sizes = {env.tag: asyncio.run(_sizes(ragen, env, chat, threads)) for env in ragen.train.envs}
    sizes = {name: found for name, found in sizes.items() if found}
    if not sizes:
        return None
    name = max(sizes, key=lambda one: max(map(sum, sizes[one])))
    rollout, response = config.actor_rollout_ref.rollout, ragen.rollout.response_length
    for one, ((first, _), *_) in sizes.items():
        if first > rollout.prompt_length:
            raise RecipeError(
                f"The first prompt of {one} has {first} tokens but data.max_prompt_length is {rollout.prompt_length}: "
                "raise it."
            )
    context = min(rollout.max_model_len or _ENDLESS, rollout.prompt_length + rollout.response_length)
    longest = rollout.prompt_length if ragen.rollout.chat_context().row_per_turn else context
    fitting = sum(prompt <= longest and prompt + answer <= context for prompt, answer in sizes[name])
    turns = len(sizes[name])
    told = f"An episode of {name} can need {max(map(sum, sizes[name]))} tokens, the context is {context}: "
    told += f"{fitting} of {turns} turns fit if every answer has {response} tokens."
    if fitting < turns:
        told += (
            " Raise data.max_response_length, lower ragen.rollout.response_length or max_turns, or show fewer turns "
            "(ragen.rollout.context: window)."
        )
    return told


async def _sizes(ragen: RagenConfig, env: Any, chat: ChatTokens, threads: EnvWorkers) -> list[tuple[int, int]]:
    """Tokens of the prompt and of the longest answer of every turn, of an episode without an action; [] if it fails."""
    sizes: list[tuple[int, int]] = []
    filler = chat.tokenizer.encode("\n", add_special_tokens=False)[:1]  # an empty answer, which ends no episode

    async def longest(prompt: list[int], most: int) -> Generation:
        sizes.append((len(prompt), most))
        return Generation(filler * most)

    limits = Limits(ragen.rollout.response_length, _ENDLESS, min(_SECONDS, ragen.rollout.step_timeout))
    build, workers = make, threads
    if registry.isolation(env.id) == "process":
        from ragen_verl.env.hosting.process import EnvProcesses

        process = EnvProcesses(1, limits.step_timeout).worker()
        build, workers = process.make, process.threads
    played = await play(
        partial(build, env.id, **env.kwargs_at(1)),
        seed=ragen.train.seed,
        rollout_index=0,
        protocol=ragen.rollout.chat_protocol(),
        chat=chat,
        generate=longest,
        limits=limits,
        workers=workers,
        context=ragen.rollout.chat_context(),
    )
    return [] if played.excluded else sizes
