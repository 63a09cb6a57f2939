"""Connections with a time limit: a request that never arrives or never ends is dropped."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 10.0


class TimedProtocol(H11Protocol):
    """HTTP in which a request must arrive within some seconds of its first byte or the connection.

    uvicorn itself only closes connections that are idle between requests.
    """

    _arriving: asyncio.TimerHandle | None = None

    def connection_made(  # type: ignore[override]
        self, transport: asyncio.Transport
    ) -> None:
        """Start waiting for the first request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Take the data; keep waiting if the request is still incomplete."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._wait()
        else:
            self._arrived()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._arrived()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._arriving is None:
            self._arriving = self.loop.call_later(HEADER_SECONDS, self.transport.abort)

    def _arrived(self) -> None:
        if self._arriving is not None:
            self._arriving.cancel()
            self._arriving = None
