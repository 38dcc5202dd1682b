"""An index on disk: what it keeps, and that it finds what brute force finds."""

import stat
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import models
from elmokit.encoders import Elmo
from elmokit.errors import InputError
from elmokit.index import ENGLISH_STOP_WORDS, Index, IndexSettings, load_word_means, save_word_means, word_means
from elmokit.index.exact import Nearest, merge
from elmokit.index.segment import encode_rows

LINES = [
    "The cat sat on the mat.",
    "",
    "naïve 猫 \ud800 café, \u200b",
    "The cat sat on the mat.",
    ".",
    "Ζεὺς said: No 1!",
]


@pytest.fixture(scope="module")
def elmo() -> Elmo:
    return Elmo(models.tiny().pretrained, device="cpu")


@pytest.fixture(autouse=True)
def _small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elmokit.index.growth.CHUNK_TOKENS", 64)
    monkeypatch.setattr("elmokit.index.growth.SEGMENT_ROWS", 100)


def many(n: int, *, seed: int = 0) -> list[list[str]]:
    rng = np.random.default_rng(seed)
    return [[f"w{k}" for k in rng.integers(0, 80, rng.integers(0, 9))] for _ in range(n)]


class Meanwhile(Counter[str]):
    """Words of an index that grows when they are first looked at."""

    grow: Callable[[], object]

    def most_common(self, n: int | None = None) -> list[tuple[str, int]]:
        self.grow()
        return super().most_common(n)


def test_means_of_words_while_the_index_grows(elmo: Elmo, tmp_path: Path) -> None:
    index = Index.build(elmo, many(60), tmp_path / "index")
    expected = word_means(index)
    counts = index._view.words = Meanwhile(index._view.words)
    counts.grow = lambda: index.grow(elmo, many(60, seed=1), name="more")
    found = word_means(index)
    assert len(index) > counts.total()
    assert list(found.words) == list(expected.words)
    assert np.array_equal(found.vectors, expected.vectors)


