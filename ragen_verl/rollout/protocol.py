"""`Protocol`: the prompts, and the parser of the answers. It deals with text only, not with tokens.

Sources: RAGEN (arXiv 2504.20073) for the turn blocks and the penalty; RAGEN-2 (arXiv 2604.06268) for telling the model
that its answer was invalid. The facts are theirs; the texts are written for this package.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from ragen_verl.errors import RecipeError
from ragen_verl.extensions import Registry, options_of
from ragen_verl.rollout.chat import ChatTokens, opening

if TYPE_CHECKING:
    from ragen_verl.env.core import Env
    from ragen_verl.rollout.trajectory import Turn

__all__ = ["ACTIONS_SHOWN", "PROTOCOLS", "Parsed", "Protocol", "compact", "protocol"]

ACTIONS_SHOWN = 200
"""The number of characters of a past turn's actions that a summary shows, since free text can be long."""


class Parsed(NamedTuple):
    """The parts of one response; `actions` are texts that are not yet checked against the environment."""

    format_ok: bool
    think: str
    actions: list[str]


@dataclass(frozen=True)
class Protocol:
    """Budgets, prompt texts and the answer format of an episode.

    A subclass defines the answer: `prefill`, `form`, `parse` and `answer`. The other methods write the prompts, and it
    may override any of them. Its options are keyword-only fields.

    Args:
        think: ask for thoughts before the answer.
        max_turns: the number of answers that the model may give in one episode.
        max_actions_per_turn: actions kept from one answer; further ones are ignored at no cost.
        max_actions: actions executed in one episode; None takes the environment's own budget.
        action_sep: separates actions inside an answer; "" makes the whole answer one action.
        format_penalty: added to a turn's reward, once, if the answer held an invalid action or no valid one.
        stated_length: the number in the "Max response length" sentence. It is not enforced; the engine's settings limit
            the length of a sample.
        system_prompt: the system message; "" sends none.
        explain_invalid: tell the model in the next message that its answer was not valid (RAGEN-2).

    Attributes:
        name: the name in `ragen.rollout.protocol`, given by the decorator.
        version: of the prompts' wording and of the rules for an answer, in records; increase it when either changes.
        tags: the texts that `parse` looks for. A model may have tokens of its own for them: `parse` sees these as text,
            and they stay as they are in messages, where other control tokens are disarmed.

    Raises:
        RecipeError: a value cannot work.
    """

    think: bool = True
    max_turns: int = 5
    max_actions_per_turn: int = 5
    max_actions: int | None = None
    action_sep: str = "||"
    format_penalty: float = -0.1
    stated_length: int = 100
    system_prompt: str = "You're a helpful assistant."
    explain_invalid: bool = False

    name: ClassVar[str] = ""
    version: ClassVar[int] = 1
    tags: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for name in ("max_turns", "max_actions_per_turn", "max_actions", "stated_length"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise RecipeError(f"{name} is {value}; set it to 1 or more.")
        if not (math.isfinite(self.format_penalty) and self.format_penalty <= 0):
            raise RecipeError(f"format_penalty is {self.format_penalty}; it is added to the reward, so set 0 or less.")
        separator = self.action_sep.strip()
        if separator and any(separator in tag for tag in self.tags):
            raise RecipeError(f"action_sep {self.action_sep!r} is part of an answer tag; choose another, such as '||'.")

    # -- the answer ---------------------------------------------------------------------------------------------------

    @property
    def prefill(self) -> str:
        """The text with which every response is made to start; it is part of the prompt, not of the response."""
        raise NotImplementedError

    @property
    def form(self) -> str:
        """The answer format as shown to the model."""
        raise NotImplementedError

    def parse(self, response_text: str) -> Parsed:
        """Parse one response as it was generated, without the prefill; in linear time and without ever raising."""
        raise NotImplementedError

    def answer(self, actions: Sequence[str], thoughts: str = "") -> str:
        """A response, without the prefill, that `parse` reads as these actions: of a script, an oracle or a person."""
        raise NotImplementedError

    def split(self, answer: str) -> list[str]:
        """The actions of an answer's text: stripped, not empty, and at most `max_actions_per_turn`."""
        parts = answer.split(self.action_sep) if self.action_sep else [answer]
        return [part for part in (part.strip() for part in parts) if part][: self.max_actions_per_turn]

    def joined(self, actions: Sequence[str]) -> str:
        """The actions as the text of one answer."""
        return f" {self.action_sep} ".join(actions)

    def chat(self, tokenizer: Any, template_kwargs: Mapping[str, Any] | None = None) -> ChatTokens:
        """What turns this protocol's messages into token ids for a model; for the arguments see `ChatTokens`."""
        return ChatTokens(tokenizer, self, template_kwargs)

    # -- what the model reads -----------------------------------------------------------------------------------------

    def system(self, env: Env) -> str:
        """The system message; empty if there is none. It is asked once, after `env.reset`."""
        return self.system_prompt

    def tools(self, env: Env) -> Sequence[Mapping[str, Any]]:
        """The tools that the chat template shows; none by default. They are asked for once, after `env.reset`."""
        return ()

    def task(self, env: Env) -> str:
        """The task: instruction, symbols and actions. It is asked once, after `env.reset`, and begins every prompt."""
        told = [env.instruction.strip()]
        if env.symbols:
            told.append("Symbols: " + ", ".join(f"{symbol} {meaning}" for symbol, meaning in env.symbols.items()) + ".")
        if env.actions:
            told.append(f"Actions: {', '.join(env.actions)}. {self._how_many(self.budget(env))}")
        elif self._several(self.budget(env)):
            told.append(self._how_many(self.budget(env)))
        return "\n".join(line for line in told if line)

    def turn(self, number: int, state: str, actions_left: int) -> str:
        """The block that shows turn `number` (from 1): state, actions left, answer format."""
        return (
            f"Turn {number}:\nState:\n{state}\n"
            f"You have {_count(actions_left)} left. Reply with {self.form} and nothing else. "
            f"Max response length: {self.stated_length} words (tokens)."
        )

    def message(self, turns: Sequence[Turn], state: str, actions_left: int) -> str:
        """The user message of the turn after `turns`.

        Of the first turn it is the turn's block. Of later ones it is the last turn's reward, an explanation if wanted,
        and the block.
        """
        if not turns:
            return self.turn(1, state, actions_left)
        return self._after(self.reward(turns[-1].reward), turns, state, actions_left)

    def reward(self, value: float) -> str:
        """The block that shows the last turn's reward: the environment's own, without the format penalty."""
        return f"Reward:\n{compact(value)}"

    def summary_message(self, turns: Sequence[Turn], state: str, actions_left: int, shown: int) -> str:
        """The user message of the turn after `turns` where no earlier message is shown: a summary, then the block.

        Args:
            shown: how many of the last turns are listed. The others are as in `message`, with at least one turn.
        """
        return self._after(self.summary(turns, shown), turns, state, actions_left)

    def summary(self, turns: Sequence[Turn], shown: int) -> str:
        """A summary of the past turns: their number, and executed actions and raw reward of the last `shown`."""
        listed = list(enumerate(turns, start=1))[-shown:]
        last = "" if len(listed) == len(turns) else f", the last {len(listed)} of them"
        lines = [f"Your turns so far: {len(turns)}{last}"]
        for number, turn in listed:
            actions = _short(self.joined(turn.executed)) or "no action"
            lines.append(f"Turn {number}: {actions}, reward {compact(turn.reward)}")
        return "\n".join(lines)

    def budget(self, env: Env) -> int:
        """Actions that may be executed in one episode of `env`."""
        return env.max_actions if self.max_actions is None else self.max_actions

    def first_user(self, env: Env, state: str | None = None) -> str:
        """The first user message of an episode of `env` after its reset; None asks `env.render()` for the state."""
        block = self.message([], env.render() if state is None else state, self.budget(env))
        return opening(self.task(env), block)

    def _how_many(self, budget: int) -> str:
        text = f"You can make up to {_count(budget)}"
        if self._several(budget):
            text += f', separated by " {self.action_sep} "'
        return text + "."

    def _several(self, budget: int) -> bool:
        """Whether one answer can hold several actions."""
        return bool(self.max_actions_per_turn > 1 and self.action_sep and budget > 1)

    def _after(self, past: str, turns: Sequence[Turn], state: str, actions_left: int) -> str:
        parts = [past]
        if self.explain_invalid and not turns[-1].valid:
            parts.append(f"Your last reply was not valid: use the form {self.form} and known actions only.")
        parts.append(self.turn(len(turns) + 1, state, actions_left))
        return "\n\n".join(parts)


PROTOCOLS: Registry[type[Protocol]] = Registry("protocol", home="ragen_verl.rollout.protocols")


def protocol(name: str) -> Callable[[type[Protocol]], type[Protocol]]:
    """Decorator: register a subclass of `Protocol` as the protocol `name` of `ragen.rollout.protocol`.

    Its options, the keyword-only fields that it adds, are keys of `ragen.rollout`.

    Raises:
        RecipeError: the name is taken, or the options' annotations cannot be read.
    """

    def decorate(kind: type[Protocol]) -> type[Protocol]:
        options_of(kind)
        kind.name = name
        return PROTOCOLS.add(name, kind)

    return decorate


def compact(value: float) -> str:
    """A reward as short text: `1`, `-0.1`, `10.9`; rounded to 6 decimals, so that sums show no rounding errors."""
    text = f"{value:.6f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _short(text: str) -> str:
    """One line of at most `ACTIONS_SHOWN` characters."""
    line = " ".join(text.split())
    return line if len(line) <= ACTIONS_SHOWN else line[:ACTIONS_SHOWN] + "..."


def _count(actions: int) -> str:
    return f"{actions} action" if actions == 1 else f"{actions} actions"
