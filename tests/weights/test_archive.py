"""Archives as repositories ship them, and those that no one should unpack."""

import gzip
import io
import shutil
import stat
import tarfile
import tempfile
import zipfile
from pathlib import Path

import pytest
import torch
from model_files import OPTIONS, WORDS, random_weights, write_model

from elmokit.errors import WeightsError
from elmokit.weights import Pretrained, load_pretrained, save_pretrained
from elmokit.weights import _archive as archive

MANYLANGS = Path(__file__).parents[1] / "data" / "manylangs" / "both"


def pack(path: Path, members: dict[str, bytes]) -> Path:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            for name, data in members.items():
                file.writestr(name, data)
        return path
    packing = {".gz": "w:gz", ".tgz": "w:gz", ".xz": "w:xz"}.get(path.suffix, "w")
    with tarfile.open(path, packing) as file:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            file.addfile(member, io.BytesIO(data))
    return path


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def assert_same(found: Pretrained, expected: Pretrained) -> None:
    assert (found.config, found.codec, found.vocabulary) == (expected.config, expected.codec, expected.vocabulary)
    assert found.tensors.keys() == expected.tensors.keys()
    assert all(torch.equal(found.tensors[name], values) for name, values in expected.tensors.items())


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch) -> Path:
    """Where archives are unpacked; must be empty after each test."""
    folder = tmp_path / "unpacked"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


@pytest.fixture
def model(tmp_path) -> Path:
    return write_model(tmp_path / "model", OPTIONS, random_weights(), WORDS)


@pytest.mark.parametrize("ending", ["zip", "tar", "tar.gz", "tgz", "tar.xz"])
@pytest.mark.parametrize("prefix", ["", "./", "elmo-xx/"])
def test_official_archives(model, tmp_path, ending, prefix):
    members = {f"{prefix}{name}": data for name, data in files_of(model).items()}
    path = pack(tmp_path / f"12.{ending}", members | {f"{prefix}README": b"hello", "__MACOSX/._options.json": b"\0"})
    found = load_pretrained(path)
    assert_same(found, load_pretrained(model))
    assert found.source == str(path)


def test_names_as_repositories_have_them(model, tmp_path):
    files = files_of(model)
    members = {
        "meta.json": b'{"language": "xx"}',
        "options.json": files["options.json"],
        "any_name_at_all.hdf5": files["lm_weights.hdf5"],
        "vocab.txt.gz": gzip.compress(files["vocab.txt"]),
    }
    assert_same(load_pretrained(pack(tmp_path / "a.zip", members)), load_pretrained(model))
    del members["vocab.txt.gz"]
    assert load_pretrained(pack(tmp_path / "b.zip", members)).vocabulary is None
    renamed = tmp_path / "download"  # without an ending, the contents show
    shutil.move(tmp_path / "a.zip", renamed)
    assert_same(load_pretrained(renamed), load_pretrained(model))


@pytest.mark.parametrize("ending", ["zip", "tar.gz"])
def test_manylangs_archives(tmp_path, ending):
    assert_same(load_pretrained(pack(tmp_path / f"144.{ending}", files_of(MANYLANGS))), load_pretrained(MANYLANGS))


def test_own_archives_outlive_their_files(model, tmp_path):
    saved = save_pretrained(load_pretrained(model), tmp_path / "own")
    found = load_pretrained(pack(tmp_path / "own.zip", files_of(saved)))
    assert_same(found, load_pretrained(model))


