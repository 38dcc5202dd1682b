"""Four bits: the rounding, the bytes, and models stored so."""

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from elmokit import Elmo, LanguageModel, load_pretrained, save_pretrained
from elmokit.errors import WeightsError
from elmokit.kernels.cpu.c import c_library
from elmokit.kernels.cpu.int8 import dequantise
from elmokit.native import numbers
from elmokit.nn.bilm import BiLM, BiLMConfig, initialise
from elmokit.nn.char_cnn import TokenEncoderConfig
from elmokit.nn.lstm import LstmConfig
from elmokit.weights import Pretrained, SoftmaxTensors
from elmokit.weights.storage import GROUP, as_int8, fits, quantise_groups, widen_groups


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_bytes_are_as_the_format_says() -> None:
    values = torch.zeros(1, GROUP)
    values[0, :4] = torch.tensor([7.0, -7.0, 3.0, 0.0])  # scale 1: whole numbers stay exact
    packed, scale = quantise_groups(values)
    assert packed.shape == (1, GROUP // 2)
    assert scale.dtype == torch.float16
    assert scale.tolist() == [[1.0]]
    assert packed[0, :3].tolist() == [15 | (1 << 4), 11 | (8 << 4), 8 | (8 << 4)]
    assert torch.equal(widen_groups(packed, scale), values)


def test_the_error_is_that_of_four_bits_and_clipping_helps() -> None:
    values = normal(300, 4 * GROUP)
    found = widen_groups(*quantise_groups(values))
    error = (found - values).square().mean().sqrt()
    largest = values.unflatten(1, (-1, GROUP)).abs().amax(-1, keepdim=True)
    plain = (values.unflatten(1, (-1, GROUP)) / largest * 7).round() / 7 * largest
    assert error < 0.13
    assert error < 0.97 * (plain.flatten(1) - values).square().mean().sqrt()


def test_leading_axes_zeros_and_tiny_numbers() -> None:
    values = normal(2, 5, GROUP, seed=1)
    values[0, 0] = 0
    values[1, 1] *= 1e-12  # below what a scale of 16 bits can say
    packed, scale = quantise_groups(values)
    assert packed.shape == (2, 5, GROUP // 2)
    assert scale.shape == (2, 5, 1)
    found = widen_groups(packed, scale)
    assert torch.isfinite(found).all()
    assert not found[0, 0].any()
    assert found[1, 1].abs().max() < 1e-6


def test_int8_of_it_is_off_by_half_a_step() -> None:
    packed, scale = quantise_groups(normal(2, 40, 3 * GROUP, seed=2))
    matrix = as_int8(packed, scale)
    floats = widen_groups(packed, scale)
    assert matrix.values.shape == floats.shape
    off = (dequantise(matrix.values, matrix.scale) - floats).abs()
    assert (off <= 0.501 * matrix.scale[..., None]).all()


def test_what_fits() -> None:
    assert fits(torch.empty(3, 128))
    assert not fits(torch.empty(3, 100))
    assert not fits(torch.empty(128))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with matrices of 64 and more, random weights and a softmax, as float32."""
    tokens = TokenEncoderConfig(filters=((1, 32), (2, 32), (3, 64)), n_highway=1, projection_dim=64)
    bilm = BiLM(BiLMConfig(tokens=tokens, lstm=LstmConfig(128, 64)))
    initialise(bilm, seed=0)
    words = ("<S>", "</S>", "<UNK>", *(f"word{k}" for k in range(40)))
    output = SoftmaxTensors(normal(len(words), 64, seed=3), torch.zeros(len(words)))
    folder = tmp_path_factory.mktemp("models") / "float32"
    save_pretrained(Pretrained.of(bilm.requires_grad_(False), vocabulary=words, softmax=output), folder)
    return folder


@pytest.fixture(scope="module")
def small(model: Path) -> Path:
    folder = model.with_name("int4")
    save_pretrained(load_pretrained(model), folder, dtype="int4")
    return folder


TEXT = [["The", "river", "burst", "its", "banks"], ["One"]]


def test_a_model_of_four_bits_is_small_and_runs_near_its_floats(model: Path, small: Path) -> None:
    sizes = [(folder / "model.safetensors").stat().st_size for folder in (model, small)]
    assert sizes[1] < 0.2 * sizes[0]
    exact, rounded = (Elmo.from_pretrained(folder, device="cpu").encode_layers(TEXT) for folder in (model, small))
    for a, b in zip(exact, rounded, strict=True):
        cosines = (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)
        assert cosines.min() > 0.95
    assert json.loads((small / "config.json").read_text())["version"] == 2
    assert json.loads((model / "config.json").read_text())["version"] == 1  # 0.1.0 reads it


def test_int8_products_give_what_its_floats_give(small: Path) -> None:
    elmo = Elmo.from_pretrained(small, device="cpu")
    by_default, floats = elmo.encode_layers(TEXT), elmo.encode_layers(TEXT, dtype="float32")
    for a, b in zip(by_default, floats, strict=True):
        # int8 is the default where C runs: products of whole numbers
        assert np.array_equal(a, b) == (c_library() is None)
        cosines = (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)
        assert cosines.min() > 0.995


def test_its_softmax_predicts(model: Path, small: Path) -> None:
    exact, rounded = (LanguageModel.from_pretrained(folder, device="cpu") for folder in (model, small))
    assert rounded.perplexity(TEXT).mean == pytest.approx(exact.perplexity(TEXT).mean, rel=0.1)


def test_stored_again_it_stays_the_same(small: Path, tmp_path: Path) -> None:
    """Numbers that four bits hold come back from four bits."""
    save_pretrained(load_pretrained(small), tmp_path / "again", dtype="int4")
    first, second = load_pretrained(small), load_pretrained(tmp_path / "again")
    for name in first.tensors:
        assert torch.equal(second.tensors[name], first.tensors[name])


def test_scales_that_do_not_fit_are_refused(small: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(small, tmp_path / "model"))
    tensors = load_file(folder / "model.safetensors")
    tensors["lstm.0.weight_h.scale"] = tensors["lstm.0.weight_h.scale"][..., :0]
    digest = json.loads((folder / "config.json").read_text())["weights"]["digest"]
    save_file(tensors, folder / "model.safetensors", metadata={"digest": digest})
    with pytest.raises(WeightsError, match=r"lstm\.0\.weight_h"):
        load_pretrained(folder)


def test_in_c_four_bits_become_the_same_int8(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit, rows of zeros and of one size among them."""
    source = np.random.default_rng(0)
    packed = source.integers(0, 256, (2, 301, 96), np.uint8)
    scale = source.random((2, 301, 3)).astype(np.float16)
    scale[0, 3], packed[0, 4], packed[1, 5] = 0, 0x88, 0xFF
    found = numbers.groups_as_int8(packed, scale)
    monkeypatch.setattr(numbers, "c_library", lambda: None)
    for here, there in zip(found, numbers.groups_as_int8(packed, scale), strict=True):
        assert np.array_equal(here, there)


def test_the_softmax_is_read_when_it_is_needed() -> None:
    softmax = load_pretrained("en").softmax
    assert isinstance(softmax, SoftmaxTensors)
    assert "weight" not in vars(softmax)
    again = pickle.loads(pickle.dumps(softmax))
    assert type(again) is SoftmaxTensors
    assert again.words == len(again.weight) == softmax.words
    assert all(torch.equal(again.named[name], values) for name, values in softmax.named.items())
