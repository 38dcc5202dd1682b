"""Tokens and sentences of other scripts, by example."""

import pytest

from elmokit.text import load_tokenizer

# The text, and its sentences as tokens with spaces between them.
CASES = [
    ("Привет, мир! Это м'я — тест 3,5.", ["Привет , мир !", "Это м'я — тест 3,5 ."]),
    ("今天很好。我们去吧！", ["今 天 很 好 。", "我 们 去 吧 ！"]),
    (
        "「はい。」と言った。カタカナとひらがな、スーパー。",
        ["「 はい 。 」 と 言 った 。", "カタカナ とひらがな 、 スーパー 。"],
    ),
    ("นี่น้ำเก่ง", ["นี่ น้ำ เก่ ง"]),
    ("ສະບາຍດີ", ["ສະ ບາ ຍ ດີ"]),
    ("ស្តីលោក។ ខ្ញុំ", ["ស្តី លោ ក ។", "ខ្ញុំ"]),
    ("မြန်မာနိုင်ငံ။ ကျွန်တော်", ["မြန် မာ နိုင် ငံ ။", "ကျွန် တော်"]),
    ("नमस्ते दुनिया। आप कैसे हैं?", ["नमस्ते दुनिया ।", "आप कैसे हैं ?"]),
    ("مرحبا بالعالم؟ نعم.", ["مرحبا بالعالم ؟", "نعم ."]),
    ("안녕하세요 세계. 네!", ["안녕하세요 세계 .", "네 !"]),
    ("Այո։ Ոչ։", ["Այո ։", "Ոչ ։"]),
    ("Am 3. Oktober kam J. Verne. Dann nicht.", ["Am 3 . Oktober kam J . Verne .", "Dann nicht ."]),
    ("Да. нет. Да ... Да", ["Да . нет .", "Да ...", "Да"]),
    ("访问http://a.com/b吧", ["访 问 http://a.com/b 吧"]),
    ("👩‍👩‍👧🇩🇪👍🏽!!! a-b", ["👩‍👩‍👧 🇩🇪 👍🏽 !!! a - b"]),
    ("l'homme col·lega e\u0301t x@y.de, 1:30 5km", ["l'homme col·lega e\u0301t x@y.de , 1:30 5km"]),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_cuts(text: str, expected: list[str]) -> None:
    sentences = load_tokenizer("unicode").split(text)
    assert [s.tokens for s in sentences] == [tuple(sentence.split(" ")) for sentence in expected]
    assert [text[s.start :].startswith(s.text or "?") for s in sentences] == [True] * len(expected)


def test_line_breaks() -> None:
    split = load_tokenizer("unicode").split
    assert [s.text for s in split("один\nдва\n\nтри")] == ["один\nдва", "три"]
    assert [s.text for s in split("3.\n\nдва")] == ["3.", "два"]
    assert split(" \n ") == []
