"""Text classification: the biattentive classification network."""

from elmokit.tasks.classify.task import Classifier

__all__ = ["Classifier"]
