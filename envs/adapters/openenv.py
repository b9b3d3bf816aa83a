"""Environments behind OpenEnv servers: "openenv:http://127.0.0.1:8000"."""

from __future__ import annotations

import json
from typing import Any

from gymnasium.error import ResetNeeded
from ragen_envs.adapters.external import ExternalEnv, cut, need, reject, sendable

from ragen_verl.env.core import Step
from ragen_verl.env.http import client
from ragen_verl.errors import BadEnvKwargs

__all__ = ["OpenEnvEnv"]

_MOST_CHARACTERS = 100_000
_HIDDEN = ("done", "reward", "metadata")
_SCHEMA_SECONDS = 10


class OpenEnvEnv(ExternalEnv):
    """## Description

    A session on a server of OpenEnv (BSD licence), whose client is an extra. You start the server separately: with
    `docker run`, as a Hugging Face Space, or with `uvicorn`. It must allow as many sessions as episodes run at once.

    ## Action Space

    Free text, sent as the field `action_field` of the server's action. With `action_names`, the field is the index of
    the name where the server's schema asks for an integer, else the name. If the action has several fields and none was
    named, the action has to be a JSON object, which is sent unchanged.

    ## Observation Space

    Text: the field `observation_field` of the server's observation, or all its fields as lines "name: value".

    ## Starting State

    The server's `reset` with the group's seed, and "seed-index" as the id of the episode. OpenEnv has no rollout index:
    unless the server uses that id, a group shares its transition randomness. If a server ignores seeds, its episodes
    are not reproducible.

    ## Rewards

    Those of the server; a missing reward counts as 0.

    ## Episode End

    When the server is done. Solved: done with a positive reward. An action that the server's schema refuses does
    nothing; an action that makes the environment raise truncates the episode. A lost connection is an error.

    ## Arguments

    - `action_field=None`: the field of the action; default: its only field beside metadata.
    - `action_names=None`: names of discrete actions.
    - `observation_field=None`: the field to show; default: all.
    - `instruction=None`: the task in words. Servers give none.
    - `success_return=None`: the sum of rewards from which an episode counts as solved.
    - `max_actions=50`: the budget.
    - `timeout_s=60.0`: seconds to wait for an answer.
    - all other arguments are passed to the server's `reset`.

    A copy, pickled or not, has no connection: reset it before you play.

    ## Version History

    - v0: first version.
    """

    def __init__(
        self,
        url: str,
        *,
        action_field: str | None = None,
        action_names: list[str] | None = None,
        observation_field: str | None = None,
        instruction: str | None = None,
        success_return: float | None = None,
        max_actions: int | None = 50,
        timeout_s: float = 60.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(f"openenv:{url}", max_actions, success_return)
        need("openenv.core", "openenv", "openenv")
        if not url.startswith(("http://", "https://", "ws://", "wss://")):
            raise reject("openenv", f"{url!r} is no address of a server: write openenv:http://host:port.")
        self.url, self.timeout_s, self.kwargs = url.rstrip("/"), timeout_s, kwargs
        self.observation_field = observation_field
        self.instruction = instruction or "Act in the environment that is shown."
        self.actions = tuple(action_names) if action_names else None
        self._schema = _schema(self.url)
        self.action_field = self._field(action_field)
        self._client: Any = None

    def _field(self, given: str | None) -> str | None:
        """Return the field that takes the action; None: the action is a JSON object with all fields."""
        fields = [field for field in self._schema.get("properties", {}) if field != "metadata"]
        if given is not None:
            if fields and given not in fields:
                raise BadEnvKwargs(f"{self.name}: the action has no field {given!r} but {', '.join(fields)}.")
            return given
        if len(fields) == 1:
            return fields[0]
        if self.actions or not fields:
            raise BadEnvKwargs(f"{self.name}: name the action_field, one of {', '.join(fields) or 'the server'}.")
        return None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start an episode on the server; a session is opened if there is none."""
        super().reset(seed=seed, options=options)
        if self._client is None:
            self._client = _connect(self.url, self.timeout_s)
        result = self._client.reset(seed=self.seed, episode_id=f"{self.seed}-{self.rollout_index}", **self.kwargs)
        return self.begin(self._text(result.observation))

    def step(self, action: str) -> Step:
        """Send an action."""
        payload = self._payload(action)
        if self.ended() or payload is None:
            return self.idle(valid=payload is not None)
        if self._client is None:
            raise ResetNeeded(f"{self.name}: a copy has no connection, so reset it first.")
        try:
            result = self._client.step(payload)
        except RuntimeError as error:  # the client raises this for the server's error messages
            if "VALIDATION_ERROR" in str(error):
                return self.idle(valid=False)
            if "EXECUTION_ERROR" in str(error):
                return self.broken()
            raise
        return self.after(self._text(result.observation), result.reward, terminated=result.done, truncated=False)

    def _payload(self, action: Any) -> dict[str, Any] | None:
        """Return the action for the server, None if it is not valid."""
        if not isinstance(action, str):
            return None
        if self.actions:
            if (name := self.name_of(action)) is None:
                return None
            kind = self._schema.get("properties", {}).get(self.action_field, {}).get("type")
            return {self.action_field: self.actions.index(name) if kind in ("integer", "number") else name}
        text = sendable(action, _MOST_CHARACTERS)
        if self.action_field is not None:
            return {self.action_field: text}
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError):
            return None
        return fields if isinstance(fields, dict) else None

    def _text(self, observation: dict[str, Any]) -> str:
        shown = {key: value for key, value in observation.items() if key not in _HIDDEN}
        if self.observation_field is not None:
            if self.observation_field not in shown:
                fields = ", ".join(shown) or "no fields"
                raise reject("openenv", f"{self.name} shows no {self.observation_field!r}: it shows {fields}.")
            shown = {self.observation_field: shown[self.observation_field]}
        texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in shown.items()}
        lines = texts.values() if len(texts) == 1 else (f"{key}: {text}" for key, text in texts.items())
        return cut("\n".join(lines))

    def close(self) -> None:
        """End the session."""
        session, self._client = self._client, None
        if session is not None:
            session.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}


def _schema(url: str) -> dict[str, Any]:
    """Return the JSON schema of the server's actions, {} where the server gives none."""
    import httpx

    address = url.replace("ws", "http", 1) if url.startswith("ws") else url
    local = address.split("/")[2].rpartition(":")[0] in ("localhost", "127.0.0.1", "[::1]")
    try:
        answer = client(proxies=not local).get(f"{address}/schema", timeout=_SCHEMA_SECONDS, follow_redirects=True)
        schema = answer.json().get("action", {}) if answer.is_success else {}
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise reject(
            "openenv", f"no OpenEnv server answers at {url} ({error}): start it, or correct the id."
        ) from error
    return schema if isinstance(schema, dict) else {}


def _connect(url: str, timeout_s: float) -> Any:
    """Return a client whose calls block. Its base class is in the package, so the class is defined here."""
    core: Any = need("openenv.core", "openenv", "openenv")
    from openenv.core.client_types import StepResult

    class Client(core.EnvClient):
        def _step_payload(self, action: dict[str, Any]) -> dict[str, Any]:
            return action

        def _parse_result(self, payload: dict[str, Any]) -> Any:
            observation = payload.get("observation", {})
            return StepResult(observation, reward=payload.get("reward"), done=bool(payload.get("done", False)))

        def _parse_state(self, payload: dict[str, Any]) -> dict[str, Any]:
            return payload

    found = Client(base_url=url, message_timeout_s=timeout_s)
    # since openenv-core 0.3 clients are asynchronous and have a wrapper that blocks
    found = found.sync() if hasattr(found, "sync") else found
    found.connect()
    return found
