"""Token and sentence F1 of a tokenizer on UD English EWT or Vietnamese VTB, and its speed.

    python benchmarks/tokenizer.py [--shared ../shared] [--part dev] [--tokenizer english] [--errors 40] [--text FILE]
    python benchmarks/tokenizer.py --treebank vietnamese --tokenizer unicode@2

Gold tokens are the syntactic words, as character spans of each sentence's `# text`. A token counts when both its ends
are right. For sentences, each document is rebuilt from its sentences, joined by a space, or by a blank line where the
treebank marks a new paragraph, and a sentence counts when both its ends are right. VTB's words of several syllables
count as their syllables; its text has spaces around marks already, so it judges less than EWT. `--text` compares the
sentences of the first 1,500 paragraphs of a text with those of `english`, which has lists of abbreviations: agreement,
not truth.
"""

import argparse
import lzma
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from elmokit.formats.streams import read_lines
from elmokit.text import Tokenizer, load_tokenizer

Span = tuple[int, int]
TREEBANKS = {"ewt": "pos-ewt/en_ewt", "vietnamese": "pos-vietnamese/vi_vtb"}


@dataclass
class GoldSentence:
    """A treebank sentence: its text, where its words stand in it, and whether it opens a paragraph or a document."""

    text: str = ""
    spans: list[Span] = field(default_factory=list)
    new_paragraph: bool = False
    new_document: bool = False


@dataclass(frozen=True)
class Score:
    """Exact matches of spans."""

    found: int
    right: int
    gold: int

    @property
    def precision(self) -> float:
        return 100 * self.right / max(self.found, 1)

    @property
    def recall(self) -> float:
        return 100 * self.right / max(self.gold, 1)

    @property
    def f1(self) -> float:
        return 200 * self.right / max(self.found + self.gold, 1)


def read_gold(path: Path) -> Iterator[GoldSentence]:
    """The sentences of a CoNLL-U file."""
    sentence, rows = GoldSentence(), []
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            line = line.rstrip("\n")
            if line.startswith("# text = "):
                sentence.text = line.removeprefix("# text = ")
            elif line.startswith("# newpar"):
                sentence.new_paragraph = True
            elif line.startswith("# newdoc"):
                sentence.new_document = True
            elif line and not line.startswith("#"):
                rows.append(line.split("\t"))
            elif not line:
                sentence.spans = word_spans(sentence.text, rows)
                yield sentence
                sentence, rows = GoldSentence(), []


def word_spans(text: str, rows: Sequence[Sequence[str]]) -> list[Span]:
    """Where each syntactic word stands in the text; the words of a range (1-2 don't) share out its surface."""
    surfaces: list[tuple[str, list[str]]] = []  # a surface form and the words in it
    covered = 0
    for number, form, *_ in rows:
        if "-" in number:
            covered = int(number.split("-")[1])
            surfaces.append((form, []))
        elif "." not in number:  # 8.1 is an elided word: no surface
            if int(number) > covered:
                surfaces.append((form, [form]))
            else:
                surfaces[-1][1].append(form)
    spans, position = [], 0
    parts = [(part, words if part == surface else [part]) for surface, words in surfaces for part in surface.split(" ")]
    for surface, words in parts:
        position = text.index(surface, position)
        spans += shared_out(surface, words, position)
        position += len(surface)
    return spans


def shared_out(surface: str, words: Sequence[str], start: int) -> list[Span]:
    """The surface cut at the words' lengths; the last word takes what is left where a word is spelled otherwise."""
    spans, position = [], 0
    for k, word in enumerate(words):
        end = len(surface) if k == len(words) - 1 else position + len(word)
        spans.append((start + position, start + end))
        position = end
    return spans


