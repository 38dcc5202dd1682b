"""A whitened model predicts what it did, and its vectors spread evenly."""

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
from elmokit.weights.calibrate import input_moments
from elmokit.weights.whiten import whiten

WORDS = ("<S>", "</S>", "<UNK>", "the", "river", "banks")
TEXT = [[f"{a}{b}", "the", f"{b}{a}s", "river", a] for a in "abcdefgh" for b in "mnopqrst"]


def trained_like() -> Pretrained:
    """A small model whose vectors lie mostly along two directions, one of them their mean's."""
    pretrained = models.tiny().pretrained
    source = torch.Generator().manual_seed(3)
    width = pretrained.config.lstm.projection_dim
    tensors = {name: values.clone() for name, values in pretrained.tensors.items()}
    for name in (name for name in tensors if name.endswith("projection") and name.startswith("lstm.")):
        tensors[name][:, 0] += 0.5 * tensors[name].abs().mean()
        tensors[name][:, 2:] *= 0.2
    softmax = SoftmaxTensors(
        torch.randn(len(WORDS), width, generator=source), torch.randn(len(WORDS), generator=source)
    )
    return replace(pretrained, tensors=tensors, vocabulary=WORDS, softmax=softmax)


def moments(pretrained: Pretrained) -> dict[str, torch.Tensor]:
    return input_moments(pretrained, [Sentence(tuple(words)) for words in TEXT])


def lstm_rows(folder: Path) -> np.ndarray:
    """The vectors of all LSTM layers, each direction's part a row."""
    layers = Elmo.from_pretrained(folder, device="cpu").encode_layers(TEXT, dtype="float32")
    return np.concatenate([part[1:].reshape(-1, part.shape[-1] // 2) for part in layers])


def spread(rows: np.ndarray) -> float:
    """The second moment of the strongest direction but one against the mean of it and the weaker ones."""
    strengths = np.linalg.eigvalsh(rows.T.astype(np.float64) @ rows)[:-1]
    return float(strengths[-1] / strengths.mean())


def test_predictions_stay_and_vectors_spread(tmp_path: Path) -> None:
    before = trained_like()
    after = whiten(before, moments(before))
    for name, pretrained in (("before", before), ("after", after)):
        save_pretrained(pretrained, tmp_path / name)
    old, new = lstm_rows(tmp_path / "before"), lstm_rows(tmp_path / "after")
    assert spread(old) > 2 * spread(new)
    assert spread(new) < 1.3  # the moments are of vectors with sentence boundaries, these are of words alone
    np.testing.assert_allclose(np.square(new).mean(), np.square(old).mean(), rtol=0.2)
    strongest = [np.linalg.eigvalsh(rows.T.astype(np.float64) @ rows)[-1] for rows in (old, new)]
    np.testing.assert_allclose(strongest[1], strongest[0], rtol=0.1)  # the mean's direction stays
    scores = [LanguageModel.from_pretrained(tmp_path / name, device="cpu").score(TEXT) for name in ("before", "after")]
    for first, second in zip(*scores, strict=True):
        np.testing.assert_allclose(second.forward, first.forward, atol=1e-3)
        np.testing.assert_allclose(second.backward, first.backward, atol=1e-3)


def test_half_the_strength_is_halfway(tmp_path: Path) -> None:
    before = trained_like()
    found = {}
    for strength in (0.0, 0.5, 1.0):
        folder = tmp_path / str(strength)
        save_pretrained(whiten(before, moments(before), strength=strength), folder)
        found[strength] = spread(lstm_rows(folder))
    assert found[0.0] > 1.2 * found[0.5] > 1.2 * 1.2 * found[1.0]
    unchanged = whiten(before, moments(before), strength=0.0)
    for name, values in before.tensors.items():
        torch.testing.assert_close(unchanged.tensors[name], values.float(), rtol=0, atol=1e-6)


def test_token_vectors_stay() -> None:
    before = trained_like()
    after = whiten(before, moments(before))
    for name, values in before.tensors.items():
        changed = name.startswith("lstm.") and not name.endswith("bias") and name != "lstm.0.weight_x"
        assert torch.equal(after.tensors[name], values.float()) is not changed, name


def test_without_a_softmax() -> None:
    before = replace(trained_like(), softmax=None, vocabulary=None)
    assert whiten(before, moments(before)).softmax is None


def test_no_projections() -> None:
    before = trained_like()
    lstm = replace(before.config.lstm, project=False, cell_dim=before.config.lstm.projection_dim)
    with pytest.raises(WeightsError, match="no projections"):
        whiten(replace(before, config=replace(before.config, lstm=lstm)), {})


def test_on_the_command_line(tmp_path: Path) -> None:
    save_pretrained(trained_like(), tmp_path / "model")
    text = tmp_path / "text.txt"
    text.write_text("\n".join(" ".join(words) for words in TEXT), encoding="utf-8")
    arguments = ["convert", str(tmp_path / "model"), str(tmp_path / "even"), "--whiten", str(text)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert load_pretrained(str(tmp_path / "even")).vocabulary == WORDS
    assert spread(lstm_rows(tmp_path / "model")) > 2 * spread(lstm_rows(tmp_path / "even"))
    (tmp_path / "empty.txt").write_text("", encoding="utf-8")
    arguments[-1], arguments[2] = str(tmp_path / "empty.txt"), str(tmp_path / "other")
    assert "no text" in str(CliRunner().invoke(app, arguments).exception)
