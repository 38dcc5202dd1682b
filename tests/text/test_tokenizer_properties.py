"""What holds for every tokenizer and any text."""

import re
import sys
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.text import TOKENIZERS, load_tokenizer
from elmokit.text._english_tokens import token_pattern
from elmokit.text.unicode import marks

# Any code point, lone surrogates too, and thick with what the rules look for.
PIECES = (
    "a I n't can not ' ’ ` . .. … , - -- – _ ! ? :) ( ) [ ] \" “ ” « 1 12 1,2 $ % & / @ # * < > = + ~ Mr. U.S. etc. "
    "http:// www. a.com x@y.z .doc e\u0301 \u0301 \u200b \u200d \u00ad \ufeff 😀 👍🏽 🇩🇪 中 。 」 ひ カ ก เ ् क ؟ "
    "\u202e א \ud800 \udfff non- 're 's '60s 5pm"
)
SPACES = st.sampled_from(["", "", " ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u3000", "\u2028", "\x1f"])
TEXTS = st.one_of(
    st.text(st.characters(), max_size=60),
    st.lists(st.tuples(st.sampled_from(PIECES.split(" ")), SPACES), max_size=25).map(
        lambda pairs: "".join(a + b for a, b in pairs)
    ),
)


def without_space(text: str) -> str:
    return "".join(text.split())


@pytest.mark.parametrize("name", [*TOKENIZERS, "unicode@2"])
@given(text=TEXTS)
def test_tokens_are_slices_that_cover_the_text(name: str, text: str) -> None:
    sentence = load_tokenizer(name).tokenize(text)
    assert sentence.text == text
    assert sentence.offsets is not None
    assert [text[a:b] for a, b in sentence.offsets] == list(sentence.tokens)
    assert all(token and token == without_space(token) for token in sentence.tokens)
    assert all(b <= c for (_, b), (c, _) in zip(sentence.offsets, sentence.offsets[1:], strict=False))
    assert "".join(sentence.tokens) == without_space(text)


@pytest.mark.parametrize("name", [*TOKENIZERS, "unicode@2"])
@given(text=TEXTS)
def test_sentences_are_slices_that_cover_the_text(name: str, text: str) -> None:
    tokenizer = load_tokenizer(name)
    end = 0
    for sentence in tokenizer.split(text):
        assert sentence.text
        assert sentence.text == sentence.text.strip()
        assert not text[end : sentence.start].strip()
        end = sentence.start + len(sentence.text)
        assert text[sentence.start : end] == sentence.text
        assert sentence == type(sentence).cut(sentence.text, sentence.offsets or (), start=sentence.start)
        assert sentence.tokens == tokenizer.tokenize(sentence.text).tokens
    assert not text[end:].strip()


# Repeated, these would be slow wherever one token's search ran over what the next one searches again; ~ is a space.
UNITS = (
    "a . - ' ’ _ a- a. a' 1- 1. a@ @ http://. http://( www. ( : a/ e\u0301 \u0301 \u200d 😀\u200d 中 。 A.~ .~ !~ "
    ".:)~ \n a\n A\nB ~ -= <- a+ a_ a:b co. Mr. n't 're \" ๅ ្ក"
)


@pytest.mark.parametrize("name", [*TOKENIZERS, "unicode@2"])
@pytest.mark.parametrize("unit", UNITS.split(" "))
def test_time_is_linear(name: str, unit: str) -> None:
    """50,000 characters of anything take a fraction of a second; in quadratic time they took five seconds and more."""
    unit = unit.replace("~", " ")
    tokenizer = load_tokenizer(name)
    text = (unit * 50_000)[:50_000]
    start = time.process_time()
    tokens = tokenizer.tokenize(text).tokens
    sentences = tokenizer.split(text)
    assert time.process_time() - start < 2
    assert "".join(tokens) == without_space(text)
    assert "".join(token for sentence in sentences for token in sentence.tokens) == without_space(text)


@given(text=TEXTS.map(lambda text: text.encode("ascii", "ignore").decode()))
def test_english_text_of_ascii_is_cut_as_any_text_is(text: str) -> None:
    """There is an expression for it that takes less time to make."""
    plain, full = token_pattern(ascii_only=True), token_pattern()
    assert [m.span() for m in plain.finditer(text)] == [m.span() for m in full.finditer(text)]


def test_all_combining_marks_belong_to_what_is_before_them() -> None:
    known = re.compile(f"[{marks()}]")
    lost = [
        code
        for code in range(sys.maxunicode + 1)
        if unicodedata.category(chr(code))[0] == "M" and not known.match(chr(code))
    ]
    assert not lost
