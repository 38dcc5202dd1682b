"""`load_encoder`: what a source is, is told by its prefix or by what lies there."""

from pathlib import Path

import numpy as np
import pytest

import models
from elmokit import Elmo, Static, load_encoder
from elmokit.encoders.load import source_kind
from elmokit.errors import ElmokitError, FormatError, InputError, WeightsError
from elmokit.weights import save_pretrained


@pytest.fixture(scope="module")
def elmo_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_pretrained(models.tiny().pretrained, tmp_path_factory.mktemp("elmo"))


@pytest.fixture
def vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "glove.txt").write_text("the 0.5 1.5\ncat 2 -1\n")
    return tmp_path / "glove.txt"


def test_elmo(elmo_folder: Path) -> None:
    for source in (elmo_folder, f"elmo:{elmo_folder}", elmo_folder / "model.safetensors"):
        assert isinstance(load_encoder(source, device="cpu"), Elmo)


def test_static(vectors: Path) -> None:
    for source in (vectors, f"static:{vectors}"):
        static = load_encoder(source, unknown="mean")
        assert isinstance(static, Static)
        np.testing.assert_allclose(static.encode_tokens([["the", "dog"]])[0], [[0.5, 1.5], [1.25, 0.25]])
    saved = static.table.save(vectors.with_name("table.safetensors"))  # type: ignore[union-attr]
    assert load_encoder(saved).fingerprint == load_encoder(vectors).fingerprint


def test_transformers(tmp_path: Path) -> None:
    transformer_models = pytest.importorskip("transformer_models")
    folder = transformer_models.gpt().save(tmp_path)
    for source in (folder, f"gpt:{folder}", f"bert:{folder}", f"transformers:{folder}"):
        encoder = load_encoder(source, device="cpu", subwords="mean", tokenizer="whitespace")
        assert (encoder.context, encoder.width, encoder.tokenizer.name) == ("left", 12, "whitespace")


def test_folders_are_told_by_their_config(tmp_path: Path) -> None:
    assert source_kind(tmp_path)[0] == "elmo"
    for text, kind in [('{"model_type": "bert"}', "transformer"), ('{"format": "elmokit"}', "elmo"), ("{", "elmo")]:
        (tmp_path / "config.json").write_text(text)
        assert source_kind(tmp_path)[0] == kind


def test_what_is_none_of_them(elmo_folder: Path, vectors: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no model 'bert-base-cased'.*transformers:bert-base-cased"):
        load_encoder("bert-base-cased")
    with pytest.raises(WeightsError, match="not in the hub's cache"):
        load_encoder("nobody/nothing-of-that-name", local_files_only=True)
    with pytest.raises(InputError, match="subwords='mean' is for transformers models"):
        load_encoder(elmo_folder, subwords="mean")
    with pytest.raises(InputError, match="unknown='zero' is for static vectors"):
        load_encoder(elmo_folder, unknown="zero")
    (tmp_path / "vectors.kv").write_bytes(b"\x80\x04")
    with pytest.raises(FormatError, match="save_word2vec_format"):
        load_encoder(tmp_path / "vectors.kv")


def test_a_config_that_is_no_json_is_left_to_the_reader_of_models(tmp_path: Path) -> None:
    """Brackets without end raised a RecursionError in 0.1.0."""
    for content in (b"[" * 200_000, b"\xff\xfe", b"{"):
        (tmp_path / "config.json").write_bytes(content)
        with pytest.raises(ElmokitError):
            load_encoder(tmp_path, device="cpu")
