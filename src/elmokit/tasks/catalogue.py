"""The tasks by name. Written out rather than collected, so that listing them imports nothing."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from elmokit.errors import InputError

if TYPE_CHECKING:  # which brings torch
    from elmokit.tasks.task import Task


class Entry(NamedTuple):
    """Where a task is defined, and what it is in one line."""

    module: str
    attribute: str
    help: str


CATALOGUE: dict[str, Entry] = {
    "ner": Entry("elmokit.tasks.tagging.task", "NER", "named entities (CoNLL columns): BiLSTM-CRF"),
    "chunk": Entry("elmokit.tasks.tagging.task", "CHUNK", "chunks (CoNLL columns): BiLSTM-CRF"),
    "pos": Entry("elmokit.tasks.tagging.task", "POS", "parts of speech (CoNLL-U): BiLSTM-CRF"),
    "tag": Entry("elmokit.tasks.tagging.task", "TAG", "any column of labels, of words or spans: BiLSTM-CRF"),
    "taglm": Entry("elmokit.tasks.tagging.task", "TAGLM", "TagLM, the forerunner of ELMo, on any column of labels"),
    "sentiment": Entry("elmokit.tasks.classify.task", "SENTIMENT", "sentiment of labelled trees: biattentive network"),
    "classify": Entry("elmokit.tasks.classify.task", "CLASSIFY", "texts of CSV, TSV and JSONL: biattentive network"),
    "entail": Entry("elmokit.tasks.entail.task", "ENTAIL", "entailment or any label of two texts: ESIM"),
    "qa": Entry("elmokit.tasks.qa.task", "QA", "answers in a passage (SQuAD 1.1): BiDAF with self-attention"),
    "roles": Entry("elmokit.tasks.roles.task", "ROLES", "semantic roles of given predicates: deep highway LSTMs"),
    "coref": Entry("elmokit.tasks.coref.task", "COREF", "coreference (CoNLL-2012, bracketed columns): span ranking"),
}


def load_task(name: str) -> "Task[Any, Any]":
    """The task of that name."""
    if name not in CATALOGUE:
        raise InputError(f"no task {name!r}; available are {', '.join(CATALOGUE)}")
    entry = CATALOGUE[name]
    task: Task[Any, Any] = getattr(import_module(entry.module), entry.attribute)
    return task
