"""Vectors on disk: every format holds what `Elmo` gives."""

import json
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pyarrow.parquet
import pytest
from safetensors.numpy import load_file

import models
from elmokit.encoders import Elmo
from elmokit.errors import InputError
from elmokit.store import StoreOptions, StoreReport, write_vectors
from elmokit.store._lines import SentenceLines

LINES = ["The cat sat.", "", "and/or", "The cat sat.", ".", "naïve 猫 \ud800", "a" * 60 + " long"]


@pytest.fixture(scope="module")
def elmo() -> Elmo:
    return Elmo(models.tiny().pretrained, device="cpu")


class TestHdf5:
    def test_layout_of_the_older_tools(self, elmo: Elmo, tmp_path: Path) -> None:
        report = write_vectors(elmo, LINES, tmp_path / "out.h5", options=StoreOptions(layers="all"))
        with h5py.File(tmp_path / "out.h5") as file:
            assert set(file) == {*map(str, range(7)), "sentence_to_index"}
            for k, want in enumerate(elmo.encode_layers(LINES)):
                assert file[str(k)].dtype == np.float32
                np.testing.assert_allclose(file[str(k)][...], want, atol=1e-6)
            assert file["sentence_to_index"].shape == (1,)
            index = json.loads(file["sentence_to_index"][0])
        assert index["The cat sat."] == "3", "the last of duplicates wins"
        assert index["and/or"] == "2"
        assert len(index) == 6
        assert report == StoreReport(
            sentences=7, tokens=report.tokens, empty=1, overlong_words=1, longest=4, duplicates=1, resumed_at=0
        )

    def test_one_layer_or_the_average_has_two_axes(self, elmo: Elmo, tmp_path: Path) -> None:
        for layers in ("top", "average"):
            write_vectors(elmo, LINES, tmp_path / "out.hdf5", options=StoreOptions(layers=layers))
            with h5py.File(tmp_path / "out.hdf5") as file:
                assert file["0"].shape == (4, 12)
                assert file["1"].shape == (0, 12)

    def test_sentences_as_keys(self, elmo: Elmo, tmp_path: Path) -> None:
        write_vectors(elmo, LINES, tmp_path / "out.h5", options=StoreOptions(use_sentence_keys=True))
        with h5py.File(tmp_path / "out.h5") as file:
            keys = {"The cat sat.", "and\u2215or", "\u2024", "naïve 猫 ?", "a" * 60 + " long"}
            assert set(file) == keys
            assert all(isinstance(file[key], h5py.Dataset) for key in keys)
            np.testing.assert_allclose(file["and\u2215or"][...], elmo.encode_tokens("and/or"), atol=1e-6)

    def test_names_are_marked_as_utf8(self, elmo: Elmo, tmp_path: Path) -> None:
        write_vectors(elmo, ["naïve"], tmp_path / "out.h5", options=StoreOptions(use_sentence_keys=True))
        with h5py.File(tmp_path / "out.h5") as file:
            assert file.id.links.get_info("naïve".encode()).cset == h5py.h5t.CSET_UTF8

    def test_forgetting_sentences(self, elmo: Elmo, tmp_path: Path) -> None:
        write_vectors(elmo, LINES, tmp_path / "out.h5", options=StoreOptions(forget_sentences=True))
        with h5py.File(tmp_path / "out.h5") as file:
            assert set(file) == set(map(str, range(7)))

    def test_an_index_too_large_for_memory_reads_the_same(
        self, elmo: Elmo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_vectors(elmo, LINES, tmp_path / "small.h5")
        monkeypatch.setattr("elmokit.store.hdf5.LARGEST_STRING", 10)
        write_vectors(elmo, LINES, tmp_path / "large.h5")
        with h5py.File(tmp_path / "small.h5") as small, h5py.File(tmp_path / "large.h5") as large:
            assert (
                h5py.check_string_dtype(small["sentence_to_index"].dtype).length is None
            )  # as the older tools wrote it
            assert h5py.check_string_dtype(large["sentence_to_index"].dtype).length > 10
            assert json.loads(small["sentence_to_index"][0]) == json.loads(large["sentence_to_index"][0])
            np.testing.assert_array_equal(small["6"][...], large["6"][...])


class TestOtherFormats:
    def test_npz_holds_no_date(self, elmo: Elmo, tmp_path: Path) -> None:
        write_vectors(elmo, LINES, tmp_path / "out.npz")
        with zipfile.ZipFile(tmp_path / "out.npz") as archive:
            assert {member.date_time for member in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}

    @pytest.mark.parametrize("layers", ["average", "all"])
    def test_npz(self, elmo: Elmo, tmp_path: Path, layers: str) -> None:
        write_vectors(elmo, LINES, tmp_path / "out.npz", options=StoreOptions(layers=layers))
        with np.load(tmp_path / "out.npz") as file:
            assert sorted(file) == sorted(map(str, range(7)))
            for k, want in enumerate(elmo.encode_tokens(LINES, layers=layers)):
                np.testing.assert_allclose(file[str(k)], want, atol=1e-6)

    @pytest.mark.parametrize("layers", ["average", "all"])
    def test_safetensors(self, elmo: Elmo, tmp_path: Path, layers: str) -> None:
        write_vectors(elmo, LINES, tmp_path / "out.safetensors", options=StoreOptions(layers=layers))
        file = load_file(tmp_path / "out.safetensors")
        ends = file["offsets"]
        for k, want in enumerate(elmo.encode_tokens(LINES, layers=layers)):
            got = file["vectors"][ends[k] : ends[k + 1]]
            np.testing.assert_allclose(got if layers == "average" else got.swapaxes(0, 1), want, atol=1e-6)

    @pytest.mark.parametrize("layers", ["average", "all"])
    def test_parquet(self, elmo: Elmo, tmp_path: Path, layers: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("elmokit.store._parquet.GROUP_BYTES", 3 * 12 * 4)  # rows of one sentence in several groups
        write_vectors(elmo, LINES, tmp_path / "out.parquet", options=StoreOptions(layers=layers))
        table = pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pydict()
        told = pyarrow.parquet.read_metadata(tmp_path / "out.parquet")
        groups = [told.row_group(k).num_rows for k in range(told.num_row_groups)]
        assert told.num_rows == sum(groups) == len(table["token"])
        names = ["vector"] if layers == "average" else ["layer0", "layer1", "layer2"]
        assert list(table) == ["sentence", "position", "token", *names]
        assert table["sentence"][:5] == [0, 0, 0, 0, 2]
        assert table["position"][:5] == [0, 1, 2, 3, 0]
        assert table["token"][:4] == ["The", "cat", "sat", "."]
        got = np.stack([np.array(table[name]) for name in names])
        want = np.concatenate(elmo.encode_tokens(LINES, layers=layers), axis=-2)
        np.testing.assert_allclose(got.squeeze(), want, atol=1e-6)

    @pytest.mark.parametrize("suffix", [".h5", ".npz", ".safetensors", ".parquet"])
    def test_no_sentences_make_an_empty_file(self, elmo: Elmo, tmp_path: Path, suffix: str) -> None:
        assert write_vectors(elmo, [], tmp_path / f"out{suffix}").sentences == 0
        assert (tmp_path / f"out{suffix}").is_file()


def test_names_that_cannot_be_written(elmo: Elmo, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected one of \.h5, \.hdf5"):
        write_vectors(elmo, LINES, tmp_path / "out.txt")
    with pytest.raises(InputError, match="does not exist; create it first"):
        write_vectors(elmo, LINES, tmp_path / "nowhere" / "out.h5")
    with pytest.raises(InputError, match="one string was given"):
        write_vectors(elmo, "text", tmp_path / "out.h5")
    (tmp_path / "in.h5").write_text("A file of text, whatever its name says.")
    with pytest.raises(InputError, match="is among the files to read"):
        write_vectors(elmo, tmp_path / "in.h5", tmp_path / "in.h5")


def test_sentences_whose_keys_are_alike(elmo: Elmo, tmp_path: Path) -> None:
    """A slash cannot stand in a name of HDF5; the last of two sentences that would have one name has it."""
    path, options = tmp_path / "out.h5", StoreOptions(use_sentence_keys=True)
    report = write_vectors(elmo, [["a/b"], ["x"], ["a\u2215b"], [], ["."], ["\u2024"]], path, options=options)
    assert report.duplicates == 2
    with h5py.File(path) as file:
        assert set(file) == {"x", "a\u2215b", "\u2024"}
        np.testing.assert_allclose(file["a\u2215b"], elmo.encode_tokens([["a\u2215b"]])[0], atol=1e-5)


def test_more_sentences_than_one_string_of_hdf5_holds(
    elmo: Elmo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.h5"
    with monkeypatch.context() as patch:
        patch.setattr(SentenceLines, "json_size", lambda self: 1 << 32)
        with pytest.raises(InputError, match="give the same command with --forget-sentences"):
            write_vectors(elmo, LINES, path)
    assert write_vectors(elmo, LINES, path, options=StoreOptions(forget_sentences=True)).resumed_at == len(LINES)
    with h5py.File(path) as file:
        assert set(file) == set(map(str, range(len(LINES))))
