"""Plain gymnasium environments that a package declares under `ragen_verl.envs`; "gymnasium:"'s adapter plays them."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import gymnasium
from ragen_envs.adapters.gymnasium import GymnasiumEnv

__all__ = ["BuiltEnv", "Declared"]


class BuiltEnv(GymnasiumEnv):
    """The adapter of a plain gymnasium environment that has been built already.

    Args:
        name: its id, without a prefix.
        env: the environment itself.
        options: those of `GymnasiumEnv`.
    """

    def __init__(self, name: str, env: gymnasium.Env, **options: Any) -> None:
        self.prefix = name
        self._given = env
        super().__init__(name, **options)
        del self._given

    def _name(self, spec: Any) -> str:
        return spec.id

    def _spec(self, id: str) -> Any:
        return SimpleNamespace(id=id, entry_point=None)

    def _build(self, spec: Any, kwargs: dict[str, Any]) -> gymnasium.Env:
        return self._checked(self._given, ansi=self._given.render_mode == "ansi")


class Declared:
    """The builder of a plain gymnasium class that a package declares or registers under `id`.

    It takes the arguments of the class, and those of `GymnasiumEnv` that the class does not have itself.
    """

    def __init__(self, id: str, target: type[gymnasium.Env]) -> None:
        self.id, self.target = id, target
        self.__name__, self.__doc__ = target.__name__, target.__doc__
        self.isolation = getattr(target, "isolation", GymnasiumEnv.isolation)
        own = dict(inspect.signature(target).parameters)
        every = {one.kind: name for name, one in own.items()}.get(inspect.Parameter.VAR_KEYWORD)
        ours = [one for one in inspect.signature(GymnasiumEnv).parameters.values() if one.kind is one.KEYWORD_ONLY]
        self._ours = {one.name for one in ours} - set(own)
        added = [one for one in ours if one.name in self._ours]
        last = [own.pop(every)] if every else []
        self.__signature__ = inspect.Signature([*own.values(), *added, *last])

    def __call__(self, **kwargs: Any) -> BuiltEnv:
        """Build the class and wrap it."""
        options = {name: kwargs.pop(name) for name in self._ours & set(kwargs)}
        takes = inspect.signature(self.target).parameters
        if "render_mode" in takes and "ansi" in self.target.metadata.get("render_modes", []):
            kwargs.setdefault("render_mode", "ansi")
        return BuiltEnv(self.id, self.target(**kwargs), **options)
