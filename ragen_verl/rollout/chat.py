"""From messages to token ids; the sampled ids are never tokenised again.

A conversation is one growing list of ids: the rendered opening, a sampled response, the ids between it and the next
response, the next response, and so on. The ids between two responses come from the tokenizer's own chat template, which
is rendered with sentinel texts. So no model family needs a rule of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Protocol

from ragen_verl.errors import RecipeError

__all__ = ["Answers", "Chat", "ChatTokens", "opening"]

# Plain words, which no template treats specially, without white space at their ends, which a template could trim.
_SYSTEM, _USER, _REPLY = "sentinelsystem", "sentineluser{}end", "sentinelreply{}end"

# an added token to which a template could give a meaning: `<tool_call>`, `[INST]`; but no word and no white space
_CONTROL = re.compile(r"[^\w\s](?=\S*\w)\S*[^\w\s]")

_TRIES = 5  # places around the middle, since a character has at most four bytes

_THOUGHTS = re.compile(r"\s*</?think>\s*")


def opening(task: str, message: str) -> str:
    """The first user message of a prompt: the task, if any, and the message of the first turn that is shown."""
    return f"{task}\n\n{message}" if task else message


class Answers(Protocol):
    """What a chat needs to know of the answers (see `ragen_verl.rollout.protocol.Protocol`)."""

    @property
    def prefill(self) -> str:
        """The text with which every response is made to start."""

    @property
    def tags(self) -> tuple[str, ...]:
        """The texts around the parts of an answer."""


class Chat:
    """The form of texts that the model reads, for records; in this base class it is the text itself."""

    def task_prompt(self, system: str, task: str) -> tuple[str, str]:
        """System message and task prompt as the model reads them."""
        return self.shown(system), self.shown(task)

    def shown(self, user: str) -> str:
        """A message as the model reads it."""
        return user

    def prefill(self, response: Sequence[Any]) -> str:
        """The text before a response inside the model's message."""
        return ""

    def parse(self, text: str, protocol: Any) -> Any:
        """Read a response; a chat that knows how the model writes may do so in its own way."""
        return protocol.parse(text)

    def after(self, response: Sequence[Any], user: str) -> list[Any]:
        """What stands between a response and the next one."""
        return self.turn(self.closed(response), user)  # type: ignore[attr-defined]


