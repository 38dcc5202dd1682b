"""Words of any script keep their places in texts of many windows, beside words that are longer than any window."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_transformer import ENCODERS, MODELS, check

import transformer_models

RIGHT_TO_LEFT = st.text(st.characters(min_codepoint=0x590, max_codepoint=0x6FF), min_size=1, max_size=4)
EMOJI = st.lists(st.sampled_from("👩👨👧🏽🇩🇪❤️‍"), min_size=1, max_size=4).map("".join)
ZERO_WIDTH = st.text("\u200b\u200c\u200d\u2060\ufeff\u00ad", max_size=3)
PLAIN = st.sampled_from(["the", "cat", "playing", "mats", "."])
mixed = st.tuples(ZERO_WIDTH, PLAIN | EMOJI | RIGHT_TO_LEFT, ZERO_WIDTH).map("".join)
WORDS = PLAIN | RIGHT_TO_LEFT | EMOJI | ZERO_WIDTH | mixed | st.text(max_size=5)


@settings(max_examples=6)
@pytest.mark.parametrize("name", MODELS)
@given(part=st.lists(WORDS, min_size=3, max_size=9), data=st.data())
def test_texts_of_more_than_five_times_the_limit(name: str, part: list[str], data: st.DataObject) -> None:
    pieces = sum(map(len, ENCODERS[name].cutter.cut([*part, "the"])))
    text = [*part, "the"] * (5 * transformer_models.LIMIT // pieces + 1)
    place = data.draw(st.integers(0, len(text)))
    text.insert(place, data.draw(WORDS))  # no two stretches are alike
    assert sum(map(len, ENCODERS[name].cutter.cut(text))) > 5 * transformer_models.LIMIT
    check(name, text)


@settings(max_examples=2)
@pytest.mark.parametrize("name", MODELS)
@given(
    before=st.lists(WORDS, max_size=4),
    after=st.lists(WORDS, max_size=4),
    unit=EMOJI | RIGHT_TO_LEFT | st.text(min_size=1, max_size=3),
)
def test_words_of_ten_thousand_characters(name: str, before: list[str], after: list[str], unit: str) -> None:
    check(name, [*before, (unit * 10_000)[:10_000], *after], every=100)
