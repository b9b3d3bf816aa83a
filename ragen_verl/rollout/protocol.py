"""The text protocol between environment and model: prompts, answer format, action parsing. Text only, no tokens.

Sources: RAGEN (arXiv 2504.20073) for the turn blocks, the `||` separator and the penalty; RAGEN-2 (arXiv 2604.06268)
for telling the model that its answer was invalid. The facts are theirs; the texts are written for this package.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ragen_verl.errors import RecipeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ragen_verl.env.core import Env
    from ragen_verl.rollout.trajectory import Turn

__all__ = ["ACTIONS_SHOWN", "PROTOCOL_VERSION", "TAGS", "Parsed", "Protocol", "compact"]

PROTOCOL_VERSION = 1
"""The version of the prompts' wording and of the rules for an answer; increased when either changes."""

TAGS = ("<think>", "</think>", "<answer>", "</answer>")
ACTIONS_SHOWN = 200
"""The number of characters of a past turn's actions that a summary shows, since free text can be long."""
# Linear: runs of white space between the two tags do not overlap, so each is scanned a bounded number of times.
_THINK_TO_ANSWER = re.compile(r"</think>\s*<answer>")


class Parsed(NamedTuple):
    """The parts of one response; `actions` are texts that are not yet checked against the environment."""

    format_ok: bool
    think: str
    actions: list[str]


