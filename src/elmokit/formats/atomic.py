"""Files that appear whole or not at all."""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from elmokit.errors import InputError


@contextlib.contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """A path beside `path` to write to, moved over it when the block ends well and removed when it does not.

    For libraries that want a file name. A device or pipe (`/dev/stdout`) is handed out as it is: it cannot be replaced.
    """
    target = Path(os.path.realpath(path))  # a link stays a link; what it points at is replaced
    if target.is_dir():
        raise InputError(f"{path}: is a folder, expected the name of a file to write")
    if not target.parent.is_dir():
        raise InputError(f"{path}: the folder {target.parent} does not exist; create it first")
    if target.exists() and not target.is_file():
        yield target
        return
    # The folder's limit on names is 255 bytes, and the target's own name may come near it.
    temporary = target.with_name(f".{target.name[:50]}.{secrets.token_hex(6)}.tmp")
    try:
        yield temporary
        _sync(temporary)
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync(target.parent)


@contextlib.contextmanager
def atomic_write(path: str | Path) -> Iterator[BinaryIO]:
    """A binary file that replaces `path` when the block ends well; wrap it in `io.TextIOWrapper` or encode for text."""
    with atomic_path(path) as temporary:
        try:
            stream = temporary.open("wb")
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror}") from error
        with stream:
            yield stream


def write_text(path: str | Path, text: str) -> None:
    """Text as UTF-8, atomically, with newlines as they are."""
    with atomic_write(path) as stream:
        stream.write(text.encode("utf-8"))


def _sync(path: Path) -> None:
    if os.name == "nt" and path.is_dir():  # folders cannot be opened there
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
