import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.pretrain.corpus._counting import WordCounter
from elmokit.pretrain.corpus.lexicon import Lexicon

FIRST = ("<S>", "</S>", "<UNK>")
# Control characters sort before the newline that ends a word in the run files; astral ones after the surrogates' range.
WORDS = st.sampled_from(["a", "a\x01", "ab", "b", "é", "\uffee", "\U0001f600", "日本", "\x00", "<S>", "z" * 70])


@given(st.lists(st.lists(WORDS, max_size=8), max_size=8), st.integers(1, 12))
def test_exact_counts_however_often_it_spills(blocks: list[list[str]], most_words: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        counter = WordCounter(folder, first=FIRST, most_words=most_words)
        given_out: list[tuple[int, np.ndarray, list[str]]] = []
        for block in blocks:
            words = list(dict.fromkeys(block))
            numbers = counter.number(words)
            counter.add(numbers, np.array([block.count(word) for word in words], dtype=np.int64))
            if words:
                given_out.append((counter.run, numbers, words))
            counter.end_block()
        lexicon = Lexicon.open(folder, counter.finish(folder))
        counts = Counter(word for block in blocks for word in block)
        rest = sorted((w for w in counts if w not in FIRST), key=lambda w: (-counts[w], w.encode()))
        assert lexicon.first_words(len(lexicon)) == [*FIRST, *rest]
        assert lexicon.counts.tolist() == [counts[word] for word in (*FIRST, *rest)]
        for run, numbers, words in given_out:
            assert lexicon.words(counter.lexicon_numbers(run)[numbers]) == words


def test_fixed_words_keep_their_order(tmp_path: Path) -> None:
    counter = WordCounter(tmp_path, first=[*FIRST, "rare", "gone"], most_words=1)
    for word in ("common", "common", "rare", "other"):
        counter.add(counter.number([word]), np.ones(1, dtype=np.int64))
        counter.end_block()
    lexicon = Lexicon.open(tmp_path, counter.finish(tmp_path))
    assert lexicon.first_words(len(lexicon)) == [*FIRST, "rare", "gone", "common", "other"]
    assert lexicon.counts.tolist() == [0, 0, 0, 1, 0, 2, 1]


@pytest.mark.parametrize("most_files", [2, 3, 200])
def test_many_runs_are_merged_in_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_files: int) -> None:
    monkeypatch.setattr("elmokit.pretrain.corpus._counting._MOST_FILES", most_files)
    counter = WordCounter(tmp_path, first=FIRST, most_words=2)
    given_out = []
    for k in range(40):
        words = [f"w{k % 13:02d}", f"v{k:02d}"]
        numbers = counter.number(words)
        given_out.append((counter.run, numbers, words))
        counter.add(numbers, np.ones(2, dtype=np.int64))
        counter.end_block()
    lexicon = Lexicon.open(tmp_path, counter.finish(tmp_path))
    assert sorted(lexicon.first_words(len(lexicon))[3:]) == sorted({word for *_, words in given_out for word in words})
    assert lexicon.counts[3:16].tolist() == [4] + [3] * 12
    for run, numbers, words in given_out:
        assert lexicon.words(counter.lexicon_numbers(run)[numbers]) == words


def test_more_runs_than_a_process_may_open_files(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    counter = WordCounter(tmp_path, first=FIRST, most_words=1)
    for k in range(600):
        counter.add(counter.number([f"w{k:03d}"]), np.ones(1, dtype=np.int64))
        counter.end_block()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, *(n for n in before if n > 0)), before[1]))
    try:
        lexicon = Lexicon.open(tmp_path, counter.finish(tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert len(lexicon) == len(FIRST) + 600


def test_large_tables_are_gathered_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elmokit.pretrain.corpus._counting._GATHERED_WORDS", 7)
    monkeypatch.setattr("elmokit.pretrain.corpus._counting._FLUSH", 5)
    counter = WordCounter(tmp_path, first=FIRST, most_words=20)
    for k in range(0, 60, 6):
        counter.add(counter.number([f"w{j:02d}" for j in range(k, k + 6)]), np.arange(60 - k, 54 - k, -1))
        counter.end_block()
    lexicon = Lexicon.open(tmp_path, counter.finish(tmp_path))
    assert lexicon.first_words(63) == [*FIRST, *(f"w{j:02d}" for j in range(60))]
