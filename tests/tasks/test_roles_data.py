"""Predicates from JSON lines, CoNLL columns and marked text; what is refused names file and line."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.errors import FormatError
from elmokit.tasks.labels import Span, write_tags
from elmokit.tasks.roles.data import Proposition, read_marked, read_propositions, write_columns
from elmokit.text import Sentence, load_tokenizer

GOOD: dict[str, Any] = {"words": ["Mary", "sold", "it"], "frames": [{"verb": 1, "tags": ["B-ARG0", "B-V", "B-ARG1"]}]}

CONLL_2005 = """\
The      DT   -      (A0*     *
cat      NN   -         *)    *
which    WDT  -      (R-A0*)  *
sat      VBD  sit     (V*)    *
down     RP   -         *     *
slept    VBD  sleep     *   (V*)

Nobody   NN   -
"""

CONLL_2012 = """\
#begin document (nw/x); part 000
nw/x 0 0 She PRP (TOP* - - - spk * (ARG0* (ARG0*) (0)
nw/x 0 1 said VBD * say 01 - spk * *) * -
nw/x 0 2 go VB *) go 02 - spk * (V*) (V*) -

#end document
"""


def frame(**changes: Any) -> dict[str, Any]:
    return {**GOOD, "frames": [{**GOOD["frames"][0], **changes}]}


def test_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    two = {"words": ["Go"], "frames": [{"verb": 0, "tags": ["B-V"], "frame": "go.01"}], "id": "x"}
    path.write_text("\n".join(map(json.dumps, [GOOD, {"words": ["No", "verbs"], "frames": []}, two])))
    found = list(read_propositions(path))
    assert found == [
        Proposition(Sentence.of(["Mary", "sold", "it"]), 1, ("B-ARG0", "B-V", "B-ARG1")),
        Proposition(Sentence.of(["Go"]), 0, ("B-V",), "go.01"),
    ]
    assert found[0].sentences == (found[0].sentence,)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (frame(verb=3), "line 2, frame 0: 'verb' is 3, expected the number of a word, from 0 to 2"),
        (frame(verb="1"), "'verb' is '1'"),
        (frame(verb=True), "'verb' is True"),
        (frame(tags=["B-V"]), "expected 3 labels"),
        (frame(tags=None), "expected 3 labels"),
        (frame(tags=["B-ARG0", "B-V", "X-ARG1"]), "frame 0: label 'X-ARG1' not understood"),
        (frame(tags=["B-ARG0", "B-V", "I-ARG1"]), "label 'I-ARG1' of word 2 continues no span"),
        ({"words": "Mary sold it", "frames": []}, "'words' is 'Mary sold it', expected a list of words"),
        ({"words": ["Mary", ""], "frames": []}, "none empty"),
        ({"body": "Mary sold it"}, r"has no 'words' and 'frames'; .* \(apply --field NAME\)"),
        ({"words": ["Mary"]}, "'frames' is 'None', expected a list of objects"),
        (["words"], "expected an object"),
    ],
)
def test_malformed_records_are_refused_with_their_line(tmp_path: Path, record: Any, message: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f"{json.dumps(GOOD)}\n{json.dumps(record)}\n")
    with pytest.raises(FormatError, match=message) as caught:
        list(read_propositions(path))
    assert "a.jsonl, line 2" in str(caught.value)


def test_labels_may_be_missing_where_none_are_needed(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"words": ["Mary", "left"], "frames": [{"verb": 1}]}')
    assert list(read_propositions(path, labelled=False)) == [Proposition(Sentence.of(["Mary", "left"]), 1)]


def test_conll_2005_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    path.write_text(CONLL_2005)
    sat, slept = list(read_propositions(path, predicate_column=2))
    assert sat.sentence.tokens == ("The", "cat", "which", "sat", "down", "slept")
    assert (sat.predicate, sat.lemma) == (3, "sit")
    assert sat.tags == ("B-A0", "I-A0", "B-R-A0", "B-V", "O", "O")
    assert (slept.predicate, slept.tags) == (5, ("O", "O", "O", "O", "O", "B-V"))


def test_conll_2012_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.gold_conll"
    path.write_text(CONLL_2012)
    said, go = list(read_propositions(path))
    assert said.sentence.tokens == ("She", "said", "go")
    assert [p.predicate for p in (said, go)] == [1, 2]
    assert said.tags == ("B-ARG0", "I-ARG0", "B-V")
    assert go.tags == ("B-ARG0", "O", "B-V")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("(V*)    *\n", "(V*)\n", "line 4: has 4 columns, expected 5, since 2 words"),
        ("(V*)    *\n", "V*)    *\n", r"line 4: 'V\*\)' not understood"),
        ("*)    *\n", "*    *\n", r"line 3: '\(R-A0\*\)' not understood; expected .* closed before the next"),
        ("(R-A0*)  *\n", "(R-A0*)  *)\n", r"line 3: '\*\)' not understood"),
        ("(V*)\n\n", "(V*\n\n", r"line 6: the span \(V\* is not closed"),
        ("NN   -\n", "NN\n", "line 8: has 2 columns, expected 3 or more"),
    ],
)
def test_malformed_columns_are_refused_with_their_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in CONLL_2005
    path = tmp_path / "a.conll"
    path.write_text(CONLL_2005.replace(old, new))
    with pytest.raises(FormatError, match=message):
        list(read_propositions(path, predicate_column=2))


def test_labels_of_words_are_no_predicates(tmp_path: Path) -> None:
    path = tmp_path / "names.conll"
    path.write_text("Ann\tB-PER\nleft\tO\n\n")
    with pytest.raises(FormatError, match="line 1: has 2 columns and so no roles"):
        list(read_propositions(path, predicate_column=1))


@given(cuts=st.lists(st.tuples(st.sampled_from(["A0", "C-A1", "R-AM-TMP", None]), st.integers(1, 3)), min_size=1))
def test_columns_are_read_as_they_were_written(tmp_path_factory: pytest.TempPathFactory, cuts: Any) -> None:
    spans, at = [], 0
    for type, n in cuts:
        spans += [Span(at, at + n, type)] if type else []
        at += n
    tags = tuple(write_tags(spans, at, scheme="IOB2"))
    written = Proposition(Sentence.of(f"w{k}" for k in range(at)), at // 2, tags, "be")
    path = tmp_path_factory.mktemp("roles") / "a.conll"
    path.write_text(write_columns(written, tags) * 2)
    assert list(read_propositions(path)) == [written, written]


def test_marked_text_points_back_into_the_text() -> None:
    text = "Yes.  Mary *sold* her car, and (*didn't*) buy 2*3*4 bikes. *Go* home!"
    found = read_marked(text, load_tokenizer("english"))
    assert [p.sentence.tokens[p.predicate] for p in found] == ["sold", "did", "Go"]
    for p in found:
        assert p.sentence.offsets is not None
        assert p.sentence.text is not None
        for (a, b), token in zip(p.sentence.offsets, p.sentence.tokens, strict=True):
            assert token == p.sentence.text[a:b] == text[p.sentence.start + a : p.sentence.start + b]
    assert found[0].sentence == found[1].sentence
    plain = text.replace("*sold*", "sold").replace("*didn't*", "didn't").replace("*Go*", "Go")
    assert found[0].sentence.tokens == load_tokenizer("english").split(plain)[1].tokens
    assert read_marked("Nothing is marked * here *.", load_tokenizer("english")) == []


def test_the_evaluation_sentences(shared: Path) -> None:
    found = list(read_propositions(shared / "eval/roles-ewt/dev.jsonl.xz"))
    assert len(found) == 4963
    assert all(p.tags is not None and p.tags[p.predicate] == "B-V" for p in found)
