"""Text of any size as numbered parts, each embedded into a Parquet file of its own, by any number of processes.

    folder/manifest.json          what was embedded and how; `complete` at the end
    folder/part-000000.parquet    a row per token: `sentence`, `position`, `token`, `vector` (or `layer0` ...)
    folder/part-000000.bad.jsonl  rows that could not be read: number, file, line, why

`sentence` is the number of the row over all inputs: the order of the input. A part is made from the same rows whoever
makes it, and its file appears whole or not at all, last of what belongs to it. So each row is there exactly once,
however often workers or the driver are killed: what is there is kept, what is missing is made again.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from elmokit.encoders import Encoder, load_encoder
from elmokit.encoders.results import Choice
from elmokit.errors import FormatError, InputError
from elmokit.formats.atomic import atomic_path, write_text
from elmokit.store._parquet import load_pyarrow, read_metadata, write_parquet
from elmokit.store._records import Record
from elmokit.text import Sentence, load_tokenizer

MANIFEST, KEY, VERSION = "manifest.json", "elmokit.part", 1
PART_ROWS = 2000
FORMATS = {".txt": "text", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet"}
COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")
BLOCK = 1 << 22


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive rows of one file: `rows` from its row `line` on, which is row `first` over all files."""

    number: int
    first: int
    rows: int
    file: str
    line: int
    offset: int  # bytes before its first row; -1: the file is compressed and is read from its beginning

    @property
    def name(self) -> str:
        return f"part-{self.number:06d}.parquet"


@dataclass(frozen=True, slots=True)
class PartReport:
    """What a part holds."""

    number: int
    rows: int
    tokens: int
    empty: int
    bad: int


@dataclass(frozen=True, slots=True)
class PartOptions:
    """What is embedded and how; as in `Encoder.encode_tokens` and `elmokit embed`."""

    model: str | None = None
    layers: str = "average"
    field: str = "text"
    tokenized: bool = False
    normalise: bool = False
    batch_tokens: int | None = None
    device: str = "auto"
    dtype: str = "default"


class Row(NamedTuple):
    """A row's number over all files, its line, and its text or tokens; or why there is none."""

    number: int
    line: int
    text: Any
    wrong: str = ""


def plan_parts(inputs: Sequence[str], *, part_rows: int = PART_ROWS) -> list[Part]:
    """The parts of files of text, JSONL or Parquet: paths on this machine, or addresses such as s3://bucket/key."""
    if part_rows < 1:
        raise InputError(f"part_rows is {part_rows}; a part has at least one row")
    parts: list[Part] = []
    first = 0
    for file in inputs:
        for line, rows, offset in _pieces(file, part_rows):
            parts.append(Part(len(parts), first, rows, file, line, offset))
            first += rows
    return parts


class PartEmbedder:
    """Makes parts; loads the model once. This is what a worker is, and it runs without Ray just as well."""

    def __init__(self, folder: str | Path, options: PartOptions) -> None:
        self.folder, self.options = Path(folder), options

    @cached_property
    def encoder(self) -> Encoder:
        return load_encoder(self.options.model, device=self.options.device, dtype=self.options.dtype)

    def __call__(self, part: Part) -> PartReport:
        """Embeds a part and writes its file. Memory holds the part's text and a row group of vectors."""
        options, encoder = self.options, self.encoder
        tokenizer = load_tokenizer("whitespace") if options.tokenized else encoder.tokenizer
        good: list[int] = []
        sentences: list[Sentence] = []
        bad: list[Row] = []
        for row in read_rows(part, field=options.field):
            if row.wrong:
                bad.append(row)
                continue
            good.append(row.number)
            sentences.append(tokenizer.tokenize(row.text) if isinstance(row.text, str) else Sentence.of(row.text))
        tokens = sum(map(len, sentences))
        empty = sum(1 for sentence in sentences if not len(sentence))
        report = PartReport(part.number, part.rows, tokens, empty, len(bad))
        self._set_aside(part, bad)
        encoder.forget_words()  # so that a part has the same batches and roundings whoever makes it
        stream = encoder.stream(
            sentences, layers=options.layers, batch_tokens=options.batch_tokens, normalise=options.normalise
        )
        records = (Record("", found.sentence.tokens, np.asarray(found.vectors, dtype=np.float32)) for found in stream)
        axes = Choice.of(options.layers, None, default="average").axes(encoder.depth, encoder.width)
        with atomic_path(self.folder / part.name) as draft:
            write_parquet(draft, records, axes=axes, metadata={KEY: json.dumps(asdict(report))}, numbers=good)
        return report

    def _set_aside(self, part: Part, bad: Sequence[Row]) -> None:
        path = (self.folder / part.name).with_suffix(".bad.jsonl")
        if bad:
            rows = [{"row": row.number, "file": part.file, "line": row.line + 1, "why": row.wrong} for row in bad]
            write_text(path, "".join(json.dumps(row) + "\n" for row in rows))
        else:
            path.unlink(missing_ok=True)


