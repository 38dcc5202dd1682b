"""Static vectors out: in word2vec's formats, which every other tool reads."""

import re
from pathlib import Path

import numpy as np

from elmokit.encoders.static.table import WordTable
from elmokit.errors import InputError
from elmokit.formats import atomic_path

WHITE = re.compile(r"[ \t\r\n\v\f]")


def export_word2vec(table: WordTable, path: str | Path, *, binary: bool = False, spaces: str | None = None) -> Path:
    """Write word2vec text or binary; numbers come back bit for bit.

    The formats end a word at a space, so a word that holds white space is refused, or written with `spaces` ("_", say)
    in its place.
    """
    path = Path(path)
    with atomic_path(path) as draft, draft.open("wb") as file:
        file.write(f"{len(table)} {table.width}\n".encode())
        for words, rows in table.blocks():
            for word, row in zip(words, np.ascontiguousarray(rows, dtype="<f4"), strict=True):
                name = _name(word, spaces)
                if binary:
                    file.write(name + b" " + row.tobytes() + b"\n")
                else:  # as strings, NumPy writes the fewest digits that tell a float32 from its neighbours
                    file.write(name + b" " + " ".join(row.astype(str)).encode() + b"\n")
    return path


def _name(word: str, spaces: str | None) -> bytes:
    name = word if spaces is None else WHITE.sub(spaces, word)
    if not name or WHITE.search(name):
        raise InputError(
            f"{word!r} cannot be written in word2vec's format, which ends a word at white space; pass spaces='_' to "
            "write '_' instead, or leave the word out"
        )
    return name.encode("utf-8", "replace")
