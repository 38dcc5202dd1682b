"""An index that grows: in parts as at once, one writer, any readers, and what is refused."""

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import models
from elmokit.encoders import Elmo
from elmokit.errors import ElmokitWarning, FormatError, InputError
from elmokit.index import Index, IndexSettings
from elmokit.index import index as index_module

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
