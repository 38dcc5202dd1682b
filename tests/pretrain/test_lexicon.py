import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.chars import ByteCodec, Codec, WordCodec
from elmokit.pretrain.corpus.lexicon import Lexicon

SPECIALS = ["<S>", "</S>", "<UNK>"]


def lexicon_of(words: list[str]) -> Lexicon:
    encoded = [word.encode() for word in words]
    starts = np.cumsum([0, *map(len, encoded)]).astype(np.uint64)
    text = np.frombuffer(b"".join(encoded), dtype=np.uint8)
    return Lexicon(text, starts, np.zeros(len(words), dtype=np.uint64))


CODECS = st.builds(ByteCodec, st.sampled_from([5, 12, 50]), boundary_tokens=st.booleans())
WORDS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60), max_size=12, unique=True)


@given(WORDS, CODECS, st.data())
def test_rows_are_what_the_codec_gives(words: list[str], codec: ByteCodec, data: st.DataObject) -> None:
    words = [*SPECIALS, "<S", "<T>", *words]
    ids = data.draw(st.lists(st.integers(0, len(words) - 1), max_size=20))
    rows = lexicon_of(words).rows(ids, codec)
    expected = codec.encode([words[k] for k in ids])
    np.testing.assert_array_equal(rows, expected)
    assert (rows.shape, rows.dtype) == (expected.shape, expected.dtype)


def test_last_word_reads_nothing_behind_it() -> None:
    lexicon = lexicon_of([*SPECIALS, "z"])
    np.testing.assert_array_equal(lexicon.rows(np.array([3], dtype=np.uint32), ByteCodec()), ByteCodec().encode(["z"]))


@pytest.mark.parametrize("codec", [WordCodec([*SPECIALS, "a"])])
def test_other_codecs_are_asked(codec: Codec) -> None:
    assert lexicon_of([*SPECIALS, "a", "b"]).rows([3, 4, 0], codec).tolist() == [[3], [2], [0]]


def test_words_and_lengths() -> None:
    lexicon = lexicon_of(["é", "日本", "a"])
    assert lexicon.words([2, 0, 1, 1]) == ["a", "é", "日本", "日本"]
    assert lexicon.first_words(2) == ["é", "日本"]
    assert lexicon.lengths.tolist() == [2, 6, 1]
    assert len(lexicon) == 3
