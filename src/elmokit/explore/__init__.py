"""The explorer: a page in the browser for words, senses, layers and change, and what it asks the model for."""

from typing import TYPE_CHECKING, Any

from elmokit._lazy import lazy
from elmokit.errors import MissingExtraError

if TYPE_CHECKING:
    from elmokit.explore.command import prepare
    from elmokit.explore.explorer import Explorer

__all__ = ["Explorer", "prepare"]

LIBRARIES = ("fastapi", "uvicorn", "httptools", "starlette", "pydantic", "prometheus_client", "orjson")

_load, __dir__ = lazy(__name__, {"command": "prepare", "explorer": "Explorer"})


def __getattr__(name: str) -> Any:
    try:
        return _load(name)
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in LIBRARIES:
            raise
        raise MissingExtraError(f"the explorer needs {missing.name}, which is not installed", extra="explore") from None
