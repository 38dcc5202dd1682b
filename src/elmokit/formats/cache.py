"""Where elmokit keeps what it can make again."""

import os
from pathlib import Path


def default_cache() -> Path:
    """`$ELMOKIT_CACHE`, or elmokit's folder among the user's caches."""
    if named := os.environ.get("ELMOKIT_CACHE"):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "elmokit"
