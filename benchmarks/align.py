"""Does `elmokit align` find the map between two models where the truth is known? Resumes where it was stopped.

    python benchmarks/align.py FOLDER ../shared/corpora/wikipedia-00.txt.xz [--preset small] [--epochs 10] [--lines 0]
    python benchmarks/align.py FOLDER TEXT --only train --minutes 1.5 --jobs 2 --device cuda
    python benchmarks/align.py FOLDER TEXT --only align [--models MODEL1 MODEL2]

Two models are trained with other seeds on the even and the odd paragraphs of a text. Both know English, so the right
translation of a word is the word itself, and the same place of a sentence is the same place. Printed: how often the
nearest word is the right one, for the most frequent words and for more, and how often a word in its sentence is found
again in the other model, before and after. The two parts can be run apart, on two machines: `--only align` takes the
models from FOLDER/run-0/model and FOLDER/run-1/model, or those that are named.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np

from elmokit import load_encoder
from elmokit.analysis import AlignConfig, Anchors, align_anchors, retrieve_tokens, text_anchors
from elmokit.encoders import Encoder
from elmokit.formats.atomic import atomic_path, write_text
from elmokit.formats.streams import read_lines


def elmokit(*given: object) -> None:
    print("+ elmokit", *given, file=sys.stderr, flush=True)
    if subprocess.run([sys.executable, "-m", "elmokit", *map(str, given)], check=False).returncode:
        raise SystemExit(f"elmokit {given[0]} did not end well")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("text", nargs="+")
    parser.add_argument("--lines", type=int, default=0, help="paragraphs of the text; 0: all")
    parser.add_argument("--only", choices=("train", "align"), help="this part alone")
    parser.add_argument("--preset", default="small")
    parser.add_argument("--vocab-size", type=int, default=50_000)
    parser.add_argument("--epochs", type=float, default=10)
    parser.add_argument("--minutes", type=float, default=0, help="of training for each model, instead of epochs")
    parser.add_argument("--jobs", type=int, default=1, help="2: train both models at once")
    parser.add_argument("--anchor-lines", type=int, default=20_000, help="paragraphs of each half for the anchors")
    parser.add_argument("--limits", type=int, nargs="+", default=(500, 2000, 10_000), help="how many frequent words")
    parser.add_argument("--heldout", default="../shared/corpora/heldout/wikipedia.txt.xz")
    parser.add_argument("--models", nargs=2, help="trained already")
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    halves = [given.folder / f"half-{k}.txt" for k in (0, 1)]
    if not all(half.exists() for half in halves):
        lines = list(islice((line for text in given.text for line in read_lines(text)), given.lines or None))
        for k, half in enumerate(halves):
            write_text(half, "\n".join(lines[k::2]) + "\n")

    def train(k: int) -> None:
        length = ("--minutes", given.minutes) if given.minutes else ("--epochs", given.epochs)
        shape = ("--preset", given.preset, "--vocab-size", given.vocab_size, *length, "--seed", k + 1)
        elmokit("pretrain", halves[k], "-o", given.folder / f"run-{k}", *shape, "--device", given.device, "--quiet")

    models = given.models or [given.folder / f"run-{k}" / "model" for k in (0, 1)]
    if given.only != "align" and not given.models:
        with ThreadPoolExecutor(given.jobs) as pool:
            list(pool.map(train, (0, 1)))
    if given.only != "train":
        align(given, models, halves)


def align(given: argparse.Namespace, models: list[str | Path], halves: list[Path]) -> None:
    """A table for each number of words; the anchors are made once."""
    encoders = [load_encoder(str(model), device=given.device) for model in models]
    made = [
        anchors_of(encoder, islice(read_lines(half), given.anchor_lines), given.folder / f"anchors-{k}.npz", given)
        for k, (encoder, half) in enumerate(zip(encoders, halves, strict=True))
    ]
    lines = islice(read_lines(given.heldout), 60)
    sentences = [sentence for line in lines for sentence in encoders[1].tokenizer.split(line)]
    before = retrieve_tokens(*encoders, sentences)
    for limit in given.limits:
        first, second = (replace(one, words=one.words[:limit], vectors=one.vectors[:limit]) for one in made)
        found = align_anchors(first, second, config=AlignConfig(search_words=limit))
        found.alignment.save(given.folder / f"map-{limit}")
        after = retrieve_tokens(encoders[0].aligned(found.alignment), encoders[1], sentences)
        about = found.alignment.about
        rounds = f"{about.pairs:,} pairs after {about.rounds} rounds" if about.rounds else "no round of refinement"
        print(f"\nthe {limit:,} most frequent words; seed of {about.seed_pairs:,} pairs, {rounds}")
        print(f"{'layer':8} {'words':>6}  at 1   at 5   same place: before, after  among the word's: before, after")
        for name, one in found.translations.items():
            places = [(o, n) for o, n in zip(before, after, strict=True) if n.layer == name]
            told = [f"{o.at_1:7.1%} {n.at_1:7.1%}  {o.same_word:7.1%} {n.same_word:7.1%}" for o, n in places]
            print(f"{name:8} {one.words:6,}  {one.at_1:5.1%}  {one.at_5:5.1%}  {''.join(told)}", flush=True)


def anchors_of(encoder: Encoder, lines: Iterable[str], path: Path, given: argparse.Namespace) -> Anchors:
    """Of a text, or those in the file if they are this model's."""
    if path.exists():
        held = np.load(path)
        if str(held["model"]) == encoder.fingerprint:
            words = tuple(held["words"].tolist())
            return Anchors(words, held["vectors"], encoder.fingerprint, encoder.source, encoder.layer_names)
    sentences = (sentence for line in lines for sentence in encoder.tokenizer.split(line))
    made = text_anchors(encoder, sentences, min_count=10, limit=max(given.limits))
    with atomic_path(path) as draft, draft.open("wb") as file:
        np.savez(file, words=np.array(made.words), vectors=made.vectors, model=encoder.fingerprint)
    return made


if __name__ == "__main__":
    main()
