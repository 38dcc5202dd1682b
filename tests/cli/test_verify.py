"""`elmokit verify`: what is whole is said to be, and a flipped bit anywhere is one line and status 2."""

import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import models
from elmokit.encoders import Elmo
from elmokit.encoders.static.table import WordTable
from elmokit.errors import FormatError
from elmokit.store import verify_vectors, write_vectors
from elmokit.tasks.layers import CachedLayers
from elmokit.text import Sentence
from elmokit.weights import save_pretrained

NO_CHECKSUM = "vectors without a checksum: of elmokit 0.1.0 or another tool; nothing to compare with"
OLD = Path(__file__).parents[1] / "data" / "v0.1.0"


def flip(path: Path, share: float) -> None:
    data = bytearray(path.read_bytes())
    data[int(len(data) * share)] ^= 4
    path.write_bytes(data)


def test_models_of_the_package_by_name(cli: Callable[..., Any]) -> None:
    assert cli("verify", "en", "ner").out == "en: as it was written (model)\nner: as it was written (task model)\n"


@pytest.mark.parametrize("share", [0.3, 0.6, 0.99])
def test_models_and_static_vectors(cli: Callable[..., Any], tmp_path: Path, share: float) -> None:
    folder = save_pretrained(models.tiny().pretrained, tmp_path / "model", dtype="int8")
    table = WordTable(["a", "b"], np.eye(2, 500, dtype=np.float32)).save(tmp_path / "table.safetensors")
    official = save_pretrained(models.tiny().pretrained, tmp_path / "official", format="official")
    said = cli("verify", folder, table, official).out
    assert said.splitlines() == [
        f"{folder}: as it was written (model)",
        f"{table}: as it was written (static vectors)",
        f"{official}: whole; a model of the official format, which has no checksums",
    ]
    flip(folder / "model.safetensors", share)
    flip(table, share)
    for path in (folder, table):
        failed = cli("verify", path)
        assert failed.code == 2
        assert re.search("not as|not a whole", failed.err)
        assert failed.err.count("\n") == 1
    assert "no such file" in cli("verify", tmp_path / "nowhere").err


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("models/int8", "as it was written (model)"),
        ("static/table.safetensors", "whole, but 0.1.0 wrote no checksums for all of it (static vectors)"),
        ("onnx/float32", "whole, but 0.1.0 wrote no checksums for all of it (exported model)"),
        ("index/exact", "whole, but 0.1.0 wrote no checksums for all of it (index)"),
        ("tasks/tag", "as it was written (task model)"),
        ("unfinished/prepared", "as it was written (prepared corpus)"),
        ("unfinished/pretraining", "as it was written (run: model, checkpoints/step-000000020.pt)"),
        ("unfinished/new-softmax", "as it was written (run: softmax)"),
        ("unfinished/training", "as it was written (run: checkpoint.pt)"),
        ("unfinished/training/checkpoint.pt", "as it was written (checkpoint)"),
        ("unfinished/ablation", "as it was written (run: running/top-100pct-seed1)"),
        (
            "unfinished/vectors.npz.partial",
            "as it was written up to sentence 78; 710 bytes after it were cut off by a kill, or are damaged: the same "
            "command makes them again (an unfinished run)",
        ),
        ("models/archive.zip", "as it was written (model)"),
        (
            "layers/20bb18bbe42083371e8635da077844ba.npy",
            "whole, but 0.1.0 wrote no checksums for all of it (layers of sentences)",
        ),
        *((f"vectors/out.{kind}", NO_CHECKSUM) for kind in ("h5", "npz", "parquet", "safetensors")),
    ],
)
def test_what_0_1_0_wrote(cli: Callable[..., Any], tmp_path: Path, path: str, kind: str) -> None:
    shutil.copytree(OLD, tmp_path / "old")
    assert cli("verify", tmp_path / "old" / path).out == f"{tmp_path / 'old' / path}: {kind}\n"


@pytest.mark.parametrize("kind", ["h5", "npz", "parquet", "safetensors"])
def test_every_byte_of_a_file_of_vectors_counts(cli: Callable[..., Any], tmp_path: Path, kind: str) -> None:
    pytest.importorskip("pyarrow" if kind == "parquet" else "numpy")
    path = tmp_path / f"out.{kind}"
    write_vectors(Elmo(models.tiny().pretrained, device="cpu"), [["an", "owl"], ["it"], []], path)
    assert cli("verify", path).out == f"{path}: as it was written (vectors)\n"
    whole = path.read_bytes()
    for at in range(0, len(whole), 5):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        with pytest.raises(FormatError, match=re.escape(str(path))):
            verify_vectors(path)
    checksum = whole.index(b"crc32-")
    for at in range(checksum - 30, checksum + 14):  # where the checksum itself stands
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 128]) + whole[at + 1 :])
        with pytest.raises(FormatError, match=re.escape(str(path))):
            verify_vectors(path)
    failed = cli("verify", path)
    assert failed.code == 2
    assert failed.err.count("\n") == 1
    path.write_bytes(whole[:-3])
    assert cli("verify", path).code == 2


