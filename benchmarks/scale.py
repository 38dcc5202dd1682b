"""Embedding in parts: one process against Ray with two workers, and how time grows with the text.

    python benchmarks/scale.py                              one process, and Ray if it is there
    python benchmarks/scale.py --words 100000 1000000       growth: time for each, and words a second
    python benchmarks/scale.py --device cuda --words ...    the worker's class alone on a GPU

Rates leave out the loading of the model: a part before the first is made and not counted.
"""

import argparse
import tempfile
import time
from importlib.resources import files
from pathlib import Path

import torch

from elmokit.formats.parts import plan_parts
from elmokit.store.parts import PartEmbedder, PartOptions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--words", type=int, nargs="+", default=[100_000])
    parser.add_argument("--model", default=None)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1, help="of one process, and of each worker")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--part-rows", type=int, default=500)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    options = PartOptions(model=given.model, device=given.device)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        print("| | words | seconds | words a second |")
        print("| --- | --- | --- | --- |")
        for words in given.words:
            text = write_text(place / f"{words}.txt", words)
            alone = run_alone(text, place / f"alone-{words}", options, given.part_rows)
            show("one process", *alone)
            if given.device == "cpu":
                run_ray(text, place / f"ray-{words}", options, given, alone)


def write_text(path: Path, words: int) -> Path:
    """The sample text again and again, up to this many words."""
    lines = [
        line
        for line in files("elmokit.cli").joinpath("sample.txt").read_text(encoding="utf-8").splitlines()
        if line.strip()
    ]
    with path.open("w", encoding="utf-8") as file:
        written = k = 0
        while written < words:
            line = lines[k % len(lines)]
            file.write(f"{line}\n")
            written, k = written + len(line.split()), k + 1
    return path


def run_alone(text: Path, folder: Path, options: PartOptions, part_rows: int) -> tuple[int, float]:
    """Tokens and seconds of the worker's class in this process."""
    folder.mkdir()
    parts = plan_parts([str(text)], part_rows=part_rows)
    embedder = PartEmbedder(folder, options)
    embedder(parts[0])  # loads the model
    began = time.perf_counter()
    tokens = sum(embedder(part).tokens for part in parts)
    return tokens, time.perf_counter() - began


def run_ray(
    text: Path, folder: Path, options: PartOptions, given: argparse.Namespace, alone: tuple[int, float]
) -> None:
    """The same with Ray; its clock starts when each worker has made a part."""
    try:
        from elmokit.integrations.ray import RunReport, embed
    except Exception as error:  # not installed
        print(f"Ray: {error}")
        return
    seen: list[tuple[float, int]] = []

    def told(report: RunReport) -> None:
        seen.append((time.perf_counter(), report.tokens))

    embed(
        [text],
        folder,
        model=options.model,
        device="cpu",
        workers=given.workers,
        cpus=given.threads,
        part_rows=given.part_rows,
        told=told,
    )
    first = min(given.workers, len(seen) - 2)  # seen[0] is the beginning
    tokens, seconds = seen[-1][1] - seen[first][1], seen[-1][0] - seen[first][0]
    show(f"Ray, {given.workers} workers", tokens, seconds)
    rate = tokens / seconds / (given.workers * alone[0] / alone[1])
    print(f"\nRay's {given.workers} workers make {rate:.2f} of {given.workers} times the rate of one process.\n")


def show(what: str, tokens: int, seconds: float) -> None:
    print(f"| {what} | {tokens:,} | {seconds:.1f} | {tokens / seconds:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
