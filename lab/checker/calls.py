"""Calls of an environment: their results are checked, and none may hang.

A call cannot be stopped from outside, so a check runs in a daemon thread and is given up as a whole when one of its
calls is overdue. A call that never releases the interpreter (a pathological regular expression, a huge power) stops the
other threads of this process as well: then `backstop` ends the process and prints the stack.
"""

from __future__ import annotations

import faulthandler
import math
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import Any, TypeVar

from ragen_verl.env.core import FLAGS, Env, Step, flag

__all__ = ["Broken", "Calls", "shown"]

_T = TypeVar("_T")


class Broken(Exception):
    """An environment broke a rule; this ends the check of that rule.

    Attributes:
        rule: its name in `rules.RULES`.
        what: the sentence for the report.
    """

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(what)
        self.rule, self.what = rule, what


class Calls:
    """The calls of one check.

    Args:
        limit: the seconds that each call may take.
        backstop: end the whole process if a call blocks the interpreter; the stack is written to stderr.
        progress: called about five times a second, with the number of calls so far, while a check runs.
    """

    def __init__(
        self, limit: float, backstop: bool = False, progress: Callable[[int], None] = lambda calls: None
    ) -> None:
        self.limit, self.backstop, self.progress = limit, backstop, progress
        self.made = 0
        self._threads: Iterator[queue.SimpleQueue] | None = None
        self._running: dict[int, tuple[float, str]] = {}
        self._built: list[Env] = []

    # -- time ---------------------------------------------------------------------------------------------------------

    def supervised(self, function: Callable[[], _T]) -> _T:
        """Run `function` in a thread and return its result, or raise its exception.

        Raises:
            Broken: the rule `time`, as soon as a call made through this object is overdue, in any thread.
        """
        self._arm()
        jobs = _thread()
        done, outcome = _started(jobs, function)
        jobs.put(None)
        try:
            while not done.wait(min(0.2, self.limit / 4)):
                self._arm()
                self.progress(self.made)
                if (late := self._overdue()) is not None:
                    raise Broken("time", f"{late} did not return within {self.limit:g} s")
        finally:
            if self.backstop:
                faulthandler.cancel_dump_traceback_later()
        return _result(outcome)

    @contextmanager
    def scattered(self) -> Iterator[None]:
        """Make no two calls within the block that follow each other in the same thread."""
        threads = [_thread() for _ in range(3)]  # all alive: a new thread may get the number of one that has ended
        self._threads = cycle(threads)
        try:
            yield
        finally:
            self._threads = None
            for jobs in threads:
                jobs.put(None)

    def _arm(self) -> None:
        """Delay the end of the process; it does not end as long as this thread runs."""
        if self.backstop:
            faulthandler.dump_traceback_later(2 * self.limit + 1, exit=True, file=sys.__stderr__)

    def _overdue(self) -> str | None:
        now = time.monotonic()
        return next((where for since, where in list(self._running.values()) if now - since > self.limit), None)

    def call(self, where: str, function: Callable[[], _T], times: int = 1) -> _T:
        """Run `function`, which the report calls `where`; it may take `times` the limit of a single call.

        Raises:
            Broken: the rule `exceptions`, if it raised anything.
        """
        self.made += 1
        key = threading.get_ident()
        self._running[key] = time.monotonic() + (times - 1) * self.limit, where
        try:
            return function() if self._threads is None else _done_by(next(self._threads), function)
        except Broken:
            raise
        except BaseException as error:  # even SystemExit, since an environment must not end the process
            raise Broken("exceptions", f"{where} raised {_told(error)}") from error
        finally:
            self._running.pop(key, None)

    # -- the environment's methods ------------------------------------------------------------------------------------

    def build(self, build: Callable[[], Env], where: str = "building it") -> Env:
        """A new instance, closed by `close_all`."""
        env = self.call(where, build)
        self._built.append(env)
        return env

    def close_all(self) -> None:
        """Close every instance that was built."""
        while self._built:
            self.call("close()", self._built.pop().close)

    def close(self, env: Env) -> None:
        """Close an instance that `build` made."""
        self._built = [one for one in self._built if one is not env]
        self.call("close()", env.close)

    def reset(self, env: Env, seed: int, rollout_index: int = 0) -> str:
        """Start an episode, check the result and return the observation."""
        where = f"reset(seed={seed}, rollout_index={rollout_index})"
        result = self.call(where, lambda: env.reset(seed=seed, options={"rollout_index": rollout_index}))
        if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)):
            raise Broken("results", f"{where} returned {shown(result)}, not (observation, info)")
        _check_text(env, result[0], where)
        return result[0]

    def step(self, env: Env, action: str) -> Step:
        """Apply one action, check the five values and return them."""
        where = f"step({shown(action)})"
        result = self.call(where, lambda: env.step(action))
        if not (isinstance(result, tuple) and len(result) == 5):
            raise Broken("results", f"{where} returned {shown(result)}, not five values")
        step = Step(*result)
        _check_text(env, step.observation, where)
        _check_reward(step.reward, where)
        if not isinstance(step.info, dict):
            raise Broken("results", f"the info of {where} is {shown(step.info)}, not a dict")
        if missing := [name for name in FLAGS if name not in step.info]:
            raise Broken("results", f"the info of {where} lacks {', '.join(missing)}")
        for name in FLAGS:
            try:
                flag(f"info[{name!r}] of {where}", step.info[name])
            except TypeError as error:
                raise Broken("results", str(error)) from None
        if not all(isinstance(end, bool) for end in (step.terminated, step.truncated)):
            raise Broken("results", f"terminated or truncated of {where} is no bool")
        return step


