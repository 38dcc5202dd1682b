"""Exported models give the vectors of the model they came from, in ONNX and as torch programs."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import models
import reference
from elmokit import Elmo
from elmokit.batch import TokenBatch, build_batch
from elmokit.chars import CodecSpec
from elmokit.errors import ElmokitError, InputError, WeightsError
from elmokit.export.described import Description
from elmokit.text import Sentence
from elmokit.weights import Pretrained, load_pretrained

onnx = pytest.importorskip("onnx", reason="needs the onnx extra")
pytest.importorskip("onnxruntime", reason="needs the onnx extra")

from elmokit.export.save import export_onnx, export_torch  # noqa: E402
from elmokit.export.session import OnnxSession, trim  # noqa: E402

MANYLANGS = Path(__file__).parents[1] / "data" / "manylangs"
SENTENCES = [["The", "cat", "sat", "on", "the", "mat", "."], [], ["x" * 60], ["日本", "the", "cat"]]

VARIANTS = {
    "official": models.tiny_options(),
    "loud": models.tiny_options(lstm={"cell_clip": 0.05, "proj_clip": 0.04}),  # clips that bite
    "no clips": models.tiny_options(lstm={"cell_clip": None, "proj_clip": None}),
    "no skip, one layer": models.tiny_options(lstm={"n_layers": 1, "use_skip_connections": False}),
    "no skip": models.tiny_options(lstm={"use_skip_connections": False}),
    "no projection": models.tiny_options(lstm={"dim": 6}),
    "tanh, no highway, short words": models.tiny_options(
        char_cnn={"activation": "tanh", "n_highway": 0, "max_characters_per_token": 12}
    ),
}


def batch_of(pretrained: Pretrained, sentences: list[list[str]]) -> TokenBatch:
    codec = pretrained.codec.build(pretrained.config.tokens.max_characters)
    return build_batch([Sentence.of(tokens) for tokens in sentences], codec)


def run_onnx(folder: Path, batch: TokenBatch) -> np.ndarray:
    described = Description.read(folder)
    return OnnxSession(folder / described.file, described, threads=1).layers(batch)


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_onnx_against_the_reference(options: dict, tmp_path: Path) -> None:
    tiny = models.tiny(options)
    report = export_onnx(tiny.pretrained, tmp_path / "made")
    assert report.difference < 3e-5  # of sums of some ten numbers; their order is the machine's
    assert report.bytes == report.path.stat().st_size
    values = run_onnx(tmp_path / "made", batch_of(tiny.pretrained, SENTENCES))  # (L, B, T, D)
    for row, tokens in enumerate(SENTENCES):
        np.testing.assert_allclose(values[:, row, 1 : len(tokens) + 1], tiny.embed(tokens), atol=3e-5)
        assert not values[:, row, len(tokens) + 2 :].any()


@pytest.mark.parametrize("directions", [(0,), (1,)])
def test_one_direction(directions: tuple[int, ...], tmp_path: Path) -> None:
    tiny = models.tiny(directions=directions)
    export_onnx(tiny.pretrained, tmp_path)
    values = run_onnx(tmp_path, batch_of(tiny.pretrained, SENTENCES))
    np.testing.assert_allclose(values[:, 0, 1:8], tiny.embed(SENTENCES[0]), atol=3e-5)
    assert Description.read(tmp_path).context == ("left", "right")[directions[0]]


def test_words_alone(tmp_path: Path) -> None:
    tiny = models.tiny_words()
    export_onnx(tiny.pretrained, tmp_path)
    values = run_onnx(tmp_path, batch_of(tiny.pretrained, SENTENCES))
    np.testing.assert_allclose(values[:, 0, 1:8], tiny.embed(SENTENCES[0]), atol=3e-5)
    assert Description.read(tmp_path).codec == tiny.pretrained.codec


@pytest.mark.parametrize("kind", ["both", "words", "characters"])
def test_manylangs(kind: str, tmp_path: Path) -> None:
    pretrained = load_pretrained(MANYLANGS / kind)
    export_onnx(pretrained, tmp_path)
    assert Description.read(tmp_path).codec == pretrained.codec
    expected = Elmo(pretrained).run([Sentence.of(tokens) for tokens in SENTENCES]).values.numpy()
    np.testing.assert_allclose(run_onnx(tmp_path, batch_of(pretrained, SENTENCES)), expected, atol=3e-5)


def test_published_weights(shared: Path, tmp_path: Path) -> None:
    folder = shared / "fixtures" / "elmo-skip"
    pretrained = load_pretrained(folder)
    export_onnx(pretrained, tmp_path)
    stored = json.loads((folder / "sentences.json").read_text())
    sentences = [text.split() for row in stored for text in row]
    expected = Elmo(pretrained).run([Sentence.of(words) for words in sentences]).values.numpy()
    np.testing.assert_allclose(run_onnx(tmp_path, batch_of(pretrained, sentences)), expected, atol=3e-5)


@pytest.mark.parametrize(("dtype", "share", "cosine"), [("float16", 0.62, 0.9999), ("int8", 0.5, 0.999)])
def test_smaller_weights(dtype: str, share: float, cosine: float, tmp_path: Path) -> None:
    wide = models.tiny_options(lstm={"dim": 96, "projection_dim": 32})
    pretrained = models.tiny(wide).pretrained
    whole = export_onnx(pretrained, tmp_path / "whole")
    small = export_onnx(pretrained, tmp_path / "small", dtype=dtype)  # type: ignore[arg-type]
    assert small.bytes < share * whole.bytes
    assert cosine < small.cosine < 1 - 1e-12
    assert small.difference < 1e-5
    assert Description.read(tmp_path / "small").dtype == dtype


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Elmo, OnnxSession]:
    folder = tmp_path_factory.mktemp("exported")
    pretrained = models.tiny().pretrained
    export_onnx(pretrained, folder)
    described = Description.read(folder)
    return Elmo(pretrained), OnnxSession(folder / described.file, described, threads=1)


@settings(max_examples=25)
@given(st.lists(st.lists(st.text(max_size=9), max_size=7), min_size=1, max_size=6))
def test_any_batch(exported: tuple[Elmo, OnnxSession], sentences: list[list[str]]) -> None:
    elmo, session = exported
    expected = elmo.run([Sentence.of(tokens) for tokens in sentences]).values.numpy()
    np.testing.assert_allclose(session.layers(batch_of(elmo.pretrained, sentences)), expected, atol=3e-5)


def test_rows_are_cut_behind_the_longest_word() -> None:
    codec = CodecSpec().build(50)
    rows = codec.encode(["cat", "mouse"])
    assert trim(rows, pad_id=261, widest=3).shape == (2, 5 + 2 + 3)
    assert trim(rows, pad_id=None, widest=3) is rows
    assert trim(codec.encode(["x" * 60]), pad_id=261, widest=3).shape == (1, 50)


def test_the_loop_is_not_unrolled(tmp_path: Path) -> None:
    """One Scan per layer and direction, whatever the length of a sentence."""
    export_onnx(models.tiny().pretrained, tmp_path)
    kinds = [node.op_type for node in onnx.load(tmp_path / "model.onnx").graph.node]
    assert kinds.count("Scan") == 4
    assert len(kinds) < 150


def test_torch_program(tmp_path: Path) -> None:
    tiny = models.tiny(models.tiny_options(lstm={"cell_clip": 0.05, "proj_clip": 0.04}))
    report = export_torch(tiny.pretrained, tmp_path)
    assert report.path.name == "model.pt2"
    run = torch.export.load(report.path).module()
    for sentences in (SENTENCES, SENTENCES[:1], [[]], [["a"] * 40]):
        batch = batch_of(tiny.pretrained, sentences)
        values, mask = run(*map(torch.from_numpy, (batch.types, batch.index, batch.lengths)))
        assert mask.numpy().tolist() == batch.mask.tolist()
        for row, tokens in enumerate(sentences):
            np.testing.assert_allclose(values[:, row, 1 : len(tokens) + 1], tiny.embed(tokens), atol=3e-5)


def test_an_export_that_differs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is compared with the model by running both, so a wrong graph cannot get through."""
    pretrained = models.tiny().pretrained
    from elmokit.export import _onnx_bilm as onnx_bilm

    built = onnx_bilm.onnx_bilm

    def wrong(config, tensors):  # type: ignore[no-untyped-def]
        return built(replace(config, lstm=replace(config.lstm, forget_bias=0.9)), tensors)

    monkeypatch.setattr(onnx_bilm, "onnx_bilm", wrong)
    with pytest.raises(ElmokitError, match=r"vectors that differ by .* at most 1e-05 is allowed"):
        export_onnx(pretrained, tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="dtype 'bfloat16' is not one that ONNX files hold here; choose float32"):
        export_onnx(models.tiny().pretrained, tmp_path, dtype="bfloat16")


