"""Question answering: BiDAF with self-attention."""

from elmokit.tasks.qa.task import QuestionAnswerer

__all__ = ["QuestionAnswerer"]
