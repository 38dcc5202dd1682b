"""Models as repositories ship them: .zip, .tar, .tar.gz. Unpacked with care into a folder that is gone afterwards.

An archive comes from elsewhere, so nothing it says is trusted: no member may leave the folder, be a link or a device,
or declare more data than the archive can plausibly hold.
"""

import bz2
import gzip
import lzma
import re
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import IO, cast

from elmokit.errors import WeightsError
from elmokit.weights._folder import ReadOptions, read_folder
from elmokit.weights.pretrained import Pretrained

MOST_MEMBERS = 1000
ALWAYS_FINE = 64 << 20  # bytes; below it no ratio is looked at
MOST_PACKED = 200  # times; weights are close to noise and shrink by a few percent, text by ten times
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2")
WANTED = (".json", ".hdf5", ".h5", ".txt", ".txt.gz", ".safetensors", ".pkl", ".dic")
CHUNK = 1 << 20


def is_archive(path: Path) -> bool:
    """By its name where that says so, else by its contents."""
    if path.name.endswith(ARCHIVES) or path.name.endswith(WANTED):
        return path.name.endswith(ARCHIVES)
    return zipfile.is_zipfile(path) or tarfile.is_tarfile(path)


def read_archive(path: Path, ask: ReadOptions) -> Pretrained:
    """Reads the model inside; all of it is in memory before the unpacked files go."""
    with tempfile.TemporaryDirectory(prefix="elmokit-") as name:
        folder = Path(name)
        unpack(path, folder)
        model = read_folder(folder, ask, source=str(path))
        if any(folder.rglob("*.safetensors")):  # its tensors are mapped from the file, its words are not read yet
            softmax = None if model.softmax is None else model.softmax.clone()
            words = None if model.vocabulary is None else tuple(model.vocabulary)
            tensors = {name: t.clone() for name, t in model.tensors.items()}
            return replace(model, tensors=tensors, vocabulary=words, softmax=softmax)
        return model


def unpack(path: Path, folder: Path) -> None:
    """Writes the files that a model needs into an empty folder."""
    try:
        if zipfile.is_zipfile(path):
            _unpack_zip(path, folder)
        else:
            _unpack_tar(path, folder)
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise WeightsError(f"{path}: damaged or incomplete archive ({error}); fetch or copy it again") from None
    except (NotImplementedError, RuntimeError) as error:  # encrypted, or packed in a way that zipfile does not know
        raise WeightsError(f"{path}: cannot be unpacked ({error}); unpack it yourself and give the folder") from None
    except OSError as error:
        raise WeightsError(f"{path}: cannot be unpacked into {folder.parent} ({error.strerror or error})") from None


class _Guard:
    """Says where a member goes, or why it may not."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.path, self.folder = path, folder
        self.limit = max(ALWAYS_FINE, path.stat().st_size * MOST_PACKED)
        self.total = self.members = 0

    def admit(self, name: str, size: int) -> Path | None:
        """Where to write the member; None where it is nothing a model needs. Counts it in either case."""
        self.members += 1
        self.total += size
        if self.members > MOST_MEMBERS:
            raise WeightsError(f"{self.path}: over {MOST_MEMBERS} members, expected a model of a few files")
        if size < 0 or self.total > self.limit:
            raise WeightsError(
                f"{self.path}: member {name!r} brings the unpacked size to {self.total:,} bytes, expected at most "
                f"{self.limit:,} for a model in an archive of this size; if you trust it, unpack it and give the folder"
            )
        place = PurePosixPath(name.replace("\\", "/"))
        if place.is_absolute() or ".." in place.parts or re.match("[A-Za-z]:", name):
            raise WeightsError(
                f"{self.path}: member {name!r} would be written outside the folder; do not use this archive"
            )
        if (
            not name.endswith(WANTED)
            or any(part.startswith((".", "__")) for part in place.parts)
            or len(place.parts) > 3
        ):
            return None
        target = self.folder.joinpath(*place.parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            raise WeightsError(f"{self.path}: member {name!r} is there twice; expected each file once")
        return target

    def refuse(self, name: str, what: str) -> WeightsError:
        return WeightsError(f"{self.path}: member {name!r} is {what}, expected plain files and folders")


def _unpack_zip(path: Path, folder: Path) -> None:
    guard = _Guard(path, folder)
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise guard.refuse(member.filename, "a link" if kind == stat.S_IFLNK else "a device")
            target = guard.admit(member.filename, member.file_size)
            if target is not None and not member.is_dir():
                with archive.open(member) as stream:
                    _copy(stream, target, member.file_size)


def _unpack_tar(path: Path, folder: Path) -> None:
    guard = _Guard(path, folder)
    # A stream: each header is judged before the data behind it is passed.
    with _unpacked(path) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            if not member.isreg() and not member.isdir():
                raise guard.refuse(member.name, "a link" if member.islnk() or member.issym() else "a device")
            target = guard.admit(member.name, member.size)
            contents = archive.extractfile(member) if target is not None and member.isreg() else None
            if contents is not None and target is not None:
                _copy(contents, target, member.size)
        while stream.read(CHUNK):  # to the end, where the checksum stands
            guard.total += CHUNK
            if guard.total > guard.limit:
                raise tarfile.ReadError("more data behind the last member")


def _unpacked(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        start = file.read(6)
    if start.startswith(b"\x1f\x8b"):
        return cast(IO[bytes], gzip.open(path))
    if start.startswith(b"BZh"):
        return bz2.open(path)
    return lzma.open(path) if start.startswith(b"\xfd7zXZ") else path.open("rb")


def _copy(stream: IO[bytes], target: Path, size: int) -> None:
    with target.open("wb") as out:
        shutil.copyfileobj(stream, out, CHUNK)
    if target.stat().st_size != size:
        raise EOFError(f"{target.name} ends after {target.stat().st_size:,} of {size:,} bytes")
