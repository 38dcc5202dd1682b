"""The real text of benchmarks/embed.py."""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from elmokit.formats import read_lines
from elmokit.text import Sentence, load_tokenizer

LONGEST = 100  # words of a sentence; longer ones would leave BERT's 512 places


def heldout(shared: Path) -> Iterator[Sentence]:
    """Sentences of all sources in turn, those of a source in the order of its text."""
    english = load_tokenizer("english")
    files = sorted((shared / "corpora" / "heldout").glob("*.xz"))
    if not files:
        sys.exit(f"no text in {shared / 'corpora' / 'heldout'}; say where it lies with --shared")
    waiting = [(s for line in read_lines(path) for s in english.split(line) if 0 < len(s) <= LONGEST) for path in files]
    while waiting:
        for source in list(waiting):
            taken = [sentence for _, sentence in zip(range(20), source, strict=False)]
            yield from taken
            if len(taken) < 20:
                waiting.remove(source)


def write_sentences(path: Path, sentences: Sequence[Sentence]) -> Path:
    path.write_text(json.dumps([list(sentence.tokens) for sentence in sentences]), encoding="utf-8")
    return path


def take_words(sentences: Iterator[Sentence], words: int) -> list[Sentence]:
    taken, found = [], 0
    for sentence in sentences:
        if found >= words:
            break
        taken.append(sentence)
        found += len(sentence)
    return taken
