"""`Api`: a model behind an OpenAI-compatible server, which may refuse parameters, answer in another field, or fail."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ragen_verl.errors import MissingExtra, RecipeError, adding_package
from ragen_verl.rollout.episode import NoRoom

__all__ = ["Api", "Reply", "Unusable"]

_Read = TypeVar("_Read")
_OPTIONAL = ("max_tokens", "max_completion_tokens", "temperature", "top_p", "seed", "response_format")
"""Arguments that some servers refuse, and without which they can be asked all the same."""
_REFUSAL = re.compile(
    r"not (be )?(support|permit|allow)|unsupported|unknown|unrecogni[sz]ed|unexpected|deprecated|only the default", re.I
)
_TOO_LONG = re.compile(
    r"context[ _](length|window|size)|too (long|large)|maximum (context|model) length|max_model_len|exceed|"
    r"\bmax\w*tokens\b.*(>|(greater|larger|more) than|at most|less than)",
    re.I,
)
_NO_ROOM = re.compile(
    r"context[ _](length|window|size)|maximum (context|model|input|prompt) length|"
    r"\b(prompt|inputs?|requests?|messages?|conversation)\b.*\b(too (long|large)|longer than)",
    re.I,
)
_UNUSABLE = (401, 402, 403, 404, 405)
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0  # seconds between tries, as in the openai package


class Unusable(RecipeError):
    """The server refuses or misses every request: address, model, key or permission is wrong."""


class _BadReply(ConnectionError):
    """The server answered without an answer; another request may do better."""


@dataclass(frozen=True)
class Reply:
    """An answer.

    Attributes:
        text: the message's content.
        thoughts: reasoning that the server gives in a field of its own; "" without.
        finish: why the answer ended, as the server says: `stop`, `length`, ...; `refusal` where the model refused.
        prompt_tokens, completion_tokens: as the server counts them, 0 where it does not.
        choice: the whole choice of the completion.
    """

    text: str
    thoughts: str
    finish: str
    prompt_tokens: int
    completion_tokens: int
    choice: Any


class Api:
    """Asks a model, again where that may help, and without the arguments that its server refuses.

    Args:
        model: its name there.
        url: the base address; None takes OPENAI_BASE_URL or OpenAI's own, with OPENAI_API_KEY.
        timeout: seconds for one request.
        retries: of a request that timed out, was refused for its rate (429), failed on the server (5xx) or brought no
            answer. The pauses grow, or have the length that the server gives.

    Attributes:
        left_out: arguments that the server refused so far; no request has them any more.

    Raises:
        MissingExtra: the openai package is not installed.
        RecipeError: there is no key for OpenAI's own address.
    """

    def __init__(self, model: str, url: str | None, *, timeout: float, retries: int) -> None:
        try:
            import openai
        except ImportError:
            command = adding_package('"openai>=1"')
            raise MissingExtra(f"A model behind an API needs the package openai: {command}.") from None
        self.model, self.url, self.left_out = model, url, list[str]()
        self._retries, self._answered = retries, False
        self._arguments: dict[str, Any] = {
            "base_url": url,
            "api_key": None if url is None else "none",
            "timeout": timeout,
            "max_retries": retries,
        }
        self._openai = openai
        self._loop: asyncio.AbstractEventLoop | None = None
        try:
            self._client = openai.AsyncOpenAI(**self._arguments)
        except openai.OpenAIError as error:
            raise RecipeError(
                f"{model} is asked for at OpenAI's own address, and {error}: set OPENAI_API_KEY, or give a URL."
            ) from error

    async def chat(self, messages: list[dict[str, str]], **arguments: Any) -> Reply:
        """Ask the chat route.

        Raises:
            Unusable: no request can succeed.
            NoRoom: the conversation is longer than the model's context.
            Exception: this one failed, whatever was tried.
        """
        return await self._ask(lambda client: client.chat.completions.create, _message, messages=messages, **arguments)

    async def complete(self, ids: list[int], **arguments: Any) -> Reply:
        """Ask vLLM's completions route with token ids; the choice has those of the answer, and raises as `chat`."""
        more = {"prompt": ids, "logprobs": 0, "extra_body": {"return_token_ids": True}}
        return await self._ask(lambda client: client.completions.create, _completion, **more, **arguments)

    async def close(self) -> None:
        """Close the connections, which belong to the event loop that opened them; the next request opens new ones."""
        if self._loop is not None:
            await self._client.close()
            self._loop = None

    def _current(self) -> Any:
        if self._loop is not (loop := asyncio.get_running_loop()):
            self._client, self._loop = self._openai.AsyncOpenAI(**self._arguments), loop
        return self._client

    async def _ask(self, route: Callable[[Any], Any], read: Callable[[Any], Reply], **arguments: Any) -> Reply:
        tries, whole_context = 0, False
        while True:
            sent = self._accepted(arguments, whole_context)
            try:
                reply = read(await route(self._current())(model=self.model, **sent))
            except self._openai.APIStatusError as error:
                said = f"{error.code} {error.message}"
                if error.status_code in _UNUSABLE or "insufficient_quota" in said:
                    raise Unusable(self._refused(error)) from error
                if error.status_code not in (400, 413, 422):
                    raise
                limited = any(name.startswith("max_") for name in sent)
                if limited and _TOO_LONG.search(said):
                    whole_context = True  # more was asked for than fits beside this prompt
                elif not limited and _NO_ROOM.search(said):
                    raise NoRoom(said) from error
                elif name := self._refused_argument(error, sent):
                    self.left_out += [name] * (name not in self.left_out)
                else:
                    raise
            except self._openai.APIConnectionError as error:
                if not self._answered and type(error.__cause__).__name__ == "ConnectError":
                    raise Unusable(f"No server answers at {self._client.base_url}: {error.__cause__}.") from error
                raise
            except (_BadReply, json.JSONDecodeError, self._openai.APIResponseValidationError):
                if tries >= self._retries:
                    raise
                await asyncio.sleep(min(_FIRST_PAUSE * 2**tries, _LONGEST_PAUSE))
                tries += 1
            else:
                self._answered = True
                return reply

    def _accepted(self, arguments: dict[str, Any], whole_context: bool) -> dict[str, Any]:
        """The arguments that the server takes, as far as is known."""
        found = {name: value for name, value in arguments.items() if name not in self.left_out}
        if "max_tokens" in arguments and "max_tokens" in self.left_out:
            found |= {"max_completion_tokens": arguments["max_tokens"]}
        if whole_context or "max_completion_tokens" in self.left_out:
            found = {name: value for name, value in found.items() if not name.startswith("max_")}
        return found

    @staticmethod
    def _refused_argument(error: Any, sent: dict[str, Any]) -> str | None:
        """The argument that a refusal (400, 422) names and that can be left out."""
        if not _REFUSAL.search(f"{error.code} {error.message}"):
            return None
        named = (error.param or "").split(".")[-1]
        optional = [name for name in _OPTIONAL if name in sent]
        said = (name for name in optional if re.search(rf"\b{name}\b", error.message))
        return named if named in optional else next(said, None)

    def _refused(self, error: Any) -> str:
        """A refusal of every request, in a sentence."""
        advice = "check its name and the address"
        if error.status_code == 402 or "insufficient_quota" in str(error.code):
            advice = "its account has no credit left"
        elif error.status_code in (401, 403):
            advice = "check OPENAI_API_KEY"
            if self.url is not None:
                advice = "an address in a policy's name is asked without a key: set OPENAI_BASE_URL and OPENAI_API_KEY"
        return f"{self.model} cannot be asked at {self._client.base_url}, {error.message[:300].rstrip('. ')}: {advice}."


