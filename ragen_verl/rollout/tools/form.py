"""`Form`: how a model family writes calls of tools, and the registry of forms.

A form reads what a model sampled. It is strict, it takes linear time and it never raises: a response is any text. What
looks like a call and cannot be read is a `Broken`, with a reason for the model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from ragen_verl.extensions import Registry

__all__ = ["FORMS", "MOST", "Broken", "Call", "Form", "Unreadable", "call_form", "json_at", "json_text", "listing"]

MOST = 64
"""The number of blocks that are read in a response; with it every form takes linear time."""


class Call(NamedTuple):
    """A call as it was written; arguments of forms without types are texts."""

    name: str
    arguments: dict[str, Any]


class Broken(NamedTuple):
    """Something that should have been a call, and what is wrong with it."""

    why: str


class Unreadable(ValueError):
    """A block cannot be read; the text says why."""


class Form:
    """A wire form between two markers, such as `<tool_call>` and `</tool_call>`; a subclass reads what is inside.

    Attributes:
        name: given by the decorator.
        opens, closes: the texts before and after a call (or a list of calls).
        stops: tokens that end the response where a call ends, for models that end it with none of their usual ones.
        tokens: control tokens that belong to a call or to thoughts; they stay in the text that is read.
        thoughts: the texts before and after thoughts.
        several: whether a response can have more than one call.
    """

    name: ClassVar[str] = ""
    opens: ClassVar[str] = ""
    closes: ClassVar[str] = ""
    stops: ClassVar[tuple[str, ...]] = ()
    tokens: ClassVar[tuple[str, ...]] = ()
    thoughts: ClassVar[tuple[str, str]] = ("<think>", "</think>")
    several: ClassVar[bool] = True

    def think(self, text: str, opened: bool) -> tuple[str, str | None]:
        """The thoughts of a response and what follows them; None where the thoughts do not end.

        Nothing before the last end of thoughts counts as an answer.

        Args:
            text: the response.
            opened: whether the prompt opened the thoughts.
        """
        begins, ends = self.thoughts
        before, found, after = text.rpartition(ends)
        if found:
            return before.strip().removeprefix(begins).strip(), after
        if opened or begins in text:
            return text.strip().removeprefix(begins).strip(), None
        return "", text

    def read(self, text: str) -> tuple[str, list[Call | Broken]]:
        """The text around the calls of a response without thoughts, and its calls in their order."""
        around, found, at = [], list[Call | Broken](), 0
        while (start := text.find(self.opens, at)) >= 0 and len(found) < MOST:
            around.append(text[at:start])
            try:
                calls, at = self.block(text, start + len(self.opens))
                found += calls
            except Unreadable as error:
                found.append(Broken(str(error)))
                end = text.find(self.closes, start + len(self.opens))
                at = end + len(self.closes) if end >= 0 else len(text)
        around.append(text[at:])
        rest = "".join(around).strip()
        if self.closes in rest or self.opens in rest:
            found.append(Broken(f"{self.closes if self.closes in rest else self.opens} stands alone."))
        return rest, found

    def block(self, text: str, at: int) -> tuple[list[Call], int]:
        """Read the calls that begin at a place of the text, behind `opens`, and `closes` after them.

        Returns:
            The calls, and the place behind `closes`.

        Raises:
            Unreadable: they are not well-formed.
        """
        end = text.find(self.closes, at)
        if end < 0:
            raise Unreadable(f"The call does not end with {self.closes}.")
        return self.inside(text[at:end]), end + len(self.closes)

    def inside(self, text: str) -> list[Call]:
        """Read what stands between the markers; raises Unreadable."""
        raise NotImplementedError

    def write(self, calls: Sequence[Call]) -> str:
        """Calls as `read` reads them."""
        raise NotImplementedError

    @property
    def example(self) -> str:
        """A call as the model shall write it, for messages."""
        return self.write([Call("NAME", {"ARGUMENT": "VALUE"})])


FORMS: Registry[type[Form]] = Registry("wire form", home="ragen_verl.rollout.tools.forms")


def call_form(name: str) -> Callable[[type[Form]], type[Form]]:
    """Decorator: register a subclass of `Form` as the wire form `name` of `ragen.rollout.wire`.

    Raises:
        RecipeError: the name is taken.
    """

    def decorate(kind: type[Form]) -> type[Form]:
        kind.name = name
        return FORMS.add(name, kind)

    return decorate


def json_at(text: str, at: int) -> tuple[Any, int]:
    """The JSON value at a place of a text, and the place behind it.

    Raises:
        Unreadable: there is none, an object has a key twice, or a number is none of JSON's.
    """
    try:
        return _DECODER.raw_decode(text, at)
    except RecursionError:
        raise Unreadable("The JSON is nested too deeply.") from None
    except json.JSONDecodeError as error:
        raise Unreadable(f"The JSON is not valid: {error.msg} at character {error.pos - at + 1}.") from None
    except ValueError as error:
        raise Unreadable(f"The JSON is not valid: {str(error)[:100]}.") from None


def json_text(value: Any) -> str:
    """A value as JSON, as chat templates write it."""
    return json.dumps(value, ensure_ascii=False)


def listing(tools: Sequence[Mapping[str, Any]], most: int) -> str:
    """What tells a model of its tools whose template does not; a reply may have `most` calls."""
    lines = ["You can call these functions:", *(json_text(one.get("function", one)) for one in tools)]
    many = f"up to {most} calls" if most > 1 else "one call"
    return "\n".join([*lines, f"A reply may have {many}, each in this form:", FORMS["text"]().example])


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has a key twice")
    return found


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_number)
