"""Embedding and indexing in parts: one process against Ray with two workers, and how time grows with the text.

    python benchmarks/scale.py                                       one process, and Ray if it is there
    python benchmarks/scale.py --words 100000 1000000 --alone        growth of one process
    python benchmarks/scale.py --words 100000 --untrained 64         with a small model: what is not the model's work
    python benchmarks/scale.py --index 4000000 --untrained 512       an index of so many occurrences, with Ray
    python benchmarks/scale.py --device cuda --words ...             the worker's class alone on a GPU

Rates leave out the loading of the model: a part before the first is made and not counted. `CPU` is the time of all
processes of the run on the processors, Ray's own among them: on a machine that others use, it says more than the clock.
"""

import argparse
import os
import shutil
import tempfile
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch

from elmokit import Elmo, Index
from elmokit.nn.bilm import BiLM, BiLMConfig
from elmokit.nn.char_cnn import TokenEncoderConfig
from elmokit.nn.lstm import LstmConfig
from elmokit.store.parts import PartEmbedder, PartOptions, plan_parts
from elmokit.weights import CodecSpec, Pretrained, TokenizerSpec

TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--words", type=int, nargs="+", default=[100_000])
    parser.add_argument("--index", type=int, metavar="OCCURRENCES", help="make an index of so many instead")
    parser.add_argument("--folder", type=Path, help="of the index; what is there of it is kept")
    parser.add_argument("--model", default=None)
    parser.add_argument("--untrained", type=int, metavar="WIDTH", help="a small model with random weights")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1, help="of one process, and of each worker")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--part-rows", type=int, default=500)
    parser.add_argument("--alone", action="store_true", help="without Ray")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    with tempfile.TemporaryDirectory(dir=given.folder and given.folder.absolute().parent) as name:
        place = Path(name)
        if given.untrained:
            make_model(given.untrained).save_pretrained(place / "model")
            given.model = str(place / "model")
        if given.index:
            make_index(place, given)
            return
        print("| | words | seconds | words a second | CPU: seconds for 100,000 words |")
        print("| --- | --- | --- | --- | --- |")
        for words in given.words:
            text = write_text(place / "text.txt", words)
            alone = run_alone(text, place / "alone", given)
            show("one process", *alone)
            shutil.rmtree(place / "alone")
            if given.device == "cpu" and not given.alone:
                run_ray(text, place / "ray", given, alone)
                shutil.rmtree(place / "ray", ignore_errors=True)


def make_model(width: int) -> Elmo:
    """Two layers of `width` / 2 cells in each direction."""
    tokens = TokenEncoderConfig(filters=((1, 16), (2, 16), (3, 32)), n_highway=0, projection_dim=width // 2)
    config = BiLMConfig(tokens=tokens, lstm=LstmConfig(width // 2, width // 2, False))
    torch.manual_seed(0)
    tensors = {name: 0.1 * torch.randn_like(tensor) for name, tensor in BiLM(config).state_dict().items()}
    return Elmo(Pretrained(config, tensors, CodecSpec(), TokenizerSpec("english", 1)), device="cpu")


def write_text(path: Path, words: int) -> Path:
    """The sample text again and again, up to this many words."""
    sample = files("elmokit.cli").joinpath("sample.txt").read_text(encoding="utf-8")
    lines = [line for line in sample.splitlines() if line.strip()]
    with path.open("w", encoding="utf-8") as file:
        written = k = 0
        while written < words:
            line = lines[k % len(lines)]
            file.write(f"{line}\n")
            written, k = written + len(line.split()), k + 1
    return path


def processes() -> dict[int, list[str]]:
    """What the system says of each process of this session: Ray's are among them."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if int(fields[3]) == os.getsid(0):
            found[int(path.parent.name)] = fields
    return found


def cpu_seconds() -> float:
    return sum(int(fields[11]) + int(fields[12]) for fields in processes().values()) / TICKS


def largest_memory() -> tuple[float, float]:
    """GiB that this process and the largest other one have held at most."""
    held = {}
    for number in processes():
        lines = Path(f"/proc/{number}/status").read_text().splitlines()
        held[number] = max((int(line.split()[1]) for line in lines if line.startswith("VmHWM")), default=0) / 2**20
    own = held.pop(os.getpid())
    return own, max(held.values(), default=0.0)


def run_alone(text: Path, folder: Path, given: argparse.Namespace) -> tuple[int, float, float]:
    """Words, seconds and CPU seconds of the worker's class in this process."""
    folder.mkdir()
    parts = plan_parts([str(text)], part_rows=given.part_rows)
    embedder = PartEmbedder(folder, PartOptions(model=given.model, device=given.device))
    embedder(parts[0])  # loads the model
    began, cpu = time.perf_counter(), time.process_time()
    tokens = sum(embedder(part).tokens for part in parts)
    return tokens, time.perf_counter() - began, time.process_time() - cpu


def run_ray(text: Path, folder: Path, given: argparse.Namespace, alone: tuple[int, float, float]) -> None:
    """The same with Ray; its clock starts when each worker has made a part."""
    try:
        from elmokit.integrations.ray import RunReport, embed
    except Exception as error:  # not installed
        print(f"Ray: {error}")
        return
    seen: list[tuple[float, float, int]] = []

    def told(report: RunReport) -> None:
        seen.append((time.perf_counter(), cpu_seconds(), report.tokens))

    options: dict[str, Any] = {"workers": given.workers, "cpus": given.threads, "part_rows": given.part_rows}
    embed([text], folder, model=given.model, device="cpu", told=told, **options)
    first, last = seen[min(given.workers, len(seen) - 2)], seen[-1]  # seen[0] is the beginning
    seconds, cpu, tokens = (b - a for a, b in zip(first, last, strict=True))
    show(f"Ray, {given.workers} workers", int(tokens), seconds, cpu)
    rate = tokens / seconds / (given.workers * alone[0] / alone[1])
    more = (cpu / tokens) / (alone[2] / alone[0]) - 1
    print(f"\nRay's {given.workers} workers make {rate:.2f} of {given.workers} times the rate of one process; "
          f"a word takes {more:+.0%} CPU.\n")  # fmt: skip


def make_index(place: Path, given: argparse.Namespace) -> None:
    """An index with Ray, how large it is, what was held in memory, and how long an exact search takes."""
    from elmokit.integrations.ray import index

    folder, text = given.folder or place / "index", write_text(place / "text.txt", given.index)
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


def show(what: str, tokens: int, seconds: float, cpu: float) -> None:
    print(f"| {what} | {tokens:,} | {seconds:.1f} | {tokens / seconds:,.0f} | {cpu * 1e5 / tokens:.2f} |", flush=True)


if __name__ == "__main__":
    main()
