"""Semantic roles: a network that learns from the predicate's place, legal labels alone, text and files."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from class_data import batch_of, features
from torch import Tensor

import models
from elmokit.config import plain
from elmokit.encoders import Elmo
from elmokit.errors import ConfigError, ElmokitWarning, FormatError, InputError
from elmokit.tasks.labels import Span, convert_tags, write_tags
from elmokit.tasks.roles.data import Proposition, read_propositions
from elmokit.tasks.roles.task import ROLES, RoleLabeller, Roles, RoleSettings, RolesNetwork, proposition_of
from elmokit.tasks.run import train_task
from elmokit.tasks.setup import default_setup, load_setup
from elmokit.tasks.words import WordFeaturesConfig, WordVocabulary
from elmokit.text import Sentence, load_tokenizer

ENGLISH = load_tokenizer("english")
UNICODE = load_tokenizer("unicode")
SMALL = RoleSettings(predicate_dim=4, hidden=16, lstm_layers=4, dropout=0.0)


def made_up(n: int, seed: int) -> list[Proposition]:
    """Two clauses a sentence, [the] noun verb [the] noun; the arguments are those of the marked verb's own clause."""
    rng = np.random.default_rng(seed)
    examples = []
    for _ in range(n):
        words: list[str] = []
        clauses = []
        for _ in range(2):
            spans = []
            for role in ("A0", "V", "A1"):
                start = len(words)
                words += ["the"] * int(role != "V" and rng.random() < 0.5)
                words.append(f"{'v' if role == 'V' else 'n'}{rng.integers(4)}")
                spans.append(Span(start, len(words), role))
            clauses.append(spans)
            words.append("and")
        words.pop()
        chosen = clauses[int(rng.integers(2))]
        tags = tuple(write_tags(chosen, len(words), scheme="IOB2"))
        examples.append(Proposition(Sentence.of(words), chosen[1].start, tags))
    return examples


def words_of(examples: list[Proposition]) -> WordVocabulary:
    return WordVocabulary.of(e.sentence for e in examples)


def build(examples: list[Proposition], config: WordFeaturesConfig, settings: RoleSettings = SMALL) -> RolesNetwork:
    torch.manual_seed(0)
    return ROLES.new_network(examples, config, settings)


def test_it_learns_the_roles_of_the_marked_predicate() -> None:
    train, dev = made_up(160, 1), made_up(50, 2)
    vocabulary = words_of(train)
    config = features(vocabulary, elmo_at="input")
    network = build(train, config)
    assert network.config.labels == ("O", "B-A0", "I-A0", "B-A1", "I-A1", "B-V", "I-V")
    batches = [batch_of(train[k : k + 40], vocabulary, config) for k in range(0, 160, 40)]
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    network.train()
    for step in range(60):
        optimizer.zero_grad()
        network.loss(batches[step % 4]).backward()
        optimizer.step()
    network.eval()
    scores = ROLES.score(dev, network.predict(batch_of(dev, vocabulary, config)))
    assert list(scores)[:4] == ["F1", "precision", "recall", "perfect"]
    assert scores["F1"] >= 0.95  # without the mark there is no telling which of the two clauses is meant


def test_neighbours_change_no_label_and_no_loss() -> None:
    examples = made_up(8, 3)
    vocabulary = words_of(examples)
    config = features(vocabulary, elmo_at="both")
    network = build(examples, config).eval()
    whole = batch_of(examples, vocabulary, config)
    scores, together = network(whole), network.predict(whole)
    losses = []
    for k, example in enumerate(examples):
        batch = batch_of([example], vocabulary, config)
        torch.testing.assert_close(scores[k, : len(example.sentence)], network(batch)[0])
        assert network.predict(batch) == [together[k]]
        losses.append(network.loss(batch).item())
    assert network.loss(whole).item() == pytest.approx(np.mean(losses), rel=1e-5)


def test_the_loss_is_that_of_all_words() -> None:
    examples = made_up(3, 4)
    vocabulary = words_of(examples)
    config = features(vocabulary, elmo_at="none")
    network = build(examples, config).eval()
    batch = batch_of(examples, vocabulary, config)
    numbers = {label: k for k, label in enumerate(network.config.labels)}
    found: Tensor = network(batch)
    assert found.exp().sum(dim=-1).allclose(torch.ones(()))
    gold = [found[k, t, numbers[tag]] for k, e in enumerate(examples) for t, tag in enumerate(e.tags or ())]
    assert network.loss(batch).item() == pytest.approx(-sum(x.item() for x in gold) / 3, rel=1e-5)
    with pytest.raises(InputError, match="label 'B-A9' is not among the network's: O, B-A0"):
        network.loss(batch_of([replace(examples[0], tags=("B-A9",))], vocabulary, config))
    with pytest.raises(InputError, match="without labels"):
        network.loss(batch_of([replace(examples[0], tags=None)], vocabulary, config))


def test_labels_are_always_legal() -> None:
    examples = made_up(20, 5)
    vocabulary = words_of(examples)
    config = features(vocabulary, elmo_at="none")
    network = build(examples, config).eval()
    with torch.no_grad():
        network.output.bias[[2, 4]] = 3.0  # I-A0 and I-A1 look best everywhere
        free = network(batch_of(examples, vocabulary, config)).argmax(dim=-1)
    assert free[0, 0] in (2, 4)  # where nothing is constrained, a sentence begins with I-
    for roles in network.predict(batch_of(examples, vocabulary, config)):
        assert list(roles.tags) == convert_tags(roles.tags, "IOB2")
        assert any(tag.startswith("I-") for tag in roles.tags)
    assert not any(p.requires_grad for p in network.viterbi.parameters())


