"""Vectors on disk."""

from elmokit.store.provenance import Provenance, read_provenance, verify_vectors
from elmokit.store.write import StoreOptions, StoreReport, write_vectors

__all__ = ["Provenance", "StoreOptions", "StoreReport", "read_provenance", "verify_vectors", "write_vectors"]
