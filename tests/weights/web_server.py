"""A server with files in memory that can misbehave as servers and networks do; also as a proxy."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass
class Web:
    """What is served, and what was asked for."""

    files: dict[str, bytes] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    moved: dict[str, str] = field(default_factory=dict)
    broken: list[int] = field(default_factory=list)  # after so many bytes the next answers end
    errors: list[int] = field(default_factory=list)  # statuses of the next answers
    ranges: bool = True
    etags: bool = True
    lengths: bool = True
    asked: list[tuple[str, str | None]] = field(default_factory=list)  # path, range
    port: int = 0

    def at(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"


@contextmanager
def serving(web: Web) -> Iterator[Web]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            path = urlsplit(self.path).path  # a proxy is asked for whole addresses
            asked = self.headers.get("Range")
            web.asked.append((self.path, asked))
            if web.errors:
                self.send_error(web.errors.pop(0))
                return
            if path in web.moved:
                self.send_response(302)
                self.send_header("Location", web.moved[path])
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if path not in web.files:
                self.send_error(404)
                return
            data, etag = web.files[path], f'"{hash(web.files[path])}"'
            start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and web.ranges else 0
            if start and self.headers.get("If-Range") != etag:
                start = 0
            if start and start >= len(data):
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
            self.send_header("Content-Type", web.types.get(path, "application/octet-stream"))
            if web.etags:
                self.send_header("ETag", etag)
            if web.lengths:
                self.send_header("Content-Length", str(len(data) - start))
            self.end_headers()
            end = start + web.broken.pop(0) if web.broken else len(data)
            self.wfile.write(data[start:end])

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        web.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield web
        finally:
            server.shutdown()
            thread.join()
