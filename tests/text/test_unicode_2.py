"""The second version of the Unicode tokenizer, normalised tokens, and tokenizers of the user's own."""

import json
import pickle
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import models
from elmokit.encoders import Elmo
from elmokit.errors import InputError
from elmokit.text import load_tokenizer
from elmokit.weights import TokenizerSpec, load_pretrained, save_pretrained
from elmokit.weights.pretrained import choose_tokenizer

cut = load_tokenizer("unicode@2")


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Dr. Smith doesn't", "Dr. Smith does n't"),
        ("can't won't we've", "ca n't wo n't we 've"),
        ("the dog's, O'Neill's", "the dog 's , O'Neill 's"),
        ("l'homme qu'il dell'acqua d'Artagnan", "l' homme qu' il dell' acqua d' Artagnan"),
        ("м'я об'єкт o'zbek", "м'я об'єкт o'zbek"),
        ("in the U.S. today, z.B. heute, т.е. так", "in the U.S. today , z.B. heute , т.е. так"),
        ("He left the U.S.", "He left the U.S ."),
        ("on 9/11 or 2001-09-11", "on 9/11 or 2001-09-11"),
        ("call 713-853-3989 now", "call 713-853-3989 now"),
        ("the 1960s, 3,5 and 20th", "the 1960s , 3,5 and 20th"),
        ("see example.com or notes.txt", "see example.com or notes.txt"),
        ("@bob likes #tags :) 👍🏽", "@bob likes #tags :) 👍🏽"),
        ("well-known --- yes!!", "well - known --- yes !!"),
        ("Ngôi nhà đẹp, ông B. Obama.", "Ngôi nhà đẹp , ông B. Obama ."),
        ("كِتَابٌ جديد؟ हिन्दी में।", "كِتَابٌ جديد ؟ हिन्दी में ।"),
        ("我坐在上。カタカナです", "我 坐 在 上 。 カタカナ です"),
        ("the end.The next", "the end . The next"),
    ],
)
def test_words(text: str, tokens: str) -> None:
    assert list(cut.tokenize(text).tokens) == tokens.split()


@pytest.mark.parametrize(
    "parts",
    [
        ["Mr. Bean came.", "He saw Dr. Who vs. King."],
        ["Am 3. Oktober kam J. Verne.", "Er blieb."],
        ["It is so.", "No more."],
        ["今日は晴れです。", "明日は雨。"],
        ["Hôm nay trời đẹp.", "Tôi đi học."],
    ],
)
def test_sentences(parts: list[str]) -> None:
    assert [sentence.text for sentence in cut.split(" ".join(parts))] == parts


def test_every_token_has_a_kind() -> None:
    text = "Dr. Smith doesn't like l'homme 9/11 我 :) www.x.com !!"
    kinds = dict(zip(cut.tokenize(text).tokens, cut.kinds(text), strict=True))  # type: ignore[attr-defined]
    assert kinds["Dr."] == "abbreviation"
    assert (kinds["n't"], kinds["l'"], kinds["does"]) == ("clitic", "elision", "word")
    assert (kinds["9/11"], kinds["我"], kinds[":)"]) == ("number", "character", "emoticon")
    assert (kinds["www.x.com"], kinds["!!"]) == ("address", "mark")


def test_the_name_alone_is_the_first_version() -> None:
    assert load_tokenizer("unicode").version == 1
    assert load_tokenizer("unicode").tokenize("doesn't").tokens == ("doesn't",)
    assert load_tokenizer("unicode", 2).version == load_tokenizer("unicode@2").version == 2
    for name, said in (
        ("unicode@3", "version 3 was asked for"),
        ("unicode@x", "after the @"),
        ("klingon", "no tokenizer"),
    ):
        with pytest.raises(InputError, match=said):
            load_tokenizer(name)


