"""Pair classification: its readers, and a network that learns what only the two texts together tell."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from class_data import batch_of, features, fit

import models
from elmokit.config import plain
from elmokit.encoders import Elmo
from elmokit.errors import FormatError, InputError
from elmokit.tasks.entail.task import ENTAIL, PairClassifier, PairExample, PairNetwork, PairSettings
from elmokit.tasks.run import train_task
from elmokit.tasks.setup import load_setup
from elmokit.tasks.words import WordVocabulary
from elmokit.text import Sentence, load_tokenizer

TASK = ENTAIL
SMALL = PairSettings(hidden=12, dropout=0.1)
WORDS = ("dog", "cat", "man", "boat")


def made_up(n: int, seed: int) -> list[PairExample]:
    """The label says whether the second text's animal stands anywhere in the first."""
    rng = np.random.default_rng(seed)
    examples = []
    for _ in range(n):
        first = [WORDS[k] for k in rng.permutation(4)[: rng.integers(1, 4)]]
        second = WORDS[rng.integers(4)]
        label = "ENTAILMENT" if second in first else "NEUTRAL"
        filler = ["a", "sees", "the"][: rng.integers(4)]
        examples.append(PairExample(Sentence.of([*first, *filler]), Sentence.of([*filler[:1], second]), label))
    return examples


def vocabulary_of(examples: list[PairExample]) -> WordVocabulary:
    return WordVocabulary.of(sentence for e in examples for sentence in e.sentences)


@pytest.mark.parametrize("elmo_at", ["none", "output"])
def test_it_learns(elmo_at: str) -> None:
    train, dev = made_up(200, 1), made_up(60, 2)
    vocabulary = vocabulary_of(train)
    config = features(vocabulary, elmo_at=elmo_at)
    torch.manual_seed(0)
    network = TASK.new_network(train, config, SMALL)
    losses = fit(network, batch_of(train, vocabulary, config), steps=60, rate=0.02)
    assert losses[-1] < 0.2 * losses[0]
    assert TASK.score(dev, network.predict(batch_of(dev, vocabulary, config)))["accuracy"] >= 0.9


def test_neighbours_change_no_prediction_and_configurations_rebuild() -> None:
    examples = made_up(9, 3)
    vocabulary = vocabulary_of(examples)
    config = features(vocabulary, elmo_at="both")
    torch.manual_seed(0)
    network = TASK.new_network(examples, config, SMALL).eval()
    together = network.predict(batch_of(examples, vocabulary, config))
    for example, found in zip(examples, together, strict=True):
        (alone,) = network.predict(batch_of([example], vocabulary, config))
        assert alone.probabilities == pytest.approx(found.probabilities, abs=1e-5)
    again = PairNetwork.from_plain(json.loads(json.dumps(plain(network.config))))
    again.load_state_dict(network.state_dict())
    assert again.eval().predict(batch_of(examples, vocabulary, config)) == together


def test_which_text_is_first_matters() -> None:
    examples = made_up(9, 3)
    vocabulary = vocabulary_of(examples)
    config = features(vocabulary)
    torch.manual_seed(0)
    network = TASK.new_network(examples, config, SMALL).eval()
    turned = [replace(e, first=e.second, second=e.first) for e in examples]
    one, other = (network.predict(batch_of(some, vocabulary, config)) for some in (examples, turned))
    assert one != other


def test_sick(shared: Path) -> None:
    train = TASK.read(shared / "eval/entail-sick/SICK_train.txt.xz", SMALL)
    assert len(train) == 4500
    assert train[0].first.tokens[:4] == ("A", "group", "of", "kids")
    assert train[0].label == "NEUTRAL"
    trial = TASK.read(shared / "eval/entail-sick/SICK_trial.txt.xz", SMALL)
    assert len(trial) == 500
    assert {e.label for e in trial} == {"NEUTRAL", "ENTAILMENT", "CONTRADICTION"}