def rebuild(sentences: Sequence[GoldSentence]) -> Iterator[tuple[str, list[Span]]]:
    """Each document's text and where its sentences stand in it."""
    text, spans = "", []
    for sentence in sentences:
        if sentence.new_document and text:
            yield text, spans
            text, spans = "", []
        if text:
            text += "\n\n" if sentence.new_paragraph else " "
        spans.append((len(text), len(text) + len(sentence.text)))
        text += sentence.text
    if text:
        yield text, spans


def score_tokens(tokenizer: Tokenizer, sentences: Sequence[GoldSentence], errors: Counter[str]) -> Score:
    """Token spans, sentence by sentence; `errors` collects what was cut otherwise."""
    found = right = gold = 0
    for sentence in sentences:
        have = set(tokenizer.tokenize(sentence.text).offsets or ())
        want = set(sentence.spans)
        found, right, gold = found + len(have), right + len(have & want), gold + len(want)
        if have != want:
            errors.update(f"missed   {sentence.text[a:b]}" for a, b in want - have)
            errors.update(f"invented {sentence.text[a:b]}" for a, b in have - want)
    return Score(found, right, gold)


def score_sentences(tokenizer: Tokenizer, sentences: Sequence[GoldSentence]) -> Score:
    """Sentence spans, document by document."""
    found = right = gold = 0
    for text, spans in rebuild(sentences):
        have = {(s.start, s.start + len(s.text or "")) for s in tokenizer.split(text)}
        found, right, gold = found + len(have), right + len(have & set(spans)), gold + len(spans)
    return Score(found, right, gold)


def score_agreement(tokenizer: Tokenizer, paragraphs: Iterable[str]) -> Score:
    """Sentence spans, paragraph by paragraph, against those of `english`."""
    other, found, right, gold = load_tokenizer("english"), 0, 0, 0
    for text in paragraphs:
        have, want = ({(s.start, s.start + len(s.text or "")) for s in cut.split(text)} for cut in (tokenizer, other))
        found, right, gold = found + len(have), right + len(have & want), gold + len(want)
    return Score(found, right, gold)


def megabytes_per_second(tokenizer: Tokenizer, documents: Sequence[str]) -> float:
    """UTF-8 megabytes of running text that `split` takes per second on one core."""
    size = sum(len(document.encode()) for document in documents)
    start = time.process_time()
    for document in documents:
        tokenizer.split(document)
    return size / (time.process_time() - start) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=Path("../shared"), help="folder of the evaluation data")
    parser.add_argument("--treebank", choices=TREEBANKS, default="ewt")
    parser.add_argument("--part", choices=("dev", "train"), default="dev")
    parser.add_argument("--tokenizer", default="english")
    parser.add_argument("--errors", type=int, default=0, help="how many of the commonest token errors to list")
    parser.add_argument("--text", type=Path, help="sentences of this text, against those of `english`")
    options = parser.parse_args()

    tokenizer = load_tokenizer(options.tokenizer)
    sentences = list(read_gold(options.shared / "eval" / f"{TREEBANKS[options.treebank]}-ud-{options.part}.conllu.xz"))
    errors: Counter[str] = Counter()
    print(f"tokenizer {options.tokenizer} version {tokenizer.version}, {options.treebank} {options.part}")
    print(f"{'':10}{'precision':>10}{'recall':>10}{'F1':>10}{'gold':>10}")
    tokens, units = score_tokens(tokenizer, sentences, errors), score_sentences(tokenizer, sentences)
    scores = [("tokens", tokens), ("sentences", units)]
    if options.text:
        scores.append((options.text.name[:9], score_agreement(tokenizer, islice(read_lines(options.text), 1500))))
    for name, score in scores:
        print(f"{name:10}{score.precision:10.2f}{score.recall:10.2f}{score.f1:10.2f}{score.gold:10d}")
    documents = [text for text, _ in rebuild(sentences)]
    print(f"{'split':10}{megabytes_per_second(tokenizer, documents):10.2f} MB/s")
    for error, count in errors.most_common(options.errors):
        print(f"{count:6d}  {error}")


if __name__ == "__main__":
    main()
