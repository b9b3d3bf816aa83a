"""`ragen.rollout`: the settings of an episode."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from ragen_verl.config.schema import FILLED, PENALTY, POSITIVE, REST, at_least
from ragen_verl.errors import RecipeError, nearest
from ragen_verl.extensions import Registry, check_options, options_of
from ragen_verl.rollout.context import CONTEXTS, Context
from ragen_verl.rollout.protocol import PROTOCOLS, Protocol

__all__ = ["Rollout"]

_SHIPPED = ("window", "summary_turns")  # null in recipes/ragen.yaml; known without loading the other contexts


@dataclass(frozen=True)
class Rollout:
    """The settings of an episode: the dialogue's budgets and texts, and the limits on time and tokens.

    Attributes:
        protocol: the name of the protocol, which writes the prompts and parses the answers.
        context: the name of the rule for what a prompt shows of the past.
        options: all other keys; they are options of the protocol or of the context. null stands for the default, or
            for an option that neither has.
    """

    protocol: str = "ragen"
    max_turns: int = field(default=Protocol.max_turns, metadata=at_least(1))
    max_actions_per_turn: int = field(default=Protocol.max_actions_per_turn, metadata=at_least(1))
    max_actions: int | None = field(default=Protocol.max_actions, metadata=at_least(1))
    think: bool = Protocol.think
    action_sep: str = field(default=Protocol.action_sep, metadata=FILLED)
    format_penalty: float = field(default=Protocol.format_penalty, metadata=PENALTY)
    stated_length: int = field(default=Protocol.stated_length, metadata=at_least(1))
    system_prompt: str = Protocol.system_prompt
    explain_invalid: bool = Protocol.explain_invalid
    response_length: int = field(default=400, metadata=at_least(1))
    step_timeout: float = field(default=60.0, metadata=POSITIVE)
    env_threads: int = field(default=16, metadata=at_least(1))
    env_processes: int = field(default=4, metadata=at_least(1))
    seeded_sampling: bool = True
    context: str = "full"
    loss_on_env_tokens: bool = False
    shared_group_rng: bool = False
    options: dict = field(default_factory=dict, metadata=REST)

    def __post_init__(self) -> None:
        CONTEXTS.find(self.context, "ragen.rollout.context")
        PROTOCOLS.find(self.protocol, "ragen.rollout.protocol")
        read = {**self._options(PROTOCOLS), **self._options(CONTEXTS)}
        for key, value in self.options.items():
            if key in read or (value is None and key in _SHIPPED):
                continue
            readers: dict[str, tuple[str, str]] = {}
            for block, registry in (("protocol", PROTOCOLS), ("context", CONTEXTS)):
                readers |= {one: (block, name) for name, kind in registry.items() for one in options_of(kind)}
            if key not in readers:
                known = {one.name for one in fields(self) if one.name != "options"} | set(readers)
                raise RecipeError(f"ragen.rollout.{key} is not a key of ragen.rollout: {nearest(key, known)}")
            block, name = readers[key]
            if value is not None:
                raise RecipeError(
                    f"ragen.rollout.{key} is {value} but ragen.rollout.{block} is {getattr(self, block)}, so it would "
                    f"do nothing: set {key} to null, or the {block} to {name}."
                )
        context = self.chat_context()
        self.chat_protocol()
        if self.loss_on_env_tokens and context.row_per_turn:
            raise RecipeError(
                f"ragen.rollout.loss_on_env_tokens is true but with ragen.rollout.context {self.context} the response "
                "of a row holds no environment tokens, so it would do nothing: use context full, or set it to false."
            )

    def chat_protocol(self) -> Protocol:
        """The protocol that these settings describe; it writes the prompts and parses the answers."""
        names = {one.name for one in fields(Protocol)}
        common = {one.name: getattr(self, one.name) for one in fields(self) if one.name in names}
        return PROTOCOLS[self.protocol](**common, **self._options(PROTOCOLS))

    def chat_context(self) -> Context:
        """The rule for what a turn's prompt shows of the turns before it."""
        return CONTEXTS[self.context](**self._options(CONTEXTS))

    def _options(self, registry: Registry) -> dict[str, Any]:
        """The options of the chosen protocol or context, checked."""
        name = self.protocol if registry is PROTOCOLS else self.context
        known = options_of(registry[name])
        given = {key: value for key, value in self.options.items() if key in known}
        return check_options(registry[name], given, "ragen.rollout", f"{registry.kind} {name}")
