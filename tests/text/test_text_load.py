"""Tokenizers by name and version."""

import pickle
import re

import pytest

from elmokit.errors import InputError
from elmokit.text import TOKENIZERS, load_tokenizer


@pytest.mark.parametrize("name", TOKENIZERS)
def test_name_and_version_load_what_they_name(name: str) -> None:
    tokenizer = load_tokenizer(name)
    assert tokenizer.name == name
    assert load_tokenizer(name, tokenizer.version).version == tokenizer.version
    assert pickle.loads(pickle.dumps(tokenizer)).tokenize("a b").tokens == ("a", "b")  # goes to worker processes


def test_unknown_name_lists_the_known() -> None:
    with pytest.raises(InputError, match=re.escape("'klingon'; available are english, unicode, whitespace")):
        load_tokenizer("klingon")


def test_another_version_is_refused() -> None:
    with pytest.raises(InputError, match=r"version 99 .* has version \d+.*install"):
        load_tokenizer("english", 99)
