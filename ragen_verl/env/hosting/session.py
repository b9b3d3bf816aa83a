"""A session: an environment that is played in another process or on another machine. Both sides are here.

The server's side answers requests with `perform`. The client's side is a `SessionEnv`. It remembers the episode so far.
If the process or the machine is lost, it plays the same episode again in another one. An episode is a function of seed,
rollout index and actions, so the replay gives the same observations and rewards. If it does not, the episode is given
up. The environment on the server's side is called a world.
"""

from __future__ import annotations

import json
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded

from ragen_verl.env.core import Env, Step
from ragen_verl.errors import BadEnvKwargs, MissingExtra, RecipeError, UnknownEnv

__all__ = [
    "EnvFailed",
    "ReplayDiffers",
    "SessionEnv",
    "WorldLost",
    "failure",
    "perform",
    "raise_failure",
    "to_json",
    "view",
]

_RECIPE_ERRORS = {error.__name__: error for error in (RecipeError, UnknownEnv, BadEnvKwargs, MissingExtra)}
_MAX_TEXT = 2000
_BITS = {kind.__name__: kind for kind in np.random.BitGenerator.__subclasses__()}


class WorldLost(ConnectionError):
    """The process or server of a world is gone, and the world with it; another one may take over the session."""


class EnvFailed(RuntimeError):
    """The environment raised an exception on the server's side."""


class ReplayDiffers(RuntimeError):
    """The replay of an episode in another place differed, so the episode cannot continue."""


# -- the server's side ------------------------------------------------------------------------------------------------


def perform(env: Env, request: Mapping[str, Any]) -> dict[str, Any]:
    """Do a request with `env` and return the reply; exceptions of the environment are not caught.

    Args:
        env: the environment.
        request: `{"call": "reset", "seed": int, "options": dict}`, `{"call": "step", "action": text}`,
            `{"call": "oracle"}`, or `{"call": "random_action", "rng": state}` with the state of a numpy generator.

    Returns:
        For `reset` the keys observation, info and view, for `step` the key step with its five values, for `oracle` the
        key plan, for `random_action` the keys action and rng, the state of the generator after it.
    """
    if request["call"] == "random_action":
        rng = _generator(request["rng"])
        return {"action": env.random_action(rng), "rng": rng.bit_generator.state}  # type: ignore[attr-defined]
    if request["call"] == "oracle":
        return {"plan": list(env.oracle())}
    if request["call"] == "reset":
        observation, info = env.reset(seed=request["seed"], options=request["options"])
        return {"observation": observation, "info": info, "view": view(env)}
    observation, reward, terminated, truncated, info = env.step(request["action"])
    return {"step": [observation, reward, terminated, truncated, info]}


def view(env: Env) -> dict[str, Any]:
    """The attributes of an environment that the client's side shows."""
    return {
        "instruction": env.instruction,
        "actions": None if env.actions is None else list(env.actions),
        "symbols": dict(env.symbols),
        "tools": list(env.tools),
        "policy": env.policy,
        "max_actions": env.max_actions,
        "charset": env.charset,
        "random_action": callable(getattr(env, "random_action", None)),
    }


def _generator(state: Mapping[str, Any]) -> np.random.Generator:
    bits = _BITS[state["bit_generator"]]()
    bits.state = state
    return np.random.Generator(bits)


def failure(error: BaseException) -> dict[str, str]:
    """An exception as data for `raise_failure`."""
    name = type(error).__name__
    if isinstance(error, RecipeError):
        known = next(kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _RECIPE_ERRORS)
        return {"kind": "recipe", "type": known, "text": str(error)[:_MAX_TEXT]}
    return {"kind": "environment", "type": name, "text": f"{name}: {error}"[:_MAX_TEXT]}


def raise_failure(error: Mapping[str, str]) -> None:
    """Raise the exception that `failure` described: the RecipeError that it was, or EnvFailed."""
    raise _RECIPE_ERRORS.get(error["type"], EnvFailed)(error["text"])


def to_json(value: Any) -> bytes:
    """`value` as ASCII JSON; numpy's scalars and arrays become numbers and lists, objects unknown to JSON become text.

    Floats and lone surrogates survive a round trip exactly. An integer with more digits than Python writes
    (`sys.get_int_max_str_digits`) becomes null, as it does in a trajectory's record.
    """
    try:
        return json.dumps(value, default=_plain).encode("ascii")
    except ValueError:
        return json.dumps(_without_long_integers(value), default=_plain).encode("ascii")


