"""Text of any size as numbered parts of consecutive rows, that any process can read: text, JSONL and Parquet.

A row is a line, a JSON object or a row of a table. It is numbered over all files, which is the order of the input.
"""

import hashlib
import io
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from elmokit.config import Count
from elmokit.errors import InputError, MissingExtraError
from elmokit.formats.atomic import write_text

MOST_ROWS, LEAST_ROWS, PARTS = 2000, 50, 64  # of a part; how many there are where rows suffice
FORMATS = {".txt": "text", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet"}
COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")
BLOCK = 1 << 22
BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive rows of one file: `rows` from its row `line` on, which is row `first` over all files.

    `digest` is of the file up to the part's end; of a Parquet file, of what it says of its columns: sizes, bounds.
    """

    number: int
    first: int
    rows: int
    file: str
    line: int
    offset: int  # bytes before its first row; -1: the file is compressed and is read from its beginning
    digest: str = ""

    @property
    def name(self) -> str:
        return f"part-{self.number:06d}"


@dataclass(frozen=True, slots=True)
class PartReport:
    """What a part holds."""

    number: Count
    rows: Count
    tokens: Count
    empty: Count
    bad: Count


@dataclass(frozen=True, slots=True)
class Spent:
    """Who made a part, and when: seconds since 1970, and seconds of its process on the processor."""

    worker: str
    began: float
    ended: float
    cpu: float


@dataclass(slots=True)
class WorkerReport:
    """What one worker has made."""

    parts: int = 0
    tokens: int = 0
    began: float = 0.0  # its first part, in seconds since 1970
    ended: float = 0.0  # its last one
    busy: float = 0.0  # seconds in which it made parts
    cpu: float = 0.0  # seconds on the processor meanwhile

    def add(self, made: PartReport, spent: Spent) -> None:
        self.began = min(self.began or spent.began, spent.began)
        self.ended = max(self.ended, spent.ended)
        self.parts += 1
        self.tokens += made.tokens
        self.busy += spent.ended - spent.began
        self.cpu += spent.cpu


class Row(NamedTuple):
    """A row's number over all files, its line, and its text or tokens; or why there is none."""

    number: int
    line: int
    text: Any
    wrong: str = ""


def plan_parts(inputs: Sequence[str], *, part_rows: int | None = None) -> list[Part]:
    """The parts of files of text, JSONL or Parquet: paths on this machine, or addresses such as s3://bucket/key.

    Without `part_rows` a part is a 64th of the rows, so that all workers are busy to the end; but no fewer than 50, and
    no more than 2,000. The same input always gives the same parts.
    """
    if part_rows is None:
        large = plan_parts(inputs, part_rows=MOST_ROWS)
        rows = min(max(sum(part.rows for part in large) // PARTS, LEAST_ROWS), MOST_ROWS)
        return large if rows == MOST_ROWS else plan_parts(inputs, part_rows=rows)
    if part_rows < 1:
        raise InputError(f"part_rows is {part_rows}; a part has at least one row")
    parts: list[Part] = []
    first = 0
    for file in inputs:
        for line, rows, offset, digest in _pieces(file, part_rows):
            parts.append(Part(len(parts), first, rows, file, line, offset, digest))
            first += rows
    return parts


def digest_parts(parts: Sequence[Part]) -> str:
    """The same for the same plan over the same rows, wherever their files are."""
    rows = [(part.rows, part.line, part.offset, part.digest) for part in parts]
    return hashlib.blake2b(json.dumps(rows).encode(), digest_size=16).hexdigest()


def make_part(make: Callable[[Part], PartReport], part: Part) -> tuple[PartReport, Spent]:
    """Makes a part; its report, and who made it when."""
    began, cpu = time.time(), time.process_time()
    report = make(part)
    cpu = time.process_time() - cpu
    return report, Spent(f"{socket.gethostname()}:{os.getpid()}", began, time.time(), cpu)


def set_aside(folder: Path, part: Part, bad: Sequence[Row]) -> None:
    """Writes the bad rows of a part: number, file, line, why."""
    path = folder / f"{part.name}.bad.jsonl"
    if bad:
        rows = [{"row": row.number, "file": part.file, "line": row.line + 1, "why": row.wrong} for row in bad]
        write_text(path, "".join(json.dumps(row) + "\n" for row in rows))
    else:
        path.unlink(missing_ok=True)


def read_rows(part: Part, *, field: str = "text") -> Iterator[Row]:
    """The rows of a part, bad ones with what is wrong."""
    if _format(part.file) == "parquet":
        values = _parquet_values(part, field)
        for k, value in enumerate(values):
            yield _row(part, k, value)
        return
    jsonl = _format(part.file) == "jsonl"
    for k, data in enumerate(_lines(part)):
        if not part.line + k:
            data = data.removeprefix(BOM)
        if not jsonl:
            yield Row(part.first + k, part.line + k, data.decode("utf-8", "replace"))
            continue
        try:
            value = json.loads(data)
        except (ValueError, RecursionError) as error:
            yield Row(part.first + k, part.line + k, None, f"not JSON: {error}")
            continue
        if not isinstance(value, dict) or field not in value:
            yield Row(part.first + k, part.line + k, None, f"no field {field!r}")
        else:
            yield _row(part, k, value[field])


def _row(part: Part, k: int, value: Any) -> Row:
    if isinstance(value, str) or (isinstance(value, list) and all(isinstance(token, str) for token in value)):
        return Row(part.first + k, part.line + k, value)
    return Row(part.first + k, part.line + k, None, f"{type(value).__name__}, expected a text or a list of tokens")


def _format(file: str) -> str:
    name = Path(file.rstrip("/")).name
    for suffix in COMPRESSED:
        name = name.removesuffix(suffix)
    kind = FORMATS.get(Path(name).suffix.lower())
    if kind is None:
        known, packed = ", ".join(FORMATS), ", ".join(COMPRESSED)
        raise InputError(f"{file}: cannot tell the format from the name; expected {known}, or with {packed} behind it")
    return kind


def _open(file: str) -> tuple[Any, str]:
    """The file system of a path or an address, and the path in it."""
    pyarrow = _load_pyarrow()

    try:
        if "://" in file:
            found: tuple[Any, str] = pyarrow.fs.FileSystem.from_uri(file)
        else:
            found = pyarrow.fs.LocalFileSystem(), str(Path(file).expanduser().absolute())
        if found[0].get_file_info(found[1]).type != pyarrow.fs.FileType.File:
            raise InputError(f"{file}: no such file")
    except (OSError, pyarrow.ArrowException) as error:
        raise InputError(f"{file}: cannot be opened ({error})") from error
    return found


def _pieces(file: str, part_rows: int) -> Iterator[tuple[int, int, int, str]]:
    """First line, rows, offset and digest of each part of a file."""
    kind, (system, path) = _format(file), _open(file)
    digest = hashlib.blake2b(digest_size=16)
    if kind == "parquet":
        stated = _load_pyarrow().parquet.read_metadata(path, filesystem=system)
        stated.write_metadata_file(footer := io.BytesIO())
        digest.update(footer.getvalue())
        rows = stated.num_rows
        yield from ((at, min(part_rows, rows - at), 0, digest.hexdigest()) for at in range(0, rows, part_rows))
        return
    packed = path.endswith(COMPRESSED)
    line = lines = begin = read = 0
    last = b"\n"
    with system.open_input_stream(path, compression="detect" if packed else None) as stream:
        while block := stream.read(BLOCK):
            at, known = -1, 0
            while (at := block.find(b"\n", at + 1)) >= 0:
                lines += 1
                if lines == part_rows:
                    digest.update(block[known : at + 1])
                    yield line, lines, -1 if packed else begin, digest.hexdigest()
                    line, lines, begin, known = line + lines, 0, read + at + 1, at + 1
            digest.update(block[known:])
            read += len(block)
            last = block[-1:]
    lines += last != b"\n"  # a last line without its end
    if lines:
        yield line, lines, -1 if packed else begin, digest.hexdigest()


def _lines(part: Part) -> Iterator[bytes]:
    """The lines of a part, without their ends."""
    system, path = _open(part.file)
    packed = part.offset < 0
    with system.open_input_stream(path, compression="detect") if packed else system.open_input_file(path) as file:
        if not packed:
            file.seek(part.offset)
        skip, left, rest = (part.line if packed else 0), part.rows, b""
        while left:
            block = file.read(BLOCK)
            *whole, rest = (rest + bytes(block)).split(b"\n")
            if not block:
                whole, rest = [*whole, rest], b""
            for line in whole[skip:][:left]:
                yield line.removesuffix(b"\r")
                left -= 1
            skip = max(skip - len(whole), 0)
            if not block and left:
                raise InputError(f"{part.file}: is shorter than it was when the run began")


def _parquet_values(part: Part, field: str) -> list[Any]:
    """The values of a column in the rows of a part; only the row groups that hold them are read."""
    system, path = _open(part.file)
    with system.open_input_file(path) as file:
        table = _load_pyarrow().parquet.ParquetFile(file)
        if field not in table.schema_arrow.names:
            raise InputError(f"{part.file}: no column {field!r}; it has {', '.join(table.schema_arrow.names)}")
        values: list[Any] = []
        begin = 0
        for group in range(table.num_row_groups):
            rows = table.metadata.row_group(group).num_rows
            a, b = max(part.line - begin, 0), min(part.line + part.rows - begin, rows)
            if a < b:
                values += table.read_row_group(group, columns=[field]).column(0).slice(a, b - a).to_pylist()
            begin += rows
    return values


def _load_pyarrow() -> Any:
    """pyarrow with its Parquet and its file systems, or the line that installs it."""
    try:
        import pyarrow
        import pyarrow.fs
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("reading in parts needs pyarrow", extra="parquet") from error
    return pyarrow
