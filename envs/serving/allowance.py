"""`Allowance`: the files and addresses that a server's clients may name in an environment's arguments; none by default.

`Env.external_arguments` says which arguments name a file, a folder, an address or a data set of the Hugging Face hub.
In any other argument a text counts as such a name if it is an address, an absolute path, or a path that exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from ragen_verl.errors import RecipeError

__all__ = ["HUB", "Allowance"]

HUB = "https://huggingface.co/datasets/"
"""A data set of the hub is allowed if the address of its page is."""


class Allowance:
    """The files and addresses that clients may name.

    Args:
        files: folders; everything below them is allowed, after links are resolved.
        urls: beginnings of addresses with the complete host: "http://10.0.0.5:8000/retrieve".

    Raises:
        RecipeError: a folder does not exist, or the beginning of an address has no scheme or no host.
    """

    def __init__(self, files: Sequence[str] = (), urls: Sequence[str] = ()) -> None:
        for folder in files:
            if not Path(folder).is_dir():
                raise RecipeError(f"--allow-files {folder} is no folder: name one that exists.")
        for url in urls:
            if not (urlsplit(url).scheme and urlsplit(url).netloc):
                raise RecipeError(f"--allow-urls {url} is no address: write it with http:// or https:// and the host.")
        self.folders = [Path(folder).resolve() for folder in files]
        self.urls = [urlsplit(url) for url in urls]

    def check(self, builder: Callable[..., Any], kwargs: Mapping[str, Any]) -> None:
        """Raise RecipeError if `kwargs`, sent by a client for `builder`, name something that is not allowed."""
        while isinstance(builder, partial):
            builder = builder.func
        named = getattr(builder, "external_arguments", ())
        for key, value in kwargs.items():
            for text in _texts(value):
                self._check(key, text, key in named)

    def _check(self, key: str, text: str, external: bool) -> None:
        if "://" in text or text.lower().startswith("file:"):
            if not self._has_url(text):
                raise _refused(key, text, "address", "--allow-urls")
        elif _is_path(text):
            if not any(Path(text).expanduser().resolve().is_relative_to(folder) for folder in self.folders):
                raise _refused(key, text, "file", "--allow-files")
        elif external and text and not self._has_url(HUB + text):
            raise _refused(key, text, "data set", f"--allow-urls {HUB}")

    def _has_url(self, text: str) -> bool:
        try:
            url = urlsplit(text)
            return any(_begins(url, allowed) for allowed in self.urls)
        except ValueError:
            return False


def _begins(url: SplitResult, allowed: SplitResult) -> bool:
    same = (url.scheme.lower(), url.netloc.lower()) == (allowed.scheme.lower(), allowed.netloc.lower())
    steps = url.path.replace("%2e", ".").replace("%2E", ".").replace("\\", "/").split("/")
    return same and url.path.startswith(allowed.path) and ".." not in steps


def _is_path(text: str) -> bool:
    if text.startswith(("/", "~", "\\")) or ".." in Path(text).parts:
        return True
    try:
        return bool(text) and Path(text).exists()
    except (OSError, ValueError):  # longer than a path can be, or with a null character
        return False


def _texts(value: Any) -> Iterator[str]:
    """All texts inside a JSON value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield key
            yield from _texts(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _texts(inner)


def _refused(key: str, text: str, what: str, option: str) -> RecipeError:
    return RecipeError(
        f"{key} names the {what} {text[:200]!r}, which this server does not open for its clients: leave it out, or "
        f"have the server started with {option}."
    )
