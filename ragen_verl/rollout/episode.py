"""One asynchronous episode on token ids: the engine samples, the environment answers, nothing is tokenised again.

It is plain Python: the engine is any coroutine function `generate(ids, max_tokens) -> Generation`.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ragen_verl.env.core import FLAGS, Names, flag
from ragen_verl.env.hosting.threads import EnvTimeout, EnvWorkers
from ragen_verl.env.text import encodable
from ragen_verl.errors import RecipeError
from ragen_verl.rollout.chat import ChatTokens
from ragen_verl.rollout.context import Context, Full, Prompts
from ragen_verl.rollout.protocol import Protocol
from ragen_verl.rollout.reward import Rewards
from ragen_verl.rollout.trajectory import StopReason, Trajectory, Turn, plain

if TYPE_CHECKING:
    from ragen_verl.env.core import Env

__all__ = ["Generate", "Generation", "Limits", "NoRoom", "play"]

_log = logging.getLogger(__name__)


class Generation(NamedTuple):
    """The engine's sample: ids, with the one that ended the response, and their log-probabilities or None."""

    token_ids: list[Any]
    log_probs: list[float] | None = None


Generate = Callable[[list[int], int], Awaitable[Generation]]
"""The engine: (all ids so far, the highest number of new ids) -> its sample. It may raise `NoRoom`."""


class NoRoom(Exception):
    """What an engine raises that alone knows its context: nothing fits beside this prompt."""


_FULL = Full()
_ENVIRONMENTS = Rewards()


