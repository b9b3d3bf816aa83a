"""`Subject`: the environment under check, and how another process builds it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ragen_lab.hosted import make_hosted, prepare

from ragen_verl.env.core import Env
from ragen_verl.env.registry import as_env, isolation, playable

__all__ = ["Subject"]


@dataclass(frozen=True)
class Subject:
    """An environment to be checked.

    Attributes:
        label: its name in the report.
        build: makes a new instance.
        kwargs: its arguments.
        id: its id; empty for a class.
        target: "module:attribute" of a class; empty for an id, and for a class that another process cannot find.
        apart: whether it is played in worker processes, because its `isolation` is "process".
    """

    label: str
    build: Callable[[], Env]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    id: str = ""
    target: str = ""
    apart: bool = False

    @classmethod
    def of(cls, id_or_class: str | Callable[..., Env], **kwargs: Any) -> Subject:
        """The subject of an id, a class of environments, or a callable that returns an environment."""
        if isinstance(id_or_class, str):
            apart = isolation(id_or_class) == "process"
            build = partial(make_hosted, id_or_class, **kwargs)
            return cls(id_or_class, build, kwargs, id=id_or_class, apart=apart)
        name = getattr(id_or_class, "__qualname__", type(id_or_class).__name__)
        build = partial(_built, name, partial(playable(name, id_or_class), **kwargs))
        return cls(name, build, kwargs, target=_target(id_or_class))

    def prepare(self) -> None:
        """Start its worker processes and import it there, so that the times of calls do not include this."""
        if self.apart:
            prepare(self.id, **self.kwargs)

    @property
    def reachable(self) -> bool:
        """Whether another process can build it."""
        return bool(self.id or self.target)

    def request(self) -> dict[str, Any]:
        """The data that another process needs to build it."""
        return {"id": self.id, "target": self.target, "kwargs": dict(self.kwargs)}

    @classmethod
    def from_request(cls, request: Mapping[str, Any]) -> Subject:
        """The subject of a `request`, in the other process."""
        if request["id"]:
            return cls.of(request["id"], **request["kwargs"])
        module, _, attribute = request["target"].partition(":")
        target: Any = importlib.import_module(module)
        for part in attribute.split("."):
            target = getattr(target, part)
        return cls.of(target, **request["kwargs"])


def _built(name: str, build: Callable[[], Any]) -> Env:
    return as_env(name, build())


def _target(target: Callable[..., Env]) -> str:
    """The place from which another process can import `target`; empty for lambdas, local classes and scripts."""
    module, name = getattr(target, "__module__", ""), getattr(target, "__qualname__", "")
    reachable = module not in ("", "__main__") and name and all(part.isidentifier() for part in name.split("."))
    return f"{module}:{name}" if reachable else ""