def _without_long_integers(value: Any) -> Any:
    if isinstance(value, dict):
        return {_without_long_integers(key): _without_long_integers(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_long_integers(item) for item in value]
    try:
        json.dumps(value, default=_plain)
    except ValueError:
        return None
    return value


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    return list(value) if isinstance(value, (set, frozenset)) else str(value)


# -- the client's side ------------------------------------------------------------------------------------------------


class SessionEnv(Env):
    """An environment that is played in another process or on another machine; it keeps the contract of `Env`.

    A subclass implements how a world is opened, asked and left; its constructor ends with `self._stay()`. A copy shares
    no world with the original: at its first use it plays the episode so far in a world of its own.

    Attributes:
        patience: seconds for which one call tries to open another world after a world was lost.
    """

    patience: float = 30.0
    _pause = 0.05
    _there = False  # whether a world is open and in the state of the episode
    _opening: tuple[dict[str, Any], dict[str, Any]] | None = None
    _played: tuple[tuple[Any, Step], ...] = ()
    _shown: str | None = None
    _draws = False  # whether the world has a random_action of its own

    @abstractmethod
    def _open(self) -> dict[str, Any]:
        """Open a fresh world and return its view; raises WorldLost if none can be opened now."""

    @abstractmethod
    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request to the open world and return its reply; raises WorldLost, or the environment's exception."""

    @abstractmethod
    def _leave(self) -> None:
        """Close the open world; never raises."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start an episode. A missing seed is drawn on this side, so that the episode can be replayed elsewhere."""
        super().reset(seed=seed, options=options)
        self._opening, self._played = None, ()
        request = {"call": "reset", "seed": self.seed, "options": options}
        reply = self._stay(request)
        self._opening = (request, reply)
        self._show(reply["view"])
        self._shown = reply["observation"]
        return self._shown, reply["info"]

    def step(self, action: str) -> Step:
        """Apply one action in the world."""
        if self._opening is None:
            raise ResetNeeded("Call reset before playing.")
        step = Step(*self._stay({"call": "step", "action": action})["step"])
        self._played = (*self._played, (action, step))
        self._shown = step.observation
        return step

    def oracle(self) -> list[str]:
        """Return the world's plan."""
        if self._opening is None:
            raise ResetNeeded("Call reset before playing.")
        return self._stay({"call": "oracle"})["plan"]

    @property
    def random_action(self) -> Callable[[np.random.Generator], str] | None:
        """The world's `random_action`, which draws from the generator as it would here; None where it has none."""
        return self._random_action if self._draws else None

    def _random_action(self, rng: np.random.Generator) -> str:
        reply = self._stay({"call": "random_action", "rng": rng.bit_generator.state})
        rng.bit_generator.state = reply["rng"]
        return reply["action"]

    def render(self) -> str:
        """Return the current observation."""
        if self._shown is None:
            raise ResetNeeded("Call reset before playing.")
        return self._shown

    def close(self) -> None:
        """Close the world."""
        if self._there:
            self._there = False
            self._leave()

    def _stay(self, request: dict[str, Any] | None = None, patience: float | None = None) -> dict[str, Any]:
        """Ask the world, or another one if it is lost, and return the reply; without a request only open a world."""
        end = time.monotonic() + (self.patience if patience is None else patience)
        pause = self._pause
        while True:
            try:
                if not self._there:
                    self._settle()
                return {} if request is None else self._ask(request)
            except WorldLost:
                self._there = False
                if time.monotonic() + pause > end:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, 1.0)

    def _settle(self) -> None:
        """Open a world and replay the episode in it."""
        self._show(self._open())
        self._there = True
        if self._opening is None:
            return
        request, first = self._opening
        again = self._ask(request)
        if (again["observation"], again["view"]) != (first["observation"], first["view"]):
            raise ReplayDiffers("Played again in another place, the episode began differently.")
        for number, (action, before) in enumerate(self._played, start=1):
            step = Step(*self._ask({"call": "step", "action": action})["step"])
            if step[:4] != before[:4] or step.info.get("success") != before.info.get("success"):
                raise ReplayDiffers(f"Played again in another place, the episode differed at action {number}.")

    def _show(self, view: Mapping[str, Any]) -> None:
        self.instruction, self.symbols = view["instruction"], view["symbols"]
        self.tools, self.policy = view.get("tools", ()), view.get("policy", "")  # an older server has none
        self.actions = None if view["actions"] is None else tuple(view["actions"])
        self.max_actions, self.charset = view["max_actions"], view["charset"]
        self._draws = view["random_action"]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_there": False}