def _choice(reply: Any) -> Any:
    """The first choice of a completion."""
    choices = getattr(reply, "choices", None)
    if not choices or choices[0] is None:
        raise _BadReply(f"the server's reply holds no choice: {str(reply)[:200]!r}")
    return choices[0]


def _reply(reply: Any, choice: Any, text: str, thoughts: str = "", finish: str | None = None) -> Reply:
    usage = getattr(reply, "usage", None)
    counts = (getattr(usage, name, None) for name in ("prompt_tokens", "completion_tokens"))
    prompt, completion = (one if isinstance(one, int) else 0 for one in counts)
    finish = finish or str(getattr(choice, "finish_reason", None) or "unknown")
    return Reply(text, thoughts, finish, prompt, completion, choice)


def _message(reply: Any) -> Reply:
    """Read a completion of the chat route."""
    choice = _choice(reply)
    message = getattr(choice, "message", None)
    if not hasattr(message, "content"):
        raise _BadReply(f"the server's reply holds no message: {str(reply)[:200]!r}")
    thoughts = getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None)
    refusal = getattr(message, "refusal", None)
    text = _text(message.content) or _text(refusal)
    return _reply(reply, choice, text, _text(thoughts), "refusal" if refusal else None)


def _text(content: Any) -> str:
    """The text of a message's content: a string, nothing, or a list of parts of which some are text."""
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, dict) else getattr(part, "text", part) for part in content]
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _completion(reply: Any) -> Reply:
    """Read a completion of vLLM's completions route, which has to have token ids."""
    choice = _choice(reply)
    if not getattr(choice, "token_ids", None):
        raise ConnectionError("the server's reply holds no token ids: token by token takes a vLLM server")
    return _reply(reply, choice, choice.text or "")
