"""Common parts of the adapters: imports whose errors name the extra, similar names, and `ExternalEnv`."""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from ragen_verl.env.arguments import check_number, check_whole
from ragen_verl.env.core import Names, Step, flag
from ragen_verl.env.text import FreeTextEnv, encodable
from ragen_verl.errors import MissingExtra, RecipeError, UnknownEnv, adding, nearest

__all__ = [
    "MOST_ACTIONS",
    "QUESTION",
    "ExternalEnv",
    "cut",
    "need",
    "needs_nltk",
    "one_line",
    "reject",
    "sendable",
    "unknown",
]

QUESTION = "Answer the question. Give the answer alone, in the form that is asked for."
"""The instruction where an episode is one question."""

MOST_ACTIONS = 200
"""The largest budget that an adapter takes from a package; packages set limits for agents that act in microseconds."""


def need(module: str, extra: str, prefix: str) -> ModuleType:
    """Import and return `module`.

    Raises:
        MissingExtra: it, or something that it imports, is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtra(f"Environments of the form {prefix}:... need {error.name}: run {adding(extra)}.") from error


def unknown(name: str, known: Iterable[str], what: str) -> UnknownEnv:
    """The error for an unknown name, with the most similar known name."""
    names = list(known)
    near = nearest(name, names)
    hint = near if near.startswith("did") else f"it is none of its {len(names)}."
    return UnknownEnv(f"{what} has no environment {name!r}: {hint}")


def _check_budget(prefix: str, max_actions: Any) -> None:
    """Raise BadEnvKwargs unless `max_actions` is None or an integer above 0."""
    if max_actions is not None:
        check_whole(f"{prefix}: max_actions", max_actions, 1)


def _check_success_return(prefix: str, success_return: Any) -> None:
    """Raise BadEnvKwargs unless `success_return` is None or a number."""
    if success_return is not None:
        check_number(f"{prefix}: success_return", success_return)


def _finite(reward: Any, name: str) -> float:
    """Return a reward as a float.

    Raises:
        RuntimeError: it is no finite number. The rollout excludes such an episode from training and statistics; a 0
            would train on a score that the environment did not give.
    """
    try:
        number = float(reward if reward is not None else 0.0)
    except (TypeError, ValueError):
        raise RuntimeError(f"{name} returned the reward {reward!r}, which is no number.") from None
    if not math.isfinite(number):
        raise RuntimeError(f"{name} returned the reward {number}.")
    return number


class ExternalEnv(FreeTextEnv):
    """An environment of another package.

    A subclass sets `name`, `instruction` and `actions`, and calls `begin(observation)` at the end of `reset`. Its
    `step` returns `idle(...)` for an action that does nothing and `after(...)` for one that was played.

    Attributes:
        name: the id with its prefix.
        success_return: the sum of rewards from which the episode is solved, None for the package's own criterion.
    """

    def __init__(self, name: str, max_actions: int | None, success_return: float | None) -> None:
        prefix = name.partition(":")[0]
        _check_budget(prefix, max_actions)
        _check_success_return(prefix, success_return)
        self.name = name
        self.success_return = success_return
        if max_actions is not None:
            self.max_actions = max_actions
        self._observation = ""
        self._sum = 0.0
        self._over = (False, False)
        self._solved = False
        self._rewards = (0, 0)  # how many actions were played, and how many of them earned something

    @property
    def action_space(self) -> Any:
        """The action names, which may differ between episodes, or any text."""
        return Names(self.actions) if self.actions else super().action_space

    def begin(self, observation: str) -> tuple[str, dict[str, Any]]:
        """Store the first observation; return the result for `reset`."""
        self._observation, self._sum, self._over, self._solved = observation, 0.0, (False, False), False
        self._rewards = (0, 0)
        return observation, {}

    def render(self) -> str:
        """Return the last observation."""
        return self._observation

    def ended(self) -> bool:
        """Whether the episode is over; raises ResetNeeded before the first reset."""
        return self.dynamics is not None and any(self._over)

    def idle(self, *, valid: bool) -> Step:
        """The step of an action that changed nothing."""
        terminated, truncated = self._over
        return self.outcome(
            terminated=terminated, truncated=truncated, success=self._solved, valid=valid, effective=False
        )

    def broken(self) -> Step:
        """The step of a text that made the package raise. Its state is now unknown, so the episode is truncated."""
        self._over = (False, True)
        return self.idle(valid=False)

    def after(
        self,
        observation: str,
        reward: Any,
        *,
        terminated: bool,
        truncated: bool,
        success: bool | None = None,
        valid: bool = True,
        effective: bool | None = None,
    ) -> Step:
        """The step of an action that was played.

        Args:
            observation: the package's present observation.
            reward: the package's reward, a finite number; None counts as 0.
            terminated, truncated: as the package says; both at once count as terminated.
            success: as the package says; None where it says nothing: then a positive reward at the end is a success,
                unless every action of several earned one, as where each step survived is paid.
            valid: whether the package understood the action.
            effective: whether it changed something; None: it did if the observation changed or the episode is over.
        """
        value = _finite(reward, self.name)
        self._sum += value
        self._rewards = played, paid = self._rewards[0] + 1, self._rewards[1] + (value > 0)
        terminated, truncated = flag("terminated", terminated), flag("truncated", truncated)
        self._over = (terminated, truncated and not terminated)
        if self.success_return is not None:
            self._solved = self._sum >= self.success_return
        else:
            self._solved = bool(terminated and value > 0 and not 1 < played == paid) if success is None else success
        if effective is None:
            effective = observation != self._observation or any(self._over)
        self._observation = observation
        return self.outcome(
            value,
            terminated=self._over[0],
            truncated=self._over[1],
            success=self._solved,
            valid=valid,
            effective=valid and effective,
        )


def cut(text: str, limit: int = 20_000) -> str:
    """Return `text` with at most `limit` characters."""
    return text if len(text) <= limit else text[: limit - 4] + "\n..."


def sendable(action: str, limit: int) -> str:
    """Return the first `limit` characters of an action, without lone surrogates, which some packages cannot take."""
    return encodable(action[:limit])


def one_line(error: BaseException, limit: int) -> str:
    """Return an error's type, and its message as one line of at most `limit` characters."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:limit]}"


def needs_nltk(data: str) -> str:
    """The end of an error message about data of NLTK that is missing."""
    return (
        f"needs data of NLTK that could not be downloaded: run python -m nltk.downloader {data} where there is a "
        "network, or set NLTK_DATA."
    )


def reject(prefix: str, sentence: str) -> RecipeError:
    """A RecipeError that begins with the adapter's prefix."""
    return RecipeError(f"{prefix}: {sentence}")