def test_roles_point_into_the_text() -> None:
    text = "Yes. Mary *sold* her old car, and *left*."
    sold, left = ROLES.from_text(text, ENGLISH)
    assert [p.sentence.tokens[p.predicate] for p in (sold, left)] == ["sold", "left"]
    tags = ("B-ARG0", "B-V", "B-ARG1", "I-ARG1", "I-ARG1", "O", "O", "O", "O")
    roles = Roles(sold.sentence, sold.predicate, tags)
    assert [(a.type, a.text, text[a.start : a.end]) for a in roles.arguments] == [
        ("ARG0", "Mary", "Mary"),
        ("ARG1", "her old car", "her old car"),
    ]
    assert (roles.predicate.text, text[roles.predicate.start : roles.predicate.end]) == ("sold", "sold")
    record = json.loads(json.dumps(ROLES.record(sold, roles)))
    assert record["predicate"] == {"text": "sold", "start": 11, "end": 15, "word": 1}
    assert record["arguments"][1] == {"role": "ARG1", "text": "her old car", "start": 17, "end": 28}
    assert text[record["start"] :].startswith(record["text"])
    shown = ROLES.show(sold, roles)
    assert shown[0] == ("sold", "bold")
    assert "".join(text for text, _ in shown) == "sold: [ARG0 Mary] *[V sold]* [ARG1 her old car], and *left*."
    assert ROLES.conll(sold, roles).splitlines()[:3] == ["Mary\t-\t(ARG0*)", "sold\tsold\t(V*)", "her\t-\t(ARG1*"]


def test_predicates_are_given_or_the_verbs() -> None:
    text = "Mary sold it. The old car!  He had left, they say."
    found = [(one.sentence.tokens[one.predicate], one.sentence.start) for one in ROLES.from_text(text, ENGLISH)]
    assert found == [("sold", 0), ("left", 28), ("say", 28)]
    assert ROLES.from_text("The old car.", ENGLISH) == []
    with pytest.raises(InputError, match=r"no predicate is marked in 'Mary sold it\.'; put asterisks around"):
        ROLES.from_text("Mary sold it.", UNICODE)  # perhaps another language
    assert ROLES.from_text(" ", ENGLISH) == []
    assert proposition_of(["Mary", "sold", "it"], 1).predicate == 1
    with pytest.raises(InputError, match="predicate 3 of 3 words; expected 0 to 2"):
        proposition_of(["Mary", "sold", "it"], 3)


def test_files_to_be_labelled(tmp_path: Path) -> None:
    lines, columns, text = tmp_path / "a.jsonl", tmp_path / "a.conll", tmp_path / "a.txt"
    lines.write_text('{"words": ["Mary", "sold", "it"], "frames": [{"verb": 1}]}\n')
    columns.write_text("Mary - *\nsold sell (V*)\nit - *\n")
    text.write_text("Mary *sold* it\n")
    for path in (lines, columns, text):
        (found,) = ROLES.read_text(path, SMALL, ENGLISH)
        assert (found.sentence.tokens, found.predicate) == (("Mary", "sold", "it"), 1)
    assert ROLES.read(columns, SMALL) == list(read_propositions(columns))
    text.write_text("Nothing here.\nMary *sold* it\n")
    with pytest.warns(ElmokitWarning, match=r"a\.txt: predicates are marked by asterisks in 1 of 2 lines"):
        assert len(list(ROLES.read_text(text, SMALL, ENGLISH))) == 1
    lines.write_text('{"text": "Mary sold it."}\n')
    with pytest.raises(FormatError, match=r"has no 'words' and 'frames'; .* \(apply --field text\)"):
        list(ROLES.read_text(lines, SMALL, ENGLISH))
    text.write_text("Nothing here.\n")
    assert list(ROLES.read_text(text, SMALL, ENGLISH)) == []
    with pytest.raises(InputError, match="no predicate is marked in 'Nothing here"):
        list(ROLES.read_text(text, SMALL, UNICODE))


def test_the_configuration_rebuilds_the_network() -> None:
    examples = made_up(3, 5)
    vocabulary = words_of(examples)
    config = features(vocabulary, elmo_at="input")
    network = build(examples, config).eval()
    again = RolesNetwork.from_plain(json.loads(json.dumps(plain(network.config)))).eval()
    again.load_state_dict(network.state_dict())
    batch = batch_of(examples, vocabulary, config)
    assert torch.equal(again(batch), network(batch))
    assert again.predict(batch) == network.predict(batch)


def test_a_saved_model_labels_text_and_words(tmp_path: Path) -> None:
    train = made_up(12, 6)
    flags = {"hidden": 4, "lstm_layers": 2, "predicate_dim": 2, "word_dim": 4, "char_dim": 0, "epochs": 1}
    encoder = Elmo(models.tiny().pretrained, device="cpu")
    model = train_task(ROLES, load_setup(ROLES, flags=flags), train, train[:4], encoder=encoder, device="cpu")
    assert list(model.mixes) == ["input"]
    assert default_setup(ROLES, quick=True).settings.lstm_layers == 8
    folder = model.save(tmp_path / "model", with_encoder=True)
    labeller = RoleLabeller.from_pretrained(folder, device="cpu")
    text = "the n1 *v2* n3 and n0 *v1* n1"
    first, second = labeller.predict(text)
    assert (first.predicate.text, first.predicate.start) == ("v2", 8)
    assert second.word == 6
    for span in first.arguments:
        assert span.text == text[span.start : span.end]
    words = text.replace("*", "").split()
    assert [roles.tags for roles in labeller.predict_words(words, [2, 6])] == [first.tags, second.tags]
    assert labeller.evaluate(train) == model.evaluate(train)


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="predicate_dim is 0"):
        RoleSettings(predicate_dim=0)
