"""The recipe's `ragen:` block as dataclasses: what verl has no key for, read once and typed.

`RagenConfig.from_omegaconf` refuses an unknown key, a value of the wrong type and a value out of range, each in one
sentence that names the key by its full path. Checks that need verl's own keys as well are in `ragen_verl.validate`.
"""

from __future__ import annotations

import difflib
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ragen_verl.errors import RecipeError
from ragen_verl.filter import DEFAULT_FRACTION, STRATEGIES, keep_count

if TYPE_CHECKING:
    from ragen_verl.rollout.protocol import Protocol


@dataclass(frozen=True)
class Accepts:
    """What a field takes: a test on the converted value, and the words for it in the error message."""

    test: Callable[[Any], bool]
    words: str


def _at_least(low: int) -> dict[str, Accepts]:
    return {"accepts": Accepts(lambda value: value >= low, f"a number of {low} or more")}


def _one_of(*choices: str) -> dict[str, Accepts]:
    return {"accepts": Accepts(lambda value: value in choices, "one of " + ", ".join(choices))}


_POSITIVE = {"accepts": Accepts(lambda value: value > 0, "a number above 0")}
_PENALTY = {"accepts": Accepts(lambda value: value <= 0, "a number of 0 or less")}
_FRACTION = {"accepts": Accepts(lambda value: 0 < value <= 1, "a number above 0 and at most 1")}
_FILLED = {"accepts": Accepts(lambda value: bool(value), "a value that is not empty")}


@dataclass(frozen=True)
class EnvGroups:
    """One environment of a split: how many groups play it, with which arguments, under which name in the metrics."""

    id: str = field(metadata=_FILLED)
    groups: int = field(metadata=_at_least(1))
    kwargs: dict[str, Any] = field(default_factory=dict)
    name: str | None = field(default=None, metadata=_FILLED)

    @property
    def tag(self) -> str:
        """The name this environment has in the metrics: its own, or its id without the version."""
        return self.name or re.sub(r"-v\d+$", "", self.id)


@dataclass(frozen=True)
class Split:
    """The environments of training or of validation, and the seed of the first group.

    Training advances the seed by `groups` at every step, so every step sees new initial states; validation always
    plays the seeds `seed .. seed + groups - 1` (reference: RAGEN's `seed.train` and `seed.val`).
    """

    envs: tuple[EnvGroups, ...] = field(metadata=_FILLED)
    seed: int = field(metadata=_at_least(0))

    @property
    def groups(self) -> int:
        """P: prompts, that is initial states, of one step."""
        return sum(env.groups for env in self.envs)

    def seeds(self, steps: int = 1) -> range:
        """The seeds that `steps` steps use."""
        return range(self.seed, self.seed + steps * self.groups)

    def env_of(self, position: int) -> EnvGroups:
        """The environment that the group at `position` (0 .. groups - 1) of a step plays."""
        for env in self.envs:
            if position < env.groups:
                return env
            position -= env.groups
        raise IndexError(f"a step has {self.groups} groups only")


@dataclass(frozen=True)
class Rollout:
    """One episode: the dialogue's budgets and words, and the limits on time and tokens."""

    max_turns: int = field(default=5, metadata=_at_least(1))
    max_actions_per_turn: int = field(default=5, metadata=_at_least(1))
    max_actions: int | None = field(default=None, metadata=_at_least(1))
    think: bool = True
    action_sep: str = field(default="||", metadata=_FILLED)
    format_penalty: float = field(default=-0.1, metadata=_PENALTY)
    max_tokens: int = field(default=100, metadata=_at_least(1))
    system_prompt: str = "You're a helpful assistant."
    explain_invalid: bool = False
    response_length: int = field(default=400, metadata=_at_least(1))
    step_timeout: float = field(default=60.0, metadata=_POSITIVE)
    env_threads: int = field(default=16, metadata=_at_least(1))
    seeded_sampling: bool = True

    def protocol(self) -> Protocol:
        """The text protocol these settings describe."""
        from ragen_verl.rollout.protocol import Protocol

        names = {one.name for one in fields(Protocol)}
        return Protocol(**{one.name: getattr(self, one.name) for one in fields(self) if one.name in names})


