"""Where elmokit keeps what it can make again."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from elmokit.errors import InputError

UNWRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENOSPC, errno.EDQUOT)


def default_cache() -> Path:
    """`$ELMOKIT_CACHE`, or elmokit's folder among the user's caches."""
    if named := os.environ.get("ELMOKIT_CACHE"):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "elmokit"


@contextmanager
def open_cache(part: str, given: str | Path | None = None) -> Iterator[Path]:
    """A folder of the cache while the block runs; `given` is the user's own for this part. It is made if needed.

    An error there, of the folder or while the block writes to it, says how to name another.
    """
    try:
        folder = Path(given).expanduser() if given else default_cache() / part
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
    except (OSError, RuntimeError) as error:
        homeless = isinstance(error, RuntimeError) and "home" in str(error)
        if not homeless and getattr(error, "errno", None) not in UNWRITABLE:
            raise
        where, why = getattr(error, "filename", None) or "the cache", getattr(error, "strerror", None) or error
        raise InputError(
            f"{where}: cannot be written to ({why}); name another folder for what is computed with --cache, or with "
            "the environment variable ELMOKIT_CACHE"
        ) from None