@dataclass(frozen=True)
class Limits:
    """Sizes of an episode.

    Args:
        response_length: the highest number of tokens of one response.
        context_length: the highest number of tokens of a prompt and its response together; with the full history they
            are the episode.
        step_timeout: the seconds that one call of the environment (reset or step) may take.
        min_response: a turn is begun only if this many new tokens (or `response_length`, if less) fit.
        prompt_length: the highest number of tokens of one prompt, where every turn is a training row of its own; None
            sets no limit.
    """

    response_length: int
    context_length: int
    step_timeout: float = 30.0
    min_response: int = 8
    prompt_length: int | None = None

    def __post_init__(self) -> None:
        for name in ("response_length", "context_length", "step_timeout", "min_response", "prompt_length"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise RecipeError(f"{name} is {value}; set it above 0.")

    def room(self, prompt_ids: list[int]) -> int:
        """The number of tokens that a response to this prompt may have; 0 if too few are left for a turn."""
        if self.prompt_length is not None and len(prompt_ids) > self.prompt_length:
            return 0
        room = min(self.context_length - len(prompt_ids), self.response_length)
        return room if room >= min(self.min_response, self.response_length) else 0


async def play(
    env: Env | Callable[[], Env],
    *,
    seed: int,
    rollout_index: int,
    protocol: Protocol,
    chat: ChatTokens,
    generate: Generate,
    limits: Limits,
    workers: EnvWorkers,
    env_id: str | None = None,
    env_name: str | None = None,
    context: Context = _FULL,
    shared_rng: bool = False,
    rewards: Rewards = _ENVIRONMENTS,
) -> Trajectory:
    """Play one episode and close the environment.

    Args:
        env: a fresh environment that only this episode uses, or its builder, which a worker thread calls.
        seed, rollout_index: the group's seed, which fixes the initial state, and the number of this episode in it.
        protocol, chat, limits: prompts and budgets; token ids; sizes.
        generate: the engine.
        workers: the threads in which environment calls run.
        env_id: the id for the record; None takes the environment's registered id or its class name.
        env_name: the environment's name in metrics, where it is not its id.
        context: the rule for the past turns that a prompt shows.
        shared_rng: whether the environment is always started with rollout index 0, so that a group shares its
            transition randomness.
        rewards: what the episode is rewarded for; one that fails is a failure of the environment.

    Returns:
        The trajectory, even after a failure. If the environment raises or hangs, or the engine raises or samples
        nothing, the trajectory ends with `ENV_ERROR` or `ENGINE_ERROR` and `excluded`, and keeps its complete turns.
        The only exceptions are cancellation, and the RecipeError of an environment that can never be built; a server
        that cannot be reached now is a failure like any other.
    """
    name = env_id or getattr(getattr(env, "spec", None), "id", None) or type(env).__name__
    trajectory = Trajectory(
        name,
        seed,
        rollout_index,
        row_per_turn=context.row_per_turn,
        env_name=env_name,
        protocol=protocol.version,
    )
    guard = _GuardedEnv(env, workers, limits.step_timeout, trajectory, 0 if shared_rng else rollout_index)
    trajectory.started, started = time.time(), time.perf_counter()
    try:
        try:
            episode = _Episode(guard, protocol, chat, generate, limits, trajectory, context)
            await episode.run()
            if rewards:
                await guard.run("reward", lambda: rewards.give(trajectory))
            episode.charge()
        except _Failure as failure:
            trajectory.stop_reason, trajectory.error = failure.reason, str(failure)
            _log.warning("%s, seed %s, rollout %s: %s: %s", name, seed, rollout_index, failure.reason, failure)
        if not guard.hung:
            await guard.close()
    finally:
        guard.close_soon()  # for an episode that hung or was cancelled; otherwise it does nothing
    trajectory.seconds = time.perf_counter() - started
    return trajectory


class _Failure(Exception):
    """The environment or the engine failed; this ends the episode."""

    def __init__(self, reason: StopReason, where: str, error: BaseException | str) -> None:
        text = error if isinstance(error, str) else _text_of(error)
        super().__init__(encodable(f"{where}: {text}"[:2000]))
        self.reason = reason


class _Outcome(NamedTuple):
    """One executed action, checked."""

    observation: str
    reward: float
    stop: StopReason | None
    info: dict[str, Any]


class _Episode:
    """The state of one episode between turns."""

    def __init__(
        self,
        env: _GuardedEnv,
        protocol: Protocol,
        chat: ChatTokens,
        generate: Generate,
        limits: Limits,
        trajectory: Trajectory,
        context: Context,
    ) -> None:
        self.env, self.protocol, self.chat, self.context = env, protocol, chat, context
        self.generate, self.limits, self.trajectory = generate, limits, trajectory
        self.held = 0  # number of ids that the present row already has
        self.unfitting = 0  # turns for which the context had no room

    async def run(self) -> None:
        state, system, task, tools = await self.env.reset(self.protocol)
        prompts = Prompts(self.context, self.protocol, self.chat, system, task, tools)
        self.trajectory.tools = tools
        self.trajectory.system, self.trajectory.task_prompt = self.chat.task_prompt(system, task)
        actions_left = self.env.budget
        for number in range(1, self.protocol.max_turns + 1):
            prompt = prompts.next(self.trajectory.turns, state, actions_left)
            if number == 1:
                self.trajectory.prompt_ids = prompt
            room = self.limits.room(prompt)
            turn = await self._sample(state, prompt, room) if room else None
            if turn is None:
                self.trajectory.stop_reason = StopReason.CONTEXT_FULL
                self.unfitting = self.protocol.max_turns - number + 1
                return
            turn.user, turn.shown_from = self.chat.shown(prompts.user), prompts.shown_from
            stop = await self._act(turn, actions_left)
            actions_left -= len(turn.executed)
            if stop is None and actions_left <= 0:
                stop = StopReason.ACTION_BUDGET
            if stop is not None:
                self.trajectory.stop_reason = stop
                return
            state = turn.observation
        self.trajectory.stop_reason = StopReason.TURN_BUDGET

    def charge(self) -> None:
        """Charge the turn that filled the context for the turns that no longer fit, so that filling it is not rewarded.

        Each of them costs as much as an invalid answer, and no less than a turn of this episode did on average.
        """
        if self.unfitting and (played := self.trajectory.turns):
            played[-1].penalty += self.unfitting * min(self.protocol.format_penalty, self.trajectory.ret / len(played))

    async def _sample(self, state: str, prompt: list[int], max_tokens: int) -> Turn | None:
        """Ask the engine for one response and read it; None where it has no room for one."""
        started = time.perf_counter()
        try:
            sampled = await self.generate(prompt, max_tokens)
        except NoRoom:
            return None
        except Exception as error:
            raise _Failure(StopReason.ENGINE_ERROR, "generate", error) from error
        finally:
            seconds = time.perf_counter() - started
            self.trajectory.generate_seconds += seconds
        response, log_probs = list(sampled.token_ids), sampled.log_probs
        if not 0 < len(response) <= max_tokens:
            raise _Failure(StopReason.ENGINE_ERROR, "generate", f"{len(response)} tokens, asked for 1 to {max_tokens}")
        if log_probs is not None and len(log_probs) != len(response):
            raise _Failure(
                StopReason.ENGINE_ERROR, "generate", f"{len(response)} tokens but {len(log_probs)} log-probabilities"
            )
        new_ids = prompt[self.held :]
        self.held = 0 if self.context.row_per_turn else len(prompt) + len(response)
        text = self.chat.decode(response)
        parsed = self.chat.parse(text, self.protocol)
        turn = Turn(
            state=state,
            prompt_ids=new_ids,
            response_ids=response,
            log_probs=None if log_probs is None else list(log_probs),
            text=text,
            think=parsed.think,
            format_ok=parsed.format_ok,
            actions=parsed.actions,
            observation=state,
            prefill=self.chat.prefill(response),
            generate_seconds=seconds,
        )
        self.trajectory.turns.append(turn)
        return turn

    async def _act(self, turn: Turn, actions_left: int) -> StopReason | None:
        """Execute a turn's actions in order, without unknown names, until the episode ends or the budget is used up.

        An action is valid if its name is known (or actions are free text) and the environment did not report
        `action_is_valid: False` for it.
        """
        known = [action for action in turn.actions if self.env.knows(action)]
        turn.num_valid = len(known)
        stop = None
        waited = self.trajectory.env_seconds
        try:
            for action in known[: min(actions_left, self.protocol.max_actions_per_turn)]:
                began = self.trajectory.env_seconds
                outcome = await self.env.step(action)
                turn.seconds.append(self.trajectory.env_seconds - began)
                turn.executed.append(action)
                turn.infos.append(outcome.info)
                turn.reward += outcome.reward
                turn.observation = outcome.observation
                turn.num_valid -= not outcome.info.get("action_is_valid", True)
                turn.effective = turn.effective or outcome.info.get("action_is_effective", False)
                stop = outcome.stop
                if stop is not None:
                    break
        finally:
            turn.valid = bool(turn.actions) and turn.num_valid == len(turn.actions)
            turn.penalty = 0.0 if turn.valid else self.protocol.format_penalty
            turn.env_seconds = self.trajectory.env_seconds - waited
        return stop


class _GuardedEnv:
    """An environment that runs in the worker threads, is checked, and is closed exactly once.

    A call that was abandoned (timeout) or whose episode was cancelled may still run. It is not safe to close the
    environment meanwhile, so the thread of that call closes it when the call returns.
    """

    def __init__(
        self,
        env: Env | Callable[[], Env],
        workers: EnvWorkers,
        timeout: float,
        trajectory: Trajectory,
        rollout_index: int,
    ) -> None:
        self.env: Any = None if callable(env) else env
        self._build = env
        self.workers, self.timeout, self.trajectory = workers, timeout, trajectory
        self.rollout_index = rollout_index
        self.hung = False
        self.budget = 0
        self._names: Names | None = None
        self._lock = threading.Lock()
        self._busy = self._closing = self._closed = False

    async def reset(self, protocol: Protocol) -> tuple[str, str, str, list]:
        """Start the episode; return the first observation, the system message, the task and the schemas of tools."""

        def start() -> tuple[str, str, str, list]:
            state, _ = self.env.reset(seed=self.trajectory.seed, options={"rollout_index": self.rollout_index})
            self.budget = protocol.budget(self.env)
            self._names = None if self.env.actions is None else Names(tuple(self.env.actions))
            texts = _text(state), encodable(protocol.system(self.env)), encodable(protocol.task(self.env))
            return *texts, plain(list(protocol.tools(self.env)))

        if self.env is None:
            await self.run("make", self._make)
        return await self.run("reset", start)

    def _make(self) -> None:
        self.env = self._build()  # type: ignore[operator]  # here it is what builds one

    def knows(self, action: str) -> bool:
        """Whether the action can be tried: a known name, or any text where actions are free text."""
        return self._names is None or action in self._names

    async def step(self, action: str) -> _Outcome:
        """One action, executed and checked."""
        return await self.run(f"step({action[:80]!r})", lambda: _checked(self.env.step(action)))

    async def run(self, where: str, function: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        try:
            return await self.workers.call(self._exclusive, function, timeout=self.timeout)
        except Exception as error:
            if where == "make" and isinstance(error, RecipeError) and not isinstance(error, ConnectionError):
                raise
            self.hung = isinstance(error, EnvTimeout)
            raise _Failure(StopReason.ENV_ERROR, where, error) from error
        finally:
            self.trajectory.env_seconds += time.perf_counter() - started

    def _exclusive(self, function: Callable[[], Any]) -> Any:
        # In a worker thread.
        with self._lock:
            if self._closing:
                return None
            self._busy = True
        try:
            return function()
        finally:
            with self._lock:
                self._busy, close_now = False, self._closing
            if close_now:
                self._close()

    async def close(self) -> None:
        """Close the environment and wait for it; if this fails the episode still counts."""
        try:
            await self.workers.call(self._close, timeout=self.timeout)
        except Exception as error:
            _log.warning("%s: close: %s", self.trajectory.env_id, error)

    def close_soon(self) -> None:
        """Close when no call is running, without waiting; in a separate thread, so that the pool cannot lose one."""
        with self._lock:
            if self._closing or self._closed:
                return
            self._closing = True
            if self._busy:
                return  # the thread of the running call closes it
        threading.Thread(target=self._close, name="ragen-env-close", daemon=True).start()

    def _close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        try:
            if self.env is not None:
                self.env.close()
        except Exception as error:
            _log.warning("%s: close: %s: %s", self.trajectory.env_id, type(error).__name__, error)


def _text(observation: Any) -> str:
    if not isinstance(observation, str):
        raise TypeError(f"the observation is {type(observation).__name__}, not text")
    return encodable(observation)


def _text_of(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # the text of an environment's exception may itself raise
        return type(error).__name__


def _checked(result: Any) -> _Outcome:
    """Check the five values of a step; an environment that breaks the contract has failed."""
    observation, reward, terminated, truncated, info = result
    reward = float(reward)
    if not math.isfinite(reward):
        raise ValueError(f"the reward is {reward}")
    if not isinstance(info, dict):
        raise TypeError(f"info is {type(info).__name__}, not a dict")
    stop = StopReason.of_step(info.get("success", False), terminated, truncated)
    flags = {name: flag(f"info[{name!r}]", info[name]) for name in FLAGS if name in info}
    return _Outcome(_text(observation), reward, stop, {**plain(info), **flags})
