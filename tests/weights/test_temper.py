"""`convert --temper`: predictions as sure as the text allows, and the same vectors."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import models
from elmokit import Elmo, LanguageModel, save_pretrained
from elmokit.cli import app
from elmokit.errors import WeightsError
from elmokit.text import Sentence
from elmokit.weights import Pretrained, SoftmaxTensors, load_pretrained
from elmokit.weights.temper import _predictions, temper

WORDS = ("<S>", "</S>", "<UNK>", "the", "river", "banks", "burst")
LINES = [
    "the river burst",
    "banks burst the river",
    "strange banks",
    "the banks",
    "river the burst banks the river",
] * 3
TEXT = [Sentence(tuple(line.split())) for line in LINES]


def sharp(by: float) -> Pretrained:
    """A small model that can tell the words: a row is the mean of what was before its word, times a number."""
    pretrained = replace(models.tiny().pretrained, vocabulary=WORDS)
    hidden, targets = map(torch.cat, zip(*_predictions(pretrained, TEXT), strict=True))
    told = torch.nn.functional.one_hot(targets, len(WORDS)).float()  # (N, V)
    rows = told.T @ (hidden - hidden.mean(dim=0)) / told.sum(dim=0)[:, None]  # (V, P)
    return replace(pretrained, softmax=SoftmaxTensors(by * rows, told.mean(dim=0).log()))


def loss(pretrained: Pretrained, folder: Path) -> float:
    save_pretrained(pretrained, folder)
    scores = LanguageModel.from_pretrained(folder, device="cpu", dtype="float32").score([s.tokens for s in TEXT])
    return -float(np.concatenate([np.concatenate([s.forward, s.backward]) for s in scores]).mean())


def lowered(pretrained: Pretrained, by: float) -> Pretrained:
    """The same with so much less of a bias for <UNK>."""
    assert isinstance(pretrained.softmax, SoftmaxTensors)
    less = torch.tensor([0, 0, by, 0, 0, 0, 0])
    return replace(pretrained, softmax=SoftmaxTensors(pretrained.softmax.weight, pretrained.softmax.bias - less))


def test_no_other_numbers_predict_better(tmp_path: Path) -> None:
    before = lowered(sharp(0.8), 1.5)
    after, (factor, unknown) = temper(before, TEXT * 20)  # much text, so that the prior says nothing
    assert isinstance(before.softmax, SoftmaxTensors)
    assert isinstance(after.softmax, SoftmaxTensors)
    torch.testing.assert_close(after.softmax.weight, before.softmax.weight * factor)
    torch.testing.assert_close(lowered(after, unknown).softmax.bias, before.softmax.bias)  # type: ignore[union-attr]
    best = loss(after, tmp_path / "best")
    assert best < loss(before, tmp_path / "before")
    for other in (0.9, 1.1):
        changed = SoftmaxTensors(after.softmax.weight * other, after.softmax.bias)
        assert best < loss(replace(after, softmax=changed), tmp_path / f"{other}")
    for shift in (-0.1, 0.1):
        assert best < loss(lowered(after, shift), tmp_path / f"{shift}")


def test_the_numbers_undo_a_factor_and_a_shift() -> None:
    _, once = temper(sharp(0.4), TEXT * 20)
    _, twice = temper(lowered(sharp(0.8), 2.0), TEXT * 20)
    assert twice.factor == pytest.approx(once.factor / 2, rel=1e-2)
    assert twice.unknown == pytest.approx(once.unknown + 2, abs=0.05)  # the prior pulls a little


def test_text_without_unknown_words_does_not_forbid_them() -> None:
    known = [sentence for sentence in TEXT if "strange" not in sentence.tokens]
    _, found = temper(sharp(0.8), known * 20)
    assert -8 < found.unknown < -1


def test_the_command_says_the_factor_and_keeps_the_vectors(tmp_path: Path) -> None:
    save_pretrained(sharp(0.8), tmp_path / "model")
    (tmp_path / "text.txt").write_text("\n".join(LINES), encoding="utf-8")
    given = ["convert", tmp_path / "model", tmp_path / "out", "--temper", tmp_path / "text.txt"]
    ended = CliRunner().invoke(app, list(map(str, given)), catch_exceptions=False)
    assert ended.exit_code == 0
    assert re.search(r"scores are now 0\.\d+ times what they were, that of <UNK> [+-]\d", ended.stderr)
    old, new = (Elmo.from_pretrained(tmp_path / name, device="cpu") for name in ("model", "out"))
    assert old.fingerprint == new.fingerprint
    assert not torch.equal(*(load_pretrained(tmp_path / n).softmax.weight for n in ("model", "out")))  # type: ignore[union-attr]


@pytest.mark.parametrize("lacking", ["softmax", "a mark"])
def test_a_model_without_scores_is_refused(lacking: str) -> None:
    model = sharp(1.0)
    if lacking == "softmax":
        model = replace(model, softmax=None)
    else:
        model = replace(model, vocabulary=("a", *WORDS[1:]))
    with pytest.raises(WeightsError, match="no plain softmax" if lacking == "softmax" else "lacks <S>"):
        temper(model, TEXT)