def test_damaged_folders_are_told(tmp_path: Path) -> None:
    export_onnx(models.tiny_words().pretrained, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())

    def refused(match: str) -> None:
        with pytest.raises(WeightsError, match=match):
            Description.read(tmp_path)

    for changes, match in [
        ({"format": "elmokit"}, "not an exported model"),
        ({"version": 99}, "export version 99, this elmokit reads 1"),
        ({"bytes": 5}, r"but config\.json was written with one of 5"),
        ({"surprise": 1}, "unknown field .surprise."),
        ({"width": "12"}, "width is .*; expected a whole number"),
        ({"layer_names": None}, "layer_names is null; expected a list"),
        ({"codec": 3}, "codec: .*is 3; expected an object"),
        ({"kind": "tflite"}, "kind is .*; expected one of onnx, torch"),
        ({"checksum": "00000000"}, "not as it was exported"),
    ]:
        (tmp_path / "config.json").write_text(json.dumps(config | changes))
        refused(match)
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "words.json").write_text('["the"]')
    refused(re.escape(f"not the {len(models.WORDS)} words of this model"))
    (tmp_path / "words.json").unlink()
    refused("no such file")
    (tmp_path / "config.json").write_text("{")
    refused("not JSON")


def test_a_damaged_model_file_is_told(tmp_path: Path) -> None:
    report = export_onnx(models.tiny().pretrained, tmp_path)
    report.path.write_bytes(b"\0" * report.bytes)
    with pytest.raises(WeightsError, match=r"model\.onnx: not as it was exported"):
        run_onnx(tmp_path, batch_of(models.tiny().pretrained, SENTENCES))
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"checksum": ""}))  # as 0.1.0 wrote it
    with pytest.raises(WeightsError, match="onnxruntime cannot load it"):
        run_onnx(tmp_path, batch_of(models.tiny().pretrained, SENTENCES))


def test_layers_of_the_reference_are_not_trivial() -> None:
    """The comparisons above would pass on zeros."""
    tiny = models.tiny(VARIANTS["loud"])
    values = reference.drop_boundaries(reference.embed(tiny.weights, tiny.options, SENTENCES[0])[0])
    assert np.abs(values[1:]).max() == pytest.approx(0.04, rel=1.1)
    assert values.std() > 0.01
