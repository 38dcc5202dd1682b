"""Pair classification: ESIM."""

from elmokit.tasks.entail.task import PairClassifier

__all__ = ["PairClassifier"]
