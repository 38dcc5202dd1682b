"""Do the measures of drift rank words by how much their use changed? Measured where the truth is known.

    python benchmarks/drift.py ../shared/corpora/wikipedia-00.txt.xz [-m MODEL] [--words 21] [--repeats 5] [--json FILE]
    python benchmarks/drift.py TEXT --per-word 20 40 80 --donors any unlike --rates 0 0.5

Out of a text, two corpora are made. Each word gets a donor, another word of the text, and a rate between 0 and 1. In
the first corpus a word stands where it stood. In the second, that share of its sentences is taken from the donor, with
the word written in the donor's place. The rate is the truth. Spearman's rho of each measure against it is printed, and
how many of the words that did not change, and of those that did, have a q of 0.05 or less.

Where the donor is used like the word, a full change of sentences is a small change of use. `--donors any` takes any
word. `--donors unlike` takes, of ten words, the one whose sentences share the fewest words with the word's own; no
model has a say in it.
"""

import argparse
import json
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from elmokit import Sentence, load_encoder
from elmokit.analysis import DriftConfig, WordDrift, compare_gold, measure_drift
from elmokit.analysis.drift import MEASURES
from elmokit.encoders import Encoder
from elmokit.formats import read_lines
from elmokit.formats.atomic import write_text
from elmokit.index import ENGLISH_STOP_WORDS, Index, IndexSettings

Tokens = tuple[str, ...]
LONGEST = 60  # tokens of a sentence that is taken
DRAWN = 10  # words of which the most unlike one is the donor
STOP = frozenset(ENGLISH_STOP_WORDS)


def sentences_with(lines: Iterable[str], encoder: Encoder) -> dict[str, list[tuple[Tokens, int]]]:
    """Where each word stands: (tokens, place), once per sentence; no function words, numbers or short words."""
    found = defaultdict(list)
    for line in lines:
        for sentence in encoder.tokenizer.split(line):
            if len(sentence) > LONGEST:
                continue
            for word in sorted(set(sentence.tokens) - STOP):
                if len(word) > 3 and word.isalpha() and word.islower():
                    found[word].append((sentence.tokens, sentence.tokens.index(word)))
    return found


def swap_contexts(
    places: dict[str, list[tuple[Tokens, int]]], *, rates: Sequence[float], per_word: int, unlike: bool, seed: int
) -> tuple[list[Tokens], list[Tokens], dict[str, float]]:
    """Two corpora and the rate of each word; donors and words are drawn from those that stand often enough."""
    rng = np.random.default_rng(seed)
    enough = sorted(word for word, found in places.items() if len(found) >= 2 * per_word)
    needed = 2 * len(rates) + DRAWN
    if len(enough) < needed:
        raise SystemExit(f"{len(enough)} words stand {2 * per_word} times, {needed} are needed; give more text")
    drawn = [enough[k] for k in rng.permutation(len(enough))]
    chosen, left = drawn[: len(rates)], drawn[len(rates) :]
    first, second, truth = [], [], {}
    for word, rate in zip(chosen, rates, strict=True):
        some = left[:DRAWN] if unlike else left[:1]
        donor = min(some, key=lambda other: shared_words(places[word], places[other]))
        left.remove(donor)
        own = [places[word][j] for j in rng.permutation(len(places[word]))]
        given = [places[donor][j] for j in rng.permutation(len(places[donor]))]
        swapped = round(rate * per_word)
        first += [tokens for tokens, _ in own[:per_word]]
        second += [tokens for tokens, _ in own[per_word : 2 * per_word - swapped]]
        second += [(*tokens[:at], word, *tokens[at + 1 :]) for tokens, at in given[:swapped]]
        truth[word] = float(rate)
    return first, second, truth


def shared_words(first: Sequence[tuple[Tokens, int]], second: Sequence[tuple[Tokens, int]]) -> float:
    """The cosine of the counts of words in the sentences of two words; no function words."""
    one, other = (
        Counter(
            t for tokens, at in some[:200] for k, t in enumerate(tokens) if k != at and t.isalpha() and t not in STOP
        )
        for some in (first, second)
    )
    lengths = [np.sqrt(sum(count * count for count in counts.values())) for counts in (one, other)]
    return float(sum(count * other[word] for word, count in one.items()) / (lengths[0] * lengths[1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="+")
    parser.add_argument("-m", "--model")
    parser.add_argument("--layers", default="top")
    parser.add_argument("--lines", type=int, default=20_000, help="paragraphs that are read")
    parser.add_argument("--words", type=int, default=21, help="with rates evenly spaced")
    parser.add_argument("--rates", type=float, nargs=2, default=(0, 1), help="the lowest and the highest")
    parser.add_argument("--per-word", type=int, nargs="+", default=[80], help="occurrences in each corpus")
    parser.add_argument("--donors", nargs="+", choices=("any", "unlike"), default=["any", "unlike"])
    parser.add_argument("--repeats", type=int, default=5, help="with other words and donors")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    encoder = load_encoder(given.model)
    lines = islice((line for text in given.texts for line in read_lines(text)), given.lines)
    places = sentences_with(lines, encoder)
    rates = np.linspace(given.rates[0], given.rates[1], given.words).tolist()
    print(f"{given.words} words, rates from {rates[0]:g} to {rates[-1]:g}, {given.repeats} draws: mean rho (the least)")
    print(f"{'donors':8} {'in each':>7}  " + "  ".join(f"{measure:13}" for measure in MEASURES))
    records, found_q = [], defaultdict(list)
    for donors in given.donors:
        for per_word in given.per_word:
            rhos = defaultdict(list)
            for seed in range(given.repeats):
                corpora = swap_contexts(places, rates=rates, per_word=per_word, unlike=donors == "unlike", seed=seed)
                found = measure(encoder, *corpora, layers=given.layers)
                for one in compare_gold(found, corpora[2]):
                    rhos[one.measure].append(one.rho)
                for drift in found:
                    found_q[corpora[2][drift.word]].append(drift.q <= 0.05)
            told = (f"{np.mean(rhos[measure]):.3f} ({min(rhos[measure]):.3f})" for measure in MEASURES)
            print(f"{donors:8} {per_word:7}  " + "  ".join(told), flush=True)
            records.append({"donors": donors, "per_word": per_word, "rhos": rhos})
    for low, high in ((0, 0), (0.01, 0.2), (0.21, 0.5), (0.51, 1)):
        some = [hit for rate, hits in found_q.items() if low <= rate <= high for hit in hits]
        if some:
            print(f"rate {low} to {high}: q of {DriftConfig().by} at most 0.05 for {sum(some)} of {len(some)} words")
    if given.json:
        write_text(given.json, json.dumps(records))


def measure(
    encoder: Encoder, first: list[Tokens], second: list[Tokens], truth: dict[str, float], *, layers: str
) -> list[WordDrift]:
    """The words' drift, by indexes of the two corpora."""
    settings = IndexSettings(words=tuple(truth), layers=layers)
    with tempfile.TemporaryDirectory() as folder:
        pair = (
            Index.build(encoder, map(Sentence.of, corpus), Path(folder) / str(k), settings=settings)
            for k, corpus in enumerate((first, second))
        )
        return measure_drift(*pair, words=truth, config=DriftConfig(per_word=10_000, examples=0))


if __name__ == "__main__":
    main()
