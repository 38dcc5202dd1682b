"""Words that hold spaces are the mean of their parts."""

from pathlib import Path

import numpy as np
import pytest

import models
from elmokit.encoders import Elmo, Syllables, load_encoder
from elmokit.weights import save_pretrained


@pytest.fixture(scope="module")
def elmo() -> Elmo:
    return Elmo(models.tiny().pretrained, device="cpu")


def test_words_are_the_means_of_their_parts(elmo: Elmo) -> None:
    words = [["anh", "chủ tịch", "xã", "Bùi Văn Luyến"], ["nhỏ"], []]
    parts = [[part for word in sentence for part in word.split()] for sentence in words]
    made, plain = Syllables(elmo).encode_layers(words), elmo.encode_layers(parts)
    assert [layers.shape[1] for layers in made] == [4, 1, 0]
    np.testing.assert_allclose(made[0][:, 0], plain[0][:, 0], atol=1e-5)
    np.testing.assert_allclose(made[0][:, 1], plain[0][:, 1:3].mean(axis=1), atol=1e-5)
    np.testing.assert_allclose(made[0][:, 3], plain[0][:, 4:7].mean(axis=1), atol=1e-5)
    np.testing.assert_allclose(made[1], plain[1], atol=1e-5)


def test_without_spaces_nothing_changes(elmo: Elmo) -> None:
    np.testing.assert_allclose(Syllables(elmo).encode(["a b c"]), elmo.encode(["a b c"]), atol=1e-5)


def test_by_name(elmo: Elmo, tmp_path: Path) -> None:
    folder = save_pretrained(elmo.pretrained, tmp_path / "model")
    loaded = load_encoder(f"syllables:{folder}", device="cpu")
    assert isinstance(loaded, Syllables)
    assert loaded.fingerprint == Syllables(elmo).fingerprint != elmo.fingerprint
