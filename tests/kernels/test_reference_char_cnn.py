"""The plain character convolutions against torch's own, with and without the shortcut over padding."""

import sys

import pytest
import torch
from cnn_problems import ALPHABET, PAD, bank, draw, naive_char_cnn
from hypothesis import given
from hypothesis import strategies as st

from elmokit.kernels import reference_char_cnn
from elmokit.kernels.char_cnn import Activation, word_lengths

BANKS = [(1, 5), (2, 3), (4, 8), (6, 6)]


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("pad", [PAD, None])
def test_equals_convolution(activation: Activation, pad: int | None) -> None:
    chars, parts = draw(60, 12, 4, BANKS)
    mine = [part.clone().requires_grad_() for part in parts]
    theirs = [part.clone().requires_grad_() for part in parts]
    out = reference_char_cnn(chars, mine[0], bank(mine), activation, pad=pad)
    expected = naive_char_cnn(chars, theirs[0], bank(theirs), activation)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
    d = torch.randn_like(out)
    out.backward(d)
    expected.backward(d)
    for ours, exact in zip(mine, theirs, strict=True):
        torch.testing.assert_close(ours.grad, exact.grad, rtol=0, atol=1e-11)
    with torch.no_grad():
        torch.testing.assert_close(
            reference_char_cnn(chars, mine[0], bank(mine), activation, pad=pad), expected, rtol=0, atol=1e-12
        )


@given(
    rows=st.lists(st.lists(st.integers(0, ALPHABET - 1), max_size=7), min_size=1, max_size=9),
    width=st.integers(1, 7),
)
def test_padding_is_never_cut_too_short(rows: list[list[int]], width: int) -> None:
    """Any characters, the pad's own among them, words that fill the row and words that nearly do."""
    chars = torch.tensor([row + [PAD] * (7 - len(row)) for row in rows], dtype=torch.int32)
    _, parts = draw(4, 7, 3, [(width, 4)])
    expected = naive_char_cnn(chars, parts[0], bank(parts), "tanh")
    out = reference_char_cnn(chars, parts[0], bank(parts), "tanh", pad=PAD)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)


def test_memory_bound_only_cuts_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    chars, parts = draw(60, 12, 4, BANKS)
    whole = reference_char_cnn(chars, parts[0], bank(parts), "relu", pad=PAD)
    monkeypatch.setattr(sys.modules[reference_char_cnn.__module__], "ELEMENTS", 1)
    one_by_one = reference_char_cnn(chars, parts[0], bank(parts), "relu", pad=PAD)
    torch.testing.assert_close(one_by_one, whole, rtol=0, atol=1e-12)


def test_gradients() -> None:
    chars, parts = draw(5, 8, 2, [(1, 2), (3, 2)])
    leaves = [part.requires_grad_() for part in parts]
    assert torch.autograd.gradcheck(
        lambda *given: reference_char_cnn(chars, given[0], bank(given), "tanh", pad=PAD), leaves, fast_mode=True
    )


def test_lengths() -> None:
    chars = torch.tensor([[PAD, PAD, PAD], [1, PAD, PAD], [PAD, 1, PAD], [1, 2, 3]], dtype=torch.int32)
    assert word_lengths(chars, PAD).tolist() == [0, 1, 2, 3]
    assert word_lengths(chars, None).tolist() == [3, 3, 3, 3]


def test_no_words() -> None:
    chars, parts = draw(4, 7, 3, BANKS)
    assert reference_char_cnn(chars[:0], parts[0], bank(parts), "relu", pad=PAD).shape == (0, 22)
