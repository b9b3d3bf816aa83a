"""The prompt at the start of an episode, for `ragen-verl env show --prompt`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ragen_verl.cli.recipes import composed
from ragen_verl.config import RagenConfig
from ragen_verl.env import make
from ragen_verl.env.registry import resolve
from ragen_verl.errors import RecipeError
from ragen_verl.rollout.protocol import Protocol
from ragen_verl.rollout.protocols.ragen import Ragen

__all__ = ["sections"]


def sections(
    id: str, kwargs: Mapping[str, Any], seed: int, recipe: str | None, model: str | None
) -> Iterator[tuple[str, str]]:
    """Title and text of each part of the prompt.

    Args:
        id: the environment's.
        kwargs: its arguments; they go over the recipe's.
        seed: of the initial state.
        recipe: gives texts, budgets and the environment's arguments; None takes the defaults.
        model: a Hugging Face folder or name, whose tokenizer renders the messages; None shows the messages alone.

    Raises:
        RecipeError: the recipe does not play this environment, or there is no tokenizer.
    """
    protocol: Protocol = Ragen()
    options: dict[str, Any] = {}
    if recipe is not None:
        config = composed(recipe, [])
        ragen = RagenConfig.from_omegaconf(config)
        protocol, options = ragen.rollout.chat_protocol(), dict(config.data.apply_chat_template_kwargs or {})
        kwargs = {**_arguments(ragen, id, recipe), **kwargs}
    env = make(id, **kwargs)
    state, _ = env.reset(seed=seed)
    system, user = protocol.system(env), protocol.first_user(env, state)
    env.close()
    yield "System message", system or "none"
    yield f"First message (initial state of seed {seed})", user
    yield "The response is made to begin with", protocol.prefill
    if model is not None:
        chat = protocol.chat(_tokenizer(model), options)
        ids = chat.initial(system, user)
        yield f"As {model} is sent it, {len(ids)} tokens", chat.tokenizer.decode(ids, skip_special_tokens=False)


def _arguments(ragen: RagenConfig, id: str, recipe: str) -> dict[str, Any]:
    """Of the first environment of this id in the recipe, as it is in the first step."""
    envs = [env for split in ragen.splits.values() for env in split.envs]
    for env in envs:
        if resolve(env.id) == resolve(id):
            return env.kwargs_at(1)
    has = ", ".join(dict.fromkeys(env.id for env in envs))
    raise RecipeError(f"The recipe {recipe} does not play {id}; it plays {has}.")


def _tokenizer(model: str) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(model)
    except (OSError, ValueError) as error:
        raise RecipeError(f"{model} has no tokenizer that can be loaded: name a Hugging Face folder or id.") from error
