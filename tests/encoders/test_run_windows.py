"""Vectors brought into the input's order on the device: the same as sentence by sentence, whatever the batches."""

import gc
from collections.abc import Iterator

import numpy as np
import pytest
import torch

import models
from elmokit.batch import Window, cut_stream
from elmokit.encoders import Elmo
from elmokit.encoders import _transfers as transfers
from elmokit.encoders.results import Block, Choice, run_windows
from elmokit.text import Sentence
from elmokit.text.packed import Packed

LENGTHS = [4, 0, 11, 1, 7, 7, 0, 3, 25, 2, 5, 9]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(params=DEVICES)
def elmo(request: pytest.FixtureRequest) -> Elmo:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return Elmo(models.tiny().pretrained, device=request.param, dtype="float32")


def some() -> list[Sentence]:
    return [Sentence.of(f"w{k * n % 13}" for k in range(n)) for n in LENGTHS]


def blocks(elmo: Elmo, layers: str, *, batch_tokens: int, window: int, **options: object) -> Iterator[Block]:
    stretches = cut_stream(some(), tokens=batch_tokens * window)
    windows = (Window.of(Packed.of(stretch), batch_tokens=batch_tokens) for stretch in stretches)
    return run_windows(windows, elmo.placed(), Choice.of(layers, None, default="average"), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("layers", ["all", "average", "concat:0,1"])
@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize(("batch_tokens", "window", "ahead"), [(12, 1, 1), (30, 2, 0), (1000, 4, 3)])
def test_all_sentences_in_order(
    elmo: Elmo, layers: str, normalise: bool, batch_tokens: int, window: int, ahead: int
) -> None:
    exact = list(Elmo(elmo.pretrained, device="cpu").stream(some(), layers=layers, normalise=normalise))
    made = blocks(elmo, layers, batch_tokens=batch_tokens, window=window, ahead=ahead, normalise=normalise)
    found = [embedding for block in made for embedding in block]
    assert [e.sentence for e in found] == some()
    for one, other in zip(found, exact, strict=True):
        assert one.vectors.shape == other.vectors.shape
        np.testing.assert_allclose(one.vectors, other.vectors, rtol=0, atol=2e-5)


def test_half_precision_is_rounded_once(elmo: Elmo) -> None:
    whole, half = (
        np.concatenate([b.vectors for b in blocks(elmo, "all", batch_tokens=20, window=2, dtype=kind)])
        for kind in (torch.float32, torch.float16)
    )
    assert half.dtype == np.float16
    np.testing.assert_array_equal(half, whole.astype(np.float16))


def test_too_little_memory_makes_smaller_batches(elmo: Elmo, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = elmo.placed()
    usual, sizes = runner.stack, []

    def stack(sentences: list[Sentence]) -> object:
        if len(sentences) > 2:
            raise torch.OutOfMemoryError("too much")
        sizes.append(len(sentences))
        return usual(sentences)

    monkeypatch.setattr(runner, "stack", stack)
    monkeypatch.setattr(runner, "window", lambda sentences: None)
    found = [e for block in blocks(elmo, "average", batch_tokens=1000, window=1) for e in block]
    assert [e.sentence for e in found] == some()
    assert max(sizes) <= 2


def test_blocks_end_where_a_stretch_ends_and_do_not_depend_on_those_before(elmo: Elmo) -> None:
    stretches = [some()[:5], some()[5:6], some()[6:]]
    found = list(elmo.blocks(iter(stretches), layers="all", batch_tokens=30))
    ends = np.cumsum([len(block.sentences) for block in found]).tolist()
    assert {5, 6, 12} <= set(ends)
    alone = list(elmo.blocks(iter(stretches[2:]), layers="all", batch_tokens=30))
    later = found[len(found) - len(alone) :]
    for one, other in zip(later, alone, strict=True):
        np.testing.assert_array_equal(one.vectors, other.vectors)
    assert {block.vectors.dtype for block in elmo.blocks([some()], stored=torch.float16)} == {np.dtype(np.float16)}


def test_lent_memory_is_counted_until_its_last_part_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    lent = transfers.Lent()
    monkeypatch.setattr(transfers, "LENT_BYTES", 100)
    array = torch.zeros(4, 5).numpy()
    assert lent.take(array)
    assert not lent.take(torch.zeros(2, 5).numpy())
    part = array[1:2].reshape(5)[2:]
    del array
    gc.collect()
    assert lent.bytes == 80
    del part
    gc.collect()
    assert lent.bytes == 0
