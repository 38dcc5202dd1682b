"""Vectors on disk: every format holds what `Elmo` gives, and a killed run goes on as if nothing had happened."""

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow.parquet
import pytest
from safetensors.numpy import load_file

import models
from elmokit.encoders import Elmo
from elmokit.errors import ElmokitWarning, InputError
from elmokit.formats.resumable import HEADER, Log
from elmokit.store import StoreOptions, StoreReport, read_provenance, write_vectors
from elmokit.store._growing import GrowingFile, check_growing
from elmokit.store._lines import SentenceLines

LINES = ["The cat sat.", "", "and/or", "The cat sat.", ".", "naïve 猫 \ud800", "a" * 60 + " long"]


@pytest.fixture(scope="module")
def elmo() -> Elmo:
    return Elmo(models.tiny().pretrained, device="cpu")


def many(n: int) -> list[list[str]]:
    rng = np.random.default_rng(0)
    return [[f"w{k}" for k in rng.integers(0, 300, rng.integers(0, 9))] for _ in range(n)]


class KilledError(Exception):
    pass


def dying(sentences: list[list[str]], after: int) -> Iterator[list[str]]:
    yield from sentences[:after]
    raise KilledError


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


class TestResume:
    OPTIONS = StoreOptions(batch_tokens=16)  # chunks of 256 positions

    @pytest.mark.parametrize("suffix", [".h5", ".npz", ".safetensors", ".parquet"])
    def test_same_file_byte_for_byte(self, elmo: Elmo, tmp_path: Path, suffix: str) -> None:
        sentences = many(150)
        whole, broken = tmp_path / f"whole{suffix}", tmp_path / f"broken{suffix}"
        write_vectors(elmo, sentences, whole, options=self.OPTIONS)
        for after in (75, 130):
            with pytest.raises(KilledError):
                write_vectors(elmo, dying(sentences, after), broken, options=self.OPTIONS)
            assert not broken.exists()
        report = write_vectors(elmo, sentences, broken, options=self.OPTIONS)
        assert 75 < report.resumed_at < 130
        assert report.sentences == 150
        assert broken.read_bytes() == whole.read_bytes()
        assert sorted(p.name for p in tmp_path.iterdir()) == [broken.name, whole.name]

    @pytest.mark.parametrize("damage", ["cut", "flip", "payload", "append", "huge"])
    def test_a_damaged_tail_is_made_again(self, elmo: Elmo, tmp_path: Path, damage: str) -> None:
        sentences, out = many(150), tmp_path / "out.h5"
        write_vectors(elmo, sentences, tmp_path / "whole.h5", options=self.OPTIONS)
        with pytest.raises(KilledError):
            write_vectors(elmo, dying(sentences, 100), out, options=self.OPTIONS)
        log = tmp_path / "out.h5.partial" / "records.bin"
        data = bytearray(log.read_bytes())
        if damage == "cut":
            del data[-100:]
        elif damage == "flip":
            data[len(data) // 2] ^= 1
        elif damage == "payload":  # a number of the last vector before a commit, which only the checksum shows
            at = last = 0
            while at < len(data):
                kind, length, _ = HEADER.unpack_from(data, at)
                at += HEADER.size + length
                last = at if kind == b"S" and length > 150 else last
            data[last - 1] ^= 1
        elif damage == "append":
            data += b"S\x05\x00"
        else:
            data += b"S" + (1 << 60).to_bytes(8, "little") + b"1234"
        log.write_bytes(data)
        write_vectors(elmo, sentences, out, options=self.OPTIONS)
        assert out.read_bytes() == (tmp_path / "whole.h5").read_bytes()

    @pytest.mark.parametrize("suffix", [".h5", ".parquet"])
    @pytest.mark.parametrize("damage", ["cut", "flip", "append", "gone", "finishing"])
    def test_a_damaged_draft_is_made_again(self, elmo: Elmo, tmp_path: Path, suffix: str, damage: str) -> None:
        """Vectors are in the draft alone: what the log says of it is compared with its bytes."""
        sentences, out, whole = many(150), tmp_path / f"out{suffix}", tmp_path / f"whole{suffix}"
        write_vectors(elmo, sentences, whole, options=self.OPTIONS)
        with pytest.raises(KilledError):
            write_vectors(elmo, dying(sentences, 130), out, options=self.OPTIONS)
        draft = tmp_path / f"out{suffix}.partial" / "draft"
        data = bytearray(draft.read_bytes())
        size = len(data)
        if damage == "cut":
            del data[-5:]
        elif damage == "flip":
            data[(size + 2048) // 2] ^= 1
        elif damage == "append":
            data += b"x" * 1000
        elif damage == "finishing":  # killed when the end of the file was being written
            data = bytearray(b"\x89HDF\r\n\x1a\n") + data[8:] + data[-900:] if suffix == ".h5" else data + data[-900:]
        if damage == "gone":
            draft.unlink()
        else:
            draft.write_bytes(data)
        resumed = {"cut": 79, "flip": 39, "append": 119, "gone": 0, "finishing": 119}[damage]
        said = check_growing(draft.parent) or ""
        assert said.startswith(f"as it was written up to sentence {resumed}")
        assert ("chunks after it are damaged" in said) == (resumed < 119)
        report = write_vectors(elmo, sentences, out, options=self.OPTIONS)
        assert out.read_bytes() == whole.read_bytes()
        assert (report.resumed_at, report.duplicates) == (resumed, len(sentences) - len(set(map(tuple, sentences))))

    def test_a_run_that_lost_its_draft_can_be_resumed_again(self, elmo: Elmo, tmp_path: Path) -> None:
        sentences, out = many(150), tmp_path / "out.h5"
        for _ in range(2):
            (tmp_path / "out.h5.partial" / "draft").unlink(missing_ok=True)
            with pytest.raises(KilledError):
                write_vectors(elmo, dying(sentences, 130), out, options=self.OPTIONS)
        assert write_vectors(elmo, sentences, out, options=self.OPTIONS).resumed_at == 119

    @pytest.mark.parametrize("suffix", [".h5", ".parquet"])
    def test_a_run_that_is_in_a_log_is_finished(
        self, elmo: Elmo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
    ) -> None:
        """As versions before this one began it; also where the present one is killed on the way."""
        sentences, out, whole = many(150), tmp_path / f"out{suffix}", tmp_path / f"whole{suffix}"
        with monkeypatch.context() as patch:
            patch.setattr("elmokit.store.write.can_grow", lambda *_: False)
            write_vectors(elmo, sentences, whole, options=self.OPTIONS)
            with pytest.raises(KilledError):
                write_vectors(elmo, dying(sentences, 75), out, options=self.OPTIONS)
        with pytest.raises(KilledError):
            write_vectors(elmo, dying(sentences, 130), out, options=self.OPTIONS)
        assert write_vectors(elmo, sentences, out, options=self.OPTIONS).resumed_at > 75
        assert out.read_bytes() == whole.read_bytes()

    @pytest.mark.parametrize("suffix", [".h5", ".parquet"])
    def test_killed_after_the_file_was_moved(
        self, elmo: Elmo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
    ) -> None:
        def fail(*_: object, **__: object) -> None:
            raise KilledError

        out = tmp_path / f"out{suffix}"
        with monkeypatch.context() as patch:
            patch.setattr(Log, "discard", fail)
            with pytest.raises(KilledError):
                write_vectors(elmo, many(90), out, options=self.OPTIONS, name="it")
        made = out.read_bytes()
        assert write_vectors(elmo, many(90), out, options=self.OPTIONS, name="it").known
        assert [path.name for path in tmp_path.iterdir()] == [out.name]
        assert out.read_bytes() == made

    def test_another_run_is_refused_and_restart_begins_anew(self, elmo: Elmo, tmp_path: Path) -> None:
        sentences, out = many(150), tmp_path / "out.h5"
        with pytest.raises(KilledError):
            write_vectors(elmo, dying(sentences, 100), out, options=self.OPTIONS)
        others: list[tuple[Elmo, Any, StoreOptions, str]] = [
            (Elmo(models.tiny(seed=1).pretrained, device="cpu"), sentences, self.OPTIONS, "other settings (model:"),
            (elmo, sentences, StoreOptions(batch_tokens=16, layers="top"), "(layers: 'average' then, 'top' now)"),
            (elmo, [["other"], *sentences[1:]], self.OPTIONS, "over other input"),
            (elmo, [[f"x{word}" for word in s] for s in sentences], self.OPTIONS, "over other input"),  # as long
            (elmo, sentences[:20], self.OPTIONS, "over other input"),
        ]
        for model, given, options, said in others:
            with pytest.raises(InputError) as caught:
                write_vectors(model, given, out, options=options)
            assert said in str(caught.value)
            assert "--restart" in str(caught.value)
        report = write_vectors(elmo, sentences[:20], out, options=self.OPTIONS, restart=True)
        assert (report.sentences, report.resumed_at) == (20, 0)

    def test_another_arithmetic_is_not_mixed_in(
        self, elmo: Elmo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sentences, out = many(150), tmp_path / "out.h5"
        monkeypatch.setattr(Elmo, "arithmetic", "int8 in C", raising=False)
        with pytest.raises(KilledError):
            write_vectors(elmo, dying(sentences, 100), out, options=self.OPTIONS)
        monkeypatch.setattr(Elmo, "arithmetic", "int8 by torch")
        with pytest.raises(InputError, match=r"arithmetic: 'int8 in C' then, 'int8 by torch' now"):
            write_vectors(elmo, sentences, out, options=self.OPTIONS)
        monkeypatch.setattr(Elmo, "arithmetic", "int8 in C")
        write_vectors(elmo, sentences, out, options=self.OPTIONS)
        made = read_provenance(out)
        assert made is not None
        assert made.arithmetic == "int8 in C"

    def test_a_run_that_an_earlier_version_began_is_finished_with_a_warning(
        self, elmo: Elmo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sentences, out = many(150), tmp_path / "out.h5"
        with pytest.raises(KilledError):
            write_vectors(elmo, dying(sentences, 100), out, options=self.OPTIONS)
        manifest = tmp_path / "out.h5.partial" / "manifest.json"
        stored = json.loads(manifest.read_text())
        del stored["arithmetic"]  # as 0.1.0 wrote it
        manifest.write_text(json.dumps(stored))
        monkeypatch.setattr(Elmo, "arithmetic", "int8 in C", raising=False)
        with pytest.warns(ElmokitWarning, match="does not say with which arithmetic the 79 sentences"):
            report = write_vectors(elmo, sentences, out, options=self.OPTIONS)
        assert report.resumed_at == 79
        made = read_provenance(out)
        assert made is not None
        assert made.arithmetic == "not recorded, then int8 in C"

    def test_a_run_that_an_earlier_version_only_began_is_made_anew(self, elmo: Elmo, tmp_path: Path) -> None:
        out = tmp_path / "out.h5"
        with pytest.raises(KilledError):
            write_vectors(elmo, dying(many(150), 0), out, options=self.OPTIONS)
        manifest = tmp_path / "out.h5.partial" / "manifest.json"
        stored = json.loads(manifest.read_text())
        del stored["arithmetic"]  # as 0.1.0 wrote it
        manifest.write_text(json.dumps(stored))
        assert write_vectors(elmo, many(150), out, options=self.OPTIONS).resumed_at == 0  # and no warning
        made = read_provenance(out)
        assert made is not None
        assert made.arithmetic == elmo.arithmetic

    def test_another_version_of_the_tokenizer_is_refused(self, elmo: Elmo, tmp_path: Path) -> None:
        out = tmp_path / "out.h5"
        with pytest.raises(KilledError):
            write_vectors(elmo, dying(many(150), 100), out, options=self.OPTIONS)
        manifest = tmp_path / "out.h5.partial" / "manifest.json"
        stored = json.loads(manifest.read_text())
        name, version = stored["tokenizer"].split()
        manifest.write_text(json.dumps({**stored, "tokenizer": f"{name} {int(version) + 1}"}))
        with pytest.raises(InputError, match=rf"tokenizer: '{name} {int(version) + 1}' then, '{name} {version}' now"):
            write_vectors(elmo, many(150), out, options=self.OPTIONS)

    def test_input_that_grew_is_noticed(self, elmo: Elmo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        sentences, out = many(150), tmp_path / "out.h5"

        def fail(*_: object, **__: object) -> None:
            raise KilledError

        with monkeypatch.context() as patch:  # killed while the file was being finished
            patch.setattr(GrowingFile, "finish", fail)
            with pytest.raises(KilledError):
                write_vectors(elmo, sentences[:125], out, options=self.OPTIONS)
        with pytest.raises(InputError, match="over other input"):
            write_vectors(elmo, sentences, out, options=self.OPTIONS)
        assert write_vectors(elmo, sentences[:125], out, options=self.OPTIONS).resumed_at == 125

    def test_one_writer_at_a_time(self, elmo: Elmo, tmp_path: Path) -> None:
        def meddling() -> Iterator[list[str]]:
            yield ["a"]
            with pytest.raises(InputError, match="in use by another run"):
                write_vectors(elmo, many(5), tmp_path / "out.npz", restart=True)
            yield ["b"]

        assert write_vectors(elmo, meddling(), tmp_path / "out.npz").sentences == 2

    def test_an_older_file_stays_until_the_new_one_is_whole(self, elmo: Elmo, tmp_path: Path) -> None:
        out = tmp_path / "out.npz"
        write_vectors(elmo, many(5), out)
        before = out.read_bytes()
        with pytest.raises(KilledError):
            write_vectors(elmo, dying(many(5), 3), out)
        assert out.read_bytes() == before


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
        assert np.array_equal(file["a\u2215b"], elmo.encode_tokens([["a\u2215b"]])[0])


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