@dataclass(frozen=True)
class Protocol:
    """Budgets, prompt texts and the answer format of an episode.

    Args:
        think: ask for `<think>..</think><answer>..</answer>`; False asks for `<answer>..</answer>` alone.
        max_turns: the number of answers that the model may give in one episode.
        max_actions_per_turn: actions kept from one answer; further ones are ignored at no cost.
        max_actions: actions executed in one episode; None takes the environment's own budget.
        action_sep: separates actions inside an answer; "" makes the whole answer one action.
        format_penalty: added to a turn's reward, once, if the answer held an invalid action or no valid one.
        max_tokens: the number in the "Max response length" sentence. It is not enforced; the engine's settings limit
            the length of a sample.
        system_prompt: the system message; "" sends none.
        explain_invalid: tell the model in the next message that its answer was not valid (RAGEN-2).

    Raises:
        RecipeError: a value cannot work.
    """

    think: bool = True
    max_turns: int = 5
    max_actions_per_turn: int = 5
    max_actions: int | None = None
    action_sep: str = "||"
    format_penalty: float = -0.1
    max_tokens: int = 100
    system_prompt: str = "You're a helpful assistant."
    explain_invalid: bool = False

    def __post_init__(self) -> None:
        for name in ("max_turns", "max_actions_per_turn", "max_actions", "max_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise RecipeError(f"{name} is {value}; set it to 1 or more.")
        if not (math.isfinite(self.format_penalty) and self.format_penalty <= 0):
            raise RecipeError(f"format_penalty is {self.format_penalty}; it is added to the reward, so set 0 or less.")
        separator = self.action_sep.strip()
        if separator and any(separator in tag for tag in TAGS):
            raise RecipeError(f"action_sep {self.action_sep!r} is part of an answer tag; choose another, such as '||'.")

    # -- what the model reads -----------------------------------------------------------------------------------------

    @property
    def prefill(self) -> str:
        """The forced tag at the start of every response; it is part of the prompt, not of the response."""
        return "<think>" if self.think else "<answer>"

    @property
    def form(self) -> str:
        """The answer format as shown to the model."""
        answer = "<answer> [your answer] </answer>"
        return f"<think> [your thoughts] </think> {answer}" if self.think else answer

    def system(self) -> str:
        """The system message; empty if there is none."""
        return self.system_prompt

    def budget(self, env: Env) -> int:
        """Actions that may be executed in one episode of `env`."""
        return env.max_actions if self.max_actions is None else self.max_actions

    def first_user(self, env: Env, state: str | None = None) -> str:
        """The first user message: task, symbols, actions, then turn 1. Call it after `env.reset`.

        Args:
            env: gives `instruction`, `symbols`, `actions` and, if needed, `max_actions` and `render()`.
            state: the observation that `reset` returned; None asks `env.render()`.
        """
        block = self.turn(1, env.render() if state is None else state, self.budget(env))
        return self.opening(self.head(env), block)

    def opening(self, head: str, user: str) -> str:
        """The first user message of a prompt: the task preamble (`head`, if any) and the message of the turn."""
        return f"{head}\n\n{user}" if head else user

    def head(self, env: Env) -> str:
        """The task preamble: task, symbols and actions, as known after `env.reset`."""
        head = [env.instruction.strip()]
        if env.symbols:
            head.append("Symbols: " + ", ".join(f"{symbol} {meaning}" for symbol, meaning in env.symbols.items()) + ".")
        if env.actions:
            head.append(f"Actions: {', '.join(env.actions)}. {self._how_many(self.budget(env))}")
        elif self._several(self.budget(env)):
            head.append(self._how_many(self.budget(env)))
        return "\n".join(line for line in head if line)

    def _how_many(self, budget: int) -> str:
        text = f"You can make up to {_count(budget)}"
        if self._several(budget):
            text += f', separated by " {self.action_sep} "'
        return text + "."

    def _several(self, budget: int) -> bool:
        """Whether one answer can hold several actions."""
        return bool(self.max_actions_per_turn > 1 and self.action_sep and budget > 1)

    def turn(self, number: int, state: str, actions_left: int) -> str:
        """The block that shows turn `number` (from 1): state, actions left, answer format."""
        return (
            f"Turn {number}:\nState:\n{state}\n"
            f"You have {_count(actions_left)} left. Reply with {self.form} and nothing else. "
            f"Max response length: {self.max_tokens} words (tokens)."
        )

    def reward(self, value: float) -> str:
        """The block that shows the last turn's reward: the environment's own, without the format penalty."""
        return f"Reward:\n{compact(value)}"

    def next_user(self, number: int, state: str, actions_left: int, reward: float, valid: bool = True) -> str:
        """The user message between two turns: reward of the last one, an explanation if wanted, block of the next."""
        return self._after(self.reward(reward), number, state, actions_left, valid)

    def summary_user(self, number: int, state: str, actions_left: int, turns: Sequence[Turn], shown: int) -> str:
        """The user message of turn `number` where no earlier message is shown: a summary of the past, then the turn.

        Args:
            number, state, actions_left: as in `turn`.
            turns: the turns so far, at least one.
            shown: how many of the last turns are listed.
        """
        return self._after(self.summary(turns, shown), number, state, actions_left, turns[-1].valid)

    def summary(self, turns: Sequence[Turn], shown: int) -> str:
        """A summary of the past turns: their number, and executed actions and raw reward of the last `shown`."""
        listed = list(enumerate(turns, start=1))[-shown:]
        last = "" if len(listed) == len(turns) else f", the last {len(listed)} of them"
        lines = [f"Your turns so far: {len(turns)}{last}"]
        for number, turn in listed:
            actions = _short(f" {self.action_sep} ".join(turn.executed)) or "no action"
            lines.append(f"Turn {number}: {actions}, reward {compact(turn.reward)}")
        return "\n".join(lines)

    def _after(self, past: str, number: int, state: str, actions_left: int, valid: bool) -> str:
        parts = [past]
        if self.explain_invalid and not valid:
            parts.append(f"Your last reply was not valid: use the form {self.form} and known actions only.")
        parts.append(self.turn(number, state, actions_left))
        return "\n\n".join(parts)

    # -- what the model writes ----------------------------------------------------------------------------------------

    def parse(self, response_text: str) -> Parsed:
        """Parse one response as it was generated, without the forced tag. It takes linear time and never raises.

        As in RAGEN, thoughts may contain anything, the first match counts, text after `</answer>` is ignored, and
        further tags inside thoughts or actions are removed. The forced tag starts the text, so a match can start only
        there, and only the ends of the parts are searched.
        """
        body = response_text
        think = ""
        if self.think:
            joint = _THINK_TO_ANSWER.search(body)
            if joint is None:
                return Parsed(False, "", [])
            think, body = body[: joint.start()], body[joint.end() :]
        end = body.find("</answer>")
        if end < 0:
            return Parsed(False, "", [])
        return Parsed(True, _without_tags(think).strip(), self._split(_without_tags(body[:end])))

    def _split(self, answer: str) -> list[str]:
        parts = answer.split(self.action_sep) if self.action_sep else [answer]
        return [part for part in (part.strip() for part in parts) if part][: self.max_actions_per_turn]


def _without_tags(text: str) -> str:
    """`text` without tags, also those that appear when an inner tag is removed: `</ans<think>wer>`. Linear time."""
    kept: list[str] = []
    for sign in text:
        kept.append(sign)
        if sign == ">":
            tag = next((tag for tag in TAGS if "".join(kept[-len(tag) :]) == tag), "")
            del kept[len(kept) - len(tag) :]
    return "".join(kept)


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
