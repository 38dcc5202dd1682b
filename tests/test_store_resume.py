"""Vectors on disk: a killed run goes on as if nothing had happened."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import models
from elmokit.encoders import Elmo
from elmokit.errors import ElmokitWarning, InputError
from elmokit.formats.resumable import HEADER, Log
from elmokit.store import StoreOptions, read_provenance, write_vectors
from elmokit.store._growing import GrowingFile, check_growing


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
