"""Probes over layers: labels from files, the control task, curves, and what they find in vectors made for it."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import models
from elmokit.analysis.probe import ProbeConfig
from elmokit.analysis.probing import Probing
from elmokit.analysis.views import list_views
from elmokit.analysis.word_labels import WordLabels, control_labels, label_ids, read_word_labels
from elmokit.encoders import Elmo
from elmokit.errors import FormatError, InputError
from elmokit.text import Sentence

COUNTS = Counter({"NOUN": 5, "VERB": 3, "DET": 2})
CPU = ProbeConfig(iterations=40, device="cpu")

CONLLU = """\
1\tDogs\tdog\tNOUN\tNNS\t_\t2\tnsubj\t_\t_
2\tbark\tbark\tVERB\tVBP\t_\t0\troot\t_\t_

1\tCats\tcat\tNOUN\tNNS\t_\t0\troot\t_\t_

"""
COLUMNS = """\
Ann NNP B-NP I-PER
-LRB- ( O O
Rome NNP B-NP B-LOC

"""


@given(st.lists(st.text(max_size=6), max_size=30), st.integers(0, 5))
def test_control_labels_are_fixed_by_the_word_type_alone(words: list[str], seed: int) -> None:
    labels = control_labels(words, COUNTS, seed=seed)
    by_word = dict(zip(words, labels, strict=True))
    assert labels == [by_word[word] for word in words]
    assert set(labels) <= set(COUNTS)
    assert control_labels(words[::-1], COUNTS, seed=seed) == labels[::-1]  # neither order nor neighbours count


def test_control_labels_are_as_uneven_as_the_task_and_differ_by_seed() -> None:
    words = [f"word{k}" for k in range(3000)]
    drawn = Counter(control_labels(words, COUNTS))
    for name, count in COUNTS.items():
        assert drawn[name] / 3000 == pytest.approx(count / 10, abs=0.03)
    assert control_labels(words, COUNTS, seed=1) != control_labels(words, COUNTS, seed=2)


def test_labels_are_read_from_both_formats(tmp_path: Path) -> None:
    conllu, columns = tmp_path / "a.conllu", tmp_path / "a.txt"
    conllu.write_text(CONLLU, encoding="utf-8")
    columns.write_text(COLUMNS, encoding="utf-8")
    assert read_word_labels(conllu, "upos").labels == (("NOUN", "VERB"), ("NOUN",))
    assert read_word_labels(conllu, "deprel").flat == ["nsubj", "root", "root"]
    assert read_word_labels(conllu, "xpos").words == ["Dogs", "bark", "Cats"]
    assert read_word_labels(columns, "column").labels == (("I-PER", "O", "B-LOC"),)
    assert read_word_labels(columns, "type").labels == (("PER", "O", "LOC"),)
    assert read_word_labels(columns, "column:2").labels == (("NNP", "(", "NNP"),)
    assert read_word_labels(columns, "column:-2").labels == (("B-NP", "O", "B-NP"),)
    assert read_word_labels(columns, "column").words == ["Ann", "(", "Rome"]  # as it stood in the text
    with pytest.raises(InputError, match="has 4 columns, the first of them words; 'column:5' asks for column 5"):
        read_word_labels(columns, "column:5")
    with pytest.raises(InputError, match="'tense' not understood; expected upos"):
        read_word_labels(columns, "tense")
    columns.write_text("Rome LOC\n", encoding="utf-8")
    with pytest.raises(FormatError, match=r"a.txt: label 'LOC' not understood"):
        read_word_labels(columns, "type")
    conllu.write_text("1\tHi\thi\tINTJ\t_\t_\t0\troot\t_\t_\n\n", encoding="utf-8")
    with pytest.raises(FormatError, match=r"a.conllu: has no labels in 'xpos'"):
        read_word_labels(conllu, "xpos")
    conllu.write_text("\n", encoding="utf-8")
    with pytest.raises(FormatError, match="holds no labelled words"):
        read_word_labels(conllu, "upos")


def test_some_sentences_are_evenly_spaced() -> None:
    sentences = tuple(Sentence.of([str(k)]) for k in range(10))
    data = WordLabels(sentences, tuple((str(k),) for k in range(10)))
    assert data.some(3).flat == data.some(3).words == ["0", "3", "6"]
    assert data.some(0) is data.some(10) is data
    assert label_ids(["b", "c", "a"], ["a", "b"]).tolist() == [1, -1, 0]


@pytest.fixture(scope="module")
def encoder() -> Elmo:
    return Elmo(models.tiny().pretrained, device="cpu")


def text(seed: int, n: int = 60) -> WordLabels:
    """Words whose label is whether the word before them is `a`: known to no word, only to its context."""
    rng = np.random.default_rng(seed)
    sentences = [["a" if rng.random() < 0.5 else "b", *rng.choice(["x", "y", "z"], 1).tolist()] for _ in range(n)]
    labels = [("first", "after a" if words[0] == "a" else "after b") for words in sentences]
    return WordLabels(tuple(map(Sentence.of, sentences)), tuple(labels))


def test_a_label_of_the_context_is_found_above_layer_0_only(encoder: Elmo) -> None:
    train, dev = text(0), text(1)
    probing = Probing(encoder, train.sentences, dev.sentences)
    views = list_views(encoder.layer_names, ["each", "average", "mix", "concat:1,2"])
    scores = {score.view: score for score in probing.score(train, dev, views, config=CPU)}
    assert list(scores) == ["0 token", "1 lstm1", "2 lstm2", "average", "mix", "concat:1,2"]
    assert 0.6 < scores["0 token"].accuracy < 0.9  # the first word is known, of the second a half by luck
    for view in ("1 lstm1", "concat:1,2", "mix"):
        assert scores[view].accuracy > 0.97, view
    for score in scores.values():
        assert (score.sentences, score.words, score.classes) == (60, 120, 3)
        assert score.selectivity == score.accuracy - score.control
        assert score.control > 0.97  # five words are soon learned by heart
        assert score.majority == 0.5
        assert len(score.shares) == (3 if score.view == "mix" else 0)


def test_smaller_trainings_are_part_of_larger_ones(encoder: Elmo) -> None:
    train, dev = text(0), text(1)
    probing = Probing(encoder, train.sentences, dev.sentences)
    views = list_views(encoder.layer_names, ["1"])
    few, many = (next(iter(probing.score(train, dev, views, sentences=n, config=CPU))) for n in (6, 50))
    assert (few.sentences, few.words, many.sentences) == (6, 12, 50)
    rows = [set(probing._rows(train, dev, n, 0)) for n in (6, 50)]  # type: ignore[arg-type]
    assert rows[0] < rows[1]
    everything = next(iter(probing.score(train, dev, views, sentences=999, config=CPU)))
    assert everything == next(iter(probing.score(train, dev, views, config=CPU)))
    with pytest.raises(InputError, match="0 training sentences; expected 1"):
        [*probing.score(train, dev, views, sentences=0, config=CPU)]
    with pytest.raises(InputError, match="do not fit the embedded sentences"):
        [*probing.score(dev.some(3), dev, views, config=CPU)]


def test_a_label_that_training_lacks_is_never_right(encoder: Elmo) -> None:
    train = WordLabels((Sentence.of(["a"]), Sentence.of(["b"])), (("A",), ("B",)))
    dev = WordLabels((Sentence.of(["a"]), Sentence.of(["b"])), (("A",), ("unseen",)))
    probing = Probing(encoder, train.sentences, dev.sentences)
    (score,) = probing.score(train, dev, list_views(encoder.layer_names, ["0"]), config=CPU)
    assert score.accuracy == 0.5


def test_views() -> None:
    rng = np.random.default_rng(0)
    layers = rng.normal(size=(3, 4, 2)).astype(np.float32)  # (L, T, D)
    each, concat, weighed = list_views(("a", "b", "c"), ["1", "concat:0,2", "weights:1,0,2*0.5"])
    np.testing.assert_array_equal(each.of_sentence(layers), layers[1])
    np.testing.assert_array_equal(concat.of_sentence(layers), np.concatenate([layers[0], layers[2]], axis=1))
    np.testing.assert_allclose(weighed.of_sentence(layers), 0.5 * layers[0] + layers[2], rtol=1e-6)
    table = layers.transpose(1, 0, 2).astype(np.float16)  # (N, L, D)
    for view in (each, concat, weighed):
        np.testing.assert_allclose(view.of_table(table), view.of_sentence(layers), atol=5e-3)
    assert [view.name for view in list_views(("a", "b"))] == ["0 a", "1 b"]
    with pytest.raises(InputError, match="'each' looks at every layer"):
        list_views(("a", "b"), ["all"])
    with pytest.raises(InputError, match="layer 7, but"):
        list_views(("a", "b"), ["7"])