@dataclass(frozen=True)
class Filter:
    """Which groups of a step the update sees; `value` belongs to the strategy and is null without one."""

    strategy: str = field(default="none", metadata=_one_of("none", *STRATEGIES))
    value: float | None = field(default=None, metadata=_FRACTION)

    def __post_init__(self) -> None:
        if self.strategy == "none" and self.value is not None:
            raise RecipeError(
                f"ragen.filter.value is {self.value} but ragen.filter.strategy is none, so it would do nothing: "
                "set the value to null, or the strategy to top_k."
            )

    @property
    def on(self) -> bool:
        """Whether any group can be dropped."""
        return self.strategy != "none"

    @property
    def fraction(self) -> float:
        """The fraction of groups that is kept: all of them without a filter, 0.25 unless the recipe says otherwise."""
        if not self.on:
            return 1.0
        return DEFAULT_FRACTION if self.value is None else self.value


@dataclass(frozen=True)
class Run:
    """Where the run writes: resolved config, versions, metrics, trajectories, checkpoints, summary."""

    dir: str = field(metadata=_FILLED)


@dataclass(frozen=True)
class RagenConfig:
    """The whole `ragen:` block."""

    train: Split
    val: Split
    run: Run
    rollout: Rollout = field(default_factory=Rollout)
    filter: Filter = field(default_factory=Filter)

    @classmethod
    def from_omegaconf(cls, config: DictConfig | Mapping[str, Any]) -> RagenConfig:
        """Read a whole verl config that has a `ragen` block, or the block alone.

        Raises:
            RecipeError: a key is unknown or missing, or its value is not what the key takes.
        """
        register_resolvers()
        if not isinstance(config, DictConfig):
            config = OmegaConf.create(dict(config))
        block = config.get("ragen", config)
        try:
            plain = OmegaConf.to_container(block, resolve=True, throw_on_missing=True)
        except OmegaConfBaseException as error:
            raise RecipeError(unresolved(error)) from error
        return parse(cls, plain, "ragen")

    def check_seeds(self, steps: int) -> None:
        """Refuse a validation that would play initial states of training.

        Raises:
            RecipeError: the seeds of `steps` training steps and those of validation have one in common.
        """
        train, val = self.train.seeds(steps), self.val.seeds()
        if train.start < val.stop and val.start < train.stop:
            raise RecipeError(
                f"Training would play the seeds {train.start} to {train.stop - 1} ({steps} steps of "
                f"{self.train.groups} groups) and validation {val.start} to {val.stop - 1}: "
                "move ragen.train.seed or ragen.val.seed so that they do not overlap."
            )

    def check_filter(self, group_size: int) -> None:
        """Refuse a filter that has nothing to rank by, or that would keep nothing.

        Args:
            group_size: N, trajectories per group (`actor_rollout_ref.rollout.n`).

        Raises:
            RecipeError: the filter is on and N is 1, or the fraction of the step's groups is less than one group.
        """
        if not self.filter.on:
            return
        if group_size < 2:
            raise RecipeError(
                f"ragen.filter.strategy is {self.filter.strategy} but actor_rollout_ref.rollout.n is {group_size}, and "
                "one return has no spread to rank by: use n of 2 or more, or strategy none."
            )
        if self.kept_groups < 1:
            raise RecipeError(
                f"ragen.filter.value {self.filter.fraction:g} of {self.train.groups} groups is less than one group: "
                f"use {1 / self.train.groups:.3g} or more, or more groups in ragen.train.envs."
            )

    @property
    def kept_groups(self) -> int:
        """Groups that the update of one step sees."""
        return keep_count(self.filter.fraction, self.train.groups)


