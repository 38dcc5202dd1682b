"""Packages that load their names on first use, so that importing them costs nothing."""

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from threading import Lock
from typing import Any

_lock, _depth, _was_on = Lock(), 0, False


@contextmanager
def without_collection() -> Iterator[None]:
    """No garbage is looked for meanwhile: modules and models make much that stays, and torch has much to go through."""
    global _depth, _was_on
    with _lock:
        if not _depth:
            _was_on = gc.isenabled()
            gc.disable()
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if not _depth and _was_on:
                gc.enable()


def lazy(package: str, names: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package; `names` has, for each of its modules, the names to take from it."""
    homes = {name: f"{package}.{module}" for module, told in names.items() for name in told.split()}

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it offers {', '.join(sorted(homes))}")
        with without_collection():
            return getattr(import_module(homes[name]), name)

    return load, lambda: sorted(homes)
