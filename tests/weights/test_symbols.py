"""Word and character lists: any symbol comes back."""

import gzip
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.errors import WeightsError
from elmokit.weights import symbols

AWKWARD = [
    "",
    " ",
    '"',
    '""',
    '"a"',
    "\\n",
    "\n",
    "a\r",
    "\r\n",
    "\u2028",
    "\u3000",
    "\ud800",
    "\ufeff",
    "null",
    "a\tb",
    "\x00",
]


@given(st.lists(st.text() | st.sampled_from(AWKWARD)))
def test_own_lists_hold_any_symbol(words):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vocab.txt"
        path.write_bytes(symbols.write_symbols(words).encode())
        assert symbols.read_symbols(path) == tuple(words)


def test_ordinary_words_stand_as_they_are():
    assert symbols.write_symbols(["<S>", "naïve", '"', "don't"]) == "<S>\nnaïve\n\"\ndon't\n"


@pytest.mark.parametrize("packed", [False, True])
def test_plain_lists(tmp_path, packed):
    data = 'a\r\n\u2028\r\n"b"\r\n\r\nlast'.encode()
    path = tmp_path / ("vocab.txt.gz" if packed else "vocab.txt")
    path.write_bytes(gzip.compress(data) if packed else data)
    assert symbols.read_words(path) == ("a", "\u2028", '"b"', "", "last")


@pytest.mark.parametrize("word", ["a\nb", "\r", "\udcff"])
def test_plain_lists_refuse_what_they_cannot_hold(word):
    with pytest.raises(WeightsError, match="plain vocabulary"):
        symbols.write_words(["fine", word])


def test_damaged_lists(tmp_path, monkeypatch):
    path = tmp_path / "vocab.txt.gz"
    path.write_bytes(gzip.compress(b"word\n" * 9)[:-9])
    with pytest.raises(WeightsError, match=r"vocab\.txt\.gz: cannot be read"):
        symbols.read_words(path)
    monkeypatch.setattr(symbols, "LARGEST_LIST", 3 << 20)  # a bomb: little on the disk, much in memory
    path.write_bytes(gzip.compress(bytes(20 << 20)))
    with pytest.raises(WeightsError, match="too large for a vocabulary"):
        symbols.read_words(path)
    path = tmp_path / "words.txt"
    path.write_text('fine\n"\\x"\n')
    with pytest.raises(WeightsError, match=r"words\.txt: line 2"):
        symbols.read_symbols(path)
