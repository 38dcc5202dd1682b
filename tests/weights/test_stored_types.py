"""float32 means the numbers of the file, widened exactly and multiplied in float32: in C, in torch, everywhere."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from model_files import read_arrays
from safetensors.torch import load_file

import models
from elmokit import Elmo, LanguageModel, load_pretrained, save_pretrained
from elmokit.compat.allennlp import ElmoEmbedder
from elmokit.kernels.cpu import inference as on_cpu
from elmokit.lite import LiteElmo
from elmokit.native.library import c_library
from elmokit.weights import SoftmaxTensors

TYPES = ("float32", "float16", "bfloat16", "int8", "int4")
OPTIONS = models.tiny_options(
    lstm={"dim": 128, "projection_dim": 64}, char_cnn={"filters": [[1, 16], [2, 16], [3, 32]]}
)
TEXT = [["The", "river", "burst", "its", "banks", "."], ["It", "rained"], ["Ünïcode"]]
NEAR = 1e-5  # int8 products, and four bits rounded to int8, are off by 1e-3


def exact(folder: Path, name: str) -> np.ndarray:
    """A tensor as docs/formats.md says to read it, in float64."""
    tensors = load_file(folder / "model.safetensors")
    values, scale = tensors[name], tensors.get(f"{name}.scale")
    if scale is None:
        return values.double().numpy()
    if values.dtype == torch.int8:
        return (values.double() * scale.double().reshape(*scale.shape, *[1] * (values.ndim - scale.ndim))).numpy()
    pairs = torch.stack([values & 15, values >> 4], dim=-1).flatten(-2).double() - 8  # (..., K)
    return (pairs.unflatten(-1, (-1, 64)) * scale.double()[..., None]).flatten(-2).numpy()


@pytest.fixture(scope="module", params=TYPES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pretrained = models.tiny(OPTIONS).pretrained
    rows = torch.randn(len(models.WORDS), 64, generator=torch.Generator().manual_seed(0))
    whole = replace(pretrained, vocabulary=models.WORDS, softmax=SoftmaxTensors(rows, torch.zeros(len(rows))))
    return save_pretrained(whole, tmp_path_factory.mktemp("stored") / request.param, dtype=request.param)


@pytest.fixture(scope="module")
def expected(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[np.ndarray]:
    """The reference's layers in float64, of the official files that the folder is converted to."""
    official = tmp_path_factory.mktemp("official")
    save_pretrained(load_pretrained(folder), official, format="official", dtype="float32", softmax=False)
    weights = read_arrays(next(official.glob("*.hdf5")))
    tiny = models.Tiny(weights, OPTIONS, models.translate(weights, OPTIONS))
    for name, values in tiny.pretrained.tensors.items():
        kept = slice(1, None) if name == "tokens.characters.weight" else slice(None)  # row 0, padding, is not in there
        np.testing.assert_allclose(values[kept].numpy(), exact(folder, name)[kept], rtol=1e-7, atol=0)
    return [tiny.embed(tokens) for tokens in TEXT]


def near(found: list[np.ndarray], expected: list[np.ndarray]) -> bool:
    return max(float(np.abs(a - b).max()) for a, b in zip(found, expected, strict=True)) < NEAR


@pytest.mark.parametrize("in_c", [True, False], ids=["C", "torch"])
def test_float32_multiplies_the_stored_numbers(
    in_c: bool, folder: Path, expected: list[np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not in_c:
        monkeypatch.setattr(on_cpu, "c_library", lambda: None)
    elif c_library() is None:
        pytest.skip("nothing runs in C here")
    assert near(Elmo.from_pretrained(folder, device="cpu", dtype="float32").encode_layers(TEXT), expected)


@pytest.mark.skipif(c_library() is None, reason="nothing runs in C here")
def test_so_do_those_without_torch(folder: Path, expected: list[np.ndarray]) -> None:
    assert near(LiteElmo(folder, dtype="float32").encode_layers(TEXT), expected)


def test_so_do_the_older_names(folder: Path, expected: list[np.ndarray]) -> None:
    embedder = ElmoEmbedder(folder, stateful=False)
    assert near([embedder.embed_sentence(tokens) for tokens in TEXT], expected)


def test_so_does_a_copy_in_floats(folder: Path, expected: list[np.ndarray], tmp_path: Path) -> None:
    copy = save_pretrained(load_pretrained(folder), tmp_path / "copy", dtype="float32")
    assert near(Elmo.from_pretrained(copy, device="cpu").encode_layers(TEXT), expected)


def test_so_does_the_language_model(folder: Path) -> None:
    single, double = (LanguageModel.from_pretrained(folder, device="cpu", dtype=t) for t in ("float32", "float64"))
    scores = [lm.place_scores(TEXT[0]) for lm in (single, double)]
    for side in scores[0]:
        np.testing.assert_allclose(scores[0][side].numpy(), scores[1][side].numpy(), rtol=0, atol=NEAR)


@pytest.mark.parametrize("in_c", [True, False], ids=["C", "torch"])
def test_bfloat16_rounds_the_stored_numbers_once(in_c: bool, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bits as from a copy in float32."""
    if not in_c:
        monkeypatch.setattr(on_cpu, "c_library", lambda: None)
    stored = load_pretrained(folder)
    wide = replace(stored, tensors={name: stored.tensors[name].float() for name in stored.tensors})
    found, again = (Elmo(model, device="cpu", dtype="bfloat16").encode_layers(TEXT) for model in (stored, wide))
    assert all(np.array_equal(a, b) for a, b in zip(found, again, strict=True))
