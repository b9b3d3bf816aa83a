"""Environments of verifiers 0.4: "verifiers:reverse-text".

The rollout of verifiers calls a model. Here the model's client returns the new messages as an observation and waits for
the text of the next `step` (`inverted.Inverted`). So all rules, turns and scores are those of verifiers.
"""

from __future__ import annotations

import importlib
import json
import queue
import re
from collections.abc import Awaitable, Callable
from functools import lru_cache, partial
from importlib.metadata import PackageNotFoundError, distributions, version
from pkgutil import iter_modules
from typing import Any

from gymnasium.error import ResetNeeded
from ragen_envs.adapters.external import MOST_ACTIONS, ExternalEnv, cut, reject, sendable, unknown
from ragen_envs.adapters.inverted import Ask, Inverted, Messages
from ragen_envs.adapters.randomness import GlobalRandomness

from ragen_verl.env.arguments import check_seconds
from ragen_verl.env.core import Step
from ragen_verl.errors import BadEnvKwargs, MissingExtra, RecipeError, adding, adding_package

__all__ = ["VerifiersEnv"]

_DEFAULT_ACTIONS = 20
_MOST_CHARACTERS = 100_000
_MOST_TASKS = 1000
_CLOSE_SECONDS = 5.0


class VerifiersEnv(ExternalEnv):
    """## Description

    A taskset of verifiers 0.4 (MIT licence), an extra, with the environment that plays it: any installed taskset with
    one agent and text only. A taskset that needs tools, containers, images, several agents, a judge plugin or an agent
    program of its own is refused.

    ## Action Space

    Free text: the model's message. A text of more than 100,000 characters is cut.

    ## Observation Space

    Text: the messages since the last action, usually one of the user. The system prompt is the instruction.

    ## Starting State

    The task whose number is the group's seed modulo the number of tasks. The code of a taskset may draw from the
    process's global generators, so each environment has a stream of its own, seeded by the group's seed for the reset,
    and by seed and rollout index afterwards. A lock admits one call at a time in a process.

    ## Rewards

    0 until the end, then the sum of the weighted rewards. An episode that verifiers could not score is an error, not 0.

    ## Episode End

    The end of verifiers' rollout: truncated if a limit of turns, tokens or time ended it. Solved: a reward of 1 or
    more.

    ## Arguments

    - `select=None`: which tasks to play, as in verifiers' `SelectConfig`: `{"skip": 100, "limit": 50}`. Of an infinite
      taskset the first 1,000 are taken.
    - `config=None`: fields of the environment's config beside the taskset, as in `--env.*` of verifiers' command line.
    - `programs=False`: True lets tasks run programs, perhaps the model's, on this machine in a folder of their own.
      Without it, a task that asks for a sandbox is an error.
    - `success_return=1.0`: the reward from which an episode counts as solved.
    - `max_actions=None`: the budget, which is also verifiers' limit of turns: an episode that reaches it is still
      scored. Default: the agent's limit; if there is none, 1 for an environment of a single turn, else 20.
    - `timeout_s=60.0`: seconds that the taskset's code may take between two messages.
    - all other arguments configure the taskset.

    A copy, pickled or not, replays the episode so far when it is used.

    ## Version History

    - v0: first version.
    """

    _rollout: Inverted | None = None
    _texts: tuple[str, ...] | None = None  # the episode's actions so far, None without an episode
    _seen: Messages = ()

    def __init__(
        self,
        name: str,
        *,
        select: dict[str, Any] | None = None,
        config: dict[str, Any] | None = None,
        programs: bool = False,
        success_return: float | None = 1.0,
        max_actions: int | None = None,
        timeout_s: float = 60.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(f"verifiers:{name}", max_actions, success_return)
        check_seconds(f"{self.name}: timeout_s", timeout_s)
        vf = _package(name)
        _check_taskset(vf, name)
        self.programs, self.timeout_s = bool(programs), float(timeout_s)
        self.randomness = GlobalRandomness()
        try:
            raw = {**dict(config or {}), "taskset": {**kwargs, "id": name}}
            self._select = json.dumps(dict(select or {}), sort_keys=True)
            self._agent, self.max_actions, self._config = self._settings(vf, name, raw, max_actions)
            tasks = self._tasks()
        except RecipeError:
            raise
        except Exception as error:
            raise BadEnvKwargs(f"{self.name} cannot be built with these arguments: {_sentence(error)}.") from error
        if not tasks:
            raise BadEnvKwargs(f"{self.name} has no tasks: correct select, or the arguments of the taskset.")

    def _settings(self, vf: Any, name: str, raw: dict[str, Any], budget: int | None) -> tuple[str, int, str]:
        """Return the agent, the budget and the config as JSON; refuse a taskset that cannot be played in text."""
        config = vf.resolve_env_config(raw)
        harnesses = config.agent_harnesses()
        if len(harnesses) != 1:
            raise reject("verifiers", f"{self.name} has the agents {', '.join(harnesses)}: only one can be played.")
        ((agent, harness),) = harnesses.items()
        kind, taskset = vf.task_type(name), vf.load_taskset(config.taskset)
        needs = {
            "tools": taskset.toolsets(config.taskset) or kind.toolsets(config.taskset.task),
            "a container": kind.NEEDS_CONTAINER,
            "a judge model": config.taskset.task.judges,
            f"the agent program {harness.id!r}": harness.id not in ("bash", "null"),  # bash: none was named
        }
        if needed := [what for what, is_needed in needs.items() if is_needed]:
            raise reject("verifiers", f"{self.name} needs {needed[0]}: only what is played in text is supported.")
        limit = getattr(config, agent).max_turns
        if budget is None:
            single = vf.environment_class(name, config.id).run is vf.SingleAgentEnv.run
            budget = 1 if single else min(limit or _DEFAULT_ACTIONS, MOST_ACTIONS)
        ours = {"max_turns": min(limit or budget, budget), "harness": {"id": "null"}, "runtime": {"type": "subprocess"}}
        return agent, budget, json.dumps({**raw, agent: {**raw.get(agent, {}), **ours}}, sort_keys=True)

    def _tasks(self) -> tuple[Any, ...]:
        with GlobalRandomness()():  # a taskset may draw while it loads; the lock makes one thread load it for all
            return _load(self._config, self._select)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start verifiers' rollout of the task that belongs to the group's seed."""
        super().reset(seed=seed, options=options)
        self.close()
        self._texts, self._seen, self._over = None, (), (False, False)
        tasks = self._tasks()
        task = tasks[self.seed % len(tasks)].with_data()
        if task.data.image is not None:
            raise reject("verifiers", f"{self.name} needs the container {task.data.image}: only text is supported.")
        self.randomness.seed(self.seed)
        with self.randomness():
            self._rollout = Inverted(partial(_play, self._config, self._agent, self.programs, task))
            said = self._hear()
        self.randomness.seed(self.dynamics)
        if not isinstance(said, tuple):
            self._score(said)
            raise RuntimeError(f"{self.name} ended task {task.data.idx} without asking the model.")
        self._texts = ()
        system = [text for role, text in said if role == "system"]
        self.instruction = cut("\n\n".join(system)) or "Answer the messages."
        return self.begin(self._new(said))

    def step(self, action: str) -> Step:
        """Pass a text to verifiers' rollout as the model's message."""
        if self._texts is None:
            raise ResetNeeded(f"{self.name}: call reset before you play, and again where it failed.")
        if self.ended() or not isinstance(action, str):
            return self.idle(valid=isinstance(action, str))
        if self._rollout is None:
            self._again(self._texts)
        text = sendable(action, _MOST_CHARACTERS)
        with self.randomness():
            self._rollout.answer(text)
            said = self._hear()
        self._texts, self._seen = (*self._texts, text), (*self._seen, ("assistant", text))
        if isinstance(said, tuple):
            return self.after(self._new(said), 0.0, terminated=False, truncated=False, effective=True)
        reward, limited = self._score(said)
        return self.after(self.render(), reward, terminated=not limited, truncated=limited)

    def _again(self, texts: tuple[str, ...]) -> None:
        """Replay the episode so far, since this environment is a copy or was closed."""
        self.reset(seed=self.seed, options={"rollout_index": self.rollout_index})
        for text in texts:
            self.step(text)

    def _hear(self) -> Any:
        """Return the next messages or the finished episode; raise the error that ended it, or a time-out."""
        try:
            said = self._rollout.outgoing.get(timeout=self.timeout_s)
        except queue.Empty:
            said = TimeoutError(f"{self.name} said nothing for {self.timeout_s:g} s (timeout_s).")
        if not isinstance(said, tuple):
            self._over = (False, True)
            self.close(0.0 if isinstance(said, TimeoutError) else _CLOSE_SECONDS)
        if isinstance(said, Exception):
            raise said
        return said

    def _score(self, episode: Any) -> tuple[float, bool]:
        """Return the reward of a finished episode, and whether a limit ended it; raise where there is no reward."""
        problems = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
        if not episode.ok:
            last = f"{problems[-1].type}: {_sentence(problems[-1].message)}" if problems else "no reason given"
            raise RuntimeError(f"{self.name} failed ({last}).")
        trace = episode.traces[-1]
        if not trace.rewards or None in trace.rewards.values():
            raise RuntimeError(f"{self.name} ended without a reward ({trace.stop_condition}).")
        return trace.reward, trace.is_timeout or str(trace.stop_condition).startswith("max_")

    def _new(self, said: Messages) -> str:
        """Return the new messages: a single one unchanged, several with their roles."""
        known = len(self._seen) if said[: len(self._seen)] == self._seen else 0
        new = [(role, text) for role, text in said[known:] if role != "system" or known]
        self._seen = said
        lines = [text if len(new) == 1 else f"[{role}] {text}" for role, text in new]
        return cut("\n\n".join(lines)) or "(no message)"

    def close(self, seconds: float = _CLOSE_SECONDS) -> None:
        """End verifiers' rollout; wait at most `seconds` for its thread."""
        rollout, self._rollout = self._rollout, None
        if rollout is not None:
            rollout.stop(seconds)

    def __del__(self) -> None:
        self.close(0.0)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_rollout": None}


async def _play(config: str, role: str, programs: bool, task: Any, ask: Ask) -> Any:
    """Run verifiers' episode of a task with `ask` as the model; return the episode."""
    import verifiers.v1 as vf
    from aiohttp import ClientSession, ClientTimeout
    from verifiers.v1.dialects.chat import message_to_wire
    from verifiers.v1.harnesses.null import NullHarness
    from verifiers.v1.interception import InterceptionServer
    from verifiers.v1.runtimes import SubprocessRuntime

    class Model(vf.Client):
        async def get_response(self, dialect: Any, body: dict, *_: Any, **__: Any) -> Any:
            messages = [(one.role, _text(one.content)) for one in dialect.parse_request(body).messages]
            if any(text is None for _, text in messages):
                raise vf.TaskError("a message holds an image: only text is supported")
            message = {"role": "assistant", "content": await ask(tuple(messages))}
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            raw = {"id": "0", "object": "chat.completion", "created": 0, "model": "policy", "choices": [choice]}
            response = dialect.parse_response(dialect.validate_response(raw))
            response.raw = raw
            return response

    class Server(InterceptionServer):
        def register(self, session: Any) -> tuple[str, str]:
            if self.clients:
                raise vf.EnvError("the agent is run several times: only one run an episode is supported")
            self.clients[session.ctx.client.model_dump_json()] = Model()
            return super().register(session)

    class InProcess(NullHarness):
        # verifiers' null harness starts a program that asks for one message; here this thread sends the request
        async def setup(self, runtime: Any) -> None:
            return None

        async def launch(
            self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, urls: Any, data: Any, **_: Any
        ) -> Any:
            system, prompt = self.resolve_prompt(data)
            messages = [vf.UserMessage(content=prompt)] if isinstance(prompt, str) else list(prompt or [])
            if system is not None:
                messages.insert(0, vf.SystemMessage(content=system))
            request = {"model": ctx.model, "messages": [message_to_wire(message) for message in messages]}
            bearer, unlimited = {"Authorization": f"Bearer {secret}"}, ClientTimeout(total=None)
            async with (
                ClientSession(headers=bearer, timeout=unlimited) as session,
                session.post(f"{endpoint}/chat/completions", json=request) as answer,
            ):
                if answer.status != 200:
                    raise vf.HarnessError(_sentence(await answer.text()))
            return vf.ProgramResult(0, "", "")

    class NoPrograms(SubprocessRuntime):
        async def refuse(self, *_: Any, **__: Any) -> Any:
            raise vf.SandboxError("the task asks for a sandbox: programs=True lets it run programs on this machine")

        start = run = open_process = run_background = _read = write = refuse

    env = vf.load_environment(vf.resolve_env_config(json.loads(config)))
    async with Server() as server:

        async def setup(agents: Any, own: Callable[[Any], Awaitable[None]] = env.setup) -> None:
            await own(agents)
            agent = getattr(agents, role)
            agent.harness, agent.interception = InProcess(agent.harness.config), server
            if not programs:
                box = NoPrograms(vf.SubprocessConfig())
                agent.run, agent.interaction = partial(agent.run, runtime=box), partial(agent.interaction, runtime=box)
                agent.provision = box.refuse

        env.setup = setup
        client = vf.EvalClientConfig(api_key_var="NONE")  # the default looks for a Prime account
        async with env.serving():
            return await env.run_episode(task, vf.ModelContext(model="policy", client=client))


def _text(content: Any) -> str | None:
    """Return the text of a message, None where a part of it is no text."""
    parts = [getattr(part, "text", None) for part in content] if isinstance(content, list) else [content or ""]
    return None if None in parts else "\n".join(parts)


@lru_cache(maxsize=16)
def _load(config: str, select: str) -> tuple[Any, ...]:
    import verifiers.v1 as vf

    taskset = vf.load_taskset(vf.resolve_env_config(json.loads(config)).taskset)
    chosen = taskset.select(vf.SelectConfig(**json.loads(select)))
    return tuple(chosen if chosen.bounded else chosen.take(_MOST_TASKS))


def _package(name: str) -> Any:
    """Return `verifiers.v1`; raise unless its version has the interface that this adapter uses."""
    try:
        found = version("verifiers")
        if tuple(map(int, re.findall(r"\d+", found)[:2])) < (0, 4):
            newer = adding_package('"verifiers>=0.4"')
            raise reject("verifiers", f"version {found} has another interface: run {newer}.")
        return importlib.import_module("verifiers.v1")
    except (PackageNotFoundError, ModuleNotFoundError) as error:
        raise MissingExtra(
            f"Environments of the form verifiers:... need {error.name}: run "
            f"{adding('verifiers')}, where its pins (openai<3, mcp==2.0.0) agree with what is installed; "
            "else install verifiers in a virtualenv of its own, run "
            f"`ragen-verl env serve verifiers:{name}` there, and play http://127.0.0.1:8200/verifiers:{name}."
        ) from error


def _check_taskset(vf: Any, name: str) -> None:
    """Raise unless `name` is a taskset that can be imported."""
    try:
        vf.taskset_config_type(name)
    except Exception as error:
        module = name.rpartition("/")[2].partition("@")[0].replace("-", "_").lower()
        if not isinstance(error, ModuleNotFoundError) or getattr(error.__cause__, "name", module) != module:
            what = _sentence(error.__cause__ or error)
            raise reject("verifiers", f"{name} is no taskset of verifiers 0.4 that can be used: {what}.") from error
        needs = re.compile(r"verifiers\b(?!.*extra ==)")
        users = (one.name for one in distributions() if any(map(needs.match, one.requires or ())))
        built_in = (one.name for one in iter_modules(importlib.import_module("verifiers.v1.tasksets").__path__))
        raise unknown(name, {*users, *built_in}, "verifiers") from error


def _sentence(error: Any) -> str:
    """Return the message of an error in one line; of pydantic's list of errors, the first."""
    if hasattr(error, "errors"):
        first = error.errors()[0]
        error = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return " ".join(str(error).split()).rstrip(".")[:300]
