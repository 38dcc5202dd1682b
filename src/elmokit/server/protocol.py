"""HTTP as uvicorn reads it with httptools, with bounds on what may stand before a body and how long that may take."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HEAD = 64 << 10  # bytes of a request's first line and headers
HEAD_SECONDS = 30.0  # that they may take


class BoundedHttp(HttpToolsProtocol):
    """One connection. It is closed if headers do not end: too many are answered with 400, too late ones are not."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._head: int | None = 0  # bytes of it so far; None while a body comes
        self._late: asyncio.TimerHandle | None = None  # closes the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._late = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        self._in_time()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._head == 0 and self._late is None:
            self._late = self.loop.call_later(HEAD_SECONDS, self._give_up)
        if self._head is not None:
            self._head += len(data)
        super().data_received(data)
        if self._head is not None and self._head > MOST_HEAD and not self.transport.is_closing():
            self.send_400_response(f"The headers have more than {MOST_HEAD} bytes.")

    def on_headers_complete(self) -> None:
        self._head = None
        self._in_time()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._head = 0
        super().on_message_complete()

    def _give_up(self) -> None:
        if self.cycle is None or self.cycle.response_complete:  # else the request before it is not answered yet
            self.transport.close()

    def _in_time(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
