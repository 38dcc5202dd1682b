"""An index on disk: what it keeps, that it finds what brute force finds, and that it grows as if built at once."""

import contextlib
import json
import stat
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import models
from elmokit.encoders import Elmo
from elmokit.errors import ElmokitWarning, FormatError, InputError
from elmokit.index import ENGLISH_STOP_WORDS, Index, IndexSettings, load_word_means, save_word_means, word_means
from elmokit.index import index as index_module
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


class TestGrowth:
    def test_in_parts_as_at_once(self, elmo: Elmo, tmp_path: Path) -> None:
        sentences = many(200)
        whole = Index.build(elmo, sentences, tmp_path / "whole")
        parts = Index.build(elmo, sentences[:60], tmp_path / "parts")
        report = parts.grow(elmo, sentences[60:])
        assert report.sentences == 140
        assert report.occurrences + len(Index.build(elmo, sentences[:60], tmp_path / "first")) == len(whole)
        assert [parts.occurrence(r) for r in range(len(parts))] == [whole.occurrence(r) for r in range(len(whole))]
        np.testing.assert_allclose(parts.mean, whole.mean, atol=1e-6)
        queries = np.concatenate(elmo.encode_tokens(many(6, seed=1), layers="top"))
        np.testing.assert_allclose(parts.search(queries).scores, whole.search(queries).scores, atol=2e-2)
        assert Index.open(tmp_path / "parts").words == whole.words

    def test_a_text_of_the_same_name_is_not_added_again(self, elmo: Elmo, tmp_path: Path) -> None:
        index = Index.build(elmo, LINES, tmp_path / "index", name="a")
        before = len(index)
        assert index.grow(elmo, LINES, name="a").known
        assert len(index) == before
        assert index.grow(elmo, LINES, name="b").occurrences == before

    def test_another_model_or_setting_is_refused(self, elmo: Elmo, tmp_path: Path) -> None:
        folder = tmp_path / "index"
        index = Index.build(elmo, LINES, folder)
        other = Elmo(models.tiny(seed=1).pretrained, device="cpu")
        with pytest.raises(InputError, match="vectors of another model"):
            index.grow(other, LINES)
        with pytest.raises(InputError, match="vectors of another model"):
            Index.build(other, LINES, folder)
        with pytest.raises(InputError, match=r"other settings \(layers: 'top' there, '1' now\)"):
            Index.build(elmo, LINES, folder, settings=IndexSettings(layers="1"))
        with pytest.raises(InputError, match="words: 0 words there, 1 words now"):
            Index.build(elmo, LINES, folder, settings=IndexSettings(words=("cat",)))

    def test_other_arithmetic_is_not_mixed_in_silence(
        self, elmo: Elmo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Elmo, "arithmetic", "int8 in C", raising=False)
        index = Index.build(elmo, LINES, tmp_path / "index")
        assert index.manifest.arithmetic == ("int8 in C",)
        index.grow(elmo, LINES)
        monkeypatch.setattr(Elmo, "arithmetic", "float32 by torch")
        with pytest.raises(InputError, match=r"other arithmetic \(int8 in C\).*\(float32 by torch\).*--mix-arithmetic"):
            index.grow(elmo, LINES)
        with pytest.raises(InputError, match="other arithmetic"):
            Index.build(elmo, LINES, tmp_path / "index")
        before = len(index)
        index.grow(elmo, LINES, mix_arithmetic=True)
        assert len(index) == before * 3 // 2
        assert Index.open(index.folder).manifest.arithmetic == ("float32 by torch", "int8 in C")

    def test_an_index_of_an_earlier_version_grows_with_a_warning(
        self, elmo: Elmo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Elmo, "arithmetic", "int8 in C", raising=False)
        index = Index.build(elmo, LINES, tmp_path / "index", name="a")
        path = index.folder / "index.json"
        stored = json.loads(path.read_text(encoding="utf-8"))
        assert stored["version"] == 2
        for run in stored["runs"]:
            del run["arithmetic"], run["occurrences"]
        path.write_text(json.dumps(stored | {"version": 1}), encoding="utf-8")  # as 0.1.0 wrote it
        index = Index.open(index.folder)
        assert index.manifest.arithmetic == ()
        assert index.grow(elmo, LINES, name="a").known, "nothing is added, so there is nothing to warn of"
        for _ in range(2):
            with pytest.warns(ElmokitWarning, match=r"does not say with which arithmetic.*int8 in C"):
                index.grow(elmo, LINES)
        monkeypatch.setattr(Elmo, "arithmetic", "float32 by torch")
        with pytest.raises(InputError, match="other arithmetic"):
            index.grow(elmo, LINES)
        assert json.loads(path.read_text(encoding="utf-8"))["version"] == 2

    def test_another_version_of_the_tokenizer_is_told(self, elmo: Elmo, tmp_path: Path) -> None:
        index = Index.build(elmo, LINES, tmp_path / "index")
        path = index.folder / "index.json"
        name, version = index.manifest.tokenizer.split()
        before = path.read_text(encoding="utf-8")
        path.write_text(before.replace(f'"{name} {version}"', f'"{name} {int(version) + 1}"'), encoding="utf-8")
        with pytest.warns(
            ElmokitWarning, match=rf"tokenizer {name} {int(version) + 1}, text given now by {name} {version};"
        ):
            index.grow(elmo, LINES)

    def test_settings_that_make_no_sense(self) -> None:
        with pytest.raises(InputError, match="one vector per word"):
            IndexSettings(layers="all")
        with pytest.raises(InputError, match="expected one of int8, float16"):
            IndexSettings(precision="int4")  # type: ignore[arg-type]
        with pytest.raises(InputError, match="per_word is 0; expected a whole number of at least 1"):
            IndexSettings(per_word=0)

    def test_one_writer_at_a_time_and_readers_are_not_disturbed(self, elmo: Elmo, tmp_path: Path) -> None:
        index = Index.build(elmo, many(30), tmp_path / "index")
        reader = Index.open(tmp_path / "index")
        size = len(reader)

        def meddling() -> Any:
            yield ["a", "b"]
            with pytest.raises(InputError, match="being written by another run"):
                reader.grow(elmo, many(5))
            yield from many(30, seed=3)

        index.grow(elmo, meddling())
        assert len(reader) == size
        assert reader.search(reader.vectors([3]), k=1).rows.tolist() == [[3]]

    def test_searched_from_many_threads_while_it_grows(self, elmo: Elmo, tmp_path: Path) -> None:
        index = Index.build(elmo, many(200), tmp_path / "index")
        size, queries = len(index), index.vectors(range(40))
        want = [index.search(queries[k], k=5).rows for k in range(40)]
        wrong: list[object] = []
        growing = threading.Event()

        def search() -> None:
            rounds = 0
            while rounds < 2 or growing.is_set():
                rounds += 1
                for k in range(0, 40, 5):
                    found = index.search(queries[k], k=5, rows=np.arange(size))
                    if not np.array_equal(found.rows[:, 0], want[k][:, 0]):
                        wrong.append((k, found.rows))
                    for row in index.search(queries[k], k=5).rows[0]:
                        index.occurrence(int(row))
                    index.words["w7"]

        growing.set()
        threads = [threading.Thread(target=search) for _ in range(8)]
        for thread in threads:
            thread.start()
        try:
            for seed in range(1, 4):
                index.grow(elmo, many(60, seed=seed))
        finally:
            growing.clear()
            for thread in threads:
                thread.join()
        assert not wrong
        assert len(index) > size

    def test_two_that_begin_at_once(self, elmo: Elmo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The second has seen no index before it gets the lock, and must not write over what the first has added."""
        folder = tmp_path / "index"
        lock = index_module.locked

        @contextlib.contextmanager
        def late(place: Path) -> Iterator[None]:
            monkeypatch.setattr(index_module, "locked", lock)
            Index.build(elmo, many(30), folder)
            with lock(place):
                yield

        monkeypatch.setattr(index_module, "locked", late)
        assert len(Index.begin(elmo, folder)) == len(Index.open(folder)) > 0

    def test_folders_and_files_that_are_no_index(self, elmo: Elmo, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="holds no index"):
            Index.open(tmp_path)
        (tmp_path / "other.txt").write_text("")
        with pytest.raises(InputError, match="a folder of other things"):
            Index.build(elmo, LINES, tmp_path)
        index = Index.build(elmo, LINES, tmp_path / "index")
        path = index.segments[0].path
        path.write_bytes(path.read_bytes()[:-3])
        with pytest.raises(FormatError, match="but its header describes"):
            Index.open(tmp_path / "index")
        path.rename(path.with_name("segment-000001.safetensors"))
        with pytest.raises(FormatError, match=r"segment-000000\.safetensors is missing"):
            Index.open(tmp_path / "index")
        path.with_name("segment-000001.safetensors").unlink()
        with pytest.raises(FormatError, match=r"has 0 occurrences of text 0, expected 19: a segment is missing"):
            Index.open(tmp_path / "index")
        (tmp_path / "index" / "index.json").write_text("{}")
        with pytest.raises(FormatError, match=r"index\.json: format is missing; expected .* make the index again"):
            Index.open(tmp_path / "index")


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
