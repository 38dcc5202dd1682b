"""Lists of words or characters, one a line: vocab.txt as older tools write it, and our own that takes any symbol."""

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import overload

from elmokit.errors import WeightsError

LARGEST_LIST = 1 << 30  # bytes once unpacked: some hundred million words
CHUNK = 1 << 20


class LazyList(Sequence[str]):
    """Symbols that `read` reads when someone asks for them, and once."""

    def __init__(self, read: Callable[[], tuple[str, ...]]) -> None:
        self.read = read

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        return self.read()

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[str, ...]: ...
    def __getitem__(self, at: int | slice) -> str | tuple[str, ...]:
        return self.symbols[at]

    def __len__(self) -> int:
        return len(self.symbols)

    def __eq__(self, other: object) -> bool:
        return self.symbols == (other.symbols if isinstance(other, LazyList) else other)

    def __hash__(self) -> int:
        return hash(self.symbols)


def read_words(path: Path) -> tuple[str, ...]:
    """A plain vocabulary, gzipped or not: one word a line, as it stands."""
    text = _read_text(path)
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return tuple(line.removesuffix("\r") for line in lines) if "\r" in text else tuple(lines)


def write_words(words: Iterable[str]) -> str:
    lines = []
    for word in words:
        if "\n" in word or "\r" in word or _lone(word):
            raise WeightsError(f"the word {word!r} cannot stand in a plain vocabulary; save in elmokit's own format")
        lines.append(f"{word}\n")
    return "".join(lines)


def read_symbols(path: Path) -> tuple[str, ...]:
    """Our own list: a line in double quotes is a JSON string, any other stands for itself."""
    symbols = list(read_words(path))
    for k, line in enumerate(symbols):
        if line[:1] == '"' and _quoted(line):
            try:
                symbols[k] = json.loads(line)
            except json.JSONDecodeError:
                raise WeightsError(f"{path}: line {k + 1}, {line!r}, is not a JSON string") from None
    return tuple(symbols)


def write_symbols(symbols: Iterable[str]) -> str:
    """Quoted where a symbol would break the line, get lost at its edge, or read as quoted itself."""
    return "".join(f"{json.dumps(s) if _needs_quotes(s) else s}\n" for s in symbols)


def _needs_quotes(symbol: str) -> bool:
    bare = symbol.strip().strip("\ufeff")
    return bare != symbol or len(symbol.splitlines()) != 1 or _quoted(symbol) or _lone(symbol)


def _quoted(line: str) -> bool:
    return len(line) > 1 and line[0] == line[-1] == '"'


def _lone(symbol: str) -> bool:
    return any("\ud800" <= c <= "\udfff" for c in symbol)


def _read_text(path: Path) -> str:
    try:
        with gzip.open(path) if path.name.endswith(".gz") else path.open("rb") as stream:
            data = b"".join(iter(lambda: stream.read(CHUNK) if stream.tell() <= LARGEST_LIST else b"", b""))
    except FileNotFoundError:
        raise WeightsError(f"{path}: no such file") from None
    except (OSError, EOFError, zlib.error) as error:
        raise WeightsError(f"{path}: cannot be read ({error}); is the file complete?") from None
    if len(data) > LARGEST_LIST:
        raise WeightsError(f"{path}: over {LARGEST_LIST:,} bytes of text, too large for a vocabulary")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise WeightsError(f"{path}: not UTF-8 at byte {error.start}; is it a text file?") from None