@pytest.mark.parametrize("ending", ["zip", "tar", "tar.gz"])
@pytest.mark.parametrize("name", ["../evil.txt", "a/../../evil.txt", "/tmp/evil.txt", "..\\evil.txt", "C:\\evil.txt"])
def test_paths_that_climb_out(model, tmp_path, ending, name):
    path = pack(tmp_path / f"evil.{ending}", files_of(model) | {name: b"gotcha"})
    with pytest.raises(WeightsError, match="outside the folder") as caught:
        load_pretrained(path)
    assert str(caught.value).startswith(str(path))
    assert not list(tmp_path.glob("**/evil.txt"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_tar(tmp_path, kind):
    path = tmp_path / "evil.tar"
    with tarfile.open(path, "w") as file:
        member = tarfile.TarInfo("options.json")
        member.type, member.linkname = kind, "/etc/passwd"
        file.addfile(member)
    with pytest.raises(WeightsError, match=r"evil\.tar: member 'options\.json' is a (link|device)"):
        load_pretrained(path)


def test_links_in_zip(tmp_path):
    path = tmp_path / "evil.zip"
    member = zipfile.ZipInfo("options.json")
    member.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(member, "/etc/passwd")
    with pytest.raises(WeightsError, match=r"evil\.zip: member 'options\.json' is a link"):
        load_pretrained(path)


@pytest.mark.parametrize("ending", ["zip", "tar.gz"])
def test_bombs(model, tmp_path, ending, monkeypatch):
    monkeypatch.setattr(archive, "ALWAYS_FINE", 1 << 20)
    path = pack(tmp_path / f"bomb.{ending}", {"a.hdf5": bytes(80 << 20)})
    assert path.stat().st_size < 200_000
    with pytest.raises(WeightsError, match=r"member 'a\.hdf5' brings the unpacked size to 83,886,080 bytes"):
        load_pretrained(path)


def test_an_archive_may_be_as_large_as_the_limit_says(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(b"small")
    guard = archive._Guard(tmp_path / "a.zip", tmp_path)
    assert guard.admit("a.hdf5", guard.limit) == tmp_path / "a.hdf5"
    with pytest.raises(WeightsError, match="brings the unpacked size to"):
        guard.admit("b.hdf5", 1)


def test_sizes_declared_in_tar_are_not_believed(tmp_path):
    member = tarfile.TarInfo("lm_weights.hdf5")
    member.size = 5 << 40
    path = tmp_path / "huge.tar"
    path.write_bytes(member.tobuf() + b"a little")
    with pytest.raises(WeightsError, match=r"huge\.tar: .* 5,497,558,138,880 bytes"):
        load_pretrained(path)


def test_too_many_members(tmp_path):
    path = pack(tmp_path / "many.zip", {f"{k}.bin": b"" for k in range(archive.MOST_MEMBERS + 1)})
    with pytest.raises(WeightsError, match="over 1000 members"):
        load_pretrained(path)
    path = pack(tmp_path / "just.zip", {f"{k}.bin": b"" for k in range(archive.MOST_MEMBERS)})
    with pytest.raises(WeightsError, match="no model"):
        load_pretrained(path)


@pytest.mark.parametrize("ending", ["zip", "tar", "tar.gz"])
def test_damaged_archives(model, tmp_path, ending):
    path = pack(tmp_path / f"cut.{ending}", files_of(model))
    data = path.read_bytes()
    for share in (0.0, 0.3, 0.8):
        path.write_bytes(data[: int(len(data) * share)])
        with pytest.raises(WeightsError) as caught:
            load_pretrained(path)
        assert str(path) in str(caught.value)


@pytest.mark.parametrize("ending", ["zip", "tar.gz"])
def test_flipped_bits_are_noticed(model, tmp_path, ending):
    path = pack(tmp_path / f"flipped.{ending}", files_of(model))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x01
    path.write_bytes(data)
    with pytest.raises(WeightsError, match=r"flipped\..*: damaged or incomplete archive"):
        load_pretrained(path)


def test_archives_without_a_model_or_with_two(model, tmp_path):
    with pytest.raises(WeightsError, match=r"none\.zip: no model in this folder, which holds notes\.txt"):
        load_pretrained(pack(tmp_path / "none.zip", {"notes.txt": b"hello"}))
    two = {f"{part}/{name}": data for part in ("a", "b") for name, data in files_of(model).items()}
    with pytest.raises(WeightsError, match=r"two\.zip: several models in this folder, which holds a, b"):
        load_pretrained(pack(tmp_path / "two.zip", two))
