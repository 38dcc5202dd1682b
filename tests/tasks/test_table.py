"""The layers kept in a table are those the encoder gives, to float16, in memory and from a file."""

from pathlib import Path

import numpy as np
import pytest
import torch

import models
from elmokit.encoders import Elmo
from elmokit.errors import InputError
from elmokit.tasks.table import LayerTable, embed_layers
from elmokit.text import Sentence

SENTENCES = [Sentence.of(s.split()) for s in ("The cat sat .", "", "a", "The mat on the mat")]


@pytest.fixture(scope="module")
def elmo() -> Elmo:
    return Elmo(models.tiny().pretrained, device="cpu")


@pytest.mark.parametrize("kept", ["memory", "file"])
def test_layers_are_those_of_the_encoder(elmo: Elmo, tmp_path: Path, kept: str) -> None:
    counts: list[tuple[int, int]] = []
    table = embed_layers(
        elmo,
        SENTENCES,
        folder=tmp_path / "new" if kept == "file" else None,
        told=lambda *count: counts.append(count),
    )
    assert (len(table), table.depth, table.width) == (4, 3, elmo.width)
    assert counts[-1] == (10, 10)
    for k, layers in enumerate(elmo.encode_layers(SENTENCES)):
        np.testing.assert_allclose(table.sentence(k), layers.transpose(1, 0, 2), atol=2e-3)
    assert isinstance(table.values, np.memmap) == (kept == "file")


def test_stack_is_what_the_encoder_returns(elmo: Elmo) -> None:
    table = embed_layers(elmo, SENTENCES)
    picked = [3, 1, 0]
    stack = table.stack(picked)
    expected = elmo.run([SENTENCES[k] for k in picked]).inner()
    assert torch.equal(stack.mask, expected.mask)
    assert (stack.names, stack.bounded) == (expected.names, False)
    torch.testing.assert_close(stack.values, expected.values, atol=2e-3, rtol=0)
    assert not stack.values[:, 1].any()


def test_only_some_layers(elmo: Elmo) -> None:
    table = embed_layers(elmo, SENTENCES)
    some = table.only([2, 0])
    assert some.names == (table.names[2], table.names[0])
    np.testing.assert_array_equal(some.sentence(3)[:, 0], table.sentence(3)[:, 2])
    np.testing.assert_array_equal(some.layer(1), table.layer(0))


def test_a_file_is_used_again_for_the_same_model_and_text_only(elmo: Elmo, tmp_path: Path) -> None:
    embed_layers(elmo, SENTENCES, folder=tmp_path)
    calls: list[int] = []
    embed_layers(elmo, SENTENCES, folder=tmp_path, told=lambda done, _: calls.append(done))
    assert not calls
    embed_layers(elmo, SENTENCES[:3], folder=tmp_path)
    embed_layers(elmo, [Sentence.of(["The cat", "sat", "."]), *SENTENCES[1:]], folder=tmp_path)
    embed_layers(Elmo(models.tiny(seed=5).pretrained, device="cpu"), SENTENCES, folder=tmp_path)
    assert len(list(tmp_path.iterdir())) == 4


def test_an_interrupted_run_leaves_nothing(elmo: Elmo, tmp_path: Path) -> None:
    def interrupt(done: int, _: int) -> None:
        raise KeyboardInterrupt(str(done))

    with pytest.raises(KeyboardInterrupt, match="4"):
        embed_layers(elmo, SENTENCES, folder=tmp_path, told=interrupt)
    assert not list(tmp_path.iterdir())


def test_rows_must_fit_the_sentences() -> None:
    with pytest.raises(InputError, match="3 rows of vectors for sentences of 4 tokens"):
        LayerTable(np.zeros((3, 1, 2), dtype=np.float16), [2, 2], ("0",))
