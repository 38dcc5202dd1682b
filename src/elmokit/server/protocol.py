"""HTTP as uvicorn reads it with httptools, with a bound on what may stand before a body."""

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HEAD = 64 << 10  # bytes of a request's first line and headers


class BoundedHttp(HttpToolsProtocol):
    """One connection. A request whose headers do not end is answered with 400, and the connection is closed."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._head: int | None = 0  # bytes of it so far; None while a body comes

    def data_received(self, data: bytes) -> None:
        if self._head is not None:
            self._head += len(data)
        super().data_received(data)
        if self._head is not None and self._head > MOST_HEAD and not self.transport.is_closing():
            self.send_400_response(f"The headers have more than {MOST_HEAD} bytes.")

    def on_headers_complete(self) -> None:
        self._head = None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._head = 0
        super().on_message_complete()
