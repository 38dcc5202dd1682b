"""Questions about passages: SQuAD 1.1's JSON to examples, answers as words of the passage.

    {"data": [{"title": ..., "paragraphs": [{"context": ..., "qas": [
        {"id": ..., "question": ..., "answers": [{"text": ..., "answer_start": ...}, ...]}]}]}]}

`answer_start` counts characters of the context. A passage over a given number of words is cut after them; answers of
which a word was cut off are no spans any more, but stay among the gold answers that a prediction is scored by.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from elmokit.errors import FormatError
from elmokit.formats.streams import decode, mend, open_bytes, source_name, without_bom
from elmokit.text import Sentence, Tokenizer

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Question:
    """A question, the passage that answers it, and what counts as an answer; None where that is not known."""

    passage: Sentence
    question: Sentence
    answers: tuple[str, ...] | None = None  # every gold answer as it was written
    spans: tuple[tuple[int, int], ...] = ()  # the distinct ones as words of the passage, the end not included
    id: str = ""
    cut: int = 0  # words of the passage that were left out

    @property
    def sentences(self) -> tuple[Sentence, ...]:
        return self.passage, self.question


def read_squad(
    path: str | Path, *, tokenizer: Tokenizer, longest: int | None = None, labelled: bool = True
) -> list[Question]:
    """The questions of a file in its order; passages are cut after `longest` words.

    Where it is `labelled`, each question must have an answer; otherwise answers may be missing.
    """
    name = source_name(path)
    found: list[Question] = []
    for place, paragraph in _paragraphs(_load(path, name), name):
        text = _text(paragraph, "context", place)
        whole = tokenizer.tokenize(text)
        passage = cut_passage(whole, longest)
        for k, asked in enumerate(_field(paragraph, "qas", list, place)):
            here = f"{place}.qas[{k}]"
            asked = _typed(asked, dict, here)
            id = str(asked.get("id", ""))
            question = tokenizer.tokenize(_text(asked, "question", here))
            answers, spans = _answers(asked, whole, here, labelled=labelled)
            kept = tuple(dict.fromkeys(span for span in spans if span[1] <= len(passage)))
            found.append(Question(passage, question, answers, kept, id, len(whole) - len(passage)))
    if not found:
        raise FormatError(f"{name}: holds no questions; expected SQuAD 1.1's JSON")
    return found


def cut_passage(passage: Sentence, longest: int | None) -> Sentence:
    """The first `longest` words; the text stays whole, so offsets stay true."""
    if longest is None or len(passage) <= longest:
        return passage
    offsets = None if passage.offsets is None else passage.offsets[:longest]
    return Sentence(passage.tokens[:longest], passage.text, offsets, passage.start)


def span_of(passage: Sentence, start: int, end: int) -> tuple[int, int] | None:
    """The words that characters `start` to `end` of the passage's text touch; None where they touch none."""
    touched = [k for k, (a, b) in enumerate(passage.offsets or ()) if a < end and b > start]
    return (touched[0], touched[-1] + 1) if touched else None


def _answers(
    asked: Mapping[str, Any], passage: Sentence, place: str, *, labelled: bool
) -> tuple[tuple[str, ...] | None, list[tuple[int, int]]]:
    """The gold answers as written, and those that are words of the passage."""
    listed = asked.get("answers") if not labelled else _field(asked, "answers", list, place)
    if not listed:
        if labelled:
            raise FormatError(f"{place}: has no answer; expected one at least, as every question of SQuAD 1.1 has")
        return None, []
    texts: list[str] = []
    spans: list[tuple[int, int]] = []
    for k, answer in enumerate(_typed(listed, list, f"{place}.answers")):
        here = f"{place}.answers[{k}]"
        answer = _typed(answer, dict, here)
        text, start = _text(answer, "text", here), _field(answer, "answer_start", int, here)
        there = (passage.text or "")[start : start + len(text)] if start >= 0 else ""
        if there != text:
            raise FormatError(
                f"{here}: {text!r} should stand at character {start} of the context, but there stands {there!r}; "
                "answer_start counts characters from 0"
            )
        texts.append(text)
        if (span := span_of(passage, start, start + len(text))) is not None:
            spans.append(span)
    return tuple(texts), spans


def _load(path: str | Path, name: str) -> Any:
    with open_bytes(path) as stream:
        text, _ = decode(without_bom(stream.read(), name))
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise FormatError(
            f"{name}, line {error.lineno}: not valid JSON ({error.msg}, column {error.colno}); "
            "expected SQuAD 1.1's format, one object for the whole file"
        ) from error
    except RecursionError as error:
        raise FormatError(f"{name}: nested too deep to be SQuAD 1.1's JSON") from error


def _paragraphs(whole: Any, name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each paragraph and where it stands."""
    for i, article in enumerate(_field(_typed(whole, dict, name), "data", list, name)):
        place = f"{name}: data[{i}]"
        for k, paragraph in enumerate(_field(_typed(article, dict, place), "paragraphs", list, place)):
            here = f"{place}.paragraphs[{k}]"
            yield here, _typed(paragraph, dict, here)


def _field(record: Mapping[str, Any], field: str, kind: type[V], place: str) -> V:
    if field not in record:
        raise FormatError(f"{place}: has no field {field!r}; its fields are {', '.join(map(repr, record)) or 'none'}")
    return _typed(record[field], kind, f"{place}.{field}" if ": " in place else f"{place}: {field}")


def _text(record: Mapping[str, Any], field: str, place: str) -> str:
    return mend(_field(record, field, str, place))[0]


def _typed(value: Any, kind: type[V], place: str) -> V:
    if not isinstance(value, kind) or isinstance(value, bool):
        names = {dict: "an object", list: "a list", str: "a string", int: "a whole number"}
        raise FormatError(f"{place}: is {str(value)[:40]!r}, expected {names[kind]}")
    return value
