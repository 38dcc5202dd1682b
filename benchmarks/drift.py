"""Do the measures of drift rank words by how much their use changed? Measured where the truth is known.

    python benchmarks/drift.py ../shared/corpora/wikipedia-00.txt.xz [-m MODEL] [--words 21] [--repeats 5] [--json FILE]

Out of a text, two corpora are made. Each word gets a donor, another word of like frequency, and a rate between 0 and 1.
In the first corpus a word stands where it stood. In the second, that share of its sentences is taken from the donor,
with the word written in the donor's place. The rate is the truth. Spearman's rho of each measure against it is printed,
and how many of the words that did not change, and of those that did, have a q of 0.05 or less.
"""

import argparse
import json
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from elmokit import Sentence, load_encoder
from elmokit.analysis import DriftConfig, compare_gold, measure_drift
from elmokit.encoders import Encoder
from elmokit.formats import read_lines
from elmokit.index import ENGLISH_STOP_WORDS, Index, IndexSettings

Tokens = tuple[str, ...]
LONGEST = 60  # tokens of a sentence that is taken


def sentences_with(lines: Iterable[str], encoder: Encoder) -> dict[str, list[tuple[Tokens, int]]]:
    """Where each word stands: (tokens, place), once per sentence; no function words, numbers or short words."""
    stop, found = set(ENGLISH_STOP_WORDS), defaultdict(list)
    for line in lines:
        for sentence in encoder.tokenizer.split(line):
            if len(sentence) > LONGEST:
                continue
            for word in sorted(set(sentence.tokens) - stop):
                if len(word) > 3 and word.isalpha() and word.islower():
                    found[word].append((sentence.tokens, sentence.tokens.index(word)))
    return found


def swap_contexts(
    places: dict[str, list[tuple[Tokens, int]]], *, words: int, per_word: int, seed: int
) -> tuple[list[Tokens], list[Tokens], dict[str, float]]:
    """Two corpora and the rate of each word; donors and words are drawn from those that stand often enough."""
    rng = np.random.default_rng(seed)
    enough = sorted(word for word, found in places.items() if len(found) >= 2 * per_word)
    if len(enough) < 2 * words:
        raise SystemExit(f"{len(enough)} words stand {2 * per_word} times, {2 * words} are needed; give more text")
    drawn = rng.permutation(len(enough))[: 2 * words]
    first, second, truth = [], [], {}
    for k, rate in enumerate(np.linspace(0, 1, words)):
        word, donor = enough[drawn[2 * k]], enough[drawn[2 * k + 1]]
        own = [places[word][j] for j in rng.permutation(len(places[word]))]
        given = [places[donor][j] for j in rng.permutation(len(places[donor]))]
        swapped = round(rate * per_word)
        first += [tokens for tokens, _ in own[:per_word]]
        second += [tokens for tokens, _ in own[per_word : 2 * per_word - swapped]]
        second += [(*tokens[:at], word, *tokens[at + 1 :]) for tokens, at in given[:swapped]]
        truth[word] = float(rate)
    return first, second, truth


def indexes(encoder: Encoder, corpora: Sequence[list[Tokens]], words: Iterable[str], folder: Path) -> Iterator[Index]:
    settings = IndexSettings(words=tuple(words))
    for k, corpus in enumerate(corpora):
        yield Index.build(encoder, map(Sentence.of, corpus), folder / str(k), settings=settings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="+")
    parser.add_argument("-m", "--model")
    parser.add_argument("--lines", type=int, default=20_000, help="paragraphs that are read")
    parser.add_argument("--words", type=int, default=21, help="with rates evenly spaced from 0 to 1")
    parser.add_argument("--per-word", type=int, default=40, help="occurrences in each corpus")
    parser.add_argument("--repeats", type=int, default=5, help="with other words and donors")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    encoder = load_encoder(given.model)
    lines = islice((line for text in given.texts for line in read_lines(text)), given.lines)
    places = sentences_with(lines, encoder)
    rhos, found_q = defaultdict(list), defaultdict(list)
    for seed in range(given.repeats):
        first, second, truth = swap_contexts(places, words=given.words, per_word=given.per_word, seed=seed)
        with tempfile.TemporaryDirectory() as folder:
            pair = indexes(encoder, (first, second), truth, Path(folder))
            found = measure_drift(*pair, words=truth, config=DriftConfig(per_word=10_000))
        for one in compare_gold(found, truth):
            rhos[one.measure].append(one.rho)
        for drift in found:
            found_q[truth[drift.word]].append(drift.q <= 0.05)
        print(f"seed {seed}: " + "  ".join(f"{measure} {values[-1]:+.3f}" for measure, values in rhos.items()))
    print(f"\n{given.words} words, {given.per_word} occurrences in each corpus, {given.repeats} draws")
    for measure, values in rhos.items():
        print(f"{measure}   rho {np.mean(values):.3f}   least {min(values):.3f}")
    for low, high in ((0, 0), (0.01, 0.2), (0.21, 0.5), (0.51, 1)):
        some = [hit for rate, hits in found_q.items() if low <= rate <= high for hit in hits]
        print(f"rate {low} to {high}: q of prt at most 0.05 for {sum(some)} of {len(some)} words")
    if given.json:
        given.json.write_text(json.dumps(rhos))


if __name__ == "__main__":
    main()