class ChatTokens(Chat):
    """The ids around the sampled responses, for one tokenizer and one protocol.

    Args:
        tokenizer: a Hugging Face tokenizer with a chat template.
        protocol: has the prefill, with which every response starts, and the tags of an answer.
        template_kwargs: further arguments of the chat template, such as `enable_thinking`.

    Attributes:
        eos_ids: ids that end a response: the template's end-of-turn token first, then the tokenizer's own.
        stop_ids: those of them that the engine has to be told.

    Raises:
        RecipeError: the chat template cannot be continued token by token.
    """

    stop_ids: tuple[int, ...] = ()

    def __init__(self, tokenizer: Any, protocol: Answers, template_kwargs: Mapping[str, Any] | None = None) -> None:
        self.tokenizer = tokenizer
        self._kwargs = dict(template_kwargs or {})
        if not getattr(tokenizer, "chat_template", None):
            raise RecipeError("The tokenizer has no chat template; use an instruct model or set chat_template.")
        added = tokenizer.added_tokens_decoder
        self._special = {index: token.content for index, token in added.items() if token.special} | dict(
            zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True)
        )
        self._names = {index: token.content for index, token in added.items()} | self._special
        self._hidden = {index for index, text in self._special.items() if text not in protocol.tags}
        control = {token.content for token in added.values() if _CONTROL.fullmatch(token.content)}
        self._armed = [
            text for text in sorted({*self._special.values(), *control}) if len(text) > 2 and text not in protocol.tags
        ]
        self._has_system_role = self._probe_system_role()
        before, after, self._header = self._probe_delta()
        self._after = after + self._header
        self._before_open, self._before_closed, end_of_turn = self._split_closing(before)
        self.end_of_turn_id: int = end_of_turn
        self.eos_ids = tuple(k for k in dict.fromkeys((end_of_turn, tokenizer.eos_token_id)) if k is not None)
        self._prefill_ids = self._prefill(self._after, protocol)
        self._tag = protocol.prefill if self._prefill_ids else self._after[self._after.rindex(protocol.prefill) :]
        # a shorter special token controls the chat where the template writes it; elsewhere it may be a plain sign
        written = {*self._encode(self._conversation(3)), *self.eos_ids}
        armed = {
            index for index, token in added.items() if token.content in self._armed
        } | self._special.keys() & written
        self._control = {index for index in armed if self._special.get(index) not in protocol.tags}
        fast = getattr(tokenizer, "backend_tokenizer", None)
        self._normal = fast.normalizer.normalize_str if fast and fast.normalizer else str
        forms = {form(self._names[k]) for k in self._control for form in (str, self._normal)}
        self._suspect = re.compile("|".join(map(re.escape, forms)))  # a vocabulary can have thousands of such tokens

    # -- the ids ------------------------------------------------------------------------------------------------------

    def initial(self, system: str, user: str, tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        """Ids of the opening: system and first user message, generation prompt, prefill.

        A model without a system role gets the system text at the head of the user message. Schemas of tools are
        rendered by the template.
        """
        system, user = self._disarm(system), self._disarm(user)
        return self._encode(self._render(self._opening(system, user), tools) + self._header) + self._prefill_ids

    def turn(self, closed: bool, user: str) -> list[int]:
        """Ids between one sampled response and the next: end of turn, user message, generation prompt, prefill.

        Args:
            closed: the sampled response ended with the template's end-of-turn token (see `closed`), so that token is
                not repeated. Otherwise it opens these ids and is, like all of them, not trained on.
            user: text of the user message.
        """
        before = self._before_closed if closed else self._before_open
        # Encoded as one piece from the end-of-turn token on, so that white space and role names merge into the same
        # tokens as in a whole rendering.
        ids = self._encode(before + self._disarm(user) + self._after)
        return ids[ids.index(self.end_of_turn_id) + 1 if closed else 0 :] + self._prefill_ids

    def closed(self, response_ids: Sequence[int]) -> bool:
        """Whether a sampled response ended with the template's end-of-turn token."""
        return bool(response_ids) and response_ids[-1] == self.end_of_turn_id

    def decode(self, ids: Sequence[int]) -> str:
        """Text of sampled ids, for the parser: special tokens are left out, except the protocol's own tags."""
        shown = [index for index in ids if index not in self._hidden]
        return self.tokenizer.decode(shown, skip_special_tokens=False, clean_up_tokenization_spaces=False)

    # -- for records --------------------------------------------------------------------------------------------------

    def task_prompt(self, system: str, task: str) -> tuple[str, str]:
        """System message and task prompt as the model reads them; without a system role the second holds both."""
        system, task = super().task_prompt(system, task)
        if not system or self._has_system_role:
            return system, task
        return "", f"{system}\n\n{task}" if task else system

    def shown(self, user: str) -> str:
        """A message without the control tokens that an environment wrote into it."""
        return self._disarm(user)

    def prefill(self, response: Sequence[int]) -> str:
        """The prefill, with the white space after it where the template itself writes the tag."""
        return self._tag

    def offsets(self, ids: Sequence[int]) -> list[int]:
        """The character of `decode(ids)` at which each id begins; an id that ends inside a character begins with it.

        Ids are decoded one by one where they decode to the same text alone and together, as in byte-level vocabularies
        except for characters of several ids. Parts where this does not hold are halved. Where no half decodes by
        itself, the text is decoded up to each id.
        """
        text, alone = self.decode(ids), [self.decode([index]) for index in ids]
        if "".join(alone) == text:
            return [0, *accumulate(map(len, alone))][: len(alone)]
        middle = len(ids) // 2
        for place in range(max(1, middle), min(middle + _TRIES, len(ids))):
            left, right = ids[:place], ids[place:]
            begun = self.decode(left)
            if begun + self.decode(right) == text:
                return self.offsets(left) + [len(begun) + one for one in self.offsets(right)]
        return [_agree(text, self.decode(ids[:place])) for place in range(len(ids))]

    # -- the template -------------------------------------------------------------------------------------------------

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def _render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        more = {"tools": list(tools), **self._kwargs} if tools else self._kwargs
        return self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **more)

    def _disarm(self, text: str) -> str:
        """Prevent that environment text becomes control tokens: an echoed `<|im_end|>` would forge a message."""
        for token in self._armed:
            text = text.replace(token, f"{token[0]} {token[1:]}")
        return self._broken_up(text)

    def _broken_up(self, text: str) -> str:
        """Break up what is still a control token: one character, or letters that the normaliser folds into one."""
        both = text + self._normal(text)  # far quicker than encoding
        if not self._suspect.search(both) or self._control.isdisjoint(self._encode(text)):
            return text
        if len(text) == 1:
            return " "
        halves = [self._broken_up(half) for half in (text[: len(text) // 2], text[len(text) // 2 :])]
        joined = (between.join(halves) for between in ("", " ", "?"))  # a normaliser may take out blanks
        return next((whole for whole in joined if self._control.isdisjoint(self._encode(whole))), halves[0])

    def _opening(self, system: str, user: str) -> list[dict[str, str]]:
        if not system:
            return [{"role": "user", "content": user}]
        if self._has_system_role:
            return [{"role": "system", "content": system}, {"role": "user", "content": user}]
        return [{"role": "user", "content": f"{system}\n\n{user}"}]

    def _probe_system_role(self) -> bool:
        messages = [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": _USER.format(1)}]
        try:
            if _SYSTEM in self._render(messages):
                return True
        except Exception:  # a template may refuse with any error
            pass
        try:
            self._render(messages[1:])
        except Exception as error:
            raise RecipeError(
                f"The chat template cannot render a single user message ({error}); set another chat template."
            ) from error
        return False

    def _conversation(self, users: int, reply: str = _REPLY) -> str:
        """Rendering of `users` user messages with replies between them, up to the generation prompt."""
        messages = self._opening(_SYSTEM, _USER.format(1))
        for number in range(2, users + 1):
            messages.append({"role": "assistant", "content": reply.format(number - 1)})
            messages.append({"role": "user", "content": _USER.format(number)})
        return self._render(messages)

    def _probe_delta(self) -> tuple[str, str, str]:
        """The texts before and after the user message between two responses, and the reply's header.

        The template can be continued under two conditions, since nothing in the id stream is ever rendered again. The
        text between reply k and reply k+1 must not depend on k or on the form of the replies. And the text before
        reply k must later be rendered in the same way as when reply k was requested, apart from thoughts.
        """
        try:
            plain, thinking = (
                [self._conversation(users, reply) for users in range(1, 5)]
                for reply in (_REPLY, f"<think>thoughts</think>\n<answer>{_REPLY}")
            )
            deltas = {self._delta(shown, k) for shown in (plain, thinking) for k in range(2, 5)}
            headers = {self._header_of(plain, k) for k in range(2, 5)}
        except Exception as error:
            raise RecipeError(f"The chat template cannot be continued ({error}); {_ADVICE}") from error
        if len(deltas) != 1 or len(headers) != 1 or None in headers:
            raise RecipeError(f"The chat template shows messages differently as the conversation grows; {_ADVICE}")
        return (*deltas.pop(), headers.pop())

    @staticmethod
    def _delta(shown: list[str], k: int) -> tuple[str, str]:
        text, reply, user = shown[k - 1], _REPLY.format(k - 1), _USER.format(k)
        if text.count(reply) != 1 or text.count(user) != 1:
            raise ValueError("it drops or repeats messages")
        before, after = text.split(reply)[1].split(user)
        return before, after

    @staticmethod
    def _header_of(shown: list[str], k: int) -> str | None:
        """The text that the template puts before a past reply k-1, but left to the model when that was requested.

        For gpt-oss it names a channel. None if anything else was rendered differently. Thoughts do not count. Neither
        does additional text of a generation prompt, since it stays in the ids before the response.
        """
        user = _USER.format(k - 1)
        asked_before, _, asked = shown[k - 2].partition(user)
        past_before, _, past = shown[k - 1].partition(_REPLY.format(k - 1))[0].partition(user)
        opened = "<think>" in asked
        asked, past = _THOUGHTS.sub("", asked), _THOUGHTS.sub("", past)
        if asked_before == past_before and asked.startswith(past.rstrip()):
            return ""
        if asked_before == past_before and past.startswith(asked) and not opened:
            return past.removeprefix(asked)
        return None

    def _split_closing(self, before: str) -> tuple[str, str, int]:
        """Text before the user message after an open and after a closed response, and the end-of-turn id."""
        end = next((index for index in self._encode(before) if index in self._names), None)
        if end is None:
            raise RecipeError("The chat template closes no assistant message with a special token; set one that does.")
        start = before.find(self._names[end])
        if start < 0 or before[:start].strip():
            raise RecipeError("The chat template writes text between a reply and its end-of-turn token; set another.")
        return before, before[start:], end

    def _prefill(self, after: str, protocol: Answers) -> list[int]:
        """The prefill's ids, or none if the generation prompt already ends with it."""
        opened = after.rstrip()
        if opened.endswith(protocol.prefill):
            return []
        if opened.endswith("<think>"):
            raise RecipeError("The chat template opens <think> by itself; set think: true or switch its thinking off.")
        return self._encode(protocol.prefill)


def _agree(one: str, other: str) -> int:
    """The number of characters that two texts have in common at their start."""
    return next((k for k, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


_ADVICE = "set a chat template that only ever appends (see tokenizer.chat_template)."
