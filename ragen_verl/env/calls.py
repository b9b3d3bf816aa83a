"""Actions of environments with tools, as canonical JSON: `{"name": ..., "arguments": {...}}` or `{"message": ...}`.

A third kind, `{"error": ...}`, stands for a call that could not be read; its text is the environment's answer to it.
"""

from __future__ import annotations

import json
from typing import Any

from ragen_verl.env.text import encodable

__all__ = ["called", "meant", "said", "unread"]


def called(name: str, /, **arguments: Any) -> str:
    """The action that calls a tool; its arguments are in the order of their names."""
    return _json({"name": name, "arguments": dict(sorted(arguments.items()))})


def said(text: str) -> str:
    """The action that is a reply without a call."""
    return _json({"message": text})


def unread(why: str) -> str:
    """The action for a call that cannot be read; `why` is the answer to it."""
    return _json({"error": why})


def meant(action: Any) -> dict[str, Any]:
    """An action as the dict with the keys above; text that is none of the three gives an error. It never raises."""
    try:
        found = json.loads(action)
    except (TypeError, ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        if isinstance(found.get("name"), str) and isinstance(found.get("arguments"), dict):
            return {"name": found["name"], "arguments": found["arguments"]}
        for key in ("message", "error"):
            if set(found) == {key} and isinstance(found[key], str):
                return found
    return {"error": 'This is no call: a call is {"name": ..., "arguments": {...}}.'}


def _json(value: Any) -> str:
    return encodable(json.dumps(value, ensure_ascii=False))
