"""How fast the ready-made taggers are, from text to marks, beside the encoder alone on the same text in the same run.

    python benchmarks/taggers.py [TEXT] [--sentences 1000] [--threads 2] [--names ner pos chunk]

TEXT holds paragraphs (default: held-out Wikipedia of ../shared). Words are cut, embedded and tagged. Between the
two passes nothing is kept but the vectors of known words.
"""

import argparse
import time
from collections.abc import Callable
from itertools import islice

import torch

from elmokit import Elmo, Tagger
from elmokit.formats.streams import read_lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="?", default="../shared/corpora/heldout/wikipedia.txt.xz")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--names", nargs="+", default=["ner", "pos", "chunk"])
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    elmo = Elmo.from_pretrained(device="cpu")
    cut = (sentence for line in read_lines(given.text) for sentence in elmo.tokenizer.split(line))
    sentences = list(islice(cut, given.sentences))
    texts, words = [sentence.text for sentence in sentences], sum(len(sentence.tokens) for sentence in sentences)
    print(f"{len(texts):,} sentences, {words:,} words, {given.threads} threads")

    def timed(name: str, work: Callable[[], object]) -> None:
        for run in ("first", "second"):
            started = time.perf_counter()
            work()
            seconds = time.perf_counter() - started
            print(f"{name:24} {run:6} pass  {len(texts) / seconds:8,.0f} sentences/s  {words / seconds:9,.0f} words/s")

    timed("en, all layers", lambda: elmo.encode_layers(texts))
    for name in given.names:
        tagger = Tagger.from_pretrained(name, device="cpu")
        timed(name, lambda tagger=tagger: tagger.predict(texts))  # type: ignore[misc]


if __name__ == "__main__":
    main()
