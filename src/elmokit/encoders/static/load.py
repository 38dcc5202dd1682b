"""Files of static vectors: word2vec text and binary, GloVe, fastText. The contents decide, not the name.

word2vec text, fastText   a line `words width`, then per line a word and its numbers
word2vec binary           the same first line, then word, space, float32 numbers
GloVe                     no first line; words may hold spaces, so the numbers are counted from the end of the line

Compressed files (gz, xz, zst, bz2) are read as they are. Pickles are never read.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from elmokit.encoders.static._fasttext import FastTextTable
from elmokit.encoders.static.table import BLOCK_ROWS, Block, WordTable, is_table, read_table, write_table
from elmokit.errors import FormatError, InputError
from elmokit.formats.cache import open_cache
from elmokit.formats.streams import ByteStream, decode, open_bytes, without_bom

SAMPLE_BYTES = 1 << 18
CHUNK_BYTES = 1 << 22
LARGEST_NUMBER = 1e15  # a flipped bit of an exponent makes 1e9 to 1e38
LONGEST_WORD = 1 << 16  # bytes; beyond it, a binary file is not one
FASTTEXT_MAGIC = (793_712_314).to_bytes(4, "little")
TEXT_NUMBER = re.compile(rb"[-+0-9.eEnaif \t\r\n]+")
EXPECTED = "word2vec text or binary, GloVe or fastText .vec"


def load_table(path: str | Path, *, cache: str | Path | None = None) -> WordTable | FastTextTable:
    """A file of static vectors; see `elmokit.encoders.static.load` for the formats.

    Text and binary files are read once, into the folder `cache` (default `$ELMOKIT_CACHE` or `~/.cache/elmokit`), and
    mapped from there; a changed file is read again.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected a file of static vectors")
    if is_table(path):
        return read_table(path)
    if is_fasttext(path):
        return FastTextTable(path)
    with open_cache("static", None if cache is None else Path(cache) / "static") as folder:
        converted = _converted(path, folder)
        if not converted.is_file():
            layout = read_layout(path)
            write_table(converted, read_blocks(path, layout), width=layout.width)
            for old in folder.glob(f"{converted.name.split('.')[0]}.*.safetensors"):
                if old != converted:  # of what the file was before
                    old.unlink(missing_ok=True)
    return read_table(converted, source=str(path))