def test_json_lines_as_snli_has_them(tmp_path: Path) -> None:
    path = tmp_path / "snli.jsonl"
    lines = [
        {"gold_label": "neutral", "sentence1": "It rains.", "sentence2": "It rains hard.", "annotator_labels": []},
        {"gold_label": "-", "sentence1": "Nobody", "sentence2": "agrees"},
        {"label": 1, "premise": ["in", "tokens"], "hypothesis": "and text", "sentence1": "not this"},
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    examples = TASK.read(path, SMALL)
    assert [(e.first.tokens, e.second.tokens, e.label) for e in examples] == [
        (("It", "rains", "."), ("It", "rains", "hard", "."), "neutral"),
        (("in", "tokens"), ("and", "text"), "1"),
    ]
    assert len(list(TASK.read_text(path, SMALL, load_tokenizer("english")))) == 3  # nothing is undecided


def test_pairs_without_labels(tmp_path: Path) -> None:
    english = load_tokenizer("english")
    for text in ("It rains.\tIt pours.", "It rains. ||| It pours."):
        (pair,) = TASK.from_text(text, english)
        assert (pair.first.text, pair.second.text, pair.label) == ("It rains.", "It pours.", None)
    assert TASK.from_text("\n", english) == []
    path = tmp_path / "pairs.txt"
    path.write_text("a\tb\n\nc ||| d\n")
    assert [e.second.tokens for e in TASK.read_text(path, SMALL, english)] == [("b",), ("d",)]
    table = tmp_path / "pairs.tsv"
    table.write_text("premise\thypothesis\na\tb\n")
    assert list(TASK.read_text(table, SMALL, english)) == [PairExample(*TASK.from_text("a\tb", english)[0].sentences)]
    for wrong in ("one text", "a\tb\tc", "\tb"):
        with pytest.raises(InputError, match="is not a pair; expected two texts with a tab"):
            TASK.from_text(wrong, english)


def test_malformed_files_are_told_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("premise\thypothesis\tlabel\na\tb\tx\na\tb\n")
    with pytest.raises(FormatError, match=r"pairs.tsv, line 3: has 2 fields, expected 3: premise, hypothesis, label"):
        TASK.read(path, SMALL)
    path.write_text("premise\tlabel\na\tb\n")
    with pytest.raises(FormatError, match=r"pairs.tsv, line 2: has no field any of hypothesis, .* by second_field"):
        TASK.read(path, SMALL)
    trees = tmp_path / "trees.txt"
    trees.write_text("(1 (2 a) (3 b))\n")
    with pytest.raises(FormatError, match="holds trees, expected a table or JSON lines with pairs"):
        TASK.read(trees, SMALL)


def test_what_is_shown_and_recorded() -> None:
    examples = made_up(5, 3)
    vocabulary = vocabulary_of(examples)
    network = TASK.new_network(examples, features(vocabulary), SMALL).eval()
    (pair,) = TASK.from_text("It [rains].\tIt pours.", load_tokenizer("english"))
    (found,) = network.predict(batch_of([pair], vocabulary, features(vocabulary)))
    record = TASK.record(pair, found)
    assert (record["first"], record["second"]) == ("It [rains].", "It pours.")
    assert record["label"] == found.label
    assert "".join(text for text, _ in TASK.show(pair, found)).endswith("  It [rains]. ||| It pours.")


def test_a_trained_pair_classifier_works_on_text_after_saving(tmp_path: Path) -> None:
    train, dev = made_up(40, 1), made_up(10, 2)
    elmo = Elmo(models.tiny().pretrained, device="cpu")
    setup = load_setup(ENTAIL, flags={"word_dim": 8, "hidden": 8, "epochs": 2})
    assert setup.features.elmo_at == "both"
    model = train_task(ENTAIL, setup, train, dev, encoder=elmo, device="cpu")
    assert set(model.mixes) == {"input", "output"}
    model.save(tmp_path, with_encoder=True)
    classifier = PairClassifier.from_pretrained(tmp_path, device="cpu")
    pairs = [("dog cat man", "boat"), ("dog", "")]
    found = classifier.predict(pairs)
    assert len(found) == 2
    expected = model.predict("dog cat man ||| boat")
    assert found[0].probabilities == pytest.approx(expected.probabilities, abs=1e-5)
    assert classifier.predict(pairs[0]).probabilities == pytest.approx(expected.probabilities, abs=1e-5)
    with pytest.warns(DeprecationWarning, match=r"predict_pairs\(pairs\) is now predict\(pairs\)"):
        assert [one.label for one in classifier.predict_pairs(iter(pairs))] == [one.label for one in found]
    with pytest.warns(DeprecationWarning, match=r"predict\(a, b\) is now predict\(\(a, b\)\)"):
        assert classifier.predict(*pairs[0]).label == expected.label  # type: ignore[call-overload]
    for wrong in ("", ("dog",), ("dog", 3), [["dog", "cat"]]):
        with pytest.raises(InputError, match=r"expected a tuple of two texts|is not a pair"):
            classifier.predict(wrong)  # type: ignore[call-overload]
    assert model.trained is not None
    assert classifier.evaluate(dev) == pytest.approx(model.trained.best.scores)
