"""A corpus: where the raw text lies and how to read it, as blocks of lines of about a megabyte.

The parent process reads and decompresses; blocks are what it hands to the workers that tokenise. A block holds whole
lines, so a file of any size streams through in bounded memory; a line too long for that is cut at a space.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

from elmokit.errors import InputError
from elmokit.formats import Format, ReadReport, Unit, expand_inputs, format_of, read_dataset, read_parquet
from elmokit.formats.records import unit_of
from elmokit.formats.streams import COMPRESSIONS, STDIN, open_bytes, source_name, start_of_text
from elmokit.text import Tokenizer

BLOCK_BYTES = 1 << 20
_LINE_BYTES = 1 << 21  # a longer line of text is cut, so that one file without newlines cannot fill the memory
_BYTES_PER_TOKEN = 5.5
_EXPANSION = 3.5  # of compressed text


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How text becomes sentences. Sent to the workers, so it holds nothing that cannot be pickled."""

    tokenizer: Tokenizer
    lines: Literal["sentences", "paragraphs"] = "paragraphs"
    field: str = "text"
    treebank: bool = False


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Files, folders and patterns, or an iterable of texts such as a `datasets` dataset; and how to read them.

    `lines` says whether a line is one sentence or a paragraph that the tokenizer splits. `field` names the JSON field
    or the column of a table; lists of tokens in it are sentences as they are. For texts already tokenised take the
    whitespace tokenizer; `treebank` undoes the Penn Treebank's escapes there. Text files, JSON lines and Parquet can be
    mixed.
    """

    paths: Sequence[str | Path] = ()
    texts: Iterable[Any] | None = None  # strings, lists of tokens, or rows with `field`
    texts_name: str | None = None  # identifies these texts; without one, they are prepared again each time
    tokenizer: Tokenizer
    lines: Literal["sentences", "paragraphs"] = "paragraphs"
    field: str = "text"
    treebank: bool = False
    format: Format | Literal["auto"] = "auto"
    dedupe: bool = False  # leave out paragraphs that nearly repeat earlier ones

    def __post_init__(self) -> None:
        if bool(self.paths) == (self.texts is not None):
            raise InputError("a corpus is made of paths or of texts: give one of the two")
        if self.lines not in ("sentences", "paragraphs"):
            raise InputError(f"lines = {self.lines!r}, expected 'sentences' or 'paragraphs'")

    @property
    def reading(self) -> Reading:
        return Reading(tokenizer=self.tokenizer, lines=self.lines, field=self.field, treebank=self.treebank)

    @cached_property
    def files(self) -> list[str | Path]:
        return expand_inputs(self.paths)

    @property
    def size(self) -> int | None:
        """Bytes of all files, compressed as they are; None where that cannot be known."""
        if self.texts is not None or any(not Path(file).is_file() for file in self.files):
            return None
        return sum(_stat(file).st_size for file in self.files)

    def estimated_tokens(self) -> int | None:
        """Roughly how many tokens the files hold, judged by their sizes."""
        if self.size is None:
            return None
        expanded = sum(_stat(file).st_size * (_EXPANSION if _is_packed(file) else 1.0) for file in self.files)
        return int(expanded / _BYTES_PER_TOKEN)

    def identity(self) -> dict[str, Any] | None:
        """What identifies this text, as JSON; None for a stream, which cannot be recognised when it comes again."""
        options = {
            "tokenizer": {"name": self.tokenizer.name, "version": self.tokenizer.version},
            "lines": self.lines,
            "field": self.field,
            "treebank": self.treebank,
            "format": self.format,
            **({"dedupe": True} if self.dedupe else {}),  # so that text prepared before is known again
        }
        if self.texts is not None:
            name = self.texts_name or getattr(self.texts, "_fingerprint", None)
            return {"texts": str(name), **options} if name else None
        if self.size is None:
            return None
        stats = [(Path(file).resolve(), _stat(file)) for file in self.files]
        return {
            "files": [{"path": str(path), "bytes": s.st_size, "mtime_ns": s.st_mtime_ns} for path, s in stats],
            **options,
        }


class Block(NamedTuple):
    """Whole lines of one file (or texts of one dataset, a line or more each)."""

    data: bytes
    kind: Literal["text", "tokens", "jsonl"]
    name: str
    line: int = 1  # the number of the first line, for messages
    consumed: int = 0  # bytes of the corpus read when this block was complete
    cut_lines: int = 0
    bad_bytes: int = 0  # met before the data was made; more may show when it is decoded
    left_out: int = 0  # lines of text that repeat others and are no longer in the data
    repeated: bool = False  # it holds such lines and no others


def read_blocks(corpus: Corpus, *, block_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
    """The corpus in order, as blocks of whole lines of about `block_bytes`."""
    report = ReadReport()
    if corpus.texts is not None:
        yield from _unit_blocks(_units(corpus.texts, corpus.field, report), "texts", 0, block_bytes, report)
        return
    before = 0
    for file in corpus.files:
        chosen = format_of(file) if corpus.format == "auto" else corpus.format
        if chosen == "parquet":
            units = read_parquet(file, field=corpus.field, report=report)
            yield from _unit_blocks(units, str(file), before, block_bytes, report)
        elif chosen == "text" or chosen == "jsonl":
            yield from _line_blocks(file, chosen, before, block_bytes)
        else:
            raise InputError(f"{file}: is read as {chosen}, expected text, jsonl or parquet for running text")
        before += _stat(file).st_size if str(file) != STDIN else 0


def _line_blocks(file: str | Path, kind: Literal["text", "jsonl"], before: int, block_bytes: int) -> Iterator[Block]:
    name = source_name(file)
    with open_bytes(file) as stream:
        rest = start_of_text(stream.read(max(block_bytes, 3)), name)
        line = 1
        while data := rest or stream.read(block_bytes):
            # JSON cannot be cut, so its lines are taken as long as they are.
            tail = stream.readline(_LINE_BYTES if kind == "text" else -1) if data[-1:] != b"\n" else b""
            data, rest = data + tail, b""
            overlong = kind == "text" and len(tail) == _LINE_BYTES and tail[-1:] != b"\n"
            if overlong:
                at = _cut_place(data)
                data, rest = data[:at], data[at:] + stream.read(block_bytes)
            yield Block(data, kind, name, line, before + stream.consumed, int(overlong))
            line += data.count(b"\n")


def _cut_place(data: bytes) -> int:
    """After the last space of the line that is cut, or before its last character where it has no space."""
    at = data.rfind(b" ", len(data) - _LINE_BYTES) + 1
    if at:
        return at
    at = len(data) - 1
    while at > len(data) - 4 and data[at] & 0xC0 == 0x80:  # inside a character of UTF-8
        at -= 1
    return at


def _units(texts: Iterable[Any], field: str, report: ReadReport) -> Iterator[Unit]:
    if hasattr(texts, "column_names"):
        yield from read_dataset(texts, field=field, report=report)
        return
    for number, text in enumerate(texts, 1):
        record = text if isinstance(text, Mapping) else {field: text}
        yield unit_of(record, field, f"text {number}", report)


def _unit_blocks(
    units: Iterable[Unit], name: str, before: int, block_bytes: int, report: ReadReport
) -> Iterator[Block]:
    held: list[bytes] = []
    kind: Literal["text", "tokens"] = "text"
    size = 0
    for unit in units:
        its_kind: Literal["text", "tokens"] = "text" if isinstance(unit, str) else "tokens"
        if held and (its_kind != kind or size >= block_bytes):
            yield Block(b"".join(held), kind, name, consumed=before, bad_bytes=report.bad_bytes)
            held, size, report.bad_bytes = [], 0, 0
        kind = its_kind
        # A token that holds white space is several words, here as everywhere in a corpus.
        text = unit if isinstance(unit, str) else " ".join(" ".join(unit).split())
        held.append(text.encode() + b"\n")
        size += len(held[-1])
    if held:
        yield Block(b"".join(held), kind, name, consumed=before, bad_bytes=report.bad_bytes)


def _stat(file: str | Path) -> os.stat_result:
    try:
        return Path(file).stat()
    except OSError as error:
        raise InputError(f"{file}: cannot be read any more: {error.strerror}; was it moved or deleted?") from error


def _is_packed(file: str | Path) -> bool:
    return Path(file).suffix.lower() in COMPRESSIONS or format_of(file) == "parquet"
