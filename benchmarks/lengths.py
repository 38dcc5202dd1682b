"""Words a second over the length of sentences and the share of new words: where does it fall, and by how much?

    python benchmarks/lengths.py [--model MODEL] [--threads 2] [--words 4000] [--rounds 3] [--json lengths.json]

The model runs in its default mode and gives the mean of all layers of each token. Words of the known share were met
before, each about ten times in the text; a new word was never met and comes once. `calls` is a call for each sentence;
otherwise all go into one. The quickest of some rounds counts. A figure is also given as a share of the table's largest,
and, since each sentence has two boundaries that are computed like words, for positions: words and boundaries.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

LENGTHS = (1, 2, 5, 20, 100, 1_000, 10_000)
SHARES = (0.0, 0.1, 0.5, 1.0)
LETTERS = "etaoinshrdlucmfwypvbgk"


class Words:
    """Known words, and new ones without end: letters as frequent as in English, 2 to 12 of them."""

    def __init__(self) -> None:
        self.source = np.random.default_rng(0)
        self.weights = 1 / np.arange(1, len(LETTERS) + 1)
        self.met: set[str] = set()
        self.known = self.new(500)

    def new(self, count: int) -> list[str]:
        made: list[str] = []
        while len(made) < count:
            lengths = self.source.integers(2, 13, count)
            letters = self.source.choice(list(LETTERS), lengths.sum(), p=self.weights / self.weights.sum())
            cut = np.split(letters, lengths.cumsum()[:-1])
            fresh = dict.fromkeys(word for word in map("".join, cut) if word not in self.met)
            made += list(fresh)[: count - len(made)]
            self.met.update(made)
        return made

    def sentences(self, length: int, count: int, share: float) -> list[list[str]]:
        total = length * count
        new = self.source.permutation(total) < round(share * total)
        fresh = iter(self.new(int(new.sum())))
        drawn = self.source.choice(self.known, total)
        words = [next(fresh) if is_new else str(word) for is_new, word in zip(new, drawn, strict=True)]
        return [words[k : k + length] for k in range(0, total, length)]


def measure(elmo: Any, words: Words, length: int, share: float, options: argparse.Namespace, *, calls: bool) -> float:
    """Words a second."""
    count = max(1, (options.words // 10 if calls else options.words) // length)
    best = 0.0
    for _ in range(options.rounds):
        given = words.sentences(length, count, share)
        begin = time.perf_counter()
        for part in [[sentence] for sentence in given] if calls else [given]:
            for _ in elmo.stream(part, layers="average"):
                pass
        best = max(best, count * length / (time.perf_counter() - begin))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="default: the bundled one")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--words", type=int, default=4_000, help="of a text, or one sentence's where that has more")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)  # before torch is loaded
    from elmokit import Elmo

    elmo, words = Elmo.from_pretrained(options.model, device="cpu"), Words()
    elmo.encode_tokens([words.known])
    lengths = [int(length) for length in options.lengths.split(",")]
    rows: list[dict[str, Any]] = []
    for calls in (False, True):
        for length in lengths:
            if calls and length > 100:
                continue
            rates = [measure(elmo, words, length, share, options, calls=calls) for share in SHARES]
            rows.append({"length": length, "calls": calls, "words_per_second": dict(zip(SHARES, rates, strict=True))})
            print(f"length {length}: {', '.join(f'{rate:,.0f}' for rate in rates)}", file=sys.stderr, flush=True)
    most = max(rate for row in rows for rate in row["words_per_second"].values())
    places = max(
        rate * (1 + 2 / row["length"]) for row in rows for rate in row["words_per_second"].values()
    )  # positions a second
    print(f"words/s of {elmo!r} by share of new words, {options.threads} threads")
    print("in brackets: hundredths of the largest; the same for positions, boundaries counted")
    print(f"{'':22}" + "".join(f"{f'{100 * share:g}% new':>21}" for share in SHARES))
    for row in rows:
        name = f"{row['length']:,} words" + (", a call each" if row["calls"] else "")
        cells = [
            f"{rate:,.0f} ({100 * rate / most:.0f}; {100 * rate * (1 + 2 / row['length']) / places:.0f})"
            for rate in row["words_per_second"].values()
        ]
        print(f"{name:22}" + "".join(f"{cell:>21}" for cell in cells))
    if options.json:
        options.json.write_text(json.dumps({"threads": options.threads, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
