"""Layers from a table, from a running encoder and from one in training are the same layers."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_tasks import tiny_elmo

import models
from elmokit.encoders import Elmo, Static
from elmokit.encoders.static.table import WordTable
from elmokit.errors import ElmokitWarning, InputError
from elmokit.layers import LayerStack
from elmokit.tasks.layers import CachedLayers, LayerTable, LiveLayers, TunedLayers, embed_layers
from elmokit.text import Sentence

CPU = torch.device("cpu")
SENTENCES = [Sentence.of(s.split()) for s in ("the cat sat", "a", "", "the cat sat", "on the mat .")]
TABLED = [Sentence.of(s.split()) for s in ("The cat sat .", "", "a", "The mat on the mat")]


def same(a: LayerStack, b: LayerStack, *, atol: float = 0.0) -> None:
    assert torch.equal(a.mask, b.mask)
    assert (a.names, a.bounded) == (b.names, b.bounded)
    torch.testing.assert_close(a.values, b.values, atol=atol, rtol=0)


def test_three_sources_give_the_same() -> None:
    elmo = tiny_elmo()
    cached = CachedLayers.of(elmo, SENTENCES)
    assert len(cached.table) == 4  # distinct sentences
    for picked in ([0, 1, 2], [4, 3], [2], [2, 2]):
        sentences = [SENTENCES[k] for k in picked]
        stack = cached.stack(sentences, CPU)
        assert stack.values.shape == (3, len(picked), max(map(len, sentences)) or 1, elmo.width)
        same(stack, LiveLayers(elmo).stack(sentences, CPU), atol=1e-3)
        tuned = TunedLayers(elmo).stack(sentences, CPU)
        same(LiveLayers(elmo, rounded=False).stack(sentences, CPU), tuned, atol=1e-5)
        assert tuned.values.requires_grad == any(map(len, sentences))


def test_live_layers_are_rounded_like_a_table() -> None:
    elmo = tiny_elmo()
    live, exact = (LiveLayers(elmo, rounded=rounded).stack(SENTENCES, CPU).values for rounded in (True, False))
    assert live.dtype == exact.dtype == torch.float32
    assert torch.equal(live, live.half().float())
    assert not torch.equal(exact, exact.half().float())
    torch.testing.assert_close(live, exact, atol=1e-3, rtol=1e-3)


def test_rows_gathered_on_a_device_are_those_of_the_table() -> None:
    cached = CachedLayers.of(tiny_elmo(), SENTENCES)
    sentences = [SENTENCES[k] for k in (4, 2, 0)]
    expected = cached.stack(sentences, CPU)
    cached._moved = torch.from_numpy(np.array(cached.table.values))  # as on a GPU
    same(cached._gathered([cached.places[s.tokens] for s in sentences], CPU), expected)


def test_unknown_sentences_and_other_encoders_are_refused() -> None:
    cached = CachedLayers.of(tiny_elmo(), SENTENCES)
    with pytest.raises(InputError, match="no layers were computed for 'a dog'"):
        cached.stack([Sentence.of(["a", "dog"])], CPU)
    static = Static(WordTable(["a"], np.ones((1, 2), dtype=np.float32)), device="cpu")
    with pytest.raises(InputError, match="only an ELMo can be fine-tuned"):
        TunedLayers(static)


@pytest.fixture(scope="module")
def elmo() -> Elmo:
    return Elmo(models.tiny().pretrained, device="cpu")


@pytest.mark.parametrize("kept", ["memory", "file"])
def test_layers_are_those_of_the_encoder(elmo: Elmo, tmp_path: Path, kept: str) -> None:
    counts: list[tuple[int, int]] = []
    table = embed_layers(
        elmo,
        TABLED,
        folder=tmp_path / "new" if kept == "file" else None,
        told=lambda *count: counts.append(count),
    )
    assert (len(table), table.depth, table.width) == (4, 3, elmo.width)
    assert counts[-1] == (10, 10)
    for k, layers in enumerate(elmo.encode_layers(TABLED)):
        np.testing.assert_allclose(table.sentence(k), layers.transpose(1, 0, 2), atol=2e-3)
    assert isinstance(table.values, np.memmap) == (kept == "file")


def test_stack_is_what_the_encoder_returns(elmo: Elmo) -> None:
    table = embed_layers(elmo, TABLED)
    picked = [3, 1, 0]
    stack = table.stack(picked)
    expected = elmo.run([TABLED[k] for k in picked]).inner()
    assert torch.equal(stack.mask, expected.mask)
    assert (stack.names, stack.bounded) == (expected.names, False)
    torch.testing.assert_close(stack.values, expected.values, atol=2e-3, rtol=0)
    assert not stack.values[:, 1].any()


def test_only_some_layers(elmo: Elmo) -> None:
    table = embed_layers(elmo, TABLED)
    some = table.only([2, 0])
    assert some.names == (table.names[2], table.names[0])
    np.testing.assert_array_equal(some.sentence(3)[:, 0], table.sentence(3)[:, 2])
    np.testing.assert_array_equal(some.layer(1), table.layer(0))


def test_a_file_is_used_again_for_the_same_model_and_text_only(elmo: Elmo, tmp_path: Path) -> None:
    embed_layers(elmo, TABLED, folder=tmp_path)
    calls: list[int] = []
    embed_layers(elmo, TABLED, folder=tmp_path, told=lambda done, _: calls.append(done))
    assert not calls
    embed_layers(elmo, TABLED[:3], folder=tmp_path)
    embed_layers(elmo, [Sentence.of(["The cat", "sat", "."]), *TABLED[1:]], folder=tmp_path)
    embed_layers(Elmo(models.tiny(seed=5).pretrained, device="cpu"), TABLED, folder=tmp_path)
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.skipif(sys.platform == "win32", reason="locks of Unix")
def test_processes_that_need_the_same_layers_compute_them_once(
    elmo: Elmo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[int] = []
    stream = Elmo.stream

    def counted(self: Elmo, sentences: list[Sentence], **more: Any) -> Any:
        runs.append(len(sentences))
        time.sleep(0.2)
        yield from stream(self, sentences, **more)

    monkeypatch.setattr(Elmo, "stream", counted)
    told = pytest.warns(ElmokitWarning, match="another process computes the layers of this text; waiting for it")
    with told, ThreadPoolExecutor(4) as pool:  # threads hold locks against each other as processes do
        tables = list(pool.map(lambda _: embed_layers(elmo, TABLED, folder=tmp_path), range(4)))
    assert runs == [len(TABLED)]
    assert all(np.array_equal(table.values, tables[0].values) for table in tables)
    assert [path.suffix for path in tmp_path.iterdir()] == [".npy"]


def test_an_interrupted_run_leaves_nothing(elmo: Elmo, tmp_path: Path) -> None:
    def interrupt(done: int, _: int) -> None:
        raise KeyboardInterrupt(str(done))

    with pytest.raises(KeyboardInterrupt, match="4"):
        embed_layers(elmo, TABLED, folder=tmp_path, told=interrupt)
    assert not list(tmp_path.iterdir())


def test_a_damaged_file_is_made_again(elmo: Elmo, tmp_path: Path) -> None:
    expected = np.array(embed_layers(elmo, TABLED, folder=tmp_path).values)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    assert len(whole) == 128 + expected.nbytes + 8
    np.testing.assert_array_equal(np.load(path), expected)  # NumPy's own format, but for the checksum after it
    for at in (0, 7, 20, 60, 130, len(whole) // 2, len(whole) - 9, len(whole) - 8, len(whole) - 1):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        with pytest.warns(UserWarning, match=r"\.npy: damaged; its layers are computed again"):
            found = embed_layers(elmo, TABLED, folder=tmp_path)
        np.testing.assert_allclose(found.values, expected, atol=2e-3)
    for part in (b"", whole[:100], whole[:-9], whole + b"x"):
        path.write_bytes(part)
        with pytest.warns(UserWarning, match="damaged"):
            embed_layers(elmo, TABLED, folder=tmp_path)
    path.write_bytes(whole[:-8])  # as 0.1.0 wrote it
    np.testing.assert_array_equal(embed_layers(elmo, TABLED, folder=tmp_path).values, expected)
    assert path.read_bytes() == whole[:-8]


def test_no_words_at_all(elmo: Elmo, tmp_path: Path) -> None:
    for _ in range(2):
        assert embed_layers(elmo, [Sentence.of([])], folder=tmp_path).values.shape == (0, 3, elmo.width)


def test_rows_must_fit_the_sentences() -> None:
    with pytest.raises(InputError, match="3 rows of vectors for sentences of 4 tokens"):
        LayerTable(np.zeros((3, 1, 2), dtype=np.float16), [2, 2], ("0",))
