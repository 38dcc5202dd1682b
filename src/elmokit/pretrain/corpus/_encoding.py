"""Blocks of text to numbered words: what the worker processes do.

A worker numbers the distinct words of its block only; the parent joins the numberings in the order of the blocks, so
the outcome does not depend on how many workers there are.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import ElmokitError
from elmokit.formats import ReadReport, read_jsonl
from elmokit.formats.ahead import start_worker
from elmokit.formats.streams import decode
from elmokit.pretrain.corpus.text import Block, Reading
from elmokit.text import unescape_treebank
from elmokit.text.sentence import WhitespaceTokenizer

Tokens = Sequence[str]


class EncodedBlock(NamedTuple):
    """The sentences of a block. Words hold no white space, so they travel as one string."""

    words: str  # the distinct words, in order of appearance, between newlines
    tokens: NDArray[np.uint32]  # (tokens,) places in `words`
    lengths: NDArray[np.uint32]  # (sentences,)
    paragraphs: NDArray[np.uint32]  # (sentences,) the number of the sentence's paragraph within the block
    lines: int  # of the text as given, like the next
    empty_lines: int
    cut_lines: int
    bad_bytes: int
    consumed: int
    repeated: bool


def encode_blocks(blocks: Iterable[Block], reading: Reading, *, workers: int) -> Iterator[EncodedBlock]:
    """Every block encoded, in order. One worker, or a single block, needs no process of its own."""
    blocks = iter(blocks)
    first = list(islice(blocks, 2))
    blocks = chain(first, blocks)
    if workers <= 1 or len(first) < 2:
        for block in blocks:
            yield encode_block(block, reading)
        return
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=start_worker)
    pending: deque[Future[EncodedBlock]] = deque()
    try:
        for block in blocks:
            pending.append(pool.submit(encode_block, block, reading))
            if len(pending) > 2 * workers:  # what bounds the memory when the parent reads faster than they tokenise
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool as error:
        raise ElmokitError(
            f"one of the {workers} processes that tokenise the corpus died, perhaps for want of memory; "
            "try again with fewer workers (1 needs no extra process)"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def encode_block(block: Block, reading: Reading) -> EncodedBlock:
    """Tokenise a block and number its words."""
    text, bad = decode(block.data)
    report = ReadReport(bad_bytes=bad + block.bad_bytes)
    paragraphs: list[list[Tokens]] = []  # of sentences; blank lines have none
    lines = text.removesuffix("\n").split("\n")
    if block.kind == "jsonl":
        for unit in read_jsonl(lines, name=block.name, field=reading.field, first_line=block.line, report=report):
            if isinstance(unit, str):
                paragraphs += _split_lines(unit.split("\n"), reading)
            else:
                paragraphs.append([unit])
    elif block.kind == "tokens":
        paragraphs = [[tokens] if (tokens := line.split()) else [] for line in lines]
    else:
        paragraphs = _split_lines(lines, reading)
    if reading.treebank:
        paragraphs = [[tuple(map(unescape_treebank, given)) for given in sentences] for sentences in paragraphs]
    full = [sentences for sentences in paragraphs if sentences]
    words, numbers, lengths = _number_words(full)
    if "\n".join(words.split()) != words or not lengths.all():
        # A token holds white space, or nothing else: no vocabulary file could hold it, so it counts as several words.
        full = [split for sentences in full if (split := _without_space(sentences))]
        words, numbers, lengths = _number_words(full)
    # JSON lines that were left out were passed over; of other text they are empty now, but were not.
    lines_given = len(paragraphs) + (block.left_out if block.kind == "jsonl" else 0)
    sentences = np.fromiter(map(len, full), dtype=np.int64, count=len(full))
    return EncodedBlock(
        words,
        numbers,
        lengths,
        np.repeat(np.arange(len(full), dtype=np.uint32), sentences),
        lines_given,
        lines_given - block.left_out - len(full),
        block.cut_lines,
        report.bad_bytes,
        block.consumed,
        block.repeated,
    )


def _split_lines(lines: Iterable[str], reading: Reading) -> list[list[Tokens]]:
    """The sentences of each line, none for a blank one."""
    if isinstance(reading.tokenizer, WhitespaceTokenizer):  # the same tokens without the offsets
        return [[words] if (words := line.split()) else [] for line in lines]
    if reading.lines == "sentences":
        tokenize = reading.tokenizer.tokenize
        return [[tokens] if (tokens := tokenize(line).tokens) else [] for line in lines]
    split = reading.tokenizer.split
    return [[sentence.tokens for sentence in split(line) if sentence.tokens] for line in lines]


def _without_space(sentences: list[Tokens]) -> list[Tokens]:
    return [words for tokens in sentences if (words := " ".join(tokens).split())]


def _number_words(paragraphs: list[list[Tokens]]) -> tuple[str, NDArray[np.uint32], NDArray[np.uint32]]:
    """The distinct words, each token's place among them, and the sentences' lengths."""
    places: defaultdict[str, int] = defaultdict()
    places.default_factory = places.__len__  # an unseen word gets the next number, all in C
    sentences = list(chain.from_iterable(paragraphs))
    lengths = np.fromiter(map(len, sentences), dtype=np.uint32, count=len(sentences))
    numbers = map(places.__getitem__, chain.from_iterable(sentences))
    tokens = np.fromiter(numbers, dtype=np.uint32, count=int(lengths.sum(dtype=np.int64)))
    return "\n".join(places), tokens, lengths
