"""The HTTP client of all environments that use a server; httpx is imported at the first use (half a second)."""

from __future__ import annotations

import logging
import os
from functools import cache
from typing import TYPE_CHECKING

from ragen_verl.errors import MissingExtra, adding

if TYPE_CHECKING:
    import httpx

__all__ = ["client"]


@cache
def client(proxies: bool = True) -> httpx.Client:
    """The client of this process, with its open connections; it serves all threads.

    Args:
        proxies: use the proxy that the environment variables name, if any; off for addresses of this machine.
    """
    try:
        import httpx
    except ImportError:
        raise MissingExtra(f"An environment on a server needs httpx: {adding('serve')}.") from None

    logging.getLogger("httpx").setLevel(logging.WARNING)  # it would log each request, and so each step of an episode
    return httpx.Client(limits=httpx.Limits(max_connections=None, max_keepalive_connections=64), trust_env=proxies)


os.register_at_fork(after_in_child=client.cache_clear)  # two processes must not write to the same connection
