"""Tagging data: columns and CoNLL-U in, any scheme; malformed lines told with their number; what comes out."""

from pathlib import Path

import pytest

from elmokit.errors import FormatError, InputError
from elmokit.tasks.setup import load_setup
from elmokit.tasks.tagging.network import TaggedExample, TaggedSentence, TaglmNetwork
from elmokit.tasks.tagging.task import CHUNK, NER, POS, TAG, TAGLM, Tagging
from elmokit.tasks.words import WordFeaturesConfig
from elmokit.text import Sentence, load_tokenizer

IOB1 = "-DOCSTART- O\n\nJane I-PER\nBob B-PER\nin O\nNew I-LOC\nYork I-LOC\n\n-LRB- O\n"
CONLLU = (
    "# text = Cats sleep\n1\tCats\tcat\tNOUN\tNNS\t_\t2\tnsubj\t_\t_\n2\tsleep\tsleep\tVERB\tVBP\t_\t0\troot\t_\t_\n\n"
)


def put(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_columns_in_any_scheme(tmp_path: Path) -> None:
    first, second = NER.read(put(tmp_path, "a.txt", IOB1), NER.settings)
    assert first.sentence.tokens == ("Jane", "Bob", "in", "New", "York")
    assert first.tags == ("S-PER", "S-PER", "O", "B-LOC", "E-LOC")
    assert second.sentence.tokens == ("(",)  # as it stood in the text
    iobes = (
        IOB1.replace("Jane I", "Jane S").replace("Bob B", "Bob S").replace("New I", "New B").replace("York I", "York E")
    )
    assert NER.read(put(tmp_path, "b.txt", iobes), NER.settings) == [first, second]
    iob2 = IOB1.replace("Jane I", "Jane B").replace("New I", "New B")
    assert TAG.read(put(tmp_path, "c.txt", iob2), TAG.settings) == [first, second]
    setup = load_setup(NER, flags={"scheme": "IOB2"})
    assert NER.read(put(tmp_path, "d.txt", IOB1), setup.settings)[0].tags == ("B-PER", "B-PER", "O", "B-LOC", "I-LOC")


def test_conllu_columns(tmp_path: Path) -> None:
    path = put(tmp_path, "a.conllu", CONLLU)
    (example,) = POS.read(path, POS.settings)
    assert (example.tags, example.scheme) == (("NOUN", "VERB"), None)
    assert example.sentence.offsets == ((0, 4), (5, 10))
    for column, tags in (("xpos", ("NNS", "VBP")), ("7", ("nsubj", "root"))):
        settings = load_setup(TAG, flags={"column": column}).settings
        assert TAG.read(path, settings)[0].tags == tags
    named = put(tmp_path, "a.txt", CONLLU)
    assert POS.read(named, load_setup(POS, flags={"format": "conllu"}).settings) == [example]


@pytest.mark.parametrize(
    ("task", "text", "told"),
    [
        (NER, "a X O\n\nb X O\nc X PER\n", r"f.txt, line 4: label 'PER' of a span; expected O, or B-"),
        (NER, "a X O\nb O\n", r"f.txt, line 2: has 2 columns"),
        (NER, "a\nb\n", r"f.txt, line 1: has 1 columns, the first of them words; no labels in column -1"),
        (load_setup(TAG, flags={"column": "4"}), "a X O\n", "line 1: has 3 columns.*no labels in column 4"),
        (load_setup(TAG, flags={"column": "0"}), "a X O\n", "no labels in column 0"),
        (POS, "a X O\n", "f.txt: no column 'upos'; expected a number: 0 the first, -1 the last"),
    ],
)
def test_malformed_files(tmp_path: Path, task: object, text: str, told: str) -> None:
    path = put(tmp_path, "f.txt", text)
    task, settings = (task, task.settings) if isinstance(task, Tagging) else (TAG, task.settings)  # type: ignore[attr-defined]
    with pytest.raises(InputError, match=told):
        task.read(path, settings)


def test_malformed_spans_of_conllu_are_told_with_their_line(tmp_path: Path) -> None:
    path = put(tmp_path, "f.conllu", CONLLU)
    with pytest.raises(FormatError, match=r"f.conllu, line 2: label 'NOUN' of a span"):
        TAG.read(path, load_setup(TAG, flags={"column": "upos", "labels": "spans"}).settings)
    with pytest.raises(InputError, match="no column 'pos'; expected a number or one of id, form"):
        TAG.read(path, load_setup(TAG, flags={"column": "pos"}).settings)


def test_labels_of_a_network(tmp_path: Path) -> None:
    spans = NER.read(put(tmp_path, "a.txt", IOB1), NER.settings)
    features = WordFeaturesConfig(n_words=5)
    assert NER.new_network(spans, features, NER.settings).config.labels == (
        *("O", "B-LOC", "I-LOC", "E-LOC", "S-LOC"),
        *("B-PER", "I-PER", "E-PER", "S-PER"),
    )
    words = POS.read(put(tmp_path, "a.conllu", CONLLU), POS.settings)
    made = POS.new_network(words, features, POS.settings)
    assert (made.config.labels, made.config.scheme) == (("NOUN", "VERB"), None)
    setup = load_setup(TAGLM)
    assert (setup.features.elmo_at, setup.features.elmo_layers) == ("output", "top")
    assert isinstance(TAGLM.new_network(spans, features, TAGLM.settings), TaglmNetwork)


def test_scores() -> None:
    sentence = Sentence.of(["a", "b", "c"])
    gold = [TaggedExample(sentence, ("B-X", "E-X", "S-Y"), "IOBES")]
    scores = NER.score(gold, [TaggedSentence(sentence, ("B-X", "E-X", "O"), "IOBES")])
    assert list(scores) == ["F1", "precision", "recall", "accuracy", "F1 X", "F1 Y"]
    assert scores["F1"] == pytest.approx(2 / 3)
    assert (scores["precision"], scores["recall"], scores["F1 X"], scores["F1 Y"]) == (1.0, 0.5, 1.0, 0.0)
    words = [TaggedExample(sentence, ("N", "V", "N"))]
    assert POS.score(words, [TaggedSentence(sentence, ("N", "N", "N"), None)]) == {"accuracy": pytest.approx(2 / 3)}
    with pytest.raises(InputError, match="cannot be scored on labels of words"):
        NER.score(words, [TaggedSentence(sentence, ("O", "O", "O"), "IOBES")])


def test_what_comes_out() -> None:
    text = "So it is. Jane [sic] left Paris."
    example = NER.from_text(text, load_tokenizer("english"))[1]
    found = TaggedSentence(example.sentence, ("S-PER", "O", "O", "O", "O", "S-LOC", "O"), "IOBES")
    record = NER.record(example, found)
    assert (record["text"], record["start"]) == ("Jane [sic] left Paris.", 10)
    assert record["spans"] == [
        {"text": "Jane", "type": "PER", "start": 10, "end": 14},
        {"text": "Paris", "type": "LOC", "start": 26, "end": 31},
    ]
    assert [text[w["start"] : w["end"]] for w in record["words"]] == [w["text"] for w in record["words"]]
    assert NER.conll(example, found).splitlines()[5] == "Paris\tB-LOC"
    shown = NER.show(example, found)
    assert "".join(piece for piece, _ in shown) == "[PER Jane] [sic] left [LOC Paris]."
    assert [style for piece, style in shown if piece in ("Jane", "Paris")] == ["bold cyan", "bold green"]
    words = TaggedSentence(example.sentence, ("NOUN",) * 7, None)
    assert POS.show(example, words)[:3] == [("Jane", ""), ("/NOUN", "dim"), (" [", "")]
    assert ("/NOUN", "dim") in POS.show(example, words)
    assert "spans" not in POS.record(example, words)
    assert POS.conll(example, words).startswith("Jane\tNOUN\n")


def test_files_without_labels(tmp_path: Path) -> None:
    tokenizer = load_tokenizer("english")
    lines = put(tmp_path, "a.txt", "One here. Two here.\n\nThree.\n")
    assert [len(e.sentence) for e in CHUNK.read_text(lines, CHUNK.settings, tokenizer)] == [3, 3, 2]
    tokens = put(tmp_path, "a.conllu", CONLLU)
    (example,) = POS.read_text(tokens, POS.settings, tokenizer)
    assert (example.sentence.tokens, example.tags) == (("Cats", "sleep"), None)


def test_a_column_that_the_file_leaves_empty(tmp_path: Path) -> None:
    """Every word would be labelled right."""
    file = put(tmp_path, "a.conllu", CONLLU.replace("NNS", "_").replace("VBP", "_"))
    xpos = load_setup(POS, flags={"column": "xpos"}).settings
    with pytest.raises(FormatError, match=r"a.conllu: has no labels in 'xpos', which is '_' at every word"):
        POS.read(file, xpos)
    assert POS.read(file, POS.settings)[0].tags == ("NOUN", "VERB")
    some = put(tmp_path, "b.conllu", CONLLU.replace("NNS", "_"))
    assert POS.read(some, xpos)[0].tags == ("_", "VBP")


def test_real_files(shared: Path) -> None:
    """The formats as they are published."""
    dev = NER.read(shared / "eval" / "ner-conll2003" / "dev.txt.xz", NER.settings)
    assert len(dev) == 3250
    assert sum(tag[0] in "BS" for example in dev for tag in example.tags or ()) == 5942  # published number of entities
    pos = POS.read(shared / "eval" / "pos-ewt" / "en_ewt-ud-dev.conllu.xz", POS.settings)
    assert len(pos) == 2001
    assert {tag for example in pos for tag in example.tags or ()} >= {"NOUN", "VERB", "PROPN"}


def test_words_that_the_tokenizer_cuts_are_trained_on_cut_so_too(tmp_path: Path) -> None:
    text = (
        "Jean-Luc B-PER\nPicard I-PER\nleft O\nthe O\nU.S. B-LOC\n\n"
        "A O\nLondon-based B-MISC\nfirm O\n\n"  # which part of it is a name is not known
        "A O\nyear-old O\nfirm O\n.. O\n. O\n\n"  # what the tokenizer would join stays
        "Jane B-PER\nleft O\n\n"
        "10\u00a0000 O\nhalf-men O\n"  # white space is no token
    )
    path = put(tmp_path, "a.txt", text)
    settings = load_setup(NER, flags={"recut": "english"}).settings
    examples = NER.read(path, settings)
    assert len(examples) == 5
    assert NER.training_examples(path, NER.settings) == examples
    *as_read, first, second, third = NER.training_examples(path, settings)
    assert as_read == examples
    assert first.sentence.tokens == ("Jean", "-", "Luc", "Picard", "left", "the", "U.S.")
    assert first.tags == ("B-PER", "I-PER", "I-PER", "E-PER", "O", "O", "S-LOC")
    assert second.sentence.tokens == ("A", "year", "-", "old", "firm", "..", ".")
    assert second.tags == ("O",) * 7
    assert third.sentence.tokens == ("10\u00a0000", "half", "-", "men")
    with pytest.raises(InputError, match="one label each, which cannot be parted"):
        POS.training_examples(put(tmp_path, "a.conllu", CONLLU), load_setup(POS, flags={"recut": "english"}).settings)
    with pytest.raises(InputError, match="no tokenizer 'englsh'"):
        NER.training_examples(path, load_setup(NER, flags={"recut": "englsh"}).settings)


def test_some_sentences_are_trained_on_in_other_case_too(tmp_path: Path) -> None:
    text = "".join(f"Jane B-PER\nleft O\n{word} B-LOC\n\n" for word in ("Ulm", "Bonn", "Kiel", "Rom"))
    path = put(tmp_path, "a.txt", text)
    settings = load_setup(NER, flags={"recase": 0.5}).settings
    *as_read, lower, upper = NER.training_examples(path, settings)
    assert as_read == NER.read(path, settings)
    assert lower.sentence.tokens == ("jane", "left", "ulm")
    assert upper.sentence.tokens == ("JANE", "LEFT", "KIEL")  # evenly spaced
    assert lower.tags == upper.tags == as_read[0].tags
    assert lower.scheme == "IOBES"
    of_words = put(tmp_path, "a.conllu", 2 * CONLLU)
    words = POS.training_examples(of_words, load_setup(POS, flags={"recase": 1.0}).settings)
    assert [example.sentence.tokens[0] for example in words] == ["Cats", "Cats", "cats", "CATS"]
    assert {example.tags for example in words} == {("NOUN", "VERB")}


def test_cut_sentences_come_in_other_case_too(tmp_path: Path) -> None:
    path = put(tmp_path, "a.txt", "Jean-Luc B-PER\nleft O\n")
    settings = load_setup(NER, flags={"recut": "english", "recase": 1.0}).settings
    tokens = [" ".join(example.sentence.tokens) for example in NER.training_examples(path, settings)]
    assert tokens == ["Jean-Luc left", "Jean - Luc left", "jean-luc left", "JEAN - LUC LEFT"]
