"""A wider model computes what the narrow one did, and its new parts can learn."""

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
from elmokit.weights import Pretrained, SoftmaxTensors, load_pretrained
from elmokit.weights.widen import widen

TEXT = [["The", "river", "burst", "its", "banks"], ["Bank"]]
WORDS = ("<S>", "</S>", "<UNK>", "The", "river", "banks")


def narrow() -> Pretrained:
    """A tiny model with a softmax."""
    pretrained = models.tiny().pretrained
    source = torch.Generator().manual_seed(3)
    width = pretrained.config.lstm.projection_dim
    softmax = SoftmaxTensors(
        torch.randn(len(WORDS), width, generator=source), torch.randn(len(WORDS), generator=source)
    )
    return replace(pretrained, vocabulary=WORDS, softmax=softmax)


def layers(pretrained: Pretrained, folder: Path) -> list[np.ndarray]:
    save_pretrained(pretrained, folder)
    return Elmo.from_pretrained(folder, device="cpu").encode_layers(TEXT, dtype="float32")


@pytest.mark.parametrize(("cells", "width"), [(3, 0), (0, 2), (5, 7)])
def test_it_computes_the_same(tmp_path: Path, cells: int, width: int) -> None:
    before = narrow()
    shape = before.config.lstm
    H, P = shape.cell_dim + cells, shape.projection_dim + width
    after = widen(before, cell_dim=H, projection_dim=P)
    assert (after.config.lstm.cell_dim, after.config.lstm.projection_dim) == (H, P)
    old, new = layers(before, tmp_path / "old"), layers(after, tmp_path / "new")
    for a, b in zip(old, new, strict=True):
        sides = a.reshape(*a.shape[:2], 2, -1), b.reshape(*b.shape[:2], 2, -1)[..., : shape.projection_dim]
        np.testing.assert_allclose(sides[1], sides[0], atol=1e-5)
        added = b.reshape(*b.shape[:2], 2, -1)[..., shape.projection_dim :]
        assert (np.abs(added).max(axis=(1, 2, 3), initial=0) > 1e-3).all() or not width  # alive in every layer
    scores = [LanguageModel.from_pretrained(tmp_path / name, device="cpu").score(TEXT) for name in ("old", "new")]
    for first, second in zip(*scores, strict=True):
        np.testing.assert_allclose(second.forward, first.forward, atol=1e-4)
        np.testing.assert_allclose(second.backward, first.backward, atol=1e-4)


def test_all_new_weights_learn() -> None:
    """The old cells read the new numbers after one step, and the new cells are read after it, too."""
    before = narrow()
    H, P = before.config.lstm.cell_dim, before.config.lstm.projection_dim
    after = widen(before, cell_dim=H + 2, projection_dim=P + 3)
    network = after.build()
    for parameter in network.parameters():
        parameter.requires_grad_(True)
    ids = torch.randint(1, 200, (4, 50), generator=torch.Generator().manual_seed(0))
    stack, _ = network(ids, torch.tensor([[0, 1, 2, 3]]), np.array([4]))
    stack.values.square().sum().backward()
    for name in ("lstm.0.weight_x", "lstm.1.weight_h", "lstm.1.projection"):
        gradient = network.get_parameter(name).grad
        assert gradient is not None
        assert (gradient[..., : H if name.endswith("projection") else P] != 0).any()
        assert (gradient[:, : P if name.endswith("projection") else H, -2:] != 0).any()  # what was set to zero


def test_the_command(tmp_path: Path) -> None:
    model = save_pretrained(narrow(), tmp_path / "model")
    shape = narrow().config.lstm

    def run(*flags: object) -> None:
        CliRunner().invoke(
            app, ["convert", str(model), str(tmp_path / "wide"), *map(str, flags)], catch_exceptions=False
        )

    with pytest.raises(WeightsError, match=r"cell-dim 1 is less than .* can only be made wider"):
        run("--cell-dim", 1)
    assert not (tmp_path / "wide").exists()
    run("--projection-dim", shape.projection_dim + 4)
    made = load_pretrained(tmp_path / "wide")
    assert made.config.lstm == replace(shape, projection_dim=shape.projection_dim + 4)
    assert made.vocabulary is not None
    assert tuple(made.vocabulary) == WORDS
