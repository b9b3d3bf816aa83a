"""gymnasium's environments: "gymnasium:Taxi-v4", "gymnasium:my_package:MyEnv-v0"."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Mapping
from typing import Any

import gymnasium
from gymnasium import spaces
from ragen_envs.adapters import describe, tables
from ragen_envs.adapters.external import MOST_ACTIONS, ExternalEnv, cut, one_line, reject, unknown

from ragen_verl.env.arguments import check_whole
from ragen_verl.env.core import Step, flag
from ragen_verl.errors import BadEnvKwargs, MissingExtra

__all__ = ["MINIGRID", "GymnasiumEnv"]

MINIGRID = ("MiniGrid-", "BabyAI-")
"""The beginnings of the ids that `adapters.minigrid` draws."""

_DEFAULT_ACTIONS = 100
_MOST_DISCRETE = 200


class GymnasiumEnv(ExternalEnv):
    """## Description

    Any environment of gymnasium's registry with a Discrete or a Text action space. A version that the installed
    gymnasium has retired is replaced by the newest one, with a warning. "gymnasium:module:Id-v0" imports `module`
    first, as gymnasium.make does.

    ## Action Space

    Discrete actions have names: from a table for gymnasium's own environments, from `action_names`, or a0, a1, ...
    A Text action space takes the text unchanged.

    ## Observation Space

    Text: sentences for Taxi, CliffWalking and Blackjack; the observation itself where its space is Text; the "ansi"
    rendering where an environment has one; else the observation in words: numbers rounded to `decimals`, dictionaries
    and tuples entry by entry. Spaces of more than 512 numbers, such as images, are refused.

    ## Starting State

    `reset(seed=seed)` of the environment. Afterwards its generator (`np_random`) is replaced by the one of the seed and
    the rollout index: rollouts of a group have the same initial state and then different transitions. If an environment
    has further generators, all rollouts of a group have the same transitions. An environment that draws from the
    process's global generators is not reproducible.

    ## Rewards

    Those of the environment. A reward that is no finite number is an error. `info["action_is_valid"]` and
    `info["action_is_effective"]` are used where the environment gives them.

    ## Episode End

    That of the environment, with its time limit. Solved: as `info["is_success"]` or `info["success"]` say where the
    environment gives one; else if it terminated with a positive reward, unless every one of several actions earned one,
    as where each step survived is paid (CliffWalking: if it terminated; CartPole: if the pole stood for 475 steps, or
    for `max_actions` where that is less).

    ## Arguments

    - `action_names=None`: names of the Discrete actions, in their order.
    - `instruction=None`: the task in words, where there is no table for it.
    - `success_return=None`: the sum of rewards from which an episode counts as solved.
    - `max_actions=None`: the budget; default: the time limit of the environment, at most 200, or 100 without one.
    - `decimals=2`: digits after the point.
    - all other arguments are passed to `gymnasium.make`.

    ## Version History

    - v0: first version.
    """

    prefix = "gymnasium"

    def __init__(
        self,
        id: str,
        *,
        action_names: list[str] | None = None,
        instruction: str | None = None,
        success_return: float | None = None,
        max_actions: int | None = None,
        decimals: int = 2,
        **kwargs: Any,
    ) -> None:
        check_whole(f"{self.prefix}: decimals", decimals, 0, 12)
        spec = self._spec(id)
        super().__init__(self._name(spec), max_actions, success_return)
        self.decimals = decimals
        self.env = self._build(spec, kwargs)
        if max_actions is None:
            self.max_actions = min(self._time_limit() or _DEFAULT_ACTIONS, MOST_ACTIONS)
        self.table = tables.of(self.env)
        if success_return is None and self.table.success_return is not None:
            self.success_return = min(self.table.success_return, self.max_actions * self.table.most_a_step)
        self.actions = self._action_names(action_names)
        self.instruction = instruction or self._task()

    @staticmethod
    def names() -> list[str]:
        """The ids in gymnasium's registry, without those of MiniGrid."""
        return [id for id in gymnasium.registry if not id.startswith(MINIGRID)]

    def _name(self, spec: Any) -> str:
        return f"{self.prefix}:{spec.id}"

    def _spec(self, id: str) -> Any:
        """Import the module of an id and return gymnasium's spec of it, of the newest version if its own is retired."""
        module, _, name = id.rpartition(":")
        if module:
            self._import(module, id)
        known = gymnasium.registry
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                return gymnasium.spec(name)
        except (gymnasium.error.DeprecatedEnv, gymnasium.error.VersionNotFound):
            bare = name.rpartition("-v")[0]
            versions = [spec for spec in known.values() if spec.name == bare or f"{spec.namespace}/{spec.name}" == bare]
            newest = max(versions, key=lambda spec: spec.version or 0)
            warnings.warn(f"gymnasium has no {name} any more: {newest.id} is played instead.", stacklevel=2)
            return newest
        except gymnasium.error.Error as error:
            raise unknown(name, known, "gymnasium") from error

    def _import(self, module: str, id: str) -> None:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise MissingExtra(f"{self.prefix}:{id} needs the package {error.name}: install it.") from error
        except Exception as error:
            raise reject(self.prefix, f"{module} cannot be imported ({one_line(error, 300)}).") from error

    def _build(self, spec: Any, kwargs: dict[str, Any]) -> gymnasium.Env:
        build = {"disable_env_checker": True, **kwargs}
        ansi = "ansi" in _render_modes(spec)
        if "render_mode" not in kwargs and ansi:
            build["render_mode"] = "ansi"
        try:
            env = gymnasium.make(spec, **build)
        except TypeError as error:
            raise BadEnvKwargs(f"{self.name} does not take these arguments: {error}.") from error
        except gymnasium.error.DependencyNotInstalled as error:
            raise MissingExtra(f"{self.name} needs another package: {error}.") from error
        except (gymnasium.error.Error, ImportError, ValueError, AssertionError) as error:
            raise reject(self.prefix, f"{self.name} cannot be built ({type(error).__name__}: {error}).") from error
        return self._checked(env, ansi)

    def _checked(self, env: gymnasium.Env, ansi: bool) -> gymnasium.Env:
        """Return `env` if its actions can be named and its observations shown as text; else raise."""
        for name in ("action_space", "observation_space"):
            if getattr(env, name, None) is None:
                raise reject(self.prefix, f"{self.name} has no {name}: its class has to set one.")
        if not isinstance(env.action_space, (spaces.Discrete, spaces.Text)):
            raise reject(
                self.prefix,
                f"{self.name} has the action space {env.action_space}: only Discrete and Text can be played in words.",
            )
        if isinstance(env.action_space, spaces.Discrete) and env.action_space.n > _MOST_DISCRETE:
            raise reject(self.prefix, f"{self.name} has {env.action_space.n} actions, more than {_MOST_DISCRETE}.")
        if not self._in_words(ansi) and (reason := describe.too_large(env.observation_space)):
            raise reject(self.prefix, f"{self.name} has observations that cannot be put in words: {reason}.")
        return env

    def _in_words(self, ansi: bool) -> bool:
        """Whether observations can be shown as text independently of their space."""
        return ansi

    def _time_limit(self) -> int | None:
        return getattr(self.env.spec, "max_episode_steps", None) or getattr(self.env.unwrapped, "max_steps", None)

    def _action_names(self, given: list[str] | None) -> tuple[str, ...] | None:
        space = self.env.action_space
        if isinstance(space, spaces.Text):
            if given is not None:
                raise BadEnvKwargs(f"{self.name} takes free text: action_names does nothing here.")
            return None
        count = int(space.n)
        names = tuple(given) if given is not None else self.table.actions
        if given is None and len(names) != count:
            names = tuple(f"a{index}" for index in range(count))
        folded = {str(name).strip().casefold() for name in names}
        if len(names) != count or len(folded) != count or not all(isinstance(name, str) for name in names):
            raise BadEnvKwargs(f"{self.name} has {count} actions: action_names must be {count} different texts.")
        return names

    def _task(self) -> str:
        given = getattr(self.env.unwrapped, "instruction", None)
        return (given if isinstance(given, str) else self.table.instruction) or (
            f"You are playing {self.env.spec.id if self.env.spec else self.name}. Choose actions so that the sum of "
            "the rewards becomes as large as possible."
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Reset with the group's seed, then switch to the generator of this rollout."""
        super().reset(seed=seed, options=options)
        further = {key: value for key, value in (options or {}).items() if key != "rollout_index"}
        raw, _ = self.env.reset(seed=self.seed, options=further or None)
        self.env.unwrapped.np_random = self.dynamics
        self._start()
        return self.begin(self._text(raw))

    def _start(self) -> None:
        """A hook for a subclass, which reads from the environment after its reset."""

    def step(self, action: str) -> Step:
        """Play an action name or a text; an unknown one changes nothing."""
        if self.actions:
            name = self.name_of(action)
            if self.ended() or name is None:
                return self.idle(valid=name is not None)
            return self._played(*self.env.step(int(self.env.action_space.start) + self.actions.index(name)))
        valid = isinstance(action, str)
        if self.ended() or not valid:
            return self.idle(valid=valid)
        try:
            played = self.env.step(action)
        except Exception:
            return self.broken()
        return self._played(*played)

    def _played(self, raw: Any, reward: Any, terminated: bool, truncated: bool, info: dict[str, Any]) -> Step:
        return self.after(
            self._text(raw),
            reward,
            terminated=terminated,
            truncated=truncated,
            success=_flag(
                info, "is_success", "success", otherwise=bool(terminated) if self.table.solved_by_ending else None
            ),
            valid=bool(_flag(info, "action_is_valid", otherwise=True)),
            effective=_flag(info, "action_is_effective", otherwise=None),
        )

    def _text(self, raw: Any) -> str:
        """Return an observation as text."""
        if self.table.describe is not None:
            return self.table.describe(self.env.unwrapped, raw)
        if self.env.render_mode == "ansi" and not isinstance(self.env.observation_space, spaces.Text):
            drawing = self.env.render()
            if drawing is not None:
                return cut(describe.plain(drawing).rstrip())
            if reason := describe.too_large(self.env.observation_space):
                raise RuntimeError(f"{self.name} renders None, and its observation cannot be put in words: {reason}.")
        return cut(describe.words(raw, self.env.observation_space, self.decimals))

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


def _render_modes(spec: Any) -> list[str]:
    """Return the render modes of an environment, [] where its class cannot be imported yet."""
    try:
        target = gymnasium.envs.registration.load_env_creator(spec.entry_point)
        return getattr(target, "metadata", {}).get("render_modes", [])
    except (ImportError, AttributeError, gymnasium.error.Error):
        return []


def _flag(info: Mapping[str, Any], *keys: str, otherwise: bool | None) -> bool | None:
    """Return the first entry among `keys` that is given; raises TypeError if it is no bool."""
    return next((flag(f"info[{key!r}]", info[key]) for key in keys if info.get(key) is not None), otherwise)
