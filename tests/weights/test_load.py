"""What a source may be, and what is said when it is nothing."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from model_files import OPTIONS, WORDS, changed, random_weights, write_model

from elmokit.errors import WeightsError
from elmokit.weights import bundled_models, described, load, load_pretrained, save_pretrained


@pytest.fixture
def model(tmp_path) -> Path:
    return write_model(tmp_path / "model", OPTIONS, random_weights(), WORDS)


def test_bundled_models(model, tmp_path, monkeypatch):
    for module in (load, described):
        monkeypatch.setattr(module, "BUNDLED", tmp_path / "models")
    with pytest.raises(WeightsError, match="no model is bundled"):
        load_pretrained()
    save_pretrained(load_pretrained(model), tmp_path / "models" / "en")
    assert bundled_models() == ["en"]
    assert load_pretrained().config == load_pretrained("en").config == load_pretrained(model).config
    with pytest.raises(WeightsError, match=r"no model 'de': not a bundled model \(en\)"):
        load_pretrained("de")


def test_paths(model, tmp_path, monkeypatch):
    expected = load_pretrained(model).config
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for source in ("model", Path("model"), "./model/", "~/model", model / "lm_weights.hdf5"):
        assert load_pretrained(source).config == expected


def test_weights_named_as_by_allennlp(model):
    named = model / "elmo_2x4096_512_2048cnn_2xhighway"
    shutil.move(model / "lm_weights.hdf5", f"{named}_weights.hdf5")
    shutil.move(model / "options.json", f"{named}_options.json")
    expected = load_pretrained(model)
    assert torch.equal(load_pretrained(f"{named}_weights.hdf5").tensors["lstm.0.bias"], expected.tensors["lstm.0.bias"])


def test_files_that_lie_apart(model, tmp_path):
    for name in ("options.json", "vocab.txt", "lm_weights.hdf5"):
        (tmp_path / name[0]).mkdir()
        shutil.move(model / name, tmp_path / name[0] / name)
    found = load_pretrained(
        weights=tmp_path / "l" / "lm_weights.hdf5",
        options=str(tmp_path / "o" / "options.json"),
        vocabulary=tmp_path / "v" / "vocab.txt",
    )
    assert found.vocabulary == WORDS
    with pytest.raises(WeightsError, match="give the options file"):
        load_pretrained(weights=tmp_path / "l" / "lm_weights.hdf5")


def test_given_files_come_before_those_in_the_folder(model, tmp_path):
    (model / "skipless.json").write_text(json.dumps(changed("lstm.use_skip_connections", False)))
    (tmp_path / "other.txt").write_text("a\nb\n")
    found = load_pretrained(model, options=model / "skipless.json", vocabulary=tmp_path / "other.txt")
    assert not found.config.skip_connections
    assert found.vocabulary == ("a", "b")


def test_two_weight_files(model):
    shutil.copy(model / "lm_weights.hdf5", model / "second.hdf5")
    with pytest.raises(WeightsError, match=r"expected one \.hdf5 file .* found lm_weights\.hdf5, second\.hdf5"):
        load_pretrained(model)
    assert load_pretrained(model, weights=model / "second.hdf5").vocabulary == WORDS


@pytest.mark.parametrize("source", ["nowhere", "./nowhere", "/no/where", "a/b/c", "", "../x/y", "org/", "o rg/name"])
def test_nothing_there(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(WeightsError, match=r"no model|no such file"):
        load_pretrained(source)


def test_addresses_are_not_fetched():
    with pytest.raises(WeightsError, match="download it first"):
        load_pretrained("https://example.org/elmo_weights.hdf5")


def test_unknown_format_and_dtype(model, tmp_path):
    with pytest.raises(WeightsError, match="format 'onnx' is not known"):
        save_pretrained(load_pretrained(model), tmp_path / "x", format="onnx")
    with pytest.raises(WeightsError, match="'float8' does not fit here"):
        save_pretrained(load_pretrained(model), tmp_path / "x", dtype="float8")
    with pytest.raises(WeightsError, match="the official format has no int8"):
        save_pretrained(load_pretrained(model), tmp_path / "x", format="official", dtype="int8")


def test_loading_does_not_import_torchs_compiler(model):
    """It takes seconds; laying a model out must not need it."""
    code = "import sys; from elmokit.weights import load_pretrained; load_pretrained(sys.argv[1]).build(); "
    code += "sys.exit('torch._dynamo' in sys.modules)"
    subprocess.run([sys.executable, "-c", code, str(model)], check=True)