def read_part(path: Path) -> PartReport | None:
    """What a finished part says of itself; None where there is none, or it is damaged."""
    if not path.is_file():
        return None
    stated = read_metadata(path, KEY)
    try:
        return PartReport(**json.loads(stated)) if stated else None
    except (ValueError, TypeError):
        return None


def begin(folder: Path, parts: Sequence[Part], options: PartOptions, encoder: Encoder, *, restart: bool) -> bool:
    """Writes the manifest, or compares with the one that is there; whether all was finished already."""
    digest = hashlib.blake2b(json.dumps([asdict(part) for part in parts]).encode(), digest_size=16).hexdigest()
    run = {"fingerprint": encoder.fingerprint, "arithmetic": encoder.arithmetic, "input": digest, **asdict(options)}
    manifest = folder / MANIFEST
    if manifest.exists() and not restart:
        stored = read_manifest(folder)
        if stored["run"] != run:
            changed = ", ".join(key for key in run if stored["run"].get(key) != run[key])
            raise InputError(
                f"{folder} holds a run with another {changed}; repeat that run to finish it, or start again with "
                "--restart (restart=True)"
            )
        return bool(stored["complete"])
    if folder.is_dir() and not manifest.exists() and any(path.name != "lock" for path in folder.iterdir()):
        raise InputError(f"{folder}: is a folder of other things; give a new or an empty one")
    folder.mkdir(parents=True, exist_ok=True)
    for old in [*folder.glob("part-*.parquet"), *folder.glob("part-*.bad.jsonl")]:
        old.unlink()
    _write_manifest(folder, run, parts, complete=False)
    return False


def finish(folder: Path, reports: Sequence[PartReport]) -> None:
    """Marks the manifest as complete, with the counts of all parts."""
    stored = read_manifest(folder)
    if len(reports) != stored["parts"]:
        raise FormatError(f"{folder}: {len(reports)} of {stored['parts']} parts were made; give the command again")
    counts = {key: sum(getattr(report, key) for report in reports) for key in ("tokens", "empty", "bad")}
    write_text(folder / MANIFEST, json.dumps({**stored, **counts, "complete": True}, indent=2) + "\n")


def read_manifest(folder: Path) -> dict[str, Any]:
    """What a folder of parts says of itself."""
    try:
        stored = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FormatError(f"{folder / MANIFEST}: cannot be read ({error}); start again with --restart") from error
    if not isinstance(stored, dict) or stored.get("format") != "elmokit parts" or stored.get("version") != VERSION:
        raise FormatError(f"{folder / MANIFEST}: not a manifest of parts that this elmokit reads")
    return stored


def _write_manifest(folder: Path, run: dict[str, Any], parts: Sequence[Part], *, complete: bool) -> None:
    stated = {"format": "elmokit parts", "version": VERSION, "run": run, "parts": len(parts)}
    stated |= {"rows": sum(part.rows for part in parts), "complete": complete}
    write_text(folder / MANIFEST, json.dumps(stated, indent=2) + "\n")


def read_rows(part: Part, *, field: str = "text") -> Iterator[Row]:
    """The rows of a part, bad ones with what is wrong."""
    if _format(part.file) == "parquet":
        values = _parquet_values(part, field)
        for k, value in enumerate(values):
            yield _row(part, k, value)
        return
    jsonl = _format(part.file) == "jsonl"
    for k, data in enumerate(_lines(part)):
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
        raise InputError(f"{file}: cannot tell the format from the name; expected one of {', '.join(FORMATS)}")
    return kind


def _open(file: str) -> tuple[Any, str]:
    """The file system of a path or an address, and the path in it."""
    load_pyarrow()
    import pyarrow.fs

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


def _pieces(file: str, part_rows: int) -> Iterator[tuple[int, int, int]]:
    """First line, rows and offset of each part of a file."""
    kind, (system, path) = _format(file), _open(file)
    if kind == "parquet":
        rows = load_pyarrow()[1].read_metadata(path, filesystem=system).num_rows
        yield from ((at, min(part_rows, rows - at), 0) for at in range(0, rows, part_rows))
        return
    packed = path.endswith(COMPRESSED)
    line = lines = begin = read = 0
    last = b"\n"
    with system.open_input_stream(path, compression="detect" if packed else None) as stream:
        while block := stream.read(BLOCK):
            at = -1
            while (at := block.find(b"\n", at + 1)) >= 0:
                lines += 1
                if lines == part_rows:
                    yield line, lines, -1 if packed else begin
                    line, lines, begin = line + lines, 0, read + at + 1
            read += len(block)
            last = block[-1:]
    lines += last != b"\n"  # a last line without its end
    if lines:
        yield line, lines, -1 if packed else begin


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
    _, pq = load_pyarrow()
    system, path = _open(part.file)
    with system.open_input_file(path) as file:
        table = pq.ParquetFile(file)
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
