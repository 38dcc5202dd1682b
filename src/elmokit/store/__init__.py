"""Vectors on disk."""

from elmokit.store.write import StoreOptions, StoreReport, write_vectors

__all__ = ["StoreOptions", "StoreReport", "write_vectors"]
