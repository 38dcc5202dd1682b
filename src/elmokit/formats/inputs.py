"""Files, folders and patterns to a list of files, and the format that a file's name says."""

import glob
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from elmokit.errors import InputError
from elmokit.formats.streams import COMPRESSIONS, STDIN

Format = Literal["text", "jsonl", "conllu", "columns", "parquet"]

SUFFIXES: dict[str, Format] = {
    ".txt": "text",
    ".text": "text",
    ".tok": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".conllu": "conllu",
    ".conll": "columns",
    ".iob": "columns",
    ".iob2": "columns",
    ".bio": "columns",
    ".parquet": "parquet",
}


def format_of(source: str | Path) -> Format:
    """The format that the name says, without a compression suffix; plain text for any other name."""
    return _told(source) or "text"


def expand_inputs(inputs: Sequence[str | Path]) -> list[str | Path]:
    """Files as given, folders as the files of known suffixes in them, patterns as the files they match.

    Folders are read recursively, folders and patterns in sorted order. A name that exists is never taken for a
    pattern. '-' (standard input) passes through.
    """
    found: list[str | Path] = []
    for item in inputs:
        path = Path(item)
        if str(item) == STDIN or (path.exists() and not path.is_dir()):
            found.append(item)
        elif path.is_dir():
            found += _files_in(path)
        elif glob.has_magic(str(item)):
            found += _matches(str(item))
        else:
            raise InputError(f"{item}: no such file or folder; check the path (relative to {Path.cwd()})")
    return found


def _told(source: str | Path) -> Format | None:
    path = Path(source)
    if path.suffix.lower() in COMPRESSIONS:
        path = path.with_suffix("")
    return SUFFIXES.get(path.suffix.lower())


def _files_in(folder: Path) -> list[Path]:
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if _told(path) and path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    if not files:
        known = " ".join(sorted(SUFFIXES))
        raise InputError(f"{folder}: holds no text files; looked for names ending in {known}, compressed or not")
    return files


def _matches(pattern: str) -> list[Path]:
    files = [path for path in map(Path, sorted(glob.glob(pattern, recursive=True))) if path.is_file()]
    if not files:
        raise InputError(f"{pattern}: no file matches this pattern (relative to {Path.cwd()})")
    return files
