"""What tasks share: settings through JSON and back, places of words."""

import json
from dataclasses import dataclass
from typing import Literal

import pytest

from elmokit.config import plain, revive, setting
from elmokit.errors import ConfigError
from elmokit.tasks.words import WordFeaturesConfig
from elmokit.text import Sentence, load_tokenizer


@dataclass(frozen=True, slots=True)
class Config:
    labels: tuple[str, ...]
    features: WordFeaturesConfig
    hidden: int = setting(200, "cells")
    scheme: Literal["IOB2", "IOBES"] | None = setting(None, "how spans are written")
    column: int | str = setting(1, "where labels stand")
    rate: float = setting(0.5, "of something")


CONFIG = Config(("A", "B"), WordFeaturesConfig(char_filters=((2, 3), (3, 4)), word_dim=7), scheme="IOBES")


def test_configurations_go_through_json_and_back() -> None:
    written = json.loads(json.dumps(plain(CONFIG)))
    assert revive(Config, written) == CONFIG
    assert revive(Config, {**written, "column": "upos", "rate": 1}).column == "upos"
    assert revive(Config, {**written, "scheme": None}).scheme is None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"hiden": 3}, "unknown field 'hiden'; the fields are column, features, hidden"),
        ({"hidden": "3"}, 'hidden is "3"; expected a whole number'),
        ({"hidden": True}, "hidden is true; expected a whole number"),
        ({"scheme": "BIO"}, 'scheme is "BIO"; expected one of IOB2, IOBES'),
        ({"labels": "A"}, 'labels is "A"; expected a list'),
        ({"column": 1.5}, "column is 1.5; expected a whole number or a string"),
        ({"features": 3}, "features is 3; expected an object"),
        ({"features": {"char_filters": [[1]]}}, r"features.char_filters is \[\[1\]\]; expected pairs of whole numbers"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        revive(Config, {**plain(CONFIG), **change})


def test_missing_fields_are_told() -> None:
    with pytest.raises(ConfigError, match="the file: labels is missing; expected a list"):
        revive(Config, {"features": {}}, source="the file")


def test_places_of_words_lead_into_the_document() -> None:
    text = "First one.  Then another one."
    sentences = load_tokenizer("english").split(text)
    for sentence in sentences:
        assert [text[a:b] for a, b in sentence.places] == list(sentence.tokens)
    assert sentences[1].as_text == "Then another one."
    tokens = Sentence.of(["Two", "words"])
    assert tokens.as_text == "Two words"
    assert tokens.places == [(0, 3), (4, 9)]
