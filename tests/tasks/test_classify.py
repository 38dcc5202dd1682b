"""Text classification: its readers, and a network that learns what only the order of words tells."""

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
from elmokit.errors import ConfigError, FormatError, InputError
from elmokit.tasks.classify.network import BcnConfig
from elmokit.tasks.classify.task import (
    CLASSIFY,
    SENTIMENT,
    SENTIMENTS,
    Classification,
    Classifier,
    ClassifierNetwork,
    ClassifySettings,
    TextExample,
)
from elmokit.tasks.entail.task import PairClassifier
from elmokit.tasks.run import train_task
from elmokit.tasks.setup import load_setup
from elmokit.tasks.words import WordVocabulary
from elmokit.text import Sentence, load_tokenizer

TASK = CLASSIFY
SMALL = ClassifySettings(hidden=12, head_width=12, dropout=0.1)


def made_up(n: int, seed: int) -> list[TextExample]:
    """ "not good" is bad and "not bad" is good, wherever they stand: the words alone do not tell."""
    rng = np.random.default_rng(seed)
    examples = []
    for _ in range(n):
        negated, good = rng.integers(2, size=2).tolist()
        tokens = ["a", "film"][: rng.integers(3)]
        at = int(rng.integers(len(tokens) + 1))
        tokens[at:at] = ["not"] * negated + [("bad", "good")[good]]
        tokens += ["not"] * (1 - negated)  # the word itself is always there
        examples.append(TextExample(Sentence.of(tokens), "good" if good != negated else "bad"))
    return examples


@pytest.mark.parametrize(("elmo_at", "head"), [("none", "maxout"), ("both", "relu")])
def test_it_learns(elmo_at: str, head: str) -> None:
    train, dev = made_up(60, 1), made_up(40, 2)
    vocabulary = WordVocabulary.of(e.sentence for e in train)
    config = features(vocabulary, elmo_at=elmo_at)
    torch.manual_seed(0)
    network = TASK.new_network(train, config, replace(SMALL, head=head))
    assert network.config.labels == ("bad", "good")
    losses = fit(network, batch_of(train, vocabulary, config), steps=40, rate=0.02)
    assert losses[-1] < 0.3 * losses[0]
    assert TASK.score(dev, network.predict(batch_of(dev, vocabulary, config)))["accuracy"] >= 0.95
    if elmo_at == "both":
        assert list(network.features.mixes) == ["input", "output"]
        assert all(mix.shares.ne(1 / 3).all() for mix in network.features.mixes.values())  # they are trained


def test_neighbours_change_no_prediction() -> None:
    examples = made_up(9, 3)
    vocabulary = WordVocabulary.of(e.sentence for e in examples)
    config = features(vocabulary, elmo_at="both")
    torch.manual_seed(0)
    network = TASK.new_network(examples, config, SMALL).eval()
    together = network.predict(batch_of(examples, vocabulary, config))
    for example, found in zip(examples, together, strict=True):
        (alone,) = network.predict(batch_of([example], vocabulary, config))
        assert alone.probabilities == pytest.approx(found.probabilities, abs=1e-5)
        assert sum(found.probabilities.values()) == pytest.approx(1)
        assert found.probability == max(found.probabilities.values())


def test_the_loss_is_that_of_the_labels() -> None:
    examples = made_up(5, 3)
    vocabulary = WordVocabulary.of(e.sentence for e in examples)
    config = features(vocabulary, elmo_at="input", elmo_l2=0.1)
    torch.manual_seed(0)
    network = TASK.new_network(examples, config, SMALL).eval()
    with torch.no_grad():
        network.features.mixes["input"].weights[:] = torch.tensor([1.0, 2.0, 0.0])
    batch = batch_of(examples, vocabulary, config)
    found = network.predict(batch)
    expected = -np.mean([np.log(p.probabilities[str(e.label)]) for e, p in zip(examples, found, strict=True)])
    assert network.loss(batch).item() == pytest.approx(expected + 0.1 * 5, rel=1e-5)


