"""`Embedder.sents2elmo` against the vectors that elmoformanylangs itself gave."""

import json
from pathlib import Path

import numpy as np
import pytest

from elmokit.compat.manylangs import Embedder
from elmokit.errors import InputError, WeightsError

DATA = Path(__file__).parents[1] / "data" / "manylangs"
SENTENCES = json.loads((DATA / "sentences.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["both", "characters", "words"])
def test_every_layer_code(name: str) -> None:
    embedder = Embedder(str(DATA / name), batch_size=2)
    depth = embedder.config["encoder"]["n_layers"] + 1
    expected = np.load(DATA / "expected.npz")
    for code in range(-2, depth):
        got = embedder.sents2elmo(SENTENCES, output_layer=code)
        assert all(vectors.dtype == np.float32 for vectors in got)
        shape = (depth,) if code == -2 else ()
        assert [vectors.shape for vectors in got] == [(*shape, len(tokens), 12) for tokens in SENTENCES]
        np.testing.assert_allclose(np.concatenate(got, axis=-2), expected[f"{name}/{code}"], rtol=0, atol=1e-5)


def test_input(tmp_path: Path) -> None:
    embedder = Embedder(DATA / "both")
    assert (embedder.batch_size, embedder.model_dir) == (64, str(DATA / "both"))
    assert embedder.sents2elmo([]) == []
    mean = embedder.sents2elmo(tuple(tokens) for tokens in SENTENCES)
    for again, once in zip(embedder.sents2elmo(SENTENCES), mean, strict=True):
        np.testing.assert_array_equal(again, once)
    assert embedder.sents2elmo(["ab", ["c"]])[0].shape == (2, 12), "a string is its characters, as it was"
    for code in (3, -3):
        with pytest.raises(InputError, match=f"output_layer is {code}; expected 0 to 2, -1"):
            embedder.sents2elmo(SENTENCES, output_layer=code)
    with pytest.raises(WeightsError, match="nowhere"):
        Embedder(tmp_path / "nowhere")
    for wrong in (["the", None], ["the", 3], None):
        with pytest.raises(InputError, match=r"sentence 1 is .*; expected a (string|list of tokens)"):
            embedder.sents2elmo([["a"], wrong])  # type: ignore[list-item]
