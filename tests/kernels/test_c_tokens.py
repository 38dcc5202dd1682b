"""The token encoder in C by whole numbers: bit for bit what its arithmetic says, and near the network it stands for."""

import copy
from typing import Any, Literal

import numpy as np
import pytest
import torch
from c_arithmetic import emulated_tokens, whole_numbers
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from elmokit.kernels import Filter
from elmokit.kernels.cpu.c import CompiledTokens, Linear, c_library
from elmokit.nn.char_cnn import Highway, TokenEncoder, TokenEncoderConfig

LIBRARY = c_library()
if LIBRARY is None:
    pytest.skip("nothing runs in C here: no library was built, no AVX2, or ELMOKIT_NATIVE=0", allow_module_level=True)

ALPHABET, PAD, N_WORDS = 40, 39, 23
WHOLE = ("int8",) if LIBRARY.elmokit_halves() else ("int8", "int16")  # else "int16" here is bfloat16 itself


def config(
    filters: tuple[tuple[int, int], ...] = ((1, 5), (2, 33), (3, 7), (7, 70)),
    *,
    width: int | None = 13,  # None: not projected
    n_highway: int = 2,
    C: int = 12,
    pad: int | None = PAD,
    activation: Literal["relu", "tanh"] = "relu",
    word_dim: int = 0,
    spelt: bool = True,  # whether there are characters
) -> TokenEncoderConfig:
    return TokenEncoderConfig(
        char_dim=5 if spelt else 0,
        n_characters=ALPHABET if spelt else 0,
        max_characters=C,
        filters=filters if spelt else (),
        activation=activation,
        n_highway=n_highway,
        word_dim=word_dim,
        n_words=N_WORDS if word_dim else 0,
        projection_dim=word_dim + sum(n for _, n in filters if spelt) if width is None else width,
        project=width is not None,
        pad_id=pad,
    )


CONFIGS = {
    "fills nothing evenly": config(),
    "no highway": config(n_highway=0),
    "one highway": config(n_highway=1),
    "not projected": config(width=None),
    "convolutions alone": config(width=None, n_highway=0),
    "nothing fills words up": config(pad=None),
    "filters as wide as a word": config(((12, 9), (11, 3))),
    "one filter": config(((3, 1),), width=1),
    "fills all evenly": config(((1, 32), (2, 64), (5, 64)), width=64),
    "more outputs than features": config(((2, 3),), width=131),
    "tanh": config(activation="tanh"),
    "tanh, not projected": config(activation="tanh", n_highway=1, width=None),
    "words and characters": config(word_dim=11),
    "words and characters, tanh, not projected": config(word_dim=64, activation="tanh", n_highway=0, width=None),
    "words alone": config(word_dim=37, spelt=False),
    "words alone, not projected": config(word_dim=5, spelt=False, width=None),
}


class Case:
    """A network with random weights, what C is made of, and the two of them."""

    def __init__(self, config: TokenEncoderConfig, kind: str = "int8") -> None:
        self.config = config
        source = torch.Generator().manual_seed(config.n_features)
        self.network = TokenEncoder(config).requires_grad_(False)
        for part in self.network.parameters():
            part.copy_(torch.randn(part.shape, generator=source) * (0.3 if part.ndim == 1 else part.shape[1] ** -0.5))
        last = self.network.projection
        made, self.parts = (
            (
                None if self.network.characters is None else self.network.characters.weight,
                [Filter(conv.weight, conv.bias) for conv in self.network.convolutions],
                [(linear(h.transform), linear(h.gate)) for h in self.network.highways if isinstance(h, Highway)],
                None if last is None else linear(last),
            )
            for linear in (
                lambda layer: Linear(
                    whole_numbers(layer.weight, kind) if kind == "int8" else layer.weight.bfloat16(), layer.bias
                ),
                lambda layer: Linear(whole_numbers(layer.weight, kind), layer.bias),
            )
        )
        settings: dict[str, Any] = {"activation": config.activation, "word_dim": config.word_dim}
        self.encoder = CompiledTokens(LIBRARY, *made, pad=config.pad_id, **settings)
        self.encoder.words = self.network.words

    def words(self, U: int) -> Tensor:
        """Of all lengths: the first is nothing but padding, the second fills its row, the third has padding inside."""
        C = self.config.max_characters
        source = torch.Generator().manual_seed(U)
        types = torch.randint(0, PAD, (U, C), generator=source)
        lengths = torch.randint(0, C + 1, (U,), generator=source)
        lengths[:3] = torch.tensor([0, C, C - 1])[:U]
        types[torch.arange(C) >= lengths[:, None]] = PAD
        types[2:3, 1:-2] = PAD
        if self.network.words is None:
            return types
        ids = torch.randint(0, N_WORDS, (U, 1), generator=source)
        return torch.cat([ids, types], dim=1) if self.config.char_dim else ids

    def emulated(self, types: Tensor) -> Tensor:
        words = self.network.words
        return emulated_tokens(
            types if words is None else types[:, 1:],
            *self.parts,
            pad=self.config.pad_id,
            most=LIBRARY.elmokit_most(),
            activation=self.config.activation,
            words=None if words is None else words(types[:, 0]),
        )


