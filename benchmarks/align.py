"""Does `elmokit align` find the map between two models where the truth is known? Resumes where it was stopped.

    python benchmarks/align.py FOLDER ../shared/corpora/wikipedia-00.txt.xz [--preset small] [--epochs 10] [--lines 0]
    python benchmarks/align.py FOLDER TEXT --models MODEL1 MODEL2 --texts TEXT1 TEXT2

Two models are trained with other seeds on the even and the odd paragraphs of a text. Both know English, so the right
translation of a word is the word itself, and the same place of a sentence is the same place. Printed: how often the
nearest word is the right one, for the most frequent words and for more, and how often a word in its sentence is found
again in the other model, before and after.
"""

import argparse
import subprocess
import sys
from itertools import islice
from pathlib import Path

from elmokit.formats.atomic import write_text
from elmokit.formats.streams import read_lines


def elmokit(*given: object) -> None:
    print("+ elmokit", *given, file=sys.stderr, flush=True)
    if subprocess.run([sys.executable, "-m", "elmokit", *map(str, given)], check=False).returncode:
        raise SystemExit(f"elmokit {given[0]} did not end well")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("text")
    parser.add_argument("--lines", type=int, default=0, help="paragraphs of the text; 0: all")
    parser.add_argument("--preset", default="small")
    parser.add_argument("--epochs", type=float, default=10)
    parser.add_argument("--anchor-lines", type=int, default=20_000, help="paragraphs of each half for the anchors")
    parser.add_argument("--heldout", default="../shared/corpora/heldout/wikipedia.txt.xz")
    parser.add_argument("--models", nargs=2, help="trained already")
    parser.add_argument("--texts", nargs=2, help="of these models")
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    halves = [given.folder / f"half-{k}.txt" for k in (0, 1)]
    if not all(half.exists() for half in halves):
        lines = list(islice(read_lines(given.text), given.lines or None))
        for k, half in enumerate(halves):
            write_text(half, "\n".join(lines[k::2]) + "\n")
    models = [Path(model) for model in given.models or ()]
    for k, half in enumerate(halves if not models else ()):
        run = given.folder / f"run-{k}"
        elmokit(
            "pretrain", half, "-o", run, "--preset", given.preset, "--epochs", given.epochs, "--seed", k + 1, "--quiet"
        )
        models.append(run / "model")
    anchors = []
    for k, text in enumerate(given.texts or halves):
        anchors.append(given.folder / f"anchors-{k}.txt")
        if not anchors[k].exists():
            write_text(anchors[k], "\n".join(islice(read_lines(text), given.anchor_lines)) + "\n")
    held = given.folder / "heldout.txt"
    if not held.exists():
        write_text(held, "\n".join(islice(read_lines(given.heldout), 60)) + "\n")
    texts = ("--source-text", anchors[0], "--target-text", anchors[1], "--same-text", held, "--device", given.device)
    for limit in (500, 2000, 10_000):
        print(f"\nthe {limit:,} most frequent words", flush=True)
        elmokit("align", *models, *texts, "--limit", limit, "--min-count", 10, "-o", given.folder / f"map-{limit}")


if __name__ == "__main__":
    main()
