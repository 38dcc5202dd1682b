"""Words to rows of numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reference
from elmokit.chars import ByteCodec, DictionaryCodec, WordCodec

CHARACTERS = {s: k for k, s in enumerate(["<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>", "a", "b", "\u3000"])}
WORDS = {"<oov>": 0, "<bos>": 1, "<eos>": 2, "<pad>": 3, "ab": 4}


@given(st.lists(st.text(max_size=60) | st.sampled_from(["<S>", "</S>", "", "\ud800x"])), st.sampled_from([5, 50, 80]))
def test_bytes_equal_the_reference(words: list[str], limit: int) -> None:
    for literal in (True, False):
        got = ByteCodec(limit, boundary_tokens=literal).encode(words)
        assert got.shape == (len(words), limit)
        for row, word in zip(got, words, strict=True):
            np.testing.assert_array_equal(row, reference.byte_row(word, limit, literal_boundaries=literal))


def test_boundary_rows() -> None:
    codec = ByteCodec()
    np.testing.assert_array_equal(np.stack([codec.begin, codec.end]), reference.sentence_rows([]))


@pytest.mark.parametrize(("word", "over"), [("a" * 48, False), ("a" * 49, True), ("é" * 24, False), ("é" * 25, True)])
def test_overlong_counts_bytes(word: str, over: bool) -> None:
    assert ByteCodec().overlong(word) is over


@given(st.lists(st.text(alphabet="abc\u3000", max_size=12) | st.sampled_from(["<bos>", "<eos>", "<pad>"])))
def test_dictionaries_equal_the_reference(words: list[str]) -> None:
    codec = DictionaryCodec(words=WORDS, characters=CHARACTERS, max_characters=8)
    got = codec.encode(words)
    assert got.shape == (len(words), 9)
    for row, word in zip(got, words, strict=True):
        assert row[0] == WORDS.get(word[:6], 0)
        np.testing.assert_array_equal(row[1:], reference.manylangs_row(word, CHARACTERS, 8))
        assert codec.overlong(word) == (len(word) > 6)
    assert codec.begin[0] == 1
    np.testing.assert_array_equal(codec.begin[1:], reference.manylangs_row("<bos>", CHARACTERS, 8))


def test_either_dictionary_alone() -> None:
    assert DictionaryCodec(words=WORDS, characters=None).encode(["ab", "x"]).tolist() == [[4], [0]]
    assert DictionaryCodec(words=None, characters=CHARACTERS, max_characters=5).encode(["ab"]).tolist() == [
        [5, 6, 7, 4, 3]
    ]


def test_words_outside_the_vocabulary() -> None:
    codec = WordCodec(["<S>", "</S>", "<UNK>", "the"])
    assert codec.encode(["the", "cat"]).tolist() == [[3], [2]]
    assert (codec.begin.tolist(), codec.end.tolist()) == ([0], [1])
    assert not codec.overlong("x" * 1000)
