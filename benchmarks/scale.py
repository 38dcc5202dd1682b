"""Embedding and indexing in parts: Ray's two workers against one process, growth with the text, a large index.

    python benchmarks/scale.py compare ../shared/corpora/wikipedia-00.txt.xz      two cores, with Ray and without
    python benchmarks/scale.py growth --untrained 64                              10^5 to 10^7 words, without Ray
    python benchmarks/scale.py growth wikipedia-00.txt.xz -m en --device cuda --processes 4 --part-rows 100    on a GPU
    python benchmarks/scale.py index 4000000 --untrained 512 --folder index       an index, with Ray

All times are by the clock, so the machine must have nothing else to do; `growth` also gives CPU time. Text: the files
given, or the sample text again and again. `growth` calls the class that a Ray worker is; each part's file is removed
when it has been written. A GPU is too quick for one process, which also cuts the text and writes the files.
"""

import argparse
import itertools
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from statistics import median
from typing import Any

import torch

from elmokit import Elmo, Index
from elmokit.formats.parts import Part, PartReport, Spent, WorkerReport, make_part
from elmokit.formats.streams import open_bytes
from elmokit.nn.bilm import BiLM, BiLMConfig
from elmokit.nn.char_cnn import TokenEncoderConfig
from elmokit.nn.lstm import LstmConfig
from elmokit.store.parts import PartEmbedder, PartOptions, begin_parts, finish_parts, part_file, plan_parts
from elmokit.weights import CodecSpec, Pretrained, TokenizerSpec

Made = tuple[PartReport, Spent]
Run = tuple[int, float, float]  # tokens, seconds, seconds on the processor
REPEATS = 9  # of a small text; the median counts


