"""Coreference: span ranking."""

from elmokit.tasks.coref.task import CoreferenceResolver

__all__ = ["CoreferenceResolver"]
