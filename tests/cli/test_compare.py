"""`elmokit compare`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from elmokit import Elmo

Cli = Callable[..., Any]


def cosine(a: Any, b: Any) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_layer_by_layer(cli: Cli, model_folder: Path) -> None:
    texts = ["He sat on the bank.", "A bank lends money."]
    done = cli("compare", *texts, "--word", "bank", "-m", model_folder)
    assert done.code == 0, done.err
    first, second = Elmo.from_pretrained(model_folder, device="cpu").encode_layers(texts)
    row = done.out.splitlines()[-1].split()
    assert row[:3] == ["1", "and", "2"]
    want = [cosine(a, b) for a, b in zip(first[:, 4], second[:, 1], strict=True)]
    np.testing.assert_allclose([float(x) for x in row[3:6]], want, atol=6e-4)
    assert row[3] == "1.000", "the token layer knows no context"
    assert "token" in done.out
    assert "lstm2" in done.out


def test_every_place_of_the_word(cli: Cli, model_folder: Path) -> None:
    given = ("compare", "Bank by bank .", "the BANK", "--word", "bank", "--tokenized", "-m", model_folder)
    done = cli(*given)
    shown = done.out.splitlines()
    assert shown[:3] == ["1  Bank by bank .", "2  Bank by bank .", "3  the BANK"], "in any case"
    assert [line.split()[:3] for line in shown[-3:]] == [[a, "and", b] for a, b in ("12", "13", "23")]
    assert "'bank' is not a word of sentence 2; its words are: the BANK" in cli(*given, "--match-case").err
    twice = cli("compare", "a bank is a bank, Bank", "--word", "bank", "--match-case", "-m", model_folder)
    assert "1 and 2" in twice.out
    assert "3" not in twice.out.split("places")[0]


def test_a_word_that_is_not_there(cli: Cli, model_folder: Path) -> None:
    done = cli("compare", "the bank", "the river", "--word", "bank", "-m", model_folder)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "'bank' is not a word of sentence 2; its words are: the river" in done.err
    once = cli("compare", "the bank", "--word", "bank", "-m", model_folder)
    assert once.code == 2
    assert "occurs only once" in once.err
