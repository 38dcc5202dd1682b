"""Files and folders that appear whole or not at all.

What is being written lies in a hidden draft folder, `.NAME.<12 hex digits>.tmp`, which its writer keeps locked. A lock
ends with its process, however that ends. So an unlocked draft was left behind by a kill; the next writer removes it.
"""

import contextlib
import errno
import os
import re
import secrets
import shutil
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO

from elmokit.errors import InputError

DRAFT = re.compile(r"\..*\.[0-9a-f]{12}\.tmp")


@contextlib.contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """A path to write a file to, moved to `path` when the block ends well and removed when it does not.

    For libraries that want a file name. The file's mode follows the umask, whatever mode a library gave it. A device or
    pipe (`/dev/stdout`) is handed out as it is: it cannot be replaced.
    """
    target = Path(os.path.realpath(path))  # a link stays a link; what it points at is replaced
    if target.is_dir():
        raise InputError(f"{path}: is a folder, expected the name of a file to write")
    if not target.parent.is_dir():
        raise InputError(f"{path}: the folder {target.parent} does not exist; create it first")
    if target.exists() and not target.is_file():
        yield target
        return
    with _draft_folder(target) as draft:
        part = draft / "draft"
        yield part
        _finish(part)
        os.replace(part, target)
    _sync(target.parent)


def atomic_move(draft: Path, path: str | Path) -> None:
    """A file that is complete to where it belongs, in one step; its draft must lie in a folder beside `path`."""
    target = Path(os.path.realpath(path))
    try:
        if target.is_dir() or (target.exists() and not target.is_file()):
            raise OSError(errno.EXDEV, "not a file")
        _finish(draft)
        os.replace(draft, target)
        _sync(target.parent)
    except OSError as error:
        if error.errno != errno.EXDEV:  # a link to another disk
            raise
        with atomic_path(path) as part:
            shutil.copyfile(draft, part)


@contextlib.contextmanager
def atomic_write(path: str | Path) -> Iterator[BinaryIO]:
    """A binary file that replaces `path` when the block ends well; wrap it in `io.TextIOWrapper` or encode for text."""
    with atomic_path(path) as part:
        try:
            stream = part.open("wb")
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror}") from error
        with stream:
            yield stream


def write_text(path: str | Path, text: str) -> None:
    """Text as UTF-8, atomically, with newlines as they are."""
    with atomic_write(path) as stream:
        stream.write(text.encode("utf-8"))


@contextlib.contextmanager
def atomic_folder(
    path: str | Path, *, last: str, replaces: Collection[str] = (), overwrite: bool = True
) -> Iterator[Path]:
    """An empty folder to write files into, which becomes the folder `path` when the block ends well.

    Where `path` exists already, the files move into it one by one, the one named `last` at the end, so that it never
    describes files that are not there yet; then those of `replaces` that were not written again go. Any other file
    stays. Writers to one folder take turns. Without `overwrite`, a folder with any of `replaces` in it is refused.
    Files in folders inside it are named `folder/file`.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_dir():
        raise InputError(f"{path}: cannot be written: a file is there, expected a folder or nothing")
    if not overwrite:
        _refuse_taken(target, replaces)
    target.parent.mkdir(parents=True, exist_ok=True)
    there = target.is_dir()  # then the draft lies inside: the folder above may be read-only, or on another disk
    with _draft_folder(target / target.name if there else target) as draft:
        yield draft
        files, folders = _contents(draft)
        for part in files.values():
            _finish(part)
        for folder in (*folders, draft):
            _sync(folder)
        if there or not _renamed(draft, target):
            with folder_lock(target):
                if not overwrite:
                    _refuse_taken(target, replaces)
                inside = [target / folder.relative_to(draft) for folder in folders]
                for folder in inside:
                    folder.mkdir(parents=True, exist_ok=True)
                for name in sorted(files, key=lambda name: (name == last, name)):
                    os.replace(files[name], target / name)
                for name in set(replaces) - files.keys():
                    (target / name).unlink(missing_ok=True)
            for folder in (*inside, target):
                _sync(folder)
    _sync(target.parent)


def sweep_drafts(folder: Path) -> None:
    """Removes the drafts that killed processes left in a folder, and none of a process that is alive."""
    if sys.platform == "win32":
        return
    with os.scandir(folder) as entries:
        drafts = [
            entry.path for entry in entries if DRAFT.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
        ]
    for draft in drafts:
        with contextlib.suppress(OSError), folder_lock(draft, wait=False):  # in use, gone, or no locks on this disk
            shutil.rmtree(draft)


@contextlib.contextmanager
def _draft_folder(target: Path) -> Iterator[Path]:
    """A hidden folder beside `target`, locked while the block runs and removed after it."""
    # The limit on names is 255 bytes, and the target's own name may come near it.
    name = os.fsdecode(os.fsencode(target.name)[:200].decode("utf-8", "ignore").encode())
    with contextlib.ExitStack() as stack:
        while True:
            draft = target.with_name(f".{name}.{secrets.token_hex(6)}.tmp")
            try:
                sweep_drafts(target.parent)
                draft.mkdir()
            except OSError as error:
                raise InputError(f"{target}: cannot be written: {error.strerror}") from error
            stack.callback(shutil.rmtree, draft, ignore_errors=True)
            with contextlib.suppress(OSError):  # no locks on this disk: nothing is swept there either
                stack.enter_context(folder_lock(draft))
            if draft.exists():  # or another writer swept it away before it was locked
                break
        yield draft


def _contents(folder: Path) -> tuple[dict[str, Path], list[Path]]:
    """All files below a folder by their names in it, and all folders."""
    below = list(folder.rglob("*"))
    files = {path.relative_to(folder).as_posix(): path for path in below if not path.is_dir()}
    return files, [path for path in below if path.is_dir()]


def _finish(part: Path) -> None:
    """The mode that the umask gives, as the draft folder around it has, and all bytes on the disk."""
    usual = part.parent.stat().st_mode & 0o666
    if part.stat().st_mode & 0o777 != usual:
        part.chmod(usual)
    _sync(part)


def _refuse_taken(target: Path, names: Collection[str]) -> None:
    taken = [name for name in names if (target / name).exists()]
    if taken:
        raise InputError(f"{target}: {taken[0]} is there already; give another folder, or overwrite it")


def _renamed(draft: Path, target: Path) -> bool:
    """Moves the whole folder; False where another writer has made `target` meanwhile."""
    try:
        os.rename(draft, target)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        raise
    return True


@contextlib.contextmanager
def folder_lock(folder: str | Path, *, wait: bool = True) -> Iterator[None]:
    """Holds a folder locked while the block runs; the lock ends with its process, however that ends."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _sync(path: Path) -> None:
    if os.name == "nt" and path.is_dir():  # folders cannot be opened there
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