def brute_force(index: Index, queries: Any, k: int) -> Any:
    """Rows by cosine of centred float64 vectors."""
    vectors = index.vectors(range(len(index))).astype(np.float64)
    mean = vectors.mean(axis=0)
    vectors, queries = vectors - mean, np.atleast_2d(queries).astype(np.float64) - mean
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    cosines = queries @ vectors.T
    order = np.argsort(-cosines, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(cosines, order, axis=1)


class TestContents:
    def test_every_word_stands_where_it_stood(self, elmo: Elmo, tmp_path: Path) -> None:
        index = Index.build(elmo, LINES, tmp_path / "index")
        found = [index.occurrence(row) for row in range(len(index))]
        words = ["The", "cat", "sat", "on", "the", "mat"]
        others = [*words, "Ζεὺς", "said", "No", "1"]
        assert [o.word for o in found if o.word not in ("naïve", "猫", "café")] == [*words, *others]
        assert {"naïve", "猫", "café"} <= {o.word for o in found}
        assert all(o.text[o.start : o.end] == o.word for o in found)
        assert found[1].text == LINES[0]
        assert found[1].position == 1
        assert index.words["cat"] == 2
        assert index.rows_of("cat").tolist() == [1, len(index) - 9]

    def test_vectors_are_the_encoders_up_to_rounding(self, elmo: Elmo, tmp_path: Path) -> None:
        sentences = many(40)
        want = np.concatenate(elmo.encode_tokens(sentences, layers="top"))
        for precision, tolerance in (("int8", 1 / 250), ("float16", 1e-3)):
            settings = IndexSettings(precision=precision)  # type: ignore[arg-type]
            index = Index.build(elmo, sentences, tmp_path / precision, settings=settings)
            got = index.vectors(range(len(index)))
            assert np.abs(got - want).max() <= tolerance * np.abs(want).max()
            np.testing.assert_allclose(index.mean, got.mean(axis=0), atol=1e-5)

    def test_tokens_without_text_are_joined(self, elmo: Elmo, tmp_path: Path) -> None:
        index = Index.build(elmo, [["New York", "is", "big"]], tmp_path / "index")
        last = index.occurrence(2)
        assert last.text == "New York is big"
        assert last.text[last.start : last.end] == "big"

    @pytest.mark.parametrize(
        ("settings", "kept"),
        [
            (IndexSettings(min_length=3), {"The", "the", "cat", "sat", "mat", "said", "Ζεὺς", "naïve", "café"}),
            (IndexSettings(words=("THE", "Ζεὺς")), {"The", "the", "Ζεὺς"}),
            (IndexSettings(stop_words=ENGLISH_STOP_WORDS, min_length=3), {"cat", "sat", "mat", "said", "Ζεὺς"}),
        ],
    )
    def test_filters(self, elmo: Elmo, tmp_path: Path, settings: IndexSettings, kept: set[str]) -> None:
        index = Index.build(elmo, LINES, tmp_path / "index", settings=settings)
        assert kept <= set(index.words) <= kept | {"naïve", "café"}

    def test_punctuation_on_request(self, elmo: Elmo, tmp_path: Path) -> None:
        index = Index.build(elmo, LINES, tmp_path / "index", settings=IndexSettings(punctuation=True))
        assert index.words["."] == 3

    def test_at_most_so_many_of_a_word_also_after_growing(self, elmo: Elmo, tmp_path: Path) -> None:
        sentences = many(200)
        settings = IndexSettings(per_word=3)
        index = Index.build(elmo, sentences[:100], tmp_path / "index", settings=settings)
        index.grow(elmo, sentences[100:])
        assert max(index.words.values()) == 3
        whole = Index.build(elmo, sentences, tmp_path / "whole", settings=settings)
        assert [index.occurrence(r) for r in range(len(index))] == [whole.occurrence(r) for r in range(len(whole))]

    def test_nothing_in_nothing_out(self, elmo: Elmo, tmp_path: Path) -> None:
        index = Index.build(elmo, ["", "  ", "..."], tmp_path / "index")
        assert len(index) == 0
        found = index.search(np.ones(12, dtype=np.float32), k=3)
        assert found.rows.tolist() == [[-1, -1, -1]]
        save_word_means(index)
        assert load_word_means(index) is None

    def test_files_are_for_whoever_may_read_the_folder(self, elmo: Elmo, tmp_path: Path) -> None:
        index = Index.build(elmo, LINES, tmp_path / "index")
        plain = tmp_path / "plain"
        plain.touch()
        for segment in index.segments:
            assert stat.S_IMODE(segment.path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


class TestSearch:
    @pytest.mark.parametrize("precision", ["int8", "float16"])
    def test_exact_search_is_brute_force(self, elmo: Elmo, tmp_path: Path, precision: Any) -> None:
        index = Index.build(elmo, many(150), tmp_path / "index", settings=IndexSettings(precision=precision))
        assert len(index.segments) > 3
        queries = np.concatenate(elmo.encode_tokens(many(6, seed=1), layers="top"))
        want_rows, want = brute_force(index, queries, 7)
        found = index.search(queries, k=7)
        np.testing.assert_allclose(found.scores, want, atol=1e-5)
        assert (found.rows == want_rows).mean() > 0.9, "equal scores may change places"

    def test_among_some_rows_only(self, elmo: Elmo, tmp_path: Path) -> None:
        index = Index.build(elmo, many(150), tmp_path / "index")
        rows = index.rows_of("w7")
        query = index.vectors(rows[:1])
        found = index.search(query, k=len(rows) + 2, rows=rows)
        assert set(found.rows[0].tolist()) == {*rows.tolist(), -1}
        assert found.rows[0, 0] == rows[0]
        assert found.scores[0, 0] == pytest.approx(1, abs=1e-5)
        assert index.search(query, k=3, rows=rows[:0]).rows.tolist() == [[-1, -1, -1]]

    def test_the_mean_itself_is_like_nothing(self, elmo: Elmo, tmp_path: Path) -> None:
        index = Index.build(elmo, many(20), tmp_path / "index")
        assert not index.search(index.mean, k=3).scores.any()

    def test_searches_that_make_no_sense(self, elmo: Elmo, tmp_path: Path) -> None:
        index = Index.build(elmo, ["the cat sat"], tmp_path / "index")
        assert repr(index) == f"Index({str(tmp_path / 'index')!r}, 3 occurrences of 3 words)"
        for k in (0, -1):
            with pytest.raises(InputError, match=f"k is {k}; at least 1"):
                index.search(index.mean, k=k)
        with pytest.raises(InputError, match="holds NaN or infinity"):
            index.search(index.mean * np.nan)

    def test_vectors_of_another_width_are_refused(self, elmo: Elmo, tmp_path: Path) -> None:
        index = Index.build(elmo, LINES, tmp_path / "index")
        with pytest.raises(InputError, match=r"vectors of 5 given, but those of .* have 12"):
            index.search(np.ones(5, dtype=np.float32))

    @given(st.lists(st.integers(0, 5), max_size=40), st.lists(st.integers(0, 5), max_size=40), st.integers(1, 6))
    def test_merging_keeps_the_best(self, some: list[int], more: list[int], k: int) -> None:
        def nearest(scores: list[int], first: int) -> Nearest:
            return Nearest(np.arange(first, first + len(scores))[None], np.array([scores], dtype=np.float32))

        found = merge(nearest(some, 0), nearest(more, len(some)), k=k)
        assert found.scores[0].tolist() == sorted([*some, *more], reverse=True)[:k]
        every = [*some, *more]
        best = sorted(range(len(every)), key=lambda row: (-every[row], row))[:k]
        assert found.rows[0].tolist() == best, "of equal scores, those of the first rows"

    def test_equal_vectors_come_in_the_order_of_their_rows(self, elmo: Elmo, tmp_path: Path) -> None:
        index = Index.build(elmo, [["same", "words"]] * 600, tmp_path / "index")
        for row in (0, 1, 500, 501):
            found = index.search(index.vectors([row, row]), k=5)
            assert found.rows.tolist() == [list(range(row % 2, 10, 2))] * 2
            among = index.rows_of("words")[::-1].copy()
            assert index.search(index.vectors([1]), k=3, rows=among).rows.tolist() == [[1, 3, 5]]

    def test_a_byte_a_number_loses_little(self) -> None:
        vectors = np.random.default_rng(0).normal(size=(50, 512)).astype(np.float32)
        vectors[7] = 0
        codes, scales = encode_rows(vectors, "int8")
        assert codes.dtype == np.int8
        back = codes * scales[:, None]
        assert not back[7].any()
        lengths = np.linalg.norm(back, axis=1) * np.linalg.norm(vectors, axis=1)
        assert ((back * vectors).sum(axis=1)[:7] / lengths[:7]).min() > 0.9998


class TestWordMeans:
    def test_means_of_words_that_are_frequent(self, elmo: Elmo, tmp_path: Path) -> None:
        index = Index.build(elmo, many(200), tmp_path / "index")
        table = word_means(index, min_count=8)
        assert set(table.words) == {word for word, count in index.words.items() if count >= 8}
        for word in table.words[:5]:
            np.testing.assert_allclose(table.vector(word), index.vectors(index.rows_of(word)).mean(axis=0), atol=1e-5)

    def test_kept_beside_the_index_until_it_grows(self, elmo: Elmo, tmp_path: Path) -> None:
        index = Index.build(elmo, many(200), tmp_path / "index")
        save_word_means(index)
        kept, made = load_word_means(index), word_means(index)
        assert kept is not None
        np.testing.assert_array_equal(kept.vectors, made.vectors)
        index.grow(elmo, many(100, seed=2))
        save_word_means(index)
        assert [p.name for p in index.folder.glob("types-*")] == [f"types-{len(index)}.safetensors"]
