"""Coreference as a task: files, remarks, scores, what is shown and written, and a model that is trained and kept."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from elmokit.encoders import Elmo
from elmokit.errors import ConfigError, InputError
from elmokit.tasks import Tagger
from elmokit.tasks.catalogue import load_task
from elmokit.tasks.coref.data import read_coref
from elmokit.tasks.coref.document import CorefDocument, Mention, Resolved, order_clusters, place_sentences
from elmokit.tasks.coref.task import COREF, CoreferenceResolver
from elmokit.tasks.run import train_task
from elmokit.tasks.setup import default_setup
from elmokit.text import load_tokenizer
from models import tiny, tiny_options

ENGLISH = load_tokenizer("english")
TEXT = "Ann saw her dog. [It] barked\nat her."
SMALL = {"hidden": 4, "scorer": 5, "feature_dim": 2, "max_width": 3, "word_dim": 4, "char_dim": 2, "epochs": 2}


def resolved(document: CorefDocument) -> Resolved:
    return document.resolve(
        order_clusters([[Mention(0, 1), Mention(2, 3), Mention(10, 11)], [Mention(2, 4), Mention(6, 7)]])
    )


def documents() -> list[CorefDocument]:
    clusters = order_clusters([[Mention(0, 1), Mention(4, 5)]])
    sentences = place_sentences([("Ann", "met", "Bob", "."), ("She", "likes", "him", ".")])
    return [CorefDocument(f"nw/{k}", sentences, clusters, ("-",) * 8, "nw") for k in range(4)]


def test_text_is_one_document_with_offsets_into_it() -> None:
    (document,) = COREF.from_text(TEXT, ENGLISH)
    assert len(document.sentences) == 2
    found = resolved(document)
    assert [[mention.text for mention in cluster] for cluster in found.clusters] == [
        ["Ann", "her", "her"],
        ["her dog", "It"],
    ]
    for cluster in found.clusters:
        for mention in cluster:
            assert TEXT[mention.start : mention.end] == mention.text
    assert COREF.from_text(" \n", ENGLISH) == []


def test_tokens_that_do_not_stand_in_the_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "shouted_words.py").write_text("def cut(text):\n    return [text.upper().split()]\n")
    monkeypatch.syspath_prepend(tmp_path)
    (document,) = COREF.from_text("Ann saw Ann", load_tokenizer("python:shouted_words:cut"))
    ((first, second),) = document.resolve([(Mention(0, 1), Mention(2, 3))]).clusters
    assert (first.text, first.start, second.text, second.start) == ("ANN", 0, "ANN", 8)


def test_mentions_are_shown_in_brackets_with_their_cluster() -> None:
    (document,) = COREF.from_text(TEXT, ENGLISH)
    shown = "".join(text for text, _ in COREF.show(document, resolved(document)))
    assert shown.splitlines() == [
        "[1 Ann] saw [2 [1 her] dog].",
        "[[2 It]] barked at [1 her].",
        "",
        "  1  Ann; her; her",
        "  2  her dog; It",
    ]
    alone = COREF.show(document, Resolved(()))
    assert "".join(text for text, _ in alone) == "Ann saw her dog.\n[It] barked at her."


def test_records_and_conll() -> None:
    (document,) = COREF.from_text(TEXT, ENGLISH)
    record = json.loads(json.dumps(COREF.record(document, resolved(document))))
    assert record["sentences"] == [
        {"text": "Ann saw her dog.", "start": 0},
        {"text": "[It] barked\nat her.", "start": 17},
    ]
    assert record["clusters"][1] == [
        {"text": "her dog", "start": 8, "end": 15, "words": [2, 4]},
        {"text": "It", "start": 18, "end": 20, "words": [6, 7]},
    ]
    lines = COREF.conll(document, resolved(document)).splitlines()
    assert lines[0] == "#begin document (text); part 0"
    assert [line.split("\t")[-1] for line in lines[1:5]] == ["(0)", "-", "(1|(0)", "1)"]
    assert lines[-2:] == ["#end document", ""]


def test_files_without_clusters(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "b.jsonl").write_text('{"text": "Ann left. She ran."}\n{"text": ["Bob", "ran"]}\n')
    lines = COREF.conll(documents()[0], documents()[0].resolve(documents()[0].clusters or ()))
    (tmp_path / "c.conll").write_text(lines)
    (text,) = COREF.read_text(tmp_path / "a.txt", COREF.settings, ENGLISH)
    assert text.words[:4] == ("Ann", "saw", "her", "dog")
    assert [len(d) for d in COREF.read_text(tmp_path / "b.jsonl", COREF.settings, ENGLISH)] == [6, 2]
    assert next(COREF.read_text(tmp_path / "c.conll", COREF.settings, ENGLISH)).words == documents()[0].words
    assert read_coref(tmp_path / "c.conll")[0].clusters == documents()[0].clusters


def test_what_is_cut_or_cannot_be_found_is_told() -> None:
    document = replace(
        documents()[0],
        clusters=order_clusters([[Mention(0, 4), Mention(3, 5), Mention(4, 5)]]),
        notes=("file, line 3: something",),
    )
    assert COREF.remarks([document, documents()[1]], replace(COREF.settings, train_sentences=1, max_width=3)) == [
        "file, line 3: something",
        "2 of 2 documents have more than 1 sentences: in training they are cut to so many in a row, each time others; "
        "predictions read all",
        "2 of 5 mentions cannot be found: longer than 3 words, or across the end of a sentence",
    ]
    assert COREF.remarks(documents(), COREF.settings) == []


def test_the_average_is_the_score_that_counts() -> None:
    given = documents()
    right = [d.resolve(d.clusters or ()) for d in given]
    scores = COREF.score(given, right)
    assert next(iter(scores)) == "average F1"
    assert set(scores.values()) == {1.0}
    half = COREF.score(given, [*right[:2], Resolved(()), Resolved(())])
    assert half["MUC recall"] == half["mention recall"] == 0.5
    assert half["CEAF precision"] == 1.0
    assert half["average F1"] == pytest.approx(2 / 3)


def test_columns_decide_on_speakers_and_genres() -> None:
    setup = default_setup(COREF, quick=True).changed(**SMALL)
    features = setup.features_config(n_words=9, word_dim=4, depth=2, width=3)
    config = COREF.new_network(documents(), features, setup.settings).config
    assert config.speakers
    assert config.genres == ("nw",)
    assert config.least_kept == 8
    bare = [replace(d, speakers=None, genre=None) for d in documents()]
    config = COREF.new_network(bare, features, setup.settings).config
    assert not config.speakers
    assert config.genres == ()


def test_a_model_is_trained_saved_and_used(tmp_path: Path) -> None:
    encoder = Elmo(tiny(tiny_options()).pretrained, tokenizer=ENGLISH, allow_other_tokenizer=True)
    assert load_task("coref") is COREF
    setup = default_setup(COREF, quick=True).changed(**SMALL)
    model = train_task(COREF, setup, documents(), documents()[:2], encoder=encoder, device="cpu")
    assert model.mixes["input"]["gamma"] != 1
    model.save(tmp_path / "model", with_encoder=True)
    again = CoreferenceResolver.from_pretrained(tmp_path / "model", device="cpu")
    found = again.predict(TEXT)
    assert isinstance(found, Resolved)
    assert found == model.predict(TEXT)
    assert again.predict([TEXT, " "]) == [found, Resolved(())]
    assert again.evaluate(documents()) == model.evaluate(documents())
    assert again.predict_examples([CorefDocument("empty", ())]) == [Resolved(())]
    with pytest.raises(InputError, match="not for Tagger"):
        Tagger.from_pretrained(tmp_path / "model")
    with pytest.raises(ConfigError, match="antecedents is 0; expected a whole number of at least 1"):
        train_task(COREF, setup.changed(antecedents=0), documents(), documents(), encoder=encoder, device="cpu")
