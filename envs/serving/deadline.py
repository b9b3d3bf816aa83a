"""A time limit for requests that are begun and never completed; uvicorn has a limit only between requests."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

__all__ = ["UNTIL", "with_deadline"]

_MOST_WAITING = 16  # requests of a connection beside the present one; a client that waits for replies has none

UNTIL = "ragen_verl.until"
"""The key of a request's scope with the event loop's time at which its body has to be there."""


def with_deadline(seconds: float) -> type[asyncio.Protocol]:
    """Return uvicorn's HTTP protocol, for `uvicorn.Config(http=...)`, with a limit for a request.

    A connection is closed if the headers of a request are not complete `seconds` after the connection was opened, or
    after the first byte of a further request. The application waits for the body until the same time (`UNTIL`), since
    it can reply. A connection that sends many requests without waiting for replies is closed too.
    """

    class Protocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._set_deadline()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if len(getattr(self, "pipeline", ())) > _MOST_WAITING:
                self.transport.abort()  # uvicorn reads on with every reply, and keeps what it has read
            self._set_deadline()

        def connection_lost(self, exc: Exception | None) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
            super().connection_lost(exc)

        def _set_deadline(self) -> None:
            waits = self.cycle is None or self.cycle.response_complete
            if waits and self._deadline is None:
                self._deadline = self.loop.call_later(seconds, self._expire)
            elif not waits and self._deadline is not None:
                self.cycle.scope[UNTIL] = self._deadline.when()
                self._deadline.cancel()
                self._deadline = None

        def _expire(self) -> None:
            self._deadline = None
            if not self.transport.is_closing():
                self.transport.close()

    return Protocol
