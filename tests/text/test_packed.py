"""Sentences in arrays: the same sentences, however they are cut and joined."""

import hashlib
from collections.abc import Iterator

import numpy as np
import pytest

from elmokit.batch import Window, cut_stream, plan_batches
from elmokit.text import Sentence
from elmokit.text.packed import Packed, SentenceStream, cut_packed, in_blocks, telling

SENTENCES = [
    Sentence(
        tuple(f"w{k * n % 11}" for k in range(n)), f"text {k}" if n % 2 else None, None, n, ("f",) if n % 3 else ()
    )
    for k, n in enumerate([4, 0, 11, 1, 7, 7, 0, 3, 25, 2, 5, 9])
]


def unbound(sentences: list[Sentence]) -> Packed:
    """As it comes from another process: the sentences themselves stayed there."""
    made = Packed.of(sentences)
    return Packed(
        made.words,
        made.ids,
        made.offsets,
        [s.text for s in sentences],
        [s.start for s in sentences],
        [s.fields for s in sentences],
    )


def facts(sentences: Packed | list[Sentence]) -> list[object]:
    return [(s.tokens, s.text, s.start, s.fields) for s in sentences]


@pytest.mark.parametrize("make", [Packed.of, unbound])
def test_parts_and_wholes(make: object) -> None:
    packed = make(SENTENCES)  # type: ignore[operator]
    assert facts(packed) == facts(SENTENCES)
    assert facts(packed[3:8]) == facts(SENTENCES[3:8])
    assert facts(packed[5:5]) == []
    assert packed[-1].tokens == SENTENCES[-1].tokens
    joined = Packed.joined([packed[:3], packed[3:4], packed[4:]])
    assert facts(joined) == facts(SENTENCES)
    assert facts(Packed.joined([packed[:3], Packed.of(SENTENCES[3:])])) == facts(SENTENCES)
    assert facts(packed[2:6].compact()) == facts(SENTENCES[2:6])
    assert packed[2:6].compact().words == Packed.of(SENTENCES[2:6]).words  # in the order in which they come
    assert packed.lines == [(" ".join(s.tokens) if s.text is None else s.text).strip() for s in SENTENCES]


@pytest.mark.parametrize("tokens", [1, 9, 30, 1000])
@pytest.mark.parametrize("size", [1, 5, 12])
def test_stretches_are_those_of_single_sentences(tokens: int, size: int) -> None:
    blocks = [unbound(SENTENCES[k : k + size]) for k in range(0, len(SENTENCES), size)]
    found = [facts(stretch) for stretch in cut_packed(blocks, tokens=tokens)]
    assert found == [facts(stretch) for stretch in cut_stream(SENTENCES, tokens=tokens)]


@pytest.mark.parametrize("budget", [1, 20, 60, 1000])
def test_batches_are_those_of_single_sentences(budget: int) -> None:
    window = Window.of(Packed.of(SENTENCES), batch_tokens=budget)
    expected = [[place for place, _ in batch] for batch in plan_batches(SENTENCES, batch_tokens=budget, window=1000)]
    assert [batch.tolist() for batch in window.batches] == expected


def test_a_digest_is_that_of_single_sentences() -> None:
    one, other = hashlib.sha256(), hashlib.sha256()
    for sentence in SENTENCES:
        one.update(telling(sentence))
    told = b"".join(map(telling, SENTENCES))
    ends = np.cumsum([0, *(len(telling(s)) for s in SENTENCES)])
    packed = unbound(SENTENCES)
    whole = Packed(packed.words, packed.ids, packed.offsets, packed.texts, packed.starts, packed.fields, (), told, ends)
    Packed.joined([whole[:5], whole[5:9]]).tell(other.update)
    packed[9:].tell(other.update)
    assert one.digest() == other.digest()


def test_a_stream_gives_sentences_and_then_blocks() -> None:
    stream = SentenceStream(iter([unbound(SENTENCES[:5]), unbound(SENTENCES[5:])]))
    first = [next(stream) for _ in range(3)]
    rest = [sentence for block in stream.blocks() for sentence in block]
    assert facts([*first, *rest]) == facts(SENTENCES)


def test_sentences_before_an_error_come_first() -> None:
    def broken() -> Iterator[Sentence]:
        yield from SENTENCES[:3]
        raise OSError("gone")

    blocks = in_blocks(broken())
    assert facts(next(blocks)) == facts(SENTENCES[:3])
    with pytest.raises(OSError, match="gone"):
        next(blocks)
