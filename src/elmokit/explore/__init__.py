"""The explorer: a page in the browser for words, senses, layers and change, and what it asks the model for."""

from typing import TYPE_CHECKING, Any

from elmokit._lazy import lazy
from elmokit.errors import needing
from elmokit.server import LIBRARIES

if TYPE_CHECKING:
    from elmokit.explore.command import prepare
    from elmokit.explore.explorer import Explorer

__all__ = ["Explorer", "prepare"]

_load, __dir__ = lazy(__name__, {"command": "prepare", "explorer": "Explorer"})


def __getattr__(name: str) -> Any:
    with needing(LIBRARIES, "the explorer", extra="explore"):
        return _load(name)
