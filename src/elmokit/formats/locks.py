"""Locks that end with their process: who works in a folder, and who has to wait or leave."""

import contextlib
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from elmokit.errors import InputError

LOCK = "lock"  # the usual name of the file


class BusyError(InputError):
    """Another process is at work there."""


@contextlib.contextmanager
def locked(path: Path, *, busy: str | None) -> Iterator[None]:
    """Holds the file `path` locked; where another process does, a BusyError says `busy`, or without it this waits.

    The lock ends with its process, however that ends. Where there are no locks (Windows, some network disks) there is
    no protection.
    """
    while True:
        try:
            path.parent.mkdir(exist_ok=True)
        except FileExistsError:
            try:
                in_the_way = not stat.S_ISDIR(path.parent.stat().st_mode)
            except FileNotFoundError:
                if path.parent.is_symlink():
                    told = f"{path.parent}: is a link to what is not there; make that, or remove the link"
                    raise InputError(told) from None
                continue  # the last owner removes the folder just now
            if in_the_way:
                raise InputError(f"{path.parent}: is a file, but a folder is needed there; move it away") from None
            continue  # the last owner removes the folder just now
        try:
            file = path.open("ab")
        except FileNotFoundError:  # the last owner has just removed the folder
            continue
        with file:
            _lock(file, busy)
            try:
                held = os.path.samestat(os.stat(path), os.fstat(file.fileno()))
            except FileNotFoundError:
                held = False
            if held:
                yield
                return


def _lock(file: BinaryIO, busy: str | None) -> None:
    if sys.platform == "win32":
        return
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if busy is None else fcntl.LOCK_NB))
    except BlockingIOError:
        raise BusyError(busy) from None
    except OSError:  # a disk without locks
        return
