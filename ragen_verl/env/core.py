"""`Env`, the base class of environments: gymnasium's API with text observations and action names.

Only gymnasium and numpy are imported, so environments can be written, played and tested without verl or torch.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, wraps
from types import MappingProxyType
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Space, Text

from ragen_verl.errors import RecipeError

__all__ = ["FLAGS", "Env", "Names", "Step", "flag", "random_action"]

FLAGS = ("success", "action_is_valid", "action_is_effective")
"""The entries of a step's info that say yes or no."""

# Makes the stream of the dynamics different from every stream that the initial-state generator could spawn.
_DYNAMICS_KEY = 0x64796E61
_MAX_TEXT = 100_000


class Step(NamedTuple):
    """One transition, unpacked like gymnasium's 5-tuple."""

    observation: str
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


def flag(name: str, value: Any) -> bool:
    """Return what an environment answers to a yes-or-no question, such as `info["success"]`, as a bool.

    Args:
        name: the question, for the error.
        value: a bool, or the number 0 or 1; numpy's scalars are these too.

    Raises:
        TypeError: it is anything else. An array, a text or a dict counts as true in Python whatever it says.
    """
    one = value.item() if getattr(value, "ndim", None) == 0 else value
    if isinstance(one, (bool, int, float)) and one in (0, 1):
        return bool(one)
    raise TypeError(f"{name} is {ascii(value)[:100]}: make it one bool")


class Names(Space[str]):
    """A finite set of action names; membership ignores case and surrounding blanks.

    Environments, the rollout and the games played by hand all use `canonical`, so there is one rule for which text is
    an action.
    """

    def __init__(self, names: tuple[str, ...], seed: int | np.random.Generator | None = None) -> None:
        self.names = tuple(names)
        super().__init__(shape=(), dtype=str, seed=seed)

    def sample(self, mask: None = None, probability: None = None) -> str:
        """Return one name, each equally likely (masks are not supported)."""
        return self.names[int(self.np_random.integers(len(self.names)))]

    def canonical(self, text: Any) -> str | None:
        """Return the name that `text` spells, or None when it spells none."""
        if not isinstance(text, str):
            return None
        wanted = text.strip().casefold()
        return next((name for name in self.names if name.strip().casefold() == wanted), None)

    def contains(self, x: Any) -> bool:
        """Tell whether `x` spells one of the names."""
        return self.canonical(x) is not None

    @property
    def is_np_flattenable(self) -> bool:
        """Names have no array form."""
        return False

    def __repr__(self) -> str:
        return f"Names{self.names}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Names) and self.names == other.names


