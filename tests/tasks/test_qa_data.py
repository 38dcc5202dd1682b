"""SQuAD's JSON: answers to words by character offsets, cut passages, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from elmokit.errors import FormatError, InputError
from elmokit.tasks.qa.data import read_squad, span_of
from elmokit.text import load_tokenizer

ENGLISH = load_tokenizer("english")
CONTEXT = "In 1973, oil cost US$3 a barrel. By 1974 it cost nearly $12."


def answer(text: str, start: int | None = None) -> dict[str, Any]:
    return {"text": text, "answer_start": CONTEXT.index(text) if start is None else start}


def write(path: Path, *questions: dict[str, Any], context: Any = CONTEXT) -> Path:
    paragraphs = [{"context": context, "qas": list(questions)}]
    path.write_text(json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}))
    return path


def test_answers_become_words(tmp_path: Path) -> None:
    asked = {"id": "q1", "question": "How much?", "answers": [answer("nearly $12"), answer("$12"), answer("$12")]}
    (found,) = read_squad(write(tmp_path / "a.json", asked), tokenizer=ENGLISH)
    assert found.answers == ("nearly $12", "$12", "$12")
    assert [found.passage.tokens[a:b] for a, b in found.spans] == [("nearly", "$", "12"), ("$", "12")]
    assert found.question.tokens == ("How", "much", "?")
    assert (found.id, found.cut, found.sentences) == ("q1", 0, (found.passage, found.question))


def test_an_answer_within_a_word_is_the_whole_word() -> None:
    passage = ENGLISH.tokenize("the oilfield burns")
    assert span_of(passage, 4, 7) == (1, 2)  # "oil"
    assert span_of(passage, 7, 14) == (1, 3)  # "field b"
    assert span_of(passage, 3, 4) is None  # a space


def test_a_cut_passage_keeps_its_text_and_its_gold_answers(tmp_path: Path) -> None:
    early = {"id": "1", "question": "When?", "answers": [answer("1973"), answer("1974")]}
    late = {"id": "2", "question": "How much?", "answers": [answer("nearly $12")]}
    path = write(tmp_path / "a.json", early, late)
    first, second = read_squad(path, tokenizer=ENGLISH, longest=5)
    assert first.passage.tokens == ENGLISH.tokenize(CONTEXT).tokens[:5]
    assert first.passage.text == CONTEXT
    assert (first.spans, first.answers) == (((1, 2),), ("1973", "1974"))
    assert (second.spans, second.answers) == ((), ("nearly $12",))
    assert first.cut == second.cut == len(ENGLISH.tokenize(CONTEXT)) - 5
    # an answer of which only a part was cut off is no span either
    whole = read_squad(path, tokenizer=ENGLISH)[1]
    assert read_squad(path, tokenizer=ENGLISH, longest=whole.spans[0][1] - 1)[1].spans == ()
    assert read_squad(path, tokenizer=ENGLISH, longest=whole.spans[0][1])[1].spans == whole.spans


def test_answers_may_be_missing_where_none_are_needed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", {"question": "When?"}, {"question": "What?", "answers": []})
    assert [q.answers for q in read_squad(path, tokenizer=ENGLISH, labelled=False)] == [None, None]
    with pytest.raises(FormatError, match=r"a\.json: data\[0\]\.paragraphs\[0\]\.qas\[0\]: has no field 'answers'"):
        read_squad(path, tokenizer=ENGLISH)


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({"question": "?", "answers": []}, r"qas\[0\]: has no answer; expected one"),
        ({"question": "?", "answers": [answer("oil", 3)]}, r"'oil' should stand at character 3 .* stands '197'"),
        ({"question": "?", "answers": [answer("$12.", -4)]}, "should stand at character -4"),
        ({"question": "?", "answers": [{"text": "oil"}]}, r"answers\[0\]: has no field 'answer_start'; .* 'text'"),
        ({"question": "?", "answers": [{"text": "oil", "answer_start": "9"}]}, "expected a whole number"),
        ({"question": "?", "answers": {"text": "oil"}}, r"qas\[0\]\.answers: is .* expected a list"),
        ({"question": 7, "answers": [answer("oil")]}, r"qas\[0\]\.question: is '7', expected a string"),
        ({"answers": [answer("oil")]}, "has no field 'question'"),
    ],
)
def test_malformed_questions_are_refused_by_their_place(tmp_path: Path, question: dict[str, Any], message: str) -> None:
    good = {"question": "?", "answers": [answer("oil")]}
    assert len(read_squad(write(tmp_path / "good.json", good), tokenizer=ENGLISH)) == 1
    with pytest.raises(FormatError, match=message):
        read_squad(write(tmp_path / "bad.json", question), tokenizer=ENGLISH)


def test_files_that_are_something_else_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for content, message in [
        ('{"data": [\n  {"title": "x",\n}', r"a\.json, line 3: not valid JSON"),
        ("[]", "expected an object"),
        ('{"version": 1}', "has no field 'data'; its fields are 'version'"),
        ('{"data": 1}', "data: is '1', expected a list"),
        ('{"data": [{"paragraphs": [{"qas": []}]}]}', "has no field 'context'"),
        ('{"data": []}', "holds no questions"),
    ]:
        path.write_text(content)
        with pytest.raises(FormatError, match=message):
            read_squad(path, tokenizer=ENGLISH)
    with pytest.raises(InputError, match="no such file"):
        read_squad(tmp_path / "none.json", tokenizer=ENGLISH)


def test_the_evaluation_articles(shared: Path) -> None:
    found = read_squad(shared / "eval/squad/dev.json.xz", tokenizer=ENGLISH)
    assert len(found) == 1657
    assert sum(q.cut for q in found) == 0
    for question in found:
        assert question.spans
        assert question.answers
        for a, b in question.spans:  # a span covers one of the answers, and hardly more
            text, offsets = question.passage.text, question.passage.offsets
            assert text is not None
            assert offsets is not None
            assert any(written.strip() in text[offsets[a][0] : offsets[b - 1][1]] for written in question.answers)
