import bz2
import gzip
import io
import lzma
import sys
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from elmokit.errors import ElmokitWarning, FormatError, InputError, MissingExtraError
from elmokit.formats.streams import ReadReport, decode, mend, open_bytes, read_lines

TEXT = "one\ntwo words\n\nünïcode 日本語\n"
PACK = {
    ".txt": lambda data: data,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".lzma": lambda data: lzma.compress(data, format=lzma.FORMAT_ALONE),
    ".bz2": bz2.compress,
    ".zst": lambda data: zstandard.ZstdCompressor().compress(data),
}
COMPRESSED = [suffix for suffix in PACK if suffix != ".txt"]


def written(tmp_path: Path, name: str, data: bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("suffix", PACK)
def test_reads_every_compression(tmp_path: Path, suffix: str) -> None:
    path = written(tmp_path, f"a{suffix}", PACK[suffix](TEXT.encode()))
    report = ReadReport()
    assert list(read_lines(path, report=report)) == TEXT.split("\n")[:-1]
    assert report == ReadReport(files=1, lines=4, blank_lines=1)


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2", ".zst"])
def test_signature_wins_over_name_and_parts_are_joined(tmp_path: Path, suffix: str) -> None:
    path = written(tmp_path, "a.txt", PACK[suffix](b"one\nt") + PACK[suffix](b"wo\n"))
    assert list(read_lines(path)) == ["one", "two"]


@pytest.mark.parametrize("suffix", COMPRESSED)
@pytest.mark.parametrize("keep", [0.5, 0.98])
def test_truncated_file_is_named(tmp_path: Path, suffix: str, keep: float) -> None:
    noise = bytes(range(33, 127)) * 50
    data = PACK[suffix](b"".join(noise[k:] for k in range(0, 4000, 17)))
    path = written(tmp_path, f"cut{suffix}", data[: int(len(data) * keep)])
    with pytest.raises(FormatError, match=rf"cut{suffix}.*damaged or cut short.*again"):
        list(read_lines(path))


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_damaged_file_is_named(tmp_path: Path, suffix: str) -> None:
    data = bytearray(PACK[suffix](bytes(range(32, 256)) * 40 + b"\n"))
    data[len(data) // 2 :] = bytes(reversed(data[len(data) // 2 :]))
    with pytest.raises(FormatError, match=rf"bad{suffix}.*damaged"):
        list(read_lines(written(tmp_path, f"bad{suffix}", bytes(data))))


@pytest.mark.parametrize("content", [b"", b"plain text\n"])
@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2", ".zst"])
def test_name_that_lies_is_refused(tmp_path: Path, suffix: str, content: bytes) -> None:
    with pytest.raises(FormatError, match=r"named as .* but does not begin like it"):
        list(read_lines(written(tmp_path, f"a{suffix}", content)))


def test_missing_and_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.txt: no such file"):
        list(read_lines(tmp_path / "nowhere.txt"))
    with pytest.raises(InputError, match="is a folder"):
        list(read_lines(tmp_path))


def test_only_newlines_end_lines(tmp_path: Path) -> None:
    odd = "a\u2028b\u0085c\x0cd\x1ce\rf"
    path = written(tmp_path, "a.txt", f"\ufeff{odd}\r\n{odd}\n\ufeffx\r".encode())
    assert list(read_lines(path)) == [odd, odd, "\ufeffx\r"]


def test_bad_bytes_are_replaced_and_counted(tmp_path: Path) -> None:
    path = written(tmp_path, "a.txt", b"ok\n\xff\xfe caf\xe9\n\xe2\x82\nfin\n")
    report = ReadReport()
    assert list(read_lines(path, report=report)) == ["ok", "\ufffd\ufffd caf\ufffd", "\ufffd", "fin"]
    assert (report.lines, report.bad_bytes) == (4, 5)
    with pytest.warns(ElmokitWarning, match="bytes that are not UTF-8: 5"):  # where nobody counts them
        assert len(list(read_lines(path))) == 4


def test_utf16_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"UTF-16.*iconv"):
        list(read_lines(written(tmp_path, "a.txt", "text".encode("utf-16"))))


def test_long_line(tmp_path: Path) -> None:
    line = b"word " * 1_000_000
    assert [len(text) for text in read_lines(written(tmp_path, "a.txt.gz", gzip.compress(line, 1)))] == [len(line)]


class Pipe(io.RawIOBase):
    """Standard input that cannot be rewound and gives a few bytes at a time."""

    def __init__(self, data: bytes) -> None:
        self.data = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        taken = self.data.read(min(3, len(buffer)))
        buffer[: len(taken)] = taken
        return len(taken)


@pytest.mark.parametrize("suffix", [".txt", ".gz", ".xz", ".bz2", ".zst"])
def test_standard_input(monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    data = PACK[suffix](TEXT.encode())
    for stream in (io.BytesIO(data), io.BufferedReader(Pipe(data))):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stream))
        assert list(read_lines("-")) == TEXT.split("\n")[:-1]
        assert not stream.closed


def test_standard_input_is_read_from_where_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.BytesIO(b"header\nrest\n")
    stream.readline()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stream))
    assert list(read_lines("-")) == ["rest"]


def test_missing_zstandard_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(MissingExtraError, match=r"elmokit\[zst\]"):
        list(read_lines(written(tmp_path, "a.zst", PACK[".zst"](b"x"))))


@pytest.mark.parametrize("suffix", PACK)
def test_consumed_counts_the_bytes_of_the_file(tmp_path: Path, suffix: str) -> None:
    path = written(tmp_path, f"a{suffix}", PACK[suffix](b"line\n" * 1000))
    with open_bytes(path) as stream:
        assert len(stream.read()) == 5000
        assert stream.consumed == path.stat().st_size


def test_callers_own_errors_pass_through(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="mine"), open_bytes(written(tmp_path, "a.txt", b"x")):
        raise OSError("mine")


@given(st.binary(max_size=40))
def test_decode_is_pythons_replacement(data: bytes) -> None:
    text, bad = decode(data)
    assert text == data.decode("utf-8", "replace")
    assert len(data.decode("utf-8", "ignore").encode()) == len(data) - bad


@given(st.text(st.characters()))
def test_mended_text_is_encodable(text: str) -> None:
    mended, bad = mend(text)
    assert len(mended.encode().decode()) == len(text)
    assert bad == sum("\ud800" <= c <= "\udfff" for c in text)
