"""Packages that load their names on first use, so that importing them costs nothing."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy(package: str, names: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package; `names` has, for each of its modules, the names to take from it."""
    homes = {name: f"{package}.{module}" for module, told in names.items() for name in told.split()}

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it offers {', '.join(sorted(homes))}")
        return getattr(import_module(homes[name]), name)

    return load, lambda: sorted(homes)
