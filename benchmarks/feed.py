"""Is the GPU fed? From text to numbers in host memory and in files, and what the whole waits for.

    python benchmarks/feed.py                                      on a GPU: original size, random weights, bfloat16
    python benchmarks/feed.py --alone --device cpu                 the calling process by itself: no network is run
    python benchmarks/feed.py --device cpu --size tiny --tokens 60000 --stream-tokens 60000        to try it

Rows, as they come: ids to all layers on the device; sentences to arrays in host memory (`Encoder.stream`); a text file
to Parquet and HDF5, as `elmokit embed` does it, with processes that cut the text. To host memory the first pass does
not count: kernels are compiled, and page-locked memory is got. A file is made of less text before; "without the start"
is the rate of what the larger text has more.

`waits` are seconds of the thread that calls the GPU: for text that is cut, for the GPU, for the thread that writes, and
for the end of the file. `busy` are seconds in which the others were at work: `write` and `sync` in the system's calls
of these names, `columns` in the rest of what the writing thread does. `GPU` is the share of the time in which it ran
something, by nvidia-smi. `bound` is what the run was waiting for: the GPU if it was busy for most of the time; else the
largest of the waits, the disk where the writing thread was in the system's calls; else the calling thread. Files go to
`--folder`; what that disk takes a second is printed first.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
BATCH = 32_768  # positions, as on a GPU


def main() -> None:
    given = read_arguments()
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        run(given, Path(name))


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="?", type=Path, help="a sentence a line; default: words drawn at random")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--size", default="original", choices=["original", "medium", "small", "tiny"])
    parser.add_argument("--tokens", type=int, default=3_000_000, help="of the text that goes to a file")
    parser.add_argument("--stream-tokens", type=int, default=1_500_000, help="of the text that goes to host memory")
    parser.add_argument("--workers", type=int, help="processes that cut; default: half of the cores")
    parser.add_argument(
        "--files", nargs="*", default=["float16.parquet", "float32.parquet", "float16.h5", "float32.h5"]
    )
    parser.add_argument("--alone", action="store_true", help="the calling process by itself: no network is run")
    parser.add_argument("--folder", type=Path, help="where files are written; default: the system's for such")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def run(given: argparse.Namespace, folder: Path) -> None:
    sys.path.insert(0, str(HERE))
    import torch

    from elmokit.encoders import Elmo
    from elmokit.formats.ahead import available_workers

    if given.alone:
        elmo = stand_in(Elmo)
    else:
        elmo = Elmo(make_model(given.size), device=given.device, dtype=given.dtype)
    workers = max(available_workers() // 2, 1) if given.workers is None else given.workers
    where = torch.cuda.get_device_name() if elmo.device.type == "cuda" else "CPU"
    print(f"{where}, {os.cpu_count()} cores, torch {torch.__version__}, {elmo.arithmetic}, width {elmo.width}")
    print(f"{folder.parent} writes {disk_rate(folder):,.0f} MB/s; {workers} processes cut text", flush=True)
    results: list[dict[str, Any]] = []

    def report(what: str, tokens: int, seconds: float, **more: Any) -> None:
        results.append({"what": what, "tokens": tokens, "seconds": seconds, **more})
        notes = "  ".join(f"{key} {value}" for key, value in more.items())
        print(f"{what:45} {tokens / seconds:12,.0f} tokens/s  {notes}", flush=True)
        if given.json is not None:
            given.json.write_text(json.dumps(results, indent=2) + "\n")

    if elmo.device.type == "cuda":
        from_ids(elmo, report)
    for layers in ("average", "all"):
        to_memory(elmo, layers, given.stream_tokens, report)
    lines = text_lines(given.text)
    short = write_text(folder / "short.txt", given.tokens // 20, lines)
    text = write_text(folder / "text.txt", given.tokens, lines)
    cut_alone(elmo, text, report)
    for file in given.files:
        vectors, _, suffix = file.partition(".")
        path = folder / f"out.{suffix}"
        few, start, _ = to_file(elmo, short, path, vectors, workers)
        many, seconds, more = to_file(elmo, text, path, vectors, workers)
        more["without the start"] = f"{(many - few) / max(seconds - start, 1e-9):,.0f}"
        report(f"text to {suffix}, average, {vectors}", many, seconds, **more)


def stand_in(kind: Any) -> Any:
    """A model on a CPU that is called as one on a GPU is, whose network does nothing and takes no time."""
    import torch

    from elmokit.nn.bilm import BiLM, BiLMConfig
    from elmokit.nn.char_cnn import TokenEncoderConfig
    from elmokit.nn.lstm import LstmConfig
    from elmokit.weights import Pretrained

    tokens = TokenEncoderConfig(projection_dim=4, n_highway=1)
    model = BiLM(BiLMConfig(tokens=tokens, lstm=LstmConfig(8, 4))).requires_grad_(False)
    elmo = kind(Pretrained.of(model), device="cpu", dtype="float32")
    runner = elmo.placed()
    runner.apart = True
    runner.bilm.run = lambda x, steps, state, keep=None: ([x, x], state)
    runner._encode_rows = lambda rows: torch.zeros(len(rows), 4)
    return elmo


def make_model(size: str) -> Any:
    if size != "tiny":
        from inference_gpu import random_model

        return random_model(size)
    from scale import make_model

    return make_model(64).pretrained


def text_lines(text: Path | None) -> Iterator[str]:
    """Lines of the file again and again, or of words as often as in text."""
    from inference_gpu import sentences

    seed = 0
    while True:
        if text is None:
            seed += 1
            for sentence in sentences(4096, low=5, high=45, seed=seed):
                yield " ".join(sentence.tokens)
        else:
            from elmokit.formats.streams import read_lines

            yield from (line for line in read_lines(text) if line.strip())


def write_text(path: Path, tokens: int, lines: Iterator[str]) -> Path:
    with path.open("w", encoding="utf-8") as file:
        while tokens > 0:
            line = next(lines)
            file.write(line + "\n")
            tokens -= line.count(" ") + 1
    return path


def disk_rate(folder: Path) -> float:
    data, path = os.urandom(1 << 20) * 256, folder / "disk"
    begin = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        file.write(data)
        os.fsync(file.fileno())
    seconds = time.perf_counter() - begin
    path.unlink()
    return len(data) / seconds / 1e6


def from_ids(elmo: Any, report: Callable[..., None]) -> None:
    import torch

    from elmokit.batch import build_batch
    from inference_gpu import _median, sentences

    for rows in (512, 2048):
        text = sentences(rows)
        batch = build_batch(text, elmo.codec)
        types, index = torch.from_numpy(batch.types).to(elmo.device), torch.from_numpy(batch.index).to(elmo.device)

        def once(types: Any = types, index: Any = index, batch: Any = batch) -> None:
            with torch.inference_mode():
                elmo.bilm(types, index, batch.lengths)

        report(f"ids to layers on the device, {rows} rows", sum(map(len, text)), _median(once, repeats=9))


def to_memory(elmo: Any, layers: str, tokens: int, report: Callable[..., None]) -> None:
    from inference_gpu import sentences

    text = sentences(max(tokens // 25, 1), low=5, high=45, seed=1)
    random.Random(0).shuffle(text)
    words, runs = sum(map(len, text)), []
    for _ in range(3):
        elmo.forget_words()
        with watched(elmo) as seen:
            for _ in elmo.stream(text, layers=layers, batch_tokens=BATCH if elmo.placed().apart else None):
                pass
        runs.append(seen)
    best = min(runs[1:], key=lambda seen: seen["seconds"])
    first = f"{words / runs[0]['seconds']:,.0f}"
    seconds = best.pop("seconds")
    report(f"sentences to host memory, layers {layers}", words, seconds, **best, **{"first pass": first})


def cut_alone(elmo: Any, text: Path, report: Callable[..., None]) -> None:
    from itertools import islice

    from elmokit.formats import read_sentences

    begin = time.perf_counter()
    tokens = sum(len(sentence) for sentence in islice(read_sentences(text, tokenizer=elmo.tokenizer), 10_000))
    report("text cut into tokens by one process", tokens, time.perf_counter() - begin)


def to_file(elmo: Any, text: Path, path: Path, vectors: Any, workers: int) -> tuple[int, float, dict[str, Any]]:
    """Tokens, seconds, and what there is to say of a run."""
    from elmokit.formats import read_sentences
    from elmokit.formats.ahead import Cutters
    from elmokit.store import StoreOptions, write_vectors

    cpu = os.times()
    with watched(elmo) as seen, Cutters(elmo.tokenizer, workers=workers) as cutters:
        sentences = read_sentences(text, tokenizer=elmo.tokenizer, cutters=cutters)
        options = StoreOptions(vectors=vectors, batch_tokens=BATCH if elmo.placed().apart else None)
        done = write_vectors(elmo, sentences, path, options=options, overwrite=True, beside=workers > 0)
    seconds = seen.pop("seconds")
    now = os.times()
    size = path.stat().st_size
    path.unlink()
    cores = (now.user + now.system - cpu.user - cpu.system) / seconds
    more = (now.children_user + now.children_system - cpu.children_user - cpu.children_system) / seconds
    return done.tokens, seconds, {"MB/s": f"{size / seconds / 1e6:,.0f}", "cores": f"{cores:.1f} + {more:.1f}", **seen}


@contextmanager
def watched(elmo: Any) -> Iterator[dict[str, Any]]:
    """Where the time of the block goes; see the top of this file."""
    from elmokit.encoders._transfers import Piece
    from elmokit.formats.ahead import Cutters
    from elmokit.store import _growing as growing
    from elmokit.store._draft import Draft

    found: dict[str, Any] = {}
    waits: dict[str, float] = {}
    busy: dict[str, float] = {}
    places = [
        (Cutters, "_result", "text", waits),
        (Piece, "landed", "GPU", waits),
        (growing.GrowingWriter, "_settle", "writer", waits),
        (growing.GrowingFile, "finish", "end", waits),
        (growing.GrowingFile, "add", "columns", busy),
        (Draft, "_put", "write", busy),
        (growing.GrowingFile, "commit", "sync", busy),
    ]
    usual = [(owner, name, getattr(owner, name)) for owner, name, _, _ in places]
    for owner, name, what, times in places:
        setattr(owner, name, timed(getattr(owner, name), what, times))
    own = time.thread_time()
    try:
        with gpu_use(elmo) as used:
            begin = time.perf_counter()
            yield found
            seconds = time.perf_counter() - begin
    finally:
        for owner, name, function in usual:
            setattr(owner, name, function)
    busy["columns"] = max(busy.get("columns", 0.0) - busy.get("write", 0.0), 0.0)
    busy["calling thread"] = time.thread_time() - own
    found["seconds"] = seconds
    found["bound"] = bound(seconds, waits, busy, used)
    found["waits"] = {what: round(took, 2) for what, took in waits.items()}
    found["busy"] = {what: round(took, 2) for what, took in busy.items()}
    if used:
        found["GPU"] = f"{sum(used) / len(used):.0f}%"


def bound(seconds: float, waits: dict[str, float], busy: dict[str, float], used: list[float]) -> str:
    if used and sum(used) / len(used) > 80:
        return "GPU"
    caller = seconds - sum(waits.values())
    most = max(waits, key=lambda what: waits[what], default="")
    if not most or caller > waits[most]:
        return "calling thread"
    if most == "writer":
        system = busy.get("write", 0.0) + busy.get("sync", 0.0)
        return "disk" if system > busy["columns"] else "writer"
    return {"text": "cutting", "end": "end of the file"}.get(most, most)


def timed(function: Any, what: str, times: dict[str, float]) -> Any:
    @wraps(function)
    def run(*args: Any, **options: Any) -> Any:
        begin = time.perf_counter()
        try:
            return function(*args, **options)
        finally:
            times[what] = times.get(what, 0.0) + time.perf_counter() - begin

    return run


@contextmanager
def gpu_use(elmo: Any) -> Iterator[list[float]]:
    """The GPU's use in percent, several times a second; empty where it cannot be known."""
    found: list[float] = []
    if elmo.device.type != "cuda":
        yield found
        return
    command = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "100"]
    try:
        asking = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    except OSError:
        yield found
        return
    try:
        yield found
    finally:
        asking.terminate()
        said, _ = asking.communicate()
        found += [float(line.split(",")[0]) for line in said.splitlines() if line.strip().replace(".", "").isdigit()]


if __name__ == "__main__":
    main()
