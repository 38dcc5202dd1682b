"""`OnnxElmo`: the calls of `Elmo` on an exported model, in a process that cannot import torch."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import models
from elmokit import Elmo
from elmokit.errors import InputError, MissingExtraError, WeightsError
from elmokit.text import Sentence
from elmokit.weights import TokenizerSpec, save_pretrained

pytest.importorskip("onnx", reason="needs the onnx extra")
pytest.importorskip("onnxruntime", reason="needs the onnx extra")

from elmokit.export.save import export_onnx
from elmokit.integrations.onnx import OnnxElmo

TEXTS = ["The cat didn't sit.", "", "One", "A week of rain, and the river burst its banks - again!"]
WITHOUT_TORCH = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ImportError("torch is blocked in this test")

sys.meta_path.insert(0, Blocked())
import json
from elmokit.integrations.onnx import OnnxElmo

elmo = OnnxElmo(sys.argv[1], threads=1)
texts = json.loads(sys.argv[2])
found = [elmo.encode(texts[0]).tolist(), [v.tolist() for v in elmo.encode_tokens(texts, layers="concat:0,2")]]
assert "torch" not in sys.modules
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def elmo() -> Elmo:
    return Elmo(models.tiny(tokenizer=TokenizerSpec("english", 1)).pretrained)


@pytest.fixture(scope="module")
def folder(elmo: Elmo, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("onnx")
    export_onnx(elmo.pretrained, made)
    return made


@pytest.fixture(scope="module")
def light(folder: Path) -> OnnxElmo:
    return OnnxElmo(folder, threads=1)


def test_without_torch(elmo: Elmo, folder: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_TORCH, str(folder), json.dumps(TEXTS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    one, tokens = json.loads(done.stdout)
    np.testing.assert_allclose(one, elmo.encode(TEXTS[0]), atol=1e-5)
    for got, expected in zip(tokens, elmo.encode_tokens(TEXTS, layers="concat:0,2"), strict=True):
        np.testing.assert_allclose(np.reshape(got, expected.shape), expected, atol=1e-5)


@pytest.mark.parametrize("layers", ["average", "top", "all", "concat:1,2", "weights:.2,.3,.5*2"])
@pytest.mark.parametrize("normalise", [False, True])
def test_the_calls_of_elmo(elmo: Elmo, light: OnnxElmo, layers: str, normalise: bool) -> None:
    whole = light.encode(TEXTS, layers=layers, normalise=normalise)
    assert whole.dtype == np.float32
    np.testing.assert_allclose(whole, elmo.encode(TEXTS, layers=layers, normalise=normalise), atol=1e-5)
    found = light.encode_tokens(TEXTS, layers=layers, normalise=normalise)
    for got, expected in zip(found, elmo.encode_tokens(TEXTS, layers=layers, normalise=normalise), strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-5)


def test_what_may_be_given(elmo: Elmo, light: OnnxElmo, tmp_path: Path) -> None:
    assert (light.width, light.depth, light.layer_names) == (elmo.width, elmo.depth, elmo.layer_names)
    one = light.encode_tokens(TEXTS[0])
    assert isinstance(one, np.ndarray)
    assert one.shape == (6, elmo.width)
    tokens = ["The", "cat", "did", "n't", "sit", "."]
    for given in ([tokens], [tuple(tokens)], [Sentence.of(tokens)], iter([TEXTS[0]])):
        np.testing.assert_allclose(light.encode_tokens(given)[0], one, atol=1e-6)
    (tmp_path / "text.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    assert len(light.encode_layers(tmp_path / "text.txt")) == len(TEXTS)
    assert light.encode_layers(Sentence.of(tokens)).shape == (elmo.depth, 6, elmo.width)  # type: ignore[union-attr]
    assert light.encode([]).shape == (0, elmo.width)
    assert light.encode([], layers="all").shape == (0, elmo.depth, elmo.width)


def test_small_batches_change_nothing_and_keep_the_order(light: OnnxElmo) -> None:
    texts = [" ".join(["word"] * (7 * k % 11)) for k in range(40)]
    whole = light.encode_tokens(texts)
    for got, expected in zip(light.stream(texts, batch_tokens=9), whole, strict=True):
        np.testing.assert_allclose(got.vectors, expected, atol=1e-6)
        assert got.vectors.shape[0] == len(got.sentence)


def test_a_vector_does_not_hold_its_batch(light: OnnxElmo) -> None:
    for made in light.stream(TEXTS, layers="top"):
        base = made.vectors if made.vectors.base is None else made.vectors.base
        assert base.size == made.vectors.size


def test_what_cannot_be_run(folder: Path, light: OnnxElmo, tmp_path: Path) -> None:
    for given, said in (
        ([3], "sentence 0 is int 3"),
        ({"text": "a"}, "cannot embed dict"),
        ([{"text": "a"}], "sentence 0 is dict"),
        (["a", ["b"]], "sentence 1 is a list of tokens"),
    ):
        with pytest.raises(InputError, match=said):
            light.encode(given)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="the model has layers 0 to 2"):
        light.encode("a", layers=7)
    with pytest.raises(InputError, match="at least 1 is needed"):
        light.encode("a", batch_tokens=0)
    with pytest.raises(InputError, match=r"no provider Quantum here; available are .*CPUExecutionProvider"):
        OnnxElmo(folder, providers=["Quantum"])
    with pytest.raises(WeightsError, match="not an exported model"):
        OnnxElmo(save_pretrained(models.tiny().pretrained, tmp_path))


def test_without_onnxruntime(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'elmokit\[onnx\]'"):
        OnnxElmo(folder)
