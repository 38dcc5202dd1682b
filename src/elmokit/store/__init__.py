"""Vectors on disk."""

from typing import TYPE_CHECKING

from elmokit._lazy import lazy

if TYPE_CHECKING:
    from elmokit.store.provenance import Provenance, read_provenance, verify_vectors
    from elmokit.store.write import StoreOptions, StoreReport, write_vectors

__all__ = ["Provenance", "StoreOptions", "StoreReport", "read_provenance", "verify_vectors", "write_vectors"]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "provenance": "Provenance read_provenance verify_vectors",
        "write": "StoreOptions StoreReport write_vectors",
    },
)
