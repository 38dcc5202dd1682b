"""Static vectors from wherever they are: files of any tool, converted once and then mapped; gensim's objects."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from elmokit.encoders.static._fasttext import FastTextTable
from elmokit.encoders.static._files import is_fasttext, read_blocks, read_layout
from elmokit.encoders.static.table import WordTable, is_table, read_table, write_table
from elmokit.errors import InputError
from elmokit.formats import open_cache


def load_table(path: str | Path, *, cache: str | Path | None = None) -> WordTable | FastTextTable:
    """A file of static vectors; see `elmokit.encoders.static._files` for the formats.

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