def main() -> None:
    given = read_arguments()
    if given.command == "once":
        torch.set_num_threads(given.threads)
        CONTENDERS[given.contender](Path(given.text), Path(given.folder), given)
        return
    kept = getattr(given, "folder", None)
    with tempfile.TemporaryDirectory(dir=kept and kept.absolute().parent) as name:
        place = Path(name)
        if given.untrained:
            make_model(given.untrained).save_pretrained(place / "model")
            given.model = str(place / "model")
        {"compare": compare, "growth": grow, "index": make_index}[given.command](place, given)


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)

    def add(name: str, what: str, *, part_rows: int | None = None) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=what)
        command.add_argument("-m", "--model")
        command.add_argument("--untrained", type=int, metavar="WIDTH", help="a small model with random weights")
        command.add_argument("--part-rows", type=int, default=part_rows, help="lines of a part; default: %(default)s")
        command.add_argument("--workers", type=int, default=2)
        command.add_argument("--threads", type=int, default=1, help="of growth's process, or of each worker")
        command.add_argument("--json", type=Path, help="write the numbers here, too")
        return command

    two = add("compare", "two cores: threads, processes, Ray")
    two.add_argument("texts", nargs="*", type=Path)
    two.add_argument("--words", type=int, nargs="+", default=[50_000, 250_000], help="of each text")
    two.add_argument("--only", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS), metavar="CONTENDER")
    two.add_argument("--rounds", type=int, default=1)

    growth = add("growth", "rates from small texts to large ones", part_rows=500)
    growth.add_argument("texts", nargs="*", type=Path)
    growth.add_argument("--words", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    growth.add_argument("--device", default="cpu")
    growth.add_argument(
        "--processes", type=int, default=1, help="that share the device; each gets an equal share of a text"
    )
    growth.add_argument("--folder", type=Path, help="files are written in a new folder beside this one")

    large = add("index", "an index with Ray")
    large.add_argument("occurrences", type=int)
    large.add_argument("texts", nargs="*", type=Path)
    large.add_argument("--folder", type=Path, help="of the index; what is there of it is kept")

    once = add("once", "one run of `compare`, in a process of its own")
    once.add_argument("contender", choices=list(CONTENDERS))
    once.add_argument("text")
    once.add_argument("folder")
    return parser.parse_args()


def make_model(width: int) -> Elmo:
    """Two layers of `width` / 2 cells in each direction."""
    tokens = TokenEncoderConfig(filters=((1, 16), (2, 16), (3, 32)), n_highway=0, projection_dim=width // 2)
    config = BiLMConfig(tokens=tokens, lstm=LstmConfig(width // 2, width // 2, False))
    torch.manual_seed(0)
    tensors = {name: 0.1 * torch.randn_like(tensor) for name, tensor in BiLM(config).state_dict().items()}
    return Elmo(Pretrained(config, tensors, CodecSpec(), TokenizerSpec("english", 1)), device="cpu")


def read_lines(texts: list[Path]) -> Iterator[str]:
    """The lines of the files that hold something, again and again; without files those of the sample text."""
    if not texts:
        sample = files("elmokit.cli").joinpath("sample.txt").read_text(encoding="utf-8")
        yield from itertools.cycle(line for line in sample.splitlines() if line.strip())
    while True:
        for text in texts:
            with open_bytes(text) as stream:
                for data in stream:
                    if line := data.decode("utf-8").strip():
                        yield line


def write_text(path: Path, words: int, lines: Iterable[str]) -> Path:
    """The next lines, up to this many words."""
    with path.open("w", encoding="utf-8") as file:
        for line in lines:
            file.write(f"{line}\n")
            words -= len(line.split())
            if words <= 0:
                return path
    return path


# One process, two processes, Ray


def compare(place: Path, given: argparse.Namespace) -> None:
    """Each contender embeds each text, each time in a new process.

    `whole` is the rate with everything: Python's start, the model's, Ray's. `work` is the rate between the beginning of
    the first part and the end of the last one. A worker's busy time is a share of that, too.
    """
    texts = {n: write_text(place / f"{n}.txt", n, read_lines(given.texts)) for n in given.words}
    found: dict[tuple[int, str], list[dict[str, Any]]] = {(n, name): [] for n in texts for name in given.only}
    for _ in range(given.rounds):
        for (n, name), rounds in found.items():
            rounds.append(timed(name, texts[n], place / "parts", given))
            print(f"{n:,} words, {name}: {rounds[-1]}", file=sys.stderr, flush=True)
    print("| words | | start and end, s | whole, tokens a second | first part to last | workers |")
    print("| --- | --- | --- | --- | --- | --- |")
    firsts: dict[int, tuple[float, float]] = {}
    for (n, name), rounds in found.items():
        start = median(each["seconds"] - each["work_seconds"] for each in rounds)
        whole = median(each["tokens"] / each["seconds"] for each in rounds)
        work = median(each["tokens"] / each["work_seconds"] for each in rounds)
        first = firsts.setdefault(n, (whole, work))
        rates = f"{whole:,.0f} ({whole / first[0]:.2f}) | {work:,.0f} ({work / first[1]:.2f})"
        print(f"| {n:,} | {name} | {start:.1f} | {rates} | {'<br>'.join(map(tell_workers, rounds))} |")
    keep({"compare": [{"words": n, "contender": name, "rounds": rounds} for (n, name), rounds in found.items()]}, given)


def tell_workers(run: dict[str, Any]) -> str:
    seconds = run["work_seconds"]
    return "; ".join(
        f"{each['parts']} parts, {each['tokens']:,} tokens, {each['busy'] / seconds:.0%} busy, "
        f"{each['cpu'] / seconds:.0%} CPU"
        for each in run["workers"]
    )


def timed(contender: str, text: Path, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Seconds of a process that embeds the text, from its start to its end, and what each worker did."""
    threads = given.workers if contender == "one process" else 1
    command = [sys.executable, __file__, "once", contender, str(text), str(folder), "--threads", str(threads)]
    command += ["--workers", str(given.workers)]
    command += ["--part-rows", str(given.part_rows)] if given.part_rows else []
    command += ["-m", given.model] if given.model else []
    began = time.perf_counter()
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": str(threads)})
    seconds = time.perf_counter() - began
    assert json.loads((folder / "manifest.json").read_text())["complete"]
    shutil.rmtree(folder)
    workers = json.loads(told_file(folder).read_text())
    span = max(each["ended"] for each in workers) - min(each["began"] for each in workers)
    tokens = sum(each["tokens"] for each in workers)
    return {"tokens": tokens, "seconds": seconds, "work_seconds": span, "workers": workers}


def told_file(folder: Path) -> Path:
    """What the process of one run says of its workers."""
    return folder.with_suffix(".workers.json")


def embed_parts(
    text: Path,
    folder: Path,
    embedder: PartEmbedder,
    part_rows: int | None,
    make: Callable[[list[Part]], Iterable[Made]],
) -> int:
    """What Ray's driver does, with a function that makes the parts; the number of tokens."""
    encoder = embedder.encoder
    parts = plan_parts([str(text)], part_rows=part_rows)
    begin_parts(folder, parts, embedder.options, encoder.fingerprint, encoder.arithmetic, restart=False)
    workers: dict[str, WorkerReport] = {}
    reports = []
    for report, spent in make(parts):
        workers.setdefault(spent.worker, WorkerReport()).add(report, spent)
        reports.append(report)
    finish_parts(folder, reports)
    tell(workers, folder)
    return sum(report.tokens for report in reports)


def tell(workers: dict[str, WorkerReport], folder: Path) -> None:
    told_file(folder).write_text(json.dumps([asdict(each) for each in workers.values()]))


def run_alone(text: Path, folder: Path, given: argparse.Namespace) -> None:
    embedder = PartEmbedder(folder, PartOptions(model=given.model, device="cpu"))
    embed_parts(text, folder, embedder, given.part_rows, lambda parts: (make_part(embedder, part) for part in parts))


def run_pool(text: Path, folder: Path, given: argparse.Namespace) -> None:
    embedder = PartEmbedder(folder, PartOptions(model=given.model, device="cpu"))
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(given.workers, spawn, _begin_worker, (folder, embedder.options, given.threads)) as pool:
        embed_parts(text, folder, embedder, given.part_rows, lambda parts: pool.map(_make_part, parts))


def _begin_worker(folder: Path, options: PartOptions, threads: int) -> None:
    global worker
    torch.set_num_threads(threads)
    worker = PartEmbedder(folder, options)
    worker.encoder  # noqa: B018  (loaded before the first part begins)


def _make_part(part: Part) -> Made:
    return make_part(worker, part)


def run_ray(text: Path, folder: Path, given: argparse.Namespace) -> None:
    from elmokit.integrations.ray import embed

    options: dict[str, Any] = {"workers": given.workers, "cpus": given.threads, "part_rows": given.part_rows}
    tell(embed([text], folder, model=given.model, device="cpu", **options).workers, folder)


worker: PartEmbedder
CONTENDERS: dict[str, Callable[[Path, Path, argparse.Namespace], None]] = {
    "one process": run_alone, "processes": run_pool, "Ray": run_ray,
}  # fmt: skip


# Growth


def grow(place: Path, given: argparse.Namespace) -> None:
    """Rates of texts of each size, each time other lines. Of several runs the median counts.

    All but the largest are run several times, some before it and some after: so slow changes of the text, or of the
    machine, are in all sizes.
    """
    lines, most = read_lines(given.texts), max(given.words)
    options = PartOptions(model=given.model, device=given.device)
    shares = [place / f"share-{k}" for k in range(given.processes)]
    spawn = multiprocessing.get_context("spawn")
    found: dict[int, list[Run]] = {words: [] for words in sorted(given.words)}
    with ProcessPoolExecutor(given.processes, spawn, _begin_worker, (place, options, given.threads)) as pool:

        def run(words: int) -> Run:
            for share in shares:
                write_text(share.with_suffix(".txt"), words // given.processes, lines)
            began = time.perf_counter()
            made = list(pool.map(_make_share, shares, [given.part_rows] * given.processes))
            seconds = time.perf_counter() - began
            done = sum(tokens for tokens, _ in made), seconds, sum(cpu for _, cpu in made)
            print(f"{words:,} words: {done[0]:,} tokens in {seconds:.2f} s", file=sys.stderr, flush=True)
            return done

        run(2 * min(given.words))  # not counted: the model is loaded meanwhile
        smaller = [words for words in found if words < most for _ in range(repeats(words, most))]
        for words in [*smaller[::2], most, *smaller[1::2]]:
            found[words].append(run(words))
            keep({"growth": found, "processes": given.processes, "part_rows": given.part_rows}, given)
    tell_growth(found)


def repeats(words: int, most: int) -> int:
    """How often a text that is not the largest is run."""
    return min(REPEATS, max(most // words // 10, 2))


def tell_growth(found: dict[int, list[Run]]) -> None:
    print("| words | tokens | runs | seconds | tokens a second | to the first | tokens a CPU second | to the first |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    rates: list[tuple[float, float]] = []
    for words, runs in found.items():
        tokens, seconds, _ = (median(each) for each in zip(*runs, strict=True))
        rates.append((median(run[0] / run[1] for run in runs), median(run[0] / run[2] for run in runs)))
        shown = " | ".join(f"{rate:,.0f} | {rate / first:.3f}" for rate, first in zip(rates[-1], rates[0], strict=True))
        print(f"| {words:,} | {tokens:,.0f} | {len(runs)} | {seconds:.2f} | {shown} |")
    for each, what in zip(zip(*rates, strict=True), ("by the clock", "by CPU time"), strict=True):
        print(f"\nThe slowest rate {what} is {1 - min(each) / max(each):.1%} below the quickest.")


def _make_share(share: Path, part_rows: int) -> tuple[int, float]:
    """The plan, the parts, the manifest of a share of the text; its tokens, and the CPU seconds of this process."""

    def make(parts: list[Part]) -> Iterator[Made]:
        for part in parts:
            yield make_part(worker, part)
            part_file(share, part).unlink()

    began, worker.folder = time.process_time(), share
    tokens = embed_parts(share.with_suffix(".txt"), share, worker, part_rows, make)
    shutil.rmtree(share)
    return tokens, time.process_time() - began


# An index


def make_index(place: Path, given: argparse.Namespace) -> None:
    """An index with Ray, how large it is, what was held in memory, and how long an exact search takes."""
    from elmokit.integrations.ray import index

    folder = given.folder or place / "index"
    text = write_text(place / "text.txt", given.occurrences, read_lines(given.texts))
    held = (0.0, 0.0)

    def told(report: Any) -> None:
        nonlocal held
        held = tuple(map(max, held, largest_memory()))  # type: ignore[assignment]
        print(f"{report.done} of {report.parts} parts, {report.occurrences:,} occurrences", flush=True)

    began = time.perf_counter()
    options: dict[str, Any] = {"workers": given.workers, "cpus": given.threads, "part_rows": given.part_rows}
    done = index([text], folder, model=given.model, device="cpu", name="sample", told=told, **options)
    seconds = time.perf_counter() - began
    made = Index.open(folder)
    query = made.vectors([len(made) // 2])
    made.mean  # noqa: B018  (read once, and not part of a search)
    searched = time.perf_counter()
    made.search(query, exact=True)
    searched = time.perf_counter() - searched
    size = sum(path.stat().st_size for path in folder.iterdir())
    figures = {
        "occurrences": f"{len(made):,}",
        "segments": f"{len(made.segments)}",
        "parts of an earlier run": f"{done.resumed}",
        "on disk": f"{size / 2**30:.2f} GiB",
        "most memory held by the driver": f"{held[0]:.2f} GiB",
        "most memory held by a worker": f"{held[1]:.2f} GiB",
        "time": f"{seconds:,.0f} s",
        "one exact search": f"{searched:.1f} s",
    }
    print("\n".join(["| | |", "| --- | --- |", *(f"| {what} | {value} |" for what, value in figures.items())]))
    keep({"index": figures}, given)


def largest_memory() -> tuple[float, float]:
    """GiB that this process and the largest other one of its session have held at most; Ray's are among them."""
    held = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            session = int((path / "stat").read_text().rpartition(")")[2].split()[3])
            lines = (path / "status").read_text().splitlines()
        except OSError:  # it has just ended
            continue
        if session == os.getsid(0):
            most = max((int(line.split()[1]) for line in lines if line.startswith("VmHWM")), default=0)
            held[int(path.name)] = most / 2**20
    own = held.pop(os.getpid())
    return own, max(held.values(), default=0.0)


def keep(numbers: dict[str, Any], given: argparse.Namespace) -> None:
    if given.json:
        given.json.write_text(json.dumps(numbers, indent=2) + "\n")


if __name__ == "__main__":
    main()
