"""Sequence tagging: BiLSTM-CRF and TagLM."""

from elmokit.tasks.tagging.task import Tagger

__all__ = ["Tagger"]