@pytest.mark.parametrize("made", ["now", "by 0.1.0"])
@pytest.mark.parametrize("kind", ["h5", "npz", "parquet", "safetensors"])
def test_a_file_of_vectors_that_was_cut_off(cli: Callable[..., Any], tmp_path: Path, kind: str, made: str) -> None:
    pytest.importorskip("pyarrow" if kind == "parquet" else "numpy")
    path = tmp_path / f"out.{kind}"
    if made == "now":
        write_vectors(Elmo(models.tiny().pretrained, device="cpu"), [["an", "owl"], ["it"], []], path)
    else:
        shutil.copy(OLD / "vectors" / path.name, path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    for command in ("verify", "info"):
        failed = cli(command, path)
        assert (failed.code, failed.out, failed.err.count("\n")) == (2, "", 1)
        assert re.search("damaged or incomplete|not as it was written", failed.err)


def test_damage_is_noticed_before_a_finished_file_is_kept(tmp_path: Path) -> None:
    elmo, path = Elmo(models.tiny().pretrained, device="cpu"), tmp_path / "out.npz"
    write_vectors(elmo, [["an", "owl"]], path, name="text")
    whole = path.read_bytes()
    assert write_vectors(elmo, [["an", "owl"]], path, name="text").known
    path.write_bytes(whole[:90] + bytes([whole[90] ^ 1]) + whole[91:])
    assert not write_vectors(elmo, [["an", "owl"]], path, name="text").known
    assert path.read_bytes() == whole


def test_info_compares_before_hdf5_opens_the_file(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.h5"
    write_vectors(Elmo(models.tiny().pretrained, device="cpu"), [["an", "owl"]], path)
    assert "tokens        2" in cli("info", path).out
    flip(path, 0.5)
    monkeypatch.setattr("h5py.File", lambda *_, **__: pytest.fail("HDF5 opened a damaged file"))
    failed = cli("info", path)
    assert (failed.code, failed.err.count("\n")) == (2, 1)
    assert "its checksum does not fit" in failed.err


def test_a_text_that_holds_the_place_of_the_checksum(cli: Callable[..., Any], tmp_path: Path) -> None:
    elmo, path = Elmo(models.tiny().pretrained, device="cpu"), tmp_path / "out.h5"
    for text in ("crc32-________", "crc32-12345678", "checksum crc32-12345678"):
        write_vectors(elmo, [[text]], path)
        assert cli("verify", path).out == f"{path}: as it was written (vectors)\n"
    write_vectors(elmo, [['"checksum": "crc32-________"']], path)
    assert cli("verify", path).out == f"{path}: {NO_CHECKSUM}\n"


@pytest.mark.parametrize(
    "part",
    [
        "pretraining/checkpoints/step-000000020.pt",
        "pretraining/model/model.safetensors",
        "training/checkpoint.pt",
        "ablation/running/top-100pct-seed1/checkpoint.pt",
        "new-softmax/softmax/checkpoints/step-000000020.pt",
    ],
)
def test_damage_inside_a_run(cli: Callable[..., Any], tmp_path: Path, part: str) -> None:
    shutil.copytree(OLD / "unfinished", tmp_path / "run")
    path = tmp_path / "run" / part
    if path.suffix == ".pt":  # not in the room between two tensors, which nobody reads
        with zipfile.ZipFile(path) as archive:
            largest = max((archive.read(name) for name in archive.namelist()), key=len)
        whole = path.read_bytes()
        flip(path, (whole.index(largest) + len(largest) // 2 + 0.5) / len(whole))
    else:
        flip(path, 0.9)
    failed = cli("verify", tmp_path / "run" / part.split("/")[0])
    assert failed.code == 2
    assert str(tmp_path / "run" / part) in failed.err
    assert failed.err.count("\n") == 1


def test_layers_of_sentences(cli: Callable[..., Any], tmp_path: Path) -> None:
    CachedLayers.of(Elmo(models.tiny().pretrained, device="cpu"), [Sentence(("an", "owl"))], folder=tmp_path)
    (path,) = tmp_path.glob("*.npy")
    assert cli("verify", path).out == f"{path}: as it was written (layers of sentences)\n"
    for share in (0.5, 0.99):
        whole = path.read_bytes()
        flip(path, share)
        assert "damaged" in cli("verify", path).err
        path.write_bytes(whole)


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("notes.txt", "Überall Text.\n".encode() * 400, "a text file"),
        ("empty", b"", "an empty file"),
        ("picture.png", b"\x89PNG\r\n\x1a\n\0\0", "a picture"),
        ("state.pt", b"\x80\x02}q\0.", "a file of an unknown kind"),
        ("numbers.bin", bytes(range(256)), "a file of an unknown kind"),
        ("other.npz", b"text", "a text file"),
    ],
)
def test_a_foreign_file(cli: Callable[..., Any], tmp_path: Path, name: str, content: bytes, what: str) -> None:
    (tmp_path / name).write_bytes(content)
    failed = cli("verify", tmp_path / name)
    assert failed.code == 2
    assert failed.err.startswith(f"elmokit: {tmp_path / name}: {what}, which elmokit did not write; verify takes")
    assert failed.err.count("\n") == 1


def test_a_foreign_folder(cli: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("text")
    failed = cli("verify", tmp_path)
    assert failed.code == 2
    assert "a folder with nothing in it that verify knows" in failed.err