def test_the_configuration_rebuilds_the_network() -> None:
    examples = made_up(5, 3)
    vocabulary = WordVocabulary.of(e.sentence for e in examples)
    config = features(vocabulary, elmo_at="both")
    network = TASK.new_network(examples, config, SMALL).eval()
    again = ClassifierNetwork.from_plain(json.loads(json.dumps(plain(network.config))))
    again.load_state_dict(network.state_dict())
    assert isinstance(network.config.body, BcnConfig)
    assert not isinstance(network.config.body, ClassifySettings)  # the data's settings are not the network's
    batch = batch_of(examples, vocabulary, config)
    assert again.eval().predict(batch) == network.predict(batch)


def test_trees_train_on_phrases_and_score_on_sentences(tmp_path: Path) -> None:
    path = tmp_path / "trees.txt"
    path.write_text("(3 (2 It) (4 (2 's) (3 (2 so) (4 lovely))))\n(1 (2 It) (1 bad))\n(0 Awful)\n")
    sentences = TASK.read(path, SMALL)
    assert [(e.sentence.tokens, e.label) for e in sentences] == [
        (("It", "'s", "so", "lovely"), "positive"),
        (("It", "bad"), "negative"),
        (("Awful",), "very negative"),
    ]
    phrases = TASK.training_examples(path, SMALL)
    assert len(phrases) == 10  # "It" stands twice and counts once
    assert TextExample(Sentence.of(["so", "lovely"]), "positive") in phrases
    longer = TASK.training_examples(path, replace(SMALL, phrase_words=3))
    assert [len(e.sentence) for e in longer] == [3, 4, 2, 1]  # whole sentences always
    assert TASK.training_examples(path, replace(SMALL, phrase_words=0)) == sentences


