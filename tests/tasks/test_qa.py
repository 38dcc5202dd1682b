"""Question answering: a network that learns to look up, answers that point into the passage, text and files."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from class_data import batch_of, features

import models
from elmokit.config import plain
from elmokit.encoders import Elmo
from elmokit.errors import ConfigError, FormatError, InputError
from elmokit.tasks.qa.data import Question
from elmokit.tasks.qa.task import QA, AnswererNetwork, QuestionAnswerer, QuestionSettings, answer_of
from elmokit.tasks.run import train_task
from elmokit.tasks.setup import default_setup, load_setup
from elmokit.tasks.words import WordFeaturesConfig, WordVocabulary
from elmokit.text import Sentence, load_tokenizer

ENGLISH = load_tokenizer("english")
SMALL = QuestionSettings(hidden=10, dropout=0.0, longest_answer=3)


def made_up(n: int, seed: int) -> list[Question]:
    """Passages of keys, each with its value of one or two words behind it; the question names a key."""
    rng = np.random.default_rng(seed)
    examples = []
    for _ in range(n):
        words: list[str] = []
        spans: dict[str, tuple[int, int]] = {}
        for key in rng.permutation(5)[: rng.integers(2, 5)]:
            value = [f"v{k}" for k in rng.integers(6, size=rng.integers(1, 3))]
            spans[f"k{key}"] = (len(words) + 1, len(words) + 1 + len(value))
            words += [f"k{key}", *value]
        asked = str(rng.choice(list(spans)))
        a, b = spans[asked]
        question = Sentence.of(["what", "is", asked])
        examples.append(Question(Sentence.of(words), question, (" ".join(words[a:b]),), ((a, b),)))
    return examples


def words_of(examples: list[Question]) -> WordVocabulary:
    return WordVocabulary.of(sentence for e in examples for sentence in e.sentences)


def build(examples: list[Question], config: WordFeaturesConfig) -> AnswererNetwork:
    torch.manual_seed(0)
    return QA.new_network(examples, config, SMALL)


def test_it_learns_to_look_up() -> None:
    train, dev = made_up(160, 1), made_up(50, 2)
    vocabulary = words_of(train)
    config = features(vocabulary, elmo_at="both", word_dim=16)
    network = build(train, config)
    batches = [batch_of(train[k : k + 20], vocabulary, config) for k in range(0, 160, 20)]
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    network.train()
    for step in range(56):
        optimizer.zero_grad()
        network.loss(batches[step % 8]).backward()
        optimizer.step()
    network.eval()
    scores = QA.score(dev, network.predict(batch_of(dev, vocabulary, config)))
    assert list(scores) == ["F1", "exact match"]
    assert scores["exact match"] >= 0.9  # a guess among the keys is right in a third of the cases


def test_neighbours_change_no_answer_and_no_loss() -> None:
    examples = made_up(8, 3)
    vocabulary = words_of(examples)
    config = features(vocabulary, elmo_at="both")
    network = build(examples, config).eval()
    together = network.predict(batch_of(examples, vocabulary, config))
    losses = []
    for example, found in zip(examples, together, strict=True):
        batch = batch_of([example], vocabulary, config)
        (alone,) = network.predict(batch)
        assert alone == replace(found, probability=pytest.approx(found.probability, abs=1e-6))
        losses.append(network.loss(batch).item())
    assert network.loss(batch_of(examples, vocabulary, config)).item() == pytest.approx(np.mean(losses), rel=1e-5)


def test_the_loss_takes_any_gold_answer() -> None:
    (example,) = made_up(1, 4)
    vocabulary = words_of([example])
    config = features(vocabulary, elmo_at="none")
    network = build([example], config).eval()
    several = replace(example, spans=((0, 1), (0, 2), (1, 2)))
    batch = batch_of([several], vocabulary, config)
    start, end = (side[0].exp() for side in network(batch))
    expected = -torch.log(start[0] + start[1]) - torch.log(end[0] + end[1])  # each place once
    assert network.loss(batch).item() == pytest.approx(expected.item(), rel=1e-5)
    # a question without an answer in its passage takes no part
    without = batch_of([several, replace(example, spans=())], vocabulary, config)
    assert network.loss(without).item() == pytest.approx(expected.item(), rel=1e-5)
    with pytest.raises(InputError, match="none of these questions has an answer"):
        network.loss(batch_of([replace(example, spans=())], vocabulary, config))


def test_answers_point_into_the_passage() -> None:
    text = "  The crisis began in October 1973 (or so)."
    example = Question(ENGLISH.tokenize(text), ENGLISH.tokenize("When?"))
    tokens = example.passage.tokens
    words = (tokens.index("October"), tokens.index("1973") + 1)
    found = answer_of(example, words, 0.5)
    assert (found.text, text[found.start : found.end]) == ("October 1973", "October 1973")
    whole = answer_of(example, (0, len(tokens)), 0.5)
    assert whole.text == text.strip()
    tokenised = Question(Sentence.of(["in", "1973"]), Sentence.of(["When"]))
    assert answer_of(tokenised, (1, 2), 0.5).start == 3
    nothing = Question(Sentence.of([]), Sentence.of(["When"]))
    assert answer_of(nothing, (0, 1), 0.5).text == ""
    record = QA.record(replace(example, id="q1"), found)
    assert json.loads(json.dumps(record))["answer"] == "October 1973"
    assert (record["id"], record["passage"][record["start"] : record["end"]]) == ("q1", "October 1973")
    assert default_setup(QA, quick=True).training.max_train == 3000
    assert ("October 1973", "bold") in QA.show(example, found)


def test_text_is_a_passage_a_blank_line_and_questions() -> None:
    text = "\nOil was dear.\n\nThen it was cheap.\r\n \r\nWhat was dear?\nAnd when?\n\n"
    first, second = QA.from_text(text, ENGLISH)
    assert first.passage == second.passage
    assert first.passage.tokens == ("Oil", "was", "dear", ".", "Then", "it", "was", "cheap", ".")
    assert [q.question.tokens for q in (first, second)] == [("What", "was", "dear", "?"), ("And", "when", "?")]
    assert first.passage.offsets is not None
    assert [text[a:b] for a, b in first.passage.offsets] == list(first.passage.tokens)
    with pytest.raises(InputError, match="has no questions; expected the passage, a blank line"):
        QA.from_text("Oil was dear. What was dear?", ENGLISH)


def test_files_to_be_answered(tmp_path: Path) -> None:
    plain_text, lines, squad = tmp_path / "a.txt", tmp_path / "a.jsonl", tmp_path / "a.json"
    plain_text.write_text("Oil was dear.\n\nWhat?\n")
    lines.write_text('{"context": "Oil was dear.", "question": "What?"}\n')
    paragraph = {"context": "Oil was dear.", "qas": [{"question": "What?"}]}
    squad.write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}))
    for path in (plain_text, lines, squad):
        (whole,) = QA.read_text(path, SMALL, ENGLISH)
        assert whole.sentences == (ENGLISH.tokenize("Oil was dear."), ENGLISH.tokenize("What?"))
        (cut,) = QA.read_text(path, replace(SMALL, longest_passage=3), ENGLISH)
        assert (cut.passage.tokens, cut.cut) == (("Oil", "was", "dear"), 1)
    lines.write_text('{"passage": "Oil was dear."}\n')
    with pytest.raises(FormatError, match=r"a\.jsonl, line 1: has no field 'question'"):
        list(QA.read_text(lines, SMALL, ENGLISH))


def test_training_leaves_out_what_was_cut_off(tmp_path: Path) -> None:
    def asked(text: str, start: int) -> dict[str, object]:
        return {"question": "What?", "answers": [{"text": text, "answer_start": start}]}

    path = tmp_path / "a.json"
    paragraph = {"context": "Oil was dear then.", "qas": [asked("Oil", 0), asked("then", 13)]}
    path.write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}))
    cut = replace(SMALL, longest_passage=2)
    assert [len(QA.read(path, SMALL)), len(QA.training_examples(path, SMALL))] == [2, 2]
    assert [len(QA.read(path, cut)), len(QA.training_examples(path, cut))] == [2, 1]
    assert QA.remarks(QA.read(path, SMALL), SMALL) == []
    (remark,) = QA.remarks(QA.read(path, cut), cut)
    assert remark.startswith("1 of 1 passages were cut after 2 words")
    assert remark.endswith("1 questions have no answer in what is left")


def test_the_configuration_rebuilds_the_network() -> None:
    examples = made_up(3, 5)
    vocabulary = words_of(examples)
    config = features(vocabulary, elmo_at="both")
    network = build(examples, config).eval()
    again = AnswererNetwork.from_plain(json.loads(json.dumps(plain(network.config)))).eval()
    again.load_state_dict(network.state_dict())
    batch = batch_of(examples, vocabulary, config)
    assert again.predict(batch) == network.predict(batch)


def test_a_saved_model_answers_questions(tmp_path: Path) -> None:
    train = made_up(12, 6)
    flags = {"hidden": 4, "word_dim": 4, "char_dim": 0, "epochs": 1, "tokenizer": "whitespace", "longest_answer": 2}
    setup = load_setup(QA, flags=flags)
    assert setup.features.elmo_at == "both"
    encoder = Elmo(models.tiny().pretrained, device="cpu")
    model = train_task(QA, setup, train, train[:4], encoder=encoder, device="cpu")
    assert sorted(model.mixes) == ["input", "output"]
    folder = model.save(tmp_path / "model", with_encoder=True)
    answerer = QuestionAnswerer.from_pretrained(folder, device="cpu")
    passage = "  k1 v2 v3 k4 v1"
    found = answerer.predict((passage, "what is k4"))
    assert found.text == passage[found.start : found.end]
    assert 1 <= len(found.text.split()) == found.words[1] - found.words[0] <= 2
    assert 0 < found.probability < 1
    first, _ = answerer.predict([(passage, "what is k4"), (passage, "what is k1")])
    assert first == replace(found, probability=pytest.approx(found.probability, rel=1e-4))
    with pytest.warns(DeprecationWarning, match="predict_questions"):
        assert answerer.predict_questions(passage, ["what is k4"])[0].words == found.words
    assert answerer.predict(("", "what is k4")).text == ""
    with pytest.raises(InputError, match="got 'what is k4'; expected a tuple of two texts"):
        answerer.predict("what is k4")
    assert answerer.evaluate(train) == model.evaluate(train)


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="longest_answer is 0"):
        QuestionSettings(longest_answer=0)
    with pytest.raises(ConfigError, match="hidden is 0"):
        QuestionSettings(hidden=0)