def unresolved(error: OmegaConfBaseException) -> str:
    """One sentence for a value that OmegaConf cannot produce: a missing one, or an interpolation that fails."""
    reason = str(error).splitlines()[0].rpartition("raised while resolving interpolation: ")[2].rstrip(".")
    key = error.full_key or error.key
    return f"{key} has no value: {reason}." if key else f"The recipe cannot be resolved: {reason}."


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of an error message about an unknown name: the nearest known one, or all of them."""
    known = sorted(known)
    close = difflib.get_close_matches(str(name), known, n=1)
    return f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}."


def parse(kind: type, data: Any, path: str) -> Any:
    """Make a dataclass of type `kind` from plain dicts and lists; `path` is the key's full name in the recipe.

    Raises:
        RecipeError: an unknown or missing key, a wrong type, or a value that the field does not accept.
    """
    if not isinstance(data, Mapping):
        raise RecipeError(f"{path} is {data!r} but has to be a block of keys ({', '.join(_names(kind))}).")
    for key in data:
        if key not in _names(kind):
            raise RecipeError(f"{path}.{key} is not a key of {path}: {nearest(key, _names(kind))}")
    hints = typing.get_type_hints(kind)
    values = {}
    for one in fields(kind):
        where = f"{path}.{one.name}"
        if one.name in data:
            values[one.name] = _convert(hints[one.name], data[one.name], where, one.metadata.get("accepts"))
        elif one.default is MISSING and one.default_factory is MISSING:
            raise RecipeError(f"{where} is missing from the recipe.")
    return kind(**values)


def _names(kind: type) -> list[str]:
    return [one.name for one in fields(kind)]


def _convert(hint: Any, value: Any, path: str, accepts: Accepts | None) -> Any:
    """Check one value against its field's type and range; ints are taken for floats, nothing else is converted."""
    optional = isinstance(hint, types.UnionType) and types.NoneType in typing.get_args(hint)
    if optional:
        if value is None:
            return None
        hint = next(one for one in typing.get_args(hint) if one is not types.NoneType)
    or_null = " or null" if optional else ""
    if is_dataclass(hint):
        return parse(hint, value, path)
    if typing.get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise RecipeError(f"{path} is {value!r} but has to be a list.")
        item = typing.get_args(hint)[0]
        value = tuple(_convert(item, one, f"{path}[{i}]", None) for i, one in enumerate(value))
    elif typing.get_origin(hint) is dict:
        if not isinstance(value, Mapping):
            raise RecipeError(f"{path} is {value!r} but has to be a block of keys.")
        return dict(value)
    else:
        value = _scalar(hint, value, path, accepts, or_null)
    if accepts and not accepts.test(value):
        raise RecipeError(f"{path} is {value!r} but has to be {accepts.words}{or_null}.")
    return value


_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def _scalar(hint: type, value: Any, path: str, accepts: Accepts | None, or_null: str) -> Any:
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        words = accepts.words if accepts and hint in (float, str) else _WORDS[hint]
        raise RecipeError(f"{path} is {value!r} but has to be {words}{or_null}.")
    return value


def groups_of(envs: ListConfig | list) -> int:
    """P of a recipe's list of environments: the resolver `${ragen_groups:${ragen.train.envs}}`.

    With it `data.train_batch_size` follows from the environments instead of being a second number to keep equal.
    """
    total = 0
    for i, env in enumerate(envs):
        count = env.get("groups") if isinstance(env, Mapping | DictConfig) else None
        if not isinstance(count, int) or isinstance(count, bool):
            raise RecipeError(f"ragen.*.envs[{i}].groups is {count!r} but has to be a whole number.")
        total += count
    return total


def register_resolvers() -> None:
    """Register the OmegaConf resolvers that recipes use; once per process, called by the plugin and the checks."""
    OmegaConf.register_new_resolver("ragen_groups", groups_of, replace=True)
    OmegaConf.register_new_resolver("ragen_sum", lambda *numbers: sum(numbers), replace=True)
    OmegaConf.register_new_resolver("ragen_nano", _nano_model, replace=True)


def _nano_model() -> str:
    """The folder of the model that ships with the package: the resolver `${ragen_nano:}`."""
    from ragen_verl.cpu.nano import nano_model_path

    return str(nano_model_path())