def _converted(path: Path, cache: Path) -> Path:
    """Where the converted file belongs: one per file, by what tells that it was changed."""
    state = path.stat()
    name = hashlib.blake2b(str(path.resolve()).encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()
    stamp = hashlib.blake2b(f"{state.st_size} {state.st_mtime_ns}".encode(), digest_size=8).hexdigest()
    return cache / f"{name}.{stamp}.safetensors"


def table_of(vectors: Any) -> WordTable:
    """gensim's KeyedVectors, or a model that has them, in memory; used where they are, not copied."""
    keyed = getattr(vectors, "wv", vectors)
    if not hasattr(keyed, "index_to_key") or not hasattr(keyed, "vectors"):
        raise InputError(
            f"{type(vectors).__name__}: expected gensim's KeyedVectors (4.0 or later) or a model with them"
        )
    words = [str(key) for key in keyed.index_to_key]
    return WordTable(words, np.asarray(keyed.vectors, dtype=np.float32), f"gensim's {type(keyed).__name__}")


@dataclass(frozen=True, slots=True)
class Layout:
    """How a file is written."""

    kind: Literal["text", "binary"]
    width: int
    count: int | None  # None: GloVe, which does not say


def is_fasttext(path: Path) -> bool:
    """Whether this is a fastText .bin, which only its own library reads."""
    with path.open("rb") as file:
        return file.read(4) == FASTTEXT_MAGIC


def read_layout(path: Path) -> Layout:
    """What the first rows show."""
    with open_bytes(path) as stream:
        sample = without_bom(stream.read(SAMPLE_BYTES), str(path))
    if sample[:1] == b"\x80":
        raise FormatError(
            f"{path}: a pickle (of gensim?), which could run anything and is not read; where gensim is installed, "
            f"export it: KeyedVectors.load({path.name!r}).save_word2vec_format('{path.stem}.bin', binary=True); for a "
            "whole model, Word2Vec.load(...).wv.save_word2vec_format(...)"
        )
    if sample[:4] in (b"PK\x03\x04", b"\x93NUM"):
        raise FormatError(f"{path}: a {'zip archive' if sample[:1] == b'P' else 'NumPy file'}, expected {EXPECTED}")
    first, newline, rest = sample.partition(b"\n")
    header = re.fullmatch(rb"\s*(\d+)\s+(\d+)\s*", first)
    if header and newline:
        count, width = int(header[1]), int(header[2])
        if not count or not width:
            raise FormatError(f"{path}, line 1: says {count} words of {width} numbers, expected more than none")
        row = rest.partition(b"\n")[0]
        is_text = row.count(b" ") >= width and TEXT_NUMBER.fullmatch(row.partition(b" ")[2][:24])
        return Layout("text" if is_text else "binary", width, count)
    lines = sample.split(b"\n")[: 100 if len(sample) < SAMPLE_BYTES else -1]  # whole ones
    spaces = Counter(line.rstrip().count(b" ") for line in lines[:100] if line.strip())
    width = spaces.most_common(1)[0][0] if spaces else 0  # words with spaces are rare
    if not width or not TEXT_NUMBER.fullmatch(first.rstrip().rpartition(b" ")[2]):
        raise FormatError(f"{path}, line 1: not a word followed by numbers; expected {EXPECTED}")
    return Layout("text", width, None)


def read_blocks(path: Path, layout: Layout) -> Iterator[Block]:
    """All words and vectors of a file, some at a time."""
    found = 0
    with open_bytes(path) as stream:
        for words, rows in _text(stream, path, layout) if layout.kind == "text" else _binary(stream, path, layout):
            sane = (np.abs(rows) <= LARGEST_NUMBER).all(axis=1)  # (n,)
            if not sane.all():
                bad = words[int(np.flatnonzero(~sane)[0])]
                raise FormatError(
                    f"{path}: the vector of {bad!r} has numbers that are NaN, infinite or beyond {LARGEST_NUMBER:g}; "
                    "the file is damaged"
                )
            found += len(words)
            yield words, rows
    if layout.count is not None and found != layout.count:
        raise FormatError(
            f"{path}: {found:,} words, but its first line says {layout.count:,}; it was cut short or put together"
        )


def _text(stream: ByteStream, path: Path, layout: Layout) -> Iterator[Block]:
    words: list[str] = []
    rows: list[list[float]] = []
    for number, line in enumerate(stream, 1):
        if number == 1:
            line = without_bom(line, str(path))
            if layout.count is not None:
                continue
        if not line.strip():
            continue
        word, *numbers = line.rstrip().rsplit(b" ", layout.width)
        if len(numbers) != layout.width:
            raise FormatError(f"{path}, line {number}: {len(numbers)} numbers, expected {layout.width} as elsewhere")
        try:
            rows.append([float(x) for x in numbers])
        except ValueError:
            bad = next(x for x in numbers if not _is_number(x))
            raise FormatError(f"{path}, line {number}: {decode(bad)[0]!r} is not a number") from None
        words.append(decode(word)[0])
        if len(words) == BLOCK_ROWS:
            yield words, np.array(rows, dtype=np.float32)
            words, rows = [], []
    if words:
        yield words, np.array(rows, dtype=np.float32)


def _is_number(text: bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _binary(stream: ByteStream, path: Path, layout: Layout) -> Iterator[Block]:
    assert layout.count is not None
    without_bom(stream.readline(), str(path))
    size = 4 * layout.width
    words: list[str] = []
    rows: list[bytes] = []
    held, at = b"", 0
    for done in range(layout.count):
        space = held.find(b" ", at)
        while space < 0 or len(held) < space + 1 + size:
            more = stream.read(CHUNK_BYTES)
            if not more:
                raise FormatError(f"{path}: ends after {done:,} of {layout.count:,} words; it was cut short")
            held, at = held[at:] + more, 0
            space = held.find(b" ")
            if space < 0 and len(held) > LONGEST_WORD:
                raise FormatError(f"{path}: no word found after {done:,} words; expected {EXPECTED}")
        words.append(decode(held[at:space].removeprefix(b"\n"))[0])
        at = space + 1 + size
        rows.append(held[space + 1 : at])
        if len(words) == BLOCK_ROWS:
            yield words, _numbers(rows, layout)
            words, rows = [], []
    if words:
        yield words, _numbers(rows, layout)
    if held[at:].strip() or stream.read(1).strip():
        raise FormatError(f"{path}: goes on after the {layout.count:,} words that its first line says")


def _numbers(rows: list[bytes], layout: Layout) -> "np.ndarray[tuple[int, int], np.dtype[np.float32]]":
    return np.frombuffer(b"".join(rows), dtype="<f4").reshape(len(rows), layout.width)