class TestNormalised:
    def test_tokens_change_and_offsets_do_not(self) -> None:
        text = "Cafe\u0301 NO. 42"
        tokenizer = load_tokenizer("unicode@2+digits+lower+nfc")
        assert (tokenizer.name, tokenizer.version) == ("unicode+nfc+lower+digits", 2)
        sentence = tokenizer.tokenize(text)
        assert sentence.tokens[0] == "caf\u00e9"
        assert sentence.tokens[-1] == "00"
        assert text[slice(*sentence.spans[0])] == "Cafe\u0301"
        with pytest.raises(InputError, match="no normalisation 'upper'"):
            load_tokenizer("unicode+upper")

    def test_a_model_remembers_it(self, tmp_path: Path) -> None:
        tokenizer = load_tokenizer("unicode@2+lower")
        pretrained = replace(models.tiny().pretrained, tokenizer=TokenizerSpec(tokenizer.name, tokenizer.version))
        folder = save_pretrained(pretrained, tmp_path / "model")
        elmo = Elmo.from_pretrained(folder, device="cpu")
        assert elmo.tokenizer.tokenize("Doesn't").tokens == ("does", "n't")
        again = Elmo.from_pretrained(folder, device="cpu", tokenizer="unicode+lower")
        assert again.tokenizer.version == 2, "the name alone is the model's version"
        with pytest.raises(InputError, match="was trained with 'unicode\\+lower' version 2"):
            Elmo.from_pretrained(folder, device="cpu", tokenizer="unicode")


class TestOwn:
    @pytest.fixture
    def module(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
        (tmp_path / "my_words.py").write_text(
            "def cut(text): return [line.split('_') for line in text.split('|')]\n"
            "def flat(text): return text.upper().split()\n"
            "def wrong(text): return 7\nnumber = 3\ncut.version = 5\n"
            "def breaks(text): return [][0]\n"
        )
        monkeypatch.syspath_prepend(tmp_path)
        sys.modules.pop("my_words", None)
        return "my_words"

    def test_a_function(self, module: str) -> None:
        tokenizer = load_tokenizer(f"python:{module}:cut")
        first, second = tokenizer.split("a_bc|d_e")
        assert (first.tokens, second.tokens, second.start) == (("a", "bc"), ("d", "e"), 5)
        assert (second.text, second.offsets) == ("d_e", ((0, 1), (2, 3)))
        assert tokenizer.version == 5
        assert pickle.loads(pickle.dumps(tokenizer)).split("a_b")[0].tokens == ("a", "b")
        other = load_tokenizer(f"python:{module}:flat").tokenize("a b")
        assert (other.tokens, other.offsets) == (("A", "B"), None)
        for name, said in (
            ("wrong", "expected a list"),
            ("number", "expected a function"),
            ("none", "cannot be imported"),
            ("breaks", "failed on 'a': IndexError: list index"),
        ):
            with pytest.raises(InputError, match=said):
                load_tokenizer(f"python:{module}:{name}").tokenize("a")
        with pytest.raises(InputError, match="expected python:package"):
            load_tokenizer("python:one")

    def test_a_program(self) -> None:
        sentences = load_tokenizer("command:tr _ ' '").split("a_b\nc")
        assert [sentence.tokens for sentence in sentences] == [("a", "b"), ("c",)]
        assert sentences[0].offsets == ((0, 1), (2, 3))
        for name, said in (
            ("command:no-such-program-x", "cannot run"),
            ("command:false", "status 1"),
            ("command:", "expected"),
        ):
            with pytest.raises(InputError, match=said):
                load_tokenizer(name).tokenize("a")

    def test_what_a_model_names_is_not_run_unasked(self, tmp_path: Path) -> None:
        pretrained = replace(models.tiny().pretrained, tokenizer=TokenizerSpec("command:cat", 1))
        folder = save_pretrained(pretrained, tmp_path / "model")
        assert json.loads((folder / "config.json").read_text())["tokenizer"] == {"name": "command:cat", "version": 1}
        loaded = load_pretrained(folder)
        with pytest.raises(InputError, match="runs code on this machine"):
            choose_tokenizer(loaded, None, allow_other=False).tokenize("a b")
        assert choose_tokenizer(loaded, "command:cat", allow_other=False).tokenize("a b").tokens == ("a", "b")