@pytest.mark.parametrize(("kind", "allowed"), [("int8", 0.03), ("int16", 0.008 if LIBRARY.elmokit_halves() else 0.004)])
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("U", [1, 3, 61])
def test_equals_its_arithmetic_and_nearly_the_network(name: str, U: int, kind: str, allowed: float) -> None:
    case = Case(CONFIGS[name], kind)
    types = case.words(U)
    found = case.encoder(types)
    assert found.dtype == torch.float32
    if kind in WHOLE:
        torch.testing.assert_close(found, case.emulated(types), rtol=0, atol=0)
    exact = copy.deepcopy(case.network).double()(types)
    if name == "convolutions alone":
        torch.testing.assert_close(found.double(), exact, rtol=0, atol=2e-6)
    assert float((found.double() - exact).norm() / exact.norm()) < allowed


@given(
    st.lists(st.tuples(st.integers(1, 8), st.integers(1, 40)), min_size=1, max_size=4),
    st.none() | st.integers(1, 70),
    st.integers(0, 2),
    st.sampled_from([None, PAD, 0]),
    st.integers(1, 5),
    st.sampled_from(WHOLE),
)
def test_any_size_equals_its_arithmetic(
    filters: list[tuple[int, int]], width: int | None, n_highway: int, pad: int | None, U: int, kind: str
) -> None:
    case = Case(config(tuple(filters), width=width, n_highway=n_highway, pad=pad, C=8), kind)
    types = case.words(U)
    torch.testing.assert_close(case.encoder(types), case.emulated(types), rtol=0, atol=0)


@pytest.mark.parametrize("kind", ["int8", "int16"])
@pytest.mark.parametrize("number", [1, 2, 3, 5])
@pytest.mark.parametrize("name", ["fills nothing evenly", "words and characters", "words alone"])
def test_words_are_alone(name: str, number: int, kind: str) -> None:
    """Bit for bit: by any number of threads, wherever they stand, among whatever others."""
    case = Case(CONFIGS[name], kind)
    types = case.words(120)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        expected = case.encoder(types)
        torch.set_num_threads(number)
        assert torch.equal(case.encoder(types), expected)
        order = torch.randperm(120, generator=torch.Generator().manual_seed(1))
        assert torch.equal(case.encoder(types[order]), expected[order])
        for first, end in ((0, 1), (119, 120), (40, 50), (1, 50)):
            assert torch.equal(case.encoder(types[first:end]), expected[first:end])
    finally:
        torch.set_num_threads(before)


def test_the_type_and_layout_of_ids_do_not_matter() -> None:
    case = Case(CONFIGS["fills nothing evenly"])
    types = case.words(9)
    expected = case.encoder(types)
    for other in (types.int(), types.to(torch.uint8), types.t().contiguous().t()):
        assert torch.equal(case.encoder(other), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_default_type_of_new_tensors_is_not_ours(dtype: torch.dtype) -> None:
    case = Case(CONFIGS["fills nothing evenly"])
    expected = case.encoder(case.words(9))
    try:
        torch.set_default_dtype(dtype)
        found = case.encoder(case.words(9))
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(found, expected)


def test_no_words() -> None:
    assert Case(config()).encoder(torch.zeros(0, 12, dtype=torch.int64)).shape == (0, 13)


@pytest.mark.parametrize("wrong", [-1, ALPHABET, 2**32 + 1])
def test_characters_that_are_none_are_told(wrong: int) -> None:
    case = Case(config())
    types = case.words(5)
    types[4, 11] = wrong
    with pytest.raises(IndexError, match="characters go from 0 to 39; met"):
        case.encoder(types)


@pytest.mark.parametrize("wrong", [-1, N_WORDS])
def test_words_that_are_none_are_told(wrong: int) -> None:
    case = Case(CONFIGS["words and characters"])
    types = case.words(5)
    types[4, 0] = wrong
    with pytest.raises(IndexError, match="rows go from 0 to 22"):
        case.encoder(types)


def test_word_vectors_of_another_shape_are_told() -> None:
    encoder = Case(CONFIGS["words alone"]).encoder.encoder
    types = np.zeros((2, 0), np.int32)
    for words in (None, np.zeros((2, 36), np.float32), np.zeros((3, 37), np.float32)):
        with pytest.raises(ValueError, match=r"expected \(2, 37\)"):
            encoder(types, words)


def test_words_shorter_than_a_filter_are_told() -> None:
    with pytest.raises(ValueError, match="words of 6 characters; expected 7 or more"):
        Case(config()).encoder(torch.zeros(2, 6, dtype=torch.int64))
