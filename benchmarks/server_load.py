"""Clients of a server, for benchmarks/server.py: a process of its own that costs little of the machine they share.

    python benchmarks/server_load.py < PLAN > RESULT    # both JSON

One thread, plain sockets, requests that are made beforehand. A group of clients sends one request after the other, or,
with a rate, sends so many requests a second whether answers come or not, on as many connections as that takes. A time
is from before a request is sent until its last byte has come. `cpu` is what this process took itself, `late` how late
it was with its requests: if these are not small, it measured itself.
"""

import json
import random
import select
import socket
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import urlsplit

PATIENCE = 120.0  # seconds for the last answers
PAUSE = 0.25  # seconds after a refusal until a client of a group without a rate sends its next request


@dataclass
class Group:
    """Clients that do the same; a body comes with its number of texts and of words."""

    bodies: list[tuple[str, int, int]]
    path: str = "/v1/embeddings"
    clients: int = 1
    rate: float = 0.0  # requests a second; 0: as quickly as answers come
    marker: str = '"object":"embedding"'  # stands in an answer once per text
    echo: bool = True  # whether the server sends X-Request-Id back


@dataclass
class Result:
    """What a group met: milliseconds by status, and what should not be."""

    seconds: float = 0.0
    words: int = 0
    times: dict[int, list[float]] = field(default_factory=dict)
    late: list[float] = field(default_factory=list)  # milliseconds
    lost: int = 0  # no answer
    doubled: int = 0  # an answer to another request, or with too many or too few vectors


class Link:
    """A connection, and the request that is under way on it."""

    def __init__(self, address: tuple[str, int], group: int) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.group, self.busy = group, False
        self.received = bytearray()
        self.wanted = 0  # bytes of the whole answer, once its headers are there
        self.began, self.name, self.texts, self.words = 0.0, b"", 0, 0

    def send(self, name: bytes, request: tuple[bytes, bytes, int, int]) -> None:
        head, body, self.texts, self.words = request
        self.name, self.wanted, self.busy = name, 0, True
        self.received.clear()
        self.began = time.perf_counter()
        self.socket.sendall(head + name + b"\r\n\r\n" + body)

    def complete(self) -> bool:
        """Whether the answer is there, now that the socket can be read."""
        data = self.socket.recv(1 << 18)
        if not data:
            raise ConnectionError
        self.received += data
        if not self.wanted and (end := self.received.find(b"\r\n\r\n")) >= 0:
            head = bytes(self.received[:end]).lower()
            at = head.index(b"content-length:") + 15
            self.wanted = end + 4 + int(head[at:].split(b"\r\n", 1)[0])
        return 0 < self.wanted <= len(self.received)


class Drive:
    """All groups against one address."""

    def __init__(self, url: str, groups: list[Group], seconds: float) -> None:
        parts = urlsplit(url)
        self.address = parts.hostname or "", parts.port or 80
        self.groups, self.seconds = groups, seconds
        self.results = [Result() for _ in groups]
        self.requests = [[self._request(group, *body) for body in group.bodies] for group in groups]
        self.at = [0] * len(groups)
        self.free: list[deque[Link]] = [deque() for _ in groups]
        self.links: dict[int, Link] = {}  # by file number
        self.asleep: deque[tuple[float, int]] = deque()  # until when, and of which group
        self.poll = select.epoll()
        self.sent = 0

    @staticmethod
    def _request(group: Group, body: str, texts: int, words: int) -> tuple[bytes, bytes, int, int]:
        data = body.encode()
        lines = (f"POST {group.path} HTTP/1.1", "Host: x", "Content-Type: application/json")
        head = "\r\n".join((*lines, f"Content-Length: {len(data)}", "X-Request-Id: "))
        return head.encode(), data, texts, words

    def run(self) -> None:
        chance, began = random.Random(1), time.perf_counter()
        ends = began + self.seconds
        due = [began if group.rate else ends for group in self.groups]
        for number, group in enumerate(self.groups):
            for _ in range(0 if group.rate else group.clients):
                self._send(number)
        while (now := time.perf_counter()) < ends or (self._busy() and now < ends + PATIENCE):
            for number, group in enumerate(self.groups):
                while group.rate and due[number] <= now < ends:
                    self.results[number].late.append(1e3 * (time.perf_counter() - due[number]))
                    self._send(number)
                    due[number] += chance.expovariate(group.rate)
            while self.asleep and self.asleep[0][0] <= now < ends:
                self._send(self.asleep.popleft()[1])
            soon = min([*due, ends, *(at for at, _ in list(self.asleep)[:1])]) if now < ends else now + 0.5
            for file, _ in self.poll.poll(max(soon - time.perf_counter(), 0.0)):
                self._read(self.links[file], ends)
        for result in self.results:
            result.seconds = time.perf_counter() - began
        for link in self._busy():
            self.results[link.group].lost += 1

    def _busy(self) -> list[Link]:
        return [link for link in self.links.values() if link.busy]

    def _send(self, number: int) -> None:
        link = self.free[number].popleft() if self.free[number] else None
        if link is None:
            link = Link(self.address, number)
            self.poll.register(link.socket.fileno(), select.EPOLLIN)
            self.links[link.socket.fileno()] = link
        requests = self.requests[number]
        link.send(b"r%d" % self.sent, requests[self.at[number] % len(requests)])
        self.at[number] += 1
        self.sent += 1

    def _read(self, link: Link, ends: float) -> None:
        result, group = self.results[link.group], self.groups[link.group]
        try:
            if not link.complete():
                return
        except OSError:  # closed by the server, as it may do where nothing is under way
            result.lost += link.busy
            self._close(link)
            return
        if not link.busy:  # more than was asked for
            result.doubled += 1
            return
        now = time.perf_counter()
        status = int(link.received[9:12])
        result.times.setdefault(status, []).append(1e3 * (now - link.began))
        whole = len(link.received) == link.wanted
        if group.echo and b"x-request-id: " + link.name + b"\r\n" not in link.received:
            whole = False
        if status == 200:
            whole = whole and link.received.count(group.marker.encode()) == link.texts
            result.words += link.words
        result.doubled += not whole
        link.busy = False
        self.free[link.group].append(link)
        if group.rate or now >= ends:
            return
        if status == 429:
            self.asleep.append((now + PAUSE, link.group))
        else:
            self._send(link.group)

    def _close(self, link: Link) -> None:
        self.poll.unregister(link.socket.fileno())
        del self.links[link.socket.fileno()]
        if not link.busy:
            self.free[link.group].remove(link)
        elif not self.groups[link.group].rate:  # the client goes on
            self.asleep.append((time.perf_counter() + PAUSE, link.group))
        link.socket.close()


def main() -> None:
    plan: dict[str, Any] = json.load(sys.stdin)
    drive = Drive(plan["url"], [Group(**group) for group in plan["groups"]], plan["seconds"])
    drive.run()
    json.dump({"cpu": time.process_time(), "results": [asdict(result) for result in drive.results]}, sys.stdout)


if __name__ == "__main__":
    main()