class Env(gymnasium.Env[str, str]):
    """Base class of text environments.

    A subclass gives `instruction`, `actions` (or leaves None for free text), `reset`, `step` and `render`; the rest
    has working defaults. `reset` begins with `super().reset(seed=seed)`; `step` turns the text of an action into a
    name with `self.name_of(action)` and returns `self.outcome(...)`. `step` never raises on bad text: an unknown
    action changes nothing, earns 0.0 and is reported as not valid.

    Attributes:
        instruction: the task, shown once at the start of the first user message. It is read after `reset`, since it may
            depend on the episode.
        actions: names of the discrete actions in the order shown, None for free text. It is read after `reset` as well.
        tools: schemas of the functions that an action may call, as OpenAI's API has them; empty for other environments
            (see `ragen_verl.env.tools.ToolEnv`). They are read after `reset`, and so is `policy`.
        policy: rules for the model, which the protocol `tools` puts into the system message.
        symbols: symbol -> meaning where observations are drawn as a grid, empty otherwise.
        max_actions: the usual budget of actions per episode; the rollout enforces it, the environment does not.
        charset: the characters that observations and free-text actions consist of.
        external_arguments: names of the constructor's arguments that name a file, a folder, an address or a data set of
            the hub; `ragen-verl env serve` refuses them to its clients unless its options allow their values.
        isolation: where the rollout runs the environment's calls: in a "thread", each call perhaps in another one; or
            in a "process", whose calls are all made in its main thread, for an environment that keeps something that
            belongs to one thread, that may crash, that may hang in code which a thread cannot leave, or that holds
            Python's lock for long. It is an attribute of the class, not of an instance.
        seed, rollout_index: the seed and the rollout index of the current episode.
        tasks: how many different tasks a finite environment has, such as a benchmark; None where seeds give new ones
            without end.
        task: the number of the current one, 0 or more.
        dynamics: generator of everything that happens after the initial state, seeded by both of them.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012 (gymnasium's own spelling)
    render_mode: str | None = "ansi"

    instruction: str = ""
    actions: tuple[str, ...] | None = None
    tools: Sequence[dict[str, Any]] = ()
    policy: str = ""
    symbols: Mapping[str, str] = MappingProxyType({})
    max_actions: int = 10
    charset: str = string.printable + "√"
    external_arguments: tuple[str, ...] = ()
    isolation: str = "thread"
    tasks: int | None = None

    task: int | None = None
    seed: int | None = None
    rollout_index: int = 0
    _dynamics: np.random.Generator | None = None

    @cached_property
    def action_space(self) -> Names | Text:  # type: ignore[override]
        """The action names, or any text where `actions` is None."""
        return Names(self.actions) if self.actions else Text(_MAX_TEXT, min_length=0, charset=self.charset)

    @cached_property
    def observation_space(self) -> Text:  # type: ignore[override]
        """Any text over `charset`."""
        return Text(_MAX_TEXT, min_length=0, charset=self.charset)

    @property
    def dynamics(self) -> np.random.Generator:
        """The generator of everything after the initial state; raises ResetNeeded before the first reset."""
        if self._dynamics is None:
            raise ResetNeeded("Call reset before playing.")
        return self._dynamics

    _reset_options: dict[str, Any] | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Make the options of every `reset` known to this class, even if an author passes on the seed alone."""
        super().__init_subclass__(**kwargs)
        if cls.reset is not Env.reset and not hasattr(cls.reset, "_keeps_options"):
            cls.reset = _keeping_options(cls.reset)  # type: ignore[method-assign]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Seed `np_random` with `seed`, and `dynamics` with the seed and the rollout index.

        A subclass begins with `super().reset(seed=seed)` and returns its first observation and an info dict. It need
        not pass `options`: this method knows the options that the subclass's `reset` was called with.

        Args:
            seed: the group's seed, 0 or more. None draws the next one from `np_random`, so that `self.seed` always
                reproduces the episode.
            options: `{"rollout_index": k}` makes this the k-th rollout of the group (default 0): it has the same
                initial state as the other rollouts, and its own transition randomness afterwards. `{"task": i}` chooses
                the task of a finite environment (default: the seed modulo `tasks`).

        Raises:
            RecipeError: if the rollout index is not an integer of 0 or more, or there is no such task.
        """
        given = {**(self._reset_options or {}), **(options or {})}
        rollout_index = given.get("rollout_index", 0)
        if isinstance(rollout_index, bool) or not isinstance(rollout_index, (int, np.integer)) or rollout_index < 0:
            raise RecipeError(f"options['rollout_index'] must be an integer of 0 or more, not {rollout_index!r}.")
        if seed is None:
            seed = int(self.np_random.integers(2**31))
        super().reset(seed=int(seed))
        self.seed, self.rollout_index = int(seed), int(rollout_index)
        sequence = np.random.SeedSequence(self.seed, spawn_key=(_DYNAMICS_KEY, self.rollout_index))
        self._dynamics = np.random.Generator(np.random.PCG64(sequence))
        if self.tasks is not None:
            self.task = task = given.get("task", self.seed % self.tasks)
            if isinstance(task, bool) or not isinstance(task, int) or not 0 <= task < self.tasks:
                raise RecipeError(f"options['task'] must be an integer from 0 to {self.tasks - 1}, not {task!r}.")
        return "", {}

    def task_key(self, task: int) -> str:
        """A name of a finite environment's task by its content, so that splits with a task in common are found."""
        raise NotImplementedError

    def task_gold(self, task: int) -> str | None:
        """The solution of a task as text, so that near-copies are found; None where it is unknown."""
        return None

    def name_of(self, action: Any) -> str | None:
        """Return the name among `self.actions` that `action` spells, in any case, or None."""
        return Names(self.actions or ()).canonical(action)

    def outcome(
        self,
        reward: float = 0.0,
        *,
        terminated: bool = False,
        truncated: bool = False,
        success: bool = False,
        valid: bool = True,
        effective: bool = True,
        **numbers: float,
    ) -> Step:
        """Return the Step for the current state.

        Args:
            reward: the reward of this action.
            terminated: the episode is over by its own rules.
            truncated: the episode was cut off by a limit of the environment.
            success: the task is solved.
            valid: the action was one of the known ones.
            effective: the action changed something.
            numbers: further numeric entries of `info`; each becomes an averaged metric.
        """
        flags = {name: flag(name, value) for name, value in zip(FLAGS, (success, valid, effective), strict=True)}
        ends = flag("terminated", terminated), flag("truncated", truncated)
        return Step(self.render(), float(reward), *ends, {**flags, **numbers})

    def step(self, action: str) -> Step:
        """Apply one action, given by name (any case) or as free text."""
        raise NotImplementedError

    def render(self) -> str:
        """Return the current observation."""
        raise NotImplementedError

    def oracle(self) -> list[str]:
        """Return action names that solve the episode from the current state, or [] where no plan is known."""
        return []


def random_action(env: Env, rng: np.random.Generator, state: str = "") -> str:
    """Return a random action for an environment.

    It is one of the action names, each equally likely. For free text it is the result of `env.random_action(rng)`, or,
    where there is no such method, a number from 0 to 20 or a word of `state` or of the instruction.
    """
    if env.actions:
        return env.actions[int(rng.integers(len(env.actions)))]
    own = getattr(env, "random_action", None)
    if own is not None:
        return own(rng)
    words = [*map(str, range(21)), *state.split()[:200], *env.instruction.split()[:200]]
    return words[int(rng.integers(len(words)))]


def _keeping_options(reset: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the method `reset`: while it runs, the instance keeps the options of the outermost call."""

    @wraps(reset)
    def with_options(self: Env, *args: Any, **kwargs: Any) -> Any:
        before = self._reset_options
        self._reset_options = {**(before or {}), **(kwargs.get("options") or {})}
        try:
            return reset(self, *args, **kwargs)
        finally:
            self._reset_options = before

    with_options._keeps_options = True  # type: ignore[attr-defined]
    return with_options