def _thread() -> queue.SimpleQueue:
    """Start a thread that runs the jobs in the returned queue until it finds None there."""
    jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    def work() -> None:
        while (job := jobs.get()) is not None:
            job()

    threading.Thread(target=work, name="ragen-check", daemon=True).start()
    return jobs


def _started(jobs: queue.SimpleQueue, function: Callable[[], _T]) -> tuple[threading.Event, list[Any]]:
    """Have a thread run `function`; return an event that is set at its end, and its (result, exception) by then."""
    outcome: list[Any] = []
    done = threading.Event()

    def job() -> None:
        try:
            outcome[:] = function(), None
        except BaseException as error:
            outcome[:] = None, error
        done.set()

    jobs.put(job)
    return done, outcome


def _result(outcome: list[Any]) -> Any:
    value, error = outcome
    if error is not None:
        raise error
    return value


def _done_by(jobs: queue.SimpleQueue, function: Callable[[], _T]) -> _T:
    done, outcome = _started(jobs, function)
    done.wait()
    return _result(outcome)


def _check_text(env: Env, observation: Any, where: str) -> None:
    """Raise Broken unless the observation is a text that a tokenizer accepts and the space contains."""
    if not isinstance(observation, str):
        raise Broken("observations", f"the observation of {where} is {shown(observation)}, not text")
    try:
        observation.encode("utf-8")
    except UnicodeEncodeError:
        raise Broken("observations", f"the observation of {where} cannot be encoded: {shown(observation)}") from None
    if observation not in env.observation_space:
        outside = sorted(set(observation) - set(getattr(env, "charset", observation)))
        why = f"uses {', '.join(map(repr, outside[:5]))}, not in charset" if outside else "is too long"
        raise Broken("observations", f"the observation of {where} is outside observation_space: it {why}")


def _check_reward(reward: Any, where: str) -> None:
    """Raise Broken unless the reward is a finite number."""
    try:
        finite = not isinstance(reward, str) and math.isfinite(float(reward))
    except (TypeError, ValueError, OverflowError):
        finite = False
    if not finite:
        raise Broken("rewards", f"the reward of {where} is {shown(reward)}, not a finite number")


def shown(value: Any) -> str:
    """A value in a few printable characters."""
    if isinstance(value, str) and len(value) > 60:
        return f"{value[:40]!a}... ({len(value):,} characters)"
    text = ascii(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _told(error: BaseException) -> str:
    """An exception in one line, with the place where it was raised."""
    words = " ".join(str(error).split())
    text = f"{type(error).__name__}: {words[:160]}" if words else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    return f"{text} ({frames[-1].filename}:{frames[-1].lineno})" if frames else text
