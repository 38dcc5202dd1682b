"""Neighbours of a word in its context: the right contexts, copies folded, clear words for what is not there."""

from pathlib import Path

import numpy as np
import pytest

import models
from elmokit.analysis.neighbours import find_neighbours, locate, require_word, static_neighbours
from elmokit.encoders import Elmo
from elmokit.encoders.static.table import WordTable
from elmokit.errors import ElmokitWarning, InputError
from elmokit.index import Index
from elmokit.text import Sentence

TEXT = [
    "The play was long and the actors tired.",
    "The  play was long and the actors tired.",
    "They play ball in the park every day.",
    "A play is a kind of game.",
    "Café plays naïve music; the play ends at nine.",
    "",
    "The play was long and the actors slept.",
]


@pytest.fixture(scope="module")
def elmo() -> Elmo:
    return Elmo(models.tiny().pretrained, device="cpu", tokenizer="english")


@pytest.fixture(scope="module")
def index(elmo: Elmo, tmp_path_factory: pytest.TempPathFactory) -> Index:
    return Index.build(elmo, TEXT, tmp_path_factory.mktemp("neighbours") / "index")


def test_contexts_with_copies_folded_and_without_the_sentence_itself(index: Index, elmo: Elmo) -> None:
    found = find_neighbours(index, elmo, TEXT[6], word="play", k=3)
    assert found.word == "play"
    best = found.contexts[0]
    assert best.occurrence.text in TEXT[:2]
    assert best.copies == 2
    assert (best.left.split(), best.right.split()[0]) == (["The"], "was")
    assert best.score > 0.8
    assert TEXT[6] not in [c.occurrence.text for c in found.contexts]
    scores = [c.score for c in found.contexts]
    assert scores == sorted(scores, reverse=True)
    sentences = [" ".join(c.occurrence.text.split()) for c in found.contexts]
    assert len(set(sentences)) == len(sentences) == 3


def test_a_long_sentence_is_read_once(elmo: Elmo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = Index.build(elmo, ["play " * 500, "the play"], tmp_path / "long")
    read: list[int] = []
    occurrence = Index.occurrence
    monkeypatch.setattr(Index, "occurrence", lambda *given: read.append(given[1]) or occurrence(*given))
    found = find_neighbours(index, elmo, "Children play.", word="play", k=2)
    assert sorted(context.copies for context in found.contexts) == [1, 1]
    assert len(read) < 10  # not as often as the word stands in it


def test_scores_are_cosines_from_the_mean(index: Index, elmo: Elmo) -> None:
    found = find_neighbours(index, elmo, "We play a game.", word="play", k=4, exact=True)
    query = elmo.encode_tokens("We play a game.", layers="top")[1] - index.mean
    for context in found.contexts:
        other = index.vectors([context.occurrence.row])[0] - index.mean
        cosine = query @ other / np.linalg.norm(query) / np.linalg.norm(other)
        assert context.score == pytest.approx(cosine, abs=1e-5)


def test_same_word_only(index: Index, elmo: Elmo) -> None:
    found = find_neighbours(index, elmo, "They play well.", word="play", same_word=True)
    assert {c.occurrence.word for c in found.contexts} == {"play"}
    assert len(found.contexts) == 5, "as many as there are sentences that differ"
    with pytest.raises(InputError, match=r"'plai' is not in .*; did you mean 'play'"):
        find_neighbours(index, elmo, "They plai well.", word="plai", same_word=True)
    upper = find_neighbours(index, elmo, "PLAY!", word="PLAY", same_word=True)
    assert {c.occurrence.word for c in upper.contexts} == {"play"}, "whatever its case, if it is not there as spelled"


def test_which_word_is_meant() -> None:
    sentence = Sentence.of(["the", "Play", "of", "the", "play"])
    assert locate(sentence, word="Play") == 1
    assert locate(sentence, word="play") == 4
    assert locate(sentence, word="the", position=3) == 3
    assert locate(sentence, position=2) == 2
    wrong = [
        ({"word": "the"}, r"more than once; choose its position \(--position\) out of 0, 3"),
        ({"word": "plays"}, r"not a word of the sentence; did you mean 'Play'\?; its words are: the\(0\) Play\(1\)"),
        ({"word": "猫"}, r"not a word of the sentence; its words"),
        ({"position": 5}, "has no word 5"),
        ({"word": "play", "position": 0}, "word 0 is 'the', not 'play'"),
        ({}, "neither a word nor a position"),
    ]
    for given, said in wrong:
        with pytest.raises(InputError, match=said):
            locate(sentence, **given)  # type: ignore[arg-type]


def test_static_neighbours_know_no_sentence() -> None:
    words = ["play", "plays", "Play", "stone", "rock"]
    vectors = np.array([[1, 0.1], [1, 0.2], [1, 0.1], [-1, 1], [-1, 1.1]], dtype=np.float32)
    table = WordTable(words, vectors)
    near = static_neighbours(table, "play", k=2)
    assert [word for word, _ in near] == ["plays", "rock"] or [word for word, _ in near] == ["plays", "stone"]
    assert near[0][1] > 0.9 > near[1][1]
    assert static_neighbours(table, "STONE", k=1)[0][0] == "rock", "in lower case if it is not there as spelled"
    assert static_neighbours(table, "unknown") == ()


def test_static_neighbours_are_means_over_the_index_unless_given(index: Index, elmo: Elmo) -> None:
    words = [word for word, _ in find_neighbours(index, elmo, "the play", word="play").static]
    assert words
    assert set(words) <= {word for word, count in index.words.items() if count >= 5}
    table = WordTable(["play", "drama", "x"], np.array([[1, 0], [0.9, 0], [-1, 0]], dtype=np.float32))
    assert find_neighbours(index, elmo, "the play", word="play", static=table).static[0][0] == "drama"


def test_nothing_to_find(elmo: Elmo, index: Index, tmp_path: Path) -> None:
    empty = Index.build(elmo, ["..."], tmp_path / "index")
    assert find_neighbours(empty, elmo, "the play", word="play").contexts == ()
    with pytest.raises(InputError, match="k is 0"):
        find_neighbours(index, elmo, "the play", word="play", k=0)


def test_another_model_is_refused(index: Index) -> None:
    other = Elmo(models.tiny(seed=1).pretrained, device="cpu")
    with pytest.raises(InputError, match=r"vectors of another model.* go on with it as it is: --allow-other-encoder"):
        find_neighbours(index, other, "the play", word="play")
    with pytest.raises(InputError, match=r"vectors of another model.* again with '[^']*'$"):  # none offers more here
        Index.build(other, ["the play"], index.folder)


def test_another_model_on_request(index: Index) -> None:
    other = Elmo(models.tiny(seed=1).pretrained, device="cpu")
    with pytest.warns(ElmokitWarning, match="going on with it, as asked"):
        found = find_neighbours(index, other, "the play", word="play", allow_other_encoder=True)
    assert found.contexts
    narrow = Elmo(models.tiny(directions=(0,)).pretrained, device="cpu")
    with pytest.raises(InputError, match="cannot be used instead"):
        find_neighbours(index, narrow, "the play", word="play", allow_other_encoder=True)


def test_a_word_that_is_nowhere(index: Index) -> None:
    assert require_word(index, "Actors") == ["actors"]
    with pytest.raises(InputError, match=r"'actor' is not in .*did you mean 'actors'"):
        require_word(index, "actor")