@pytest.mark.parametrize("name", ["data.csv", "data.tsv", "data.jsonl", "data.txt"])
def test_tables_and_json_lines(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    rows = {
        "data.csv": 'id,text,label\n1,"It works, well.",yes\n2,No.,no\n',
        "data.tsv": "text\tlabel\nIt works, well.\tyes\nNo.\tno\n",
        "data.jsonl": '{"text": "It works, well.", "label": "yes"}\n{"text": ["No", "."], "label": "no"}\n',
        "data.txt": "\ntext\tlabel\nIt works, well.\tyes\nNo.\tno\n",
    }
    path.write_text(rows[name])
    examples = TASK.read(path, SMALL)
    assert [e.sentence.tokens for e in examples] == [("It", "works", ",", "well", "."), ("No", ".")]
    assert [e.label for e in examples] == ["yes", "no"]
    assert TASK.training_examples(path, SMALL) == examples
    if name != "data.txt":
        plainly = list(TASK.read_text(path, SMALL, load_tokenizer("whitespace")))
        assert plainly[0].sentence.tokens == ("It", "works,", "well.")
        assert plainly[0].label is None


def test_columns_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text('{"body": "So so", "stars": 3}\n')
    (example,) = TASK.read(path, replace(SMALL, text_field="body"))
    assert (example.sentence.tokens, example.label) == (("So", "so"), "3")


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        (
            "a.csv",
            "words,label\nx,y\n",
            "line 2: has no field any of text, .* 'words', 'label'; name one .* text_field",
        ),
        ("a.csv", "text,label\nx,\n", "a.csv, line 2: the label is '', expected a word"),
        ("a.jsonl", '{"text": "x", "label": [1]}', r"line 1: the label is '\[1\]'"),
        ("a.jsonl", '{"text": 3, "label": "x"}', "line 1: field 'text' is '3', expected a string"),
        ("a.txt", "\njust words\n", "a.txt, line 2: 'just words' tells no format"),
        ("a.txt", "", "tells no format"),
        ("a.txt", "(1 fine)\n(2 (1 cut)", "a.txt, line 2: 1 brackets are not closed"),
    ],
)
def test_malformed_files_are_told_with_their_line(tmp_path: Path, name: str, text: str, told: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(FormatError, match=told):
        TASK.read(path, SMALL)


def test_labels_that_were_not_trained_cannot_be_learnt() -> None:
    examples = made_up(5, 3)
    vocabulary = WordVocabulary.of(e.sentence for e in examples)
    config = features(vocabulary)
    network = TASK.new_network(examples, config, SMALL)
    other = [replace(examples[0], label="so so")]
    with pytest.raises(InputError, match="label 'so so' is not among the network's: bad, good"):
        network.loss(batch_of(other, vocabulary, config))
    with pytest.raises(ConfigError, match="integrators is 0"):
        replace(SMALL, integrators=0)


def test_text_without_labels_and_what_is_shown() -> None:
    (example,) = TASK.from_text("  A [bold] film.", load_tokenizer("english"))
    assert TASK.from_text("  ", load_tokenizer("english")) == []
    network = TASK.new_network(made_up(5, 3), features(WordVocabulary(["a"])), SMALL).eval()
    vocabulary = WordVocabulary(["a"])
    (found,) = network.predict(batch_of([example], vocabulary, features(vocabulary)))
    record = TASK.record(example, found)
    assert record["text"][record["start"] : record["end"]] == "A [bold] film."
    assert record["label"] in ("bad", "good")
    assert TASK.show(example, found)[0] == (found.label, "bold")
    assert TASK.show(example, found)[1][0].endswith("    A [bold] film.")


def test_each_use_has_its_settings() -> None:
    assert load_setup(SENTIMENT).settings == ClassifySettings()
    quick = load_setup(SENTIMENT, quick=True)
    assert (quick.settings.phrase_words, quick.settings.integrators, quick.training.epochs) == (4, 1, 5)
    assert load_setup(CLASSIFY, quick=True).settings.phrase_words == 1


@pytest.mark.parametrize("task", [SENTIMENT, CLASSIFY])
@pytest.mark.parametrize("quick", [False, True])
def test_word_vectors_are_dropped_out_unless_told_otherwise(task: Classification, quick: bool) -> None:
    usual = load_setup(task, quick=quick)
    assert usual.features_config(n_words=9, word_dim=8, depth=3, width=6).dropout == 0.5
    assert usual.settings.head == "maxout"
    assert load_setup(task, quick=quick, flags={"feature_dropout": 0.0}).features.feature_dropout == 0


def test_the_treebank(shared: Path) -> None:
    dev = TASK.read(shared / "eval/sst5/dev.txt.xz", SMALL)
    assert len(dev) == 1101
    assert {e.label for e in dev} == set(SENTIMENTS)
    phrases = TASK.training_examples(shared / "eval/sst5/dev.txt.xz", SMALL)
    assert len(phrases) == len({e.sentence.tokens for e in phrases}) > 20000
    assert {e.sentence.tokens for e in dev} <= {e.sentence.tokens for e in phrases}


def test_a_trained_classifier_works_on_text_after_saving(tmp_path: Path) -> None:
    train, dev = made_up(40, 1), made_up(10, 2)
    elmo = Elmo(models.tiny().pretrained, device="cpu")
    small = {"word_dim": 8, "hidden": 8, "head_width": 8, "integrators": 1, "epochs": 2}
    model = train_task(CLASSIFY, load_setup(CLASSIFY, flags=small), train, dev, encoder=elmo, device="cpu")
    model.save(tmp_path, with_encoder=True)
    classifier = Classifier.from_pretrained(tmp_path, device="cpu")
    texts = ["a film not bad", "good a film not", ""]
    found = classifier.predict(texts)
    examples = [TextExample(Sentence.of(text.split())) for text in texts]
    for one, other in zip(found, model.predict_examples(examples), strict=True):
        assert one.probabilities == pytest.approx(other.probabilities, abs=1e-5)
    assert classifier.predict(texts[0]).probabilities == pytest.approx(found[0].probabilities, abs=1e-5)
    assert model.trained is not None
    assert classifier.evaluate(dev) == pytest.approx(model.trained.best.scores)
    with pytest.raises(InputError, match="a model of the task 'classify', not for PairClassifier"):
        PairClassifier.from_pretrained(tmp_path, device="cpu")
