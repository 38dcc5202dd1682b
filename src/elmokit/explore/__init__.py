"""The explorer: a page in the browser for words, senses, layers and change, and what it asks the model for."""

from typing import TYPE_CHECKING

from elmokit._lazy import lazy

if TYPE_CHECKING:
    from elmokit.explore.explorer import Explorer

__all__ = ["Explorer"]

__getattr__, __dir__ = lazy(__name__, {"explorer": "Explorer"})
