"""Tools of a server of the Model Context Protocol: "mcp:http://127.0.0.1:8000/mcp" or "mcp:python my_server.py"."""

from __future__ import annotations

import asyncio
import copy
import os
import re
import shlex
import threading
from collections.abc import Coroutine, Sequence
from typing import Any

from ragen_envs.adapters.external import cut, need, reject

from ragen_verl.env.arguments import check_number, check_seconds, check_whole
from ragen_verl.env.core import Step
from ragen_verl.env.tools import Schema, ToolEnv, ToolError
from ragen_verl.errors import BadEnvKwargs

__all__ = ["MCPEnv"]


class MCPEnv(ToolEnv):
    """## Description

    The tools of a server of the Model Context Protocol (package mcp, MIT, which vLLM brings): an address, or a command
    that this environment starts and that talks over its pipes. The protocol has no episodes, no seeds and no rewards:
    what begins and scores an episode are two tools of the server that you name and that the model does not see.

    ## Action Space

    A call of one of the tools in `allow`, or a reply, which ends the episode.

    ## Observation Space

    Text: the task with what the tool `begin` returned, then the text of each result. Other contents than text are named
    by their type.

    ## Starting State

    With `begin` the state that this tool makes of the group's seed. Without it the server has the state that it has:
    the same seed gives the same episode only where the server has no state.

    ## Rewards

    At the end the first number in the text that the tool `score` returns; 0 without one.

    ## Episode End

    Terminates with a reply without a call. Solved: a reward of `success_return` or more, where there is a `score`.

    ## Arguments

    - `allow`: names of the tools that the model may call; all others are refused and not shown.
    - `task=""`: the task, in words.
    - `begin=None`: a tool that is called with `{"seed": the seed}` when an episode begins.
    - `score=None`: a tool that is called without arguments when it ends.
    - `success_return=1.0`, `max_actions=20`, `timeout_s=30.0`.

    A copy connects anew and replays the episode so far. A command runs on this machine with the rights of this process,
    and without its environment but PATH and HOME; it comes from the recipe, never from a model.

    ## Version History

    - v0: first version.
    """

    _link: _Link | None = None
    _over = _solved = False

    def __init__(
        self,
        name: str,
        *,
        allow: Sequence[str],
        task: str = "",
        begin: str | None = None,
        score: str | None = None,
        success_return: float = 1.0,
        max_actions: int = 20,
        timeout_s: float = 30.0,
    ) -> None:
        check_number("mcp: success_return", success_return)
        check_whole("mcp: max_actions", max_actions, 1)
        check_seconds("mcp: timeout_s", timeout_s)
        if isinstance(allow, str) or not allow:
            raise BadEnvKwargs("mcp: allow must be a list of the names of tools that the model may call.")
        if hidden := {begin, score} & set(allow):
            raise BadEnvKwargs(f"mcp: {hidden.pop()} begins or scores episodes: leave it out of allow.")
        need("mcp", "mcp", "mcp")
        self.server, self.allow, self.begin, self.score = name, tuple(allow), begin, score
        self.task_text, self.instruction = task, "Use the tools, then reply."
        self.success_return, self.max_actions, self.timeout_s = float(success_return), max_actions, float(timeout_s)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Connect where there is no connection yet; begin an episode."""
        super().reset(seed=seed)
        self._over, self._solved, self._actions = False, False, list[str]()
        if self._link is None:
            self._link = _Link(self.server, self.timeout_s)
        known = self._link.tools
        if lacking := [one for one in (*self.allow, self.begin, self.score) if one and one not in known]:
            raise reject("mcp", f"{self.server} has no tool {lacking[0]!r}; it has {', '.join(sorted(known))}.")
        told = self._link.call(self.begin, {"seed": self.seed})[0] if self.begin else ""
        return "\n\n".join(part for part in (self.task_text, told) if part) or "(no task)", {}

    @property
    def tools(self) -> list[Schema]:  # type: ignore[override]
        """The allowed tools, as the server describes them."""
        return [self._link.tools[name] for name in self.allow] if self._link else []

    def step(self, action: str) -> Step:
        """Call a tool, or end the episode."""
        self.dynamics  # noqa: B018 (raises before the first reset)
        if self._over:
            return self.outcome(terminated=True, success=self._solved, valid=False, effective=False)
        if self._link is None:
            self._replay()
        self._actions.append(action)
        step = super().step(action)
        self._over, self._solved = step.terminated, step.info["success"]
        return step

    def _replay(self) -> None:
        actions = self._actions
        self.reset(seed=self.seed, options={"rollout_index": self.rollout_index})
        for action in actions:
            self.step(action)

    def call(self, name: str, arguments: dict[str, Any]) -> str:
        """Call a tool of the server."""
        text, failed = self._link.call(name, arguments)
        if failed:
            raise ToolError(text)
        return text

    def message(self, text: str) -> Step:
        """End the episode."""
        if self.score is None:
            return self.end("")
        told, failed = self._link.call(self.score, {})
        number = re.search(r"-?\d+(\.\d+)?([eE][-+]?\d+)?", told)
        if failed or number is None:
            raise RuntimeError(f"The tool {self.score} of {self.server} gave no number: {told[:200]}")
        reward = float(number[0])
        return self.end("", reward, success=reward >= self.success_return)

    def close(self) -> None:
        """Close the connection, and end a server that was started."""
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_link": None}

    def __deepcopy__(self, memo: dict) -> MCPEnv:
        other = type(self).__new__(type(self))
        other.__dict__.update(copy.deepcopy(self.__getstate__(), memo))
        return other

    def __del__(self) -> None:
        self.close()


class _Link:
    """A connection in a thread with an event loop of its own."""

    def __init__(self, server: str, seconds: float) -> None:
        self._seconds, self._ready, self._loop = seconds, threading.Event(), asyncio.new_event_loop()
        self._failed: BaseException | None = None
        self._client: Any = None
        self.tools: dict[str, Schema] = {}
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, args=(server,), name="mcp", daemon=True)
        self._thread.start()
        if not self._ready.wait(seconds):
            self.close()
            raise RuntimeError(f"{server} did not answer within {seconds:g} s.")
        if self._failed is not None:
            raise RuntimeError(f"There is no connection to {server} ({_first(self._failed)}).") from self._failed

    def _run(self, server: str) -> None:
        try:
            self._loop.run_until_complete(self._serve(server))
        except BaseException as error:
            self._failed = error
        finally:
            self._ready.set()
            self._loop.close()

    async def _serve(self, server: str) -> None:
        from mcp import Client, StdioServerParameters
        from mcp.client.stdio import stdio_client

        self._stop = asyncio.Event()
        command = [] if "://" in server else shlex.split(server)
        with open(os.devnull, "w") as nowhere:  # what a server logs
            to: Any = server
            if command:
                to = stdio_client(StdioServerParameters(command=command[0], args=command[1:]), errlog=nowhere)
            await self._list(Client(to))

    async def _list(self, client: Any) -> None:
        async with client as self._client:
            for one in (await self._client.list_tools()).tools:
                function = {"name": one.name, "description": one.description or "", "parameters": one.input_schema}
                self.tools[one.name] = {"type": "function", "function": function}
            self._ready.set()
            await self._stop.wait()

    def _now(self, work: Coroutine[Any, Any, Any]) -> Any:
        if self._loop.is_closed():
            work.close()
            raise RuntimeError("The connection is lost.")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(self._seconds)

    def call(self, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        """The text of a tool's result, and whether it is an error."""
        from mcp import MCPError

        try:
            result = self._now(self._client.call_tool(name, arguments))
        except MCPError as error:
            return str(error), True
        except TimeoutError:
            return f"{name} did not answer within {self._seconds:g} s.", True
        parts = [getattr(one, "text", None) or f"({one.type})" for one in result.content]
        return cut("\n".join(parts)) or "(nothing)", bool(result.is_error)

    def close(self) -> None:
        """End the connection and its thread."""
        if self._stop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(5.0)


def _first(error: BaseException) -> str:
    """The innermost error of groups, in a line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"[:300]
