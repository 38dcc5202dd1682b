"""`elmokit serve` under load, against in-process `encode` in the same run: throughput, latency, overload, soak.

    python benchmarks/server.py                        # throughput, latency, mixed sizes: about two minutes
    python benchmarks/server.py --overload 60 --soak 600
    python benchmarks/server.py --infinity ENV/bin/infinity_emb --bert FOLDER   # the same model behind infinity

The server is a process of its own on loopback; the clients are coroutines of this one, on plain sockets, so that they
cost little of the machine that the server needs. Every figure is of this machine, now; compare within one run only.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlsplit

CLIENTS, SENTENCES = 32, 16
QUEUE = 16_384  # tokens; about what the clients have under way at full load


@dataclass
class Load:
    """What clients met."""

    seconds: float = 0.0
    words: int = 0
    times: dict[int, list[float]] = field(default_factory=dict)  # by status
    lost: int = 0
    doubled: int = 0

    def note(self, status: int, seconds: float, words: int) -> None:
        self.times.setdefault(status, []).append(seconds)
        self.words += words if status == 200 else 0

    @property
    def counts(self) -> dict[int, int]:
        return {status: len(times) for status, times in sorted(self.times.items())}

    def at(self, share: float, status: int = 200) -> float:
        """A quantile of the times, in milliseconds."""
        times = sorted(self.times.get(status, []))
        return 1e3 * times[min(int(share * len(times)), len(times) - 1)] if times else float("nan")


class Connection:
    """One keep-alive connection of HTTP/1.1."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.host, self.port = parts.hostname or "", parts.port or 80
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        if self.writer is None or self.reader is None:
            self.reader, self.writer = await asyncio.open_connection(self.host, self.port, limit=1 << 26)
        head = (
            f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self.writer.write(head.encode() + body)
        answer = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        length = int(re.search(r"(?i)content-length: (\d+)", answer)[1])  # type: ignore[index]
        content = await self.reader.readexactly(length)
        if re.search(r"(?i)connection: close", answer):
            await self.close()
        return int(answer.split(" ", 2)[1]), content

    async def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.reader = self.writer = None


@contextmanager
def served(*flags: str) -> Iterator[tuple[str, int]]:
    """`elmokit serve`: its address and its process."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as file:
            command = [sys.executable, "-m", "elmokit", "serve", "--port", "0", *flags]
            process = subprocess.Popen(command, stdout=file, stderr=file)
        try:
            yield wait_for(log, r" on (http://\S+)", process), process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def wait_for(log: Path, pattern: str, process: "subprocess.Popen[bytes]") -> str:
    while process.poll() is None:
        if found := re.search(pattern, log.read_text(errors="replace")):
            return found[1]
        time.sleep(0.1)
    raise SystemExit(f"the server did not start: {log.read_text()}")


async def drive(
    url: str,
    bodies: list[tuple[bytes, int, int]],
    *,
    clients: int,
    seconds: float,
    path: str = "/v1/embeddings",
    wait: float = 0.0,
) -> Load:
    """So many clients, each sending one request after the other; a body comes with its texts and words."""
    load, began = Load(), time.perf_counter()
    ends = began + seconds

    async def client(number: int) -> None:
        connection, at = Connection(url), number
        while time.perf_counter() < ends:
            body, texts, words = bodies[at % len(bodies)]
            at += clients
            start = time.perf_counter()
            try:
                status, content = await connection.post(path, body)
            except (OSError, asyncio.IncompleteReadError):
                load.lost += 1
                await connection.close()
                continue
            load.note(status, time.perf_counter() - start, words)
            if status == 200 and content.count(b'"object":"embedding"') != texts and path == "/v1/embeddings":
                load.doubled += 1
            if status == 429:
                await asyncio.sleep(wait)
        await connection.close()

    await asyncio.gather(*(client(number) for number in range(clients)))
    load.seconds = time.perf_counter() - began
    return load


def request(texts: list[str], count: Callable[[str], int]) -> tuple[bytes, int, int]:
    return json.dumps({"input": texts, "encoding_format": "base64"}).encode(), len(texts), sum(map(count, texts))


def memory(pid: int) -> float:
    """Resident MiB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def show(name: str, value: str) -> None:
    print(f"{name:<58} {value}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20, help="of each measurement")
    parser.add_argument("--overload", type=float, default=0, help="seconds of ten times as many clients; 0: none")
    parser.add_argument("--soak", type=float, default=0, help="seconds of steady load; 0: none")
    parser.add_argument("--infinity", help="its program, in an environment of its own; needs --bert")
    parser.add_argument("--bert", help="folder of a sentence-embedding model for both servers")
    options = parser.parse_args()
    if options.infinity:
        compare_infinity(options.infinity, options.bert, options.seconds)
        return

    from elmokit import Elmo

    elmo = Elmo.from_pretrained()
    sample = files("elmokit.cli").joinpath("sample.txt").read_text(encoding="utf-8")
    texts = [s.text or "" for line in sample.splitlines() for s in elmo.tokenizer.split(line)]

    def count(text: str) -> int:
        return len(elmo.tokenizer.tokenize(text))

    groups = [texts[k : k + SENTENCES] for k in range(0, len(texts) - SENTENCES, SENTENCES)]
    bodies = [request(group, count) for group in groups]
    single = [request([text], count) for text in texts]
    words = sum(map(count, texts))

    def locally(seconds: float) -> float:
        """Words a second of `encode` in this process, on the same text."""
        elmo.encode(texts)
        began, rounds = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            elmo.encode(texts, normalise=True)
            rounds += 1
        return rounds * words / (time.perf_counter() - began)

    with served("--max-queue-tokens", str(QUEUE)) as (url, pid):
        asyncio.run(drive(url, bodies, clients=4, seconds=3))
        before = locally(options.seconds / 2)
        many = asyncio.run(drive(url, bodies, clients=CLIENTS, seconds=options.seconds))
        local = (before + locally(options.seconds / 2)) / 2  # before and after: others may use the machine
        ones = asyncio.run(drive(url, single, clients=CLIENTS, seconds=options.seconds))
        show("in-process encode, words a second", f"{local:,.0f}")
        for name, load in ((f"{SENTENCES} sentences", many), ("1 sentence", ones)):
            rate = load.words / load.seconds
            told = f"{rate:,.0f} ({rate / local:.0%}); p50 {load.at(0.5):.0f} ms, p99 {load.at(0.99):.0f} ms"
            show(f"{CLIENTS} clients, {name} a request, words a second", told)

        few = [[text] for text in texts[:40]]
        elmo.encode(texts)
        times: list[float] = []
        for _ in range(5):
            for text in few:
                began = time.perf_counter()
                elmo.encode(text, normalise=True)
                times.append(time.perf_counter() - began)
        alone = asyncio.run(drive(url, single[:40], clients=1, seconds=options.seconds / 2))
        p50, p99 = (1e3 * statistics.quantiles(times, n=100)[k] for k in (49, 98))
        show("one sentence, in process", f"p50 {p50:.2f} ms, p99 {p99:.2f} ms")
        told = f"p50 {alone.at(0.5):.2f} ms (+{alone.at(0.5) - p50:.2f}), p99 {alone.at(0.99):.2f} ms"
        show("one sentence, one client", told)

        large = request(texts * 2, count)

        async def mixed() -> tuple[Load, Load]:
            jobs: list[Awaitable[Load]] = [
                drive(url, [large], clients=2, seconds=options.seconds),
                drive(url, single, clients=8, seconds=options.seconds),
            ]
            first, second = await asyncio.gather(*jobs)
            return first, second

        big, small = asyncio.run(mixed())
        show(f"mixed: 2 clients with {large[1]} sentences a request", f"p50 {big.at(0.5):.0f} ms; {big.counts}")
        show("mixed: 8 clients with 1 sentence a request", f"p50 {small.at(0.5):.0f} ms, p99 {small.at(0.99):.0f} ms")

        if options.overload:
            full = asyncio.run(drive(url, bodies, clients=CLIENTS, seconds=options.overload))
            start = memory(pid)
            over = asyncio.run(drive(url, bodies, clients=10 * CLIENTS, seconds=options.overload, wait=0.25))
            told = f"p99 {full.at(0.99):.0f} ms; {full.counts}"
            show(f"full load, {CLIENTS} clients", told)
            ratio = over.at(0.99) / full.at(0.99)
            show(f"overload, {10 * CLIENTS} clients: accepted", f"p99 {over.at(0.99):.0f} ms ({ratio:.2f} times)")
            told = f"p50 {over.at(0.5, 429):.1f} ms, p99 {over.at(0.99, 429):.1f} ms; {over.counts}"
            show("overload: refused (429)", told)
            told = f"{over.lost} lost, {over.doubled} of a wrong size; memory {start:.0f} to {memory(pid):.0f} MiB"
            show("overload", told)
        if options.soak:
            asyncio.run(drive(url, bodies, clients=CLIENTS, seconds=min(options.soak / 10, 60)))
            marks = [memory(pid)]
            statuses: Counter[int] = Counter()
            for _ in range(10):
                part = asyncio.run(drive(url, bodies, clients=CLIENTS, seconds=options.soak / 10))
                statuses.update(part.counts)
                marks.append(memory(pid))
            told = f"{marks[0]:.0f} to {marks[-1]:.0f} MiB ({marks[-1] / marks[0] - 1:+.1%}); {dict(statuses)}"
            show(f"soak of {options.soak:.0f} seconds: memory", told)


def compare_infinity(program: str, bert: str, seconds: float) -> None:
    """The same sentence-embedding model behind infinity and behind elmokit, one after the other, twice."""
    sample = files("elmokit.cli").joinpath("sample.txt").read_text(encoding="utf-8")
    lines = [part.strip() + "." for part in sample.replace("\n", " ").split(".") if part.strip()]
    groups = [lines[k : k + SENTENCES] for k in range(0, len(lines) - SENTENCES, SENTENCES)]
    found: dict[str, list[Load]] = {"infinity": [], "elmokit": []}
    for _ in range(2):
        for name in found:
            with infinity(program, bert) if name == "infinity" else served("-m", f"model=bert:{bert}") as (url, _):
                bodies = [
                    (json.dumps({"model": "model", "input": g}).encode(), len(g), sum(len(t.split()) for t in g))
                    for g in groups
                ]
                path = "/embeddings"
                asyncio.run(drive(url, bodies, clients=4, seconds=3, path=path))
                found[name].append(asyncio.run(drive(url, bodies, clients=CLIENTS, seconds=seconds, path=path)))
    for name, loads in found.items():
        rate = sum(load.words for load in loads) / sum(load.seconds for load in loads)
        p99 = max(load.at(0.99) for load in loads)
        show(name, f"{rate:,.0f} words a second, p99 {p99:.0f} ms; {[load.counts for load in loads]}")


@contextmanager
def infinity(program: str, bert: str) -> Iterator[tuple[str, int]]:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        flags = ["--model-id", bert, "--served-model-name", "model", "--port", str(port), "--host", "127.0.0.1"]
        flags += ["--engine", "torch", "--device", "cpu", "--no-bettertransformer", "--url-prefix", ""]
        with log.open("wb") as file:
            environment = {**os.environ, "HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1"}
            process = subprocess.Popen([program, "v2", *flags], stdout=file, stderr=file, env=environment)
        try:
            wait_for(log, r"(running on http|startup complete)", process)
            yield f"http://127.0.0.1:{port}", process.pid
        finally:
            process.terminate()
            process.wait(60)


if __name__ == "__main__":
    main()
