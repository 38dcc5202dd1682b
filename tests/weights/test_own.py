"""elmokit's own format: everything comes back, nothing half written is believed."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from model_files import OPTIONS, WORDS, random_weights, write_model

from elmokit.errors import WeightsError
from elmokit.weights import Pretrained, TokenizerSpec, load_pretrained, own, save_pretrained


@pytest.fixture
def model(tmp_path) -> Pretrained:
    options = OPTIONS | {"n_tokens_vocab": len(WORDS)}
    folder = write_model(tmp_path / "official", options, random_weights(options, softmax=True), WORDS)
    return load_pretrained(folder)


def assert_equal(found: Pretrained, expected: Pretrained) -> None:
    for field in ("config", "codec", "tokenizer", "vocabulary", "origin", "extra"):
        assert getattr(found, field) == getattr(expected, field), field
    assert found.tensors.keys() == expected.tensors.keys()
    for name, values in expected.tensors.items():
        assert found.tensors[name].dtype == values.dtype
        assert torch.equal(found.tensors[name], values), name
    assert (found.softmax is None) == (expected.softmax is None)
    if found.softmax is not None and expected.softmax is not None:
        assert all(torch.equal(a, b) for a, b in zip(found.softmax, expected.softmax, strict=True))


def test_everything_comes_back(model, tmp_path):
    model = replace(model, tokenizer=TokenizerSpec("english", 3), extra=model.extra | {"perplexity": 39.7, "ö": [None]})
    folder = save_pretrained(model, tmp_path / "own")
    assert sorted(path.name for path in folder.iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
        "vocab.txt",
    ]
    found = load_pretrained(folder)
    assert_equal(found, model)
    assert found.source == str(folder)
    assert load_pretrained(folder / "config.json").config == model.config


@pytest.mark.parametrize("kind", ["both", "characters", "words"])
def test_dictionaries_come_back(tmp_path, kind):
    model = load_pretrained(Path(__file__).parents[1] / "data" / "manylangs" / kind)
    folder = save_pretrained(model, tmp_path / "own")
    assert_equal(load_pretrained(folder), model)
    with pytest.raises(WeightsError, match="no place for its dictionaries"):
        save_pretrained(model, tmp_path / "official", format="official")


def test_saving_is_repeatable(model, tmp_path):
    for name in ("first", "second"):
        save_pretrained(model, tmp_path / name / "model")
    for path in (tmp_path / "first" / "model").iterdir():
        assert path.read_bytes() == (tmp_path / "second" / "model" / path.name).read_bytes()


@pytest.mark.parametrize(
    ("dtype", "stored", "tolerance"),
    [
        ("float32", "float32", 0),
        ("float16", "float16", 2**-11),
        ("bfloat16", "bfloat16", 2**-8),
        ("int8", "float32", 1 / 250),
    ],
)
def test_smaller_types(model, tmp_path, dtype, stored, tolerance):
    folder = save_pretrained(model, tmp_path / dtype, dtype=dtype)
    found = load_pretrained(folder)
    assert f"stored as | {dtype}" in (folder / "README.md").read_text()
    for name, values in model.tensors.items():
        if dtype != "int8":
            assert str(found.tensors[name].dtype) == f"torch.{stored}"
        largest = values.abs().max() if dtype == "int8" else values.abs()
        assert ((found.tensors[name].float() - values).abs() <= largest * tolerance + 1e-7).all(), name
    network = found.build()
    assert {parameter.dtype for parameter in network.parameters()} == {torch.float32}


def test_int8_is_a_quarter_of_the_size(tmp_path):
    options = OPTIONS | {"lstm": OPTIONS["lstm"] | {"dim": 256, "projection_dim": 64}}
    model = load_pretrained(write_model(tmp_path / "m", options))
    sizes = {
        d: (save_pretrained(model, tmp_path / d, dtype=d) / own.WEIGHTS).stat().st_size for d in ("float32", "int8")
    }
    assert sizes["int8"] < 0.29 * sizes["float32"]


def test_tensors_are_mapped_and_private(model, tmp_path):
    """Reading takes no copy, and changing a tensor in memory leaves the file alone."""
    folder = save_pretrained(model, tmp_path / "own")
    before = (folder / own.WEIGHTS).read_bytes()
    found = load_pretrained(folder)
    for values in found.tensors.values():
        values += 1
    assert (folder / own.WEIGHTS).read_bytes() == before
    assert_equal(load_pretrained(folder), model)


def test_a_model_can_be_saved_over_itself(model, tmp_path):
    folder = save_pretrained(model, tmp_path / "own")
    save_pretrained(load_pretrained(folder), folder)
    assert_equal(load_pretrained(folder), model)
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def test_own_cards_stay(model, tmp_path):
    folder = save_pretrained(replace(model, extra={"licence": "cc-by-4.0", "language": "is"}), tmp_path / "own")
    card = (folder / "README.md").read_text()
    assert card.startswith('---\nlibrary_name: elmokit\nlicense: "cc-by-4.0"\nlanguage: "is"\ntags:\n- elmo\n')
    assert "3 layers of 8 (forward, backward)" in card
    (folder / "README.md").write_text("# mine")
    save_pretrained(model, folder)
    assert (folder / "README.md").read_text() == "# mine"


def other(model: Pretrained) -> Pretrained:
    return replace(
        model, tensors={n: t + 1 for n, t in model.tensors.items()}, vocabulary=("<S>", "</S>", "<UNK>", "un", "chat")
    )


@pytest.mark.parametrize("written", range(4))
def test_a_save_that_stops_half_way_is_never_a_mixture(model, tmp_path, monkeypatch, written):
    """Over an older model, whatever was replaced before the stop: reading gives the old model or an error."""
    folder = save_pretrained(model, tmp_path / "own")
    replaced, rename = [], os.replace

    def stop(source, target):
        if Path(target).parent == folder:  # not one of the draft's own files
            if len(replaced) == written:
                raise KeyboardInterrupt
            replaced.append(Path(target).name)
        rename(source, target)

    monkeypatch.setattr(os, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        save_pretrained(other(model), folder)
    monkeypatch.undo()
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]
    if "model.safetensors" not in replaced:
        assert_equal(load_pretrained(folder), model)
    else:
        with pytest.raises(WeightsError, match=r"model\.safetensors: does not belong to the config\.json beside it"):
            load_pretrained(folder)


def test_a_list_of_another_model_is_noticed(model, tmp_path):
    folder = save_pretrained(model, tmp_path / "own")
    (folder / "vocab.txt").write_text("<S>\n</S>\n<UNK>\nun\nchat\n")
    with pytest.raises(WeightsError, match=r"vocab\.txt: 5 lines, not the 5 that config\.json was saved with"):
        len(load_pretrained(folder).vocabulary)


def test_the_vocabulary_is_read_when_asked_for(model, tmp_path):
    found = load_pretrained(save_pretrained(model, tmp_path / "own"))
    assert "symbols" not in vars(found.vocabulary)
    assert (found.vocabulary, found.vocabulary[:2], found.vocabulary[-1]) == (WORDS, WORDS[:2], WORDS[-1])
    assert hash(found.vocabulary) == hash(WORDS)


def edit_config(folder: Path, **fields: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


DAMAGE = {
    "no weights": (lambda f: (f / own.WEIGHTS).unlink(), "no model in this folder"),
    "no config": (lambda f: (f / "config.json").unlink(), r"config\.json: no such file"),
    "no vocabulary": (lambda f: (f / "vocab.txt").unlink(), r"vocab\.txt: no such file"),
    "cut": (lambda f: os.truncate(f / own.WEIGHTS, 2000), r"model\.safetensors: not a whole safetensors file"),
    "empty": (lambda f: os.truncate(f / own.WEIGHTS, 0), r"model\.safetensors: not a whole safetensors file"),
    "huge header": (
        lambda f: (f / own.WEIGHTS).write_bytes(b"\xff" * 8 + b"{}"),
        r"model\.safetensors: not a whole safetensors file",
    ),
    "foreign config": (lambda f: (f / "config.json").write_text('{"model_type": "bert"}'), "not a model of elmokit"),
    "newer": (lambda f: edit_config(f, version=99), "format version 99, this elmokit reads up to 2"),
    "no model": (lambda f: edit_config(f, model=None), r"config\.json: model is null; expected an object"),
    "list elsewhere": (
        lambda f: edit_config(f, vocabulary={"file": "../official/vocab.txt", "size": 5, "digest": ""}),
        r"vocabulary\.file is \"\.\./official/vocab\.txt\"",
    ),
    "unknown codec": (lambda f: edit_config(f, codec={"kind": "sounds"}), r"codec\.kind is \"sounds\""),
    "wrong codec": (lambda f: edit_config(f, codec={"kind": "dictionary"}), "no characters listed"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_gives_one_clear_error(model, tmp_path, name):
    damage, message = DAMAGE[name]
    folder = save_pretrained(model, tmp_path / "own")
    damage(folder)
    with pytest.raises(WeightsError, match=message) as caught:
        load_pretrained(folder)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize(
    ("place", "value"),
    [(("lstm", "cell_dim"), 9), (("tokens", "n_highway"), 0), (("n_layers",), 3), (("lstm", "cell_dim"), 10**9)],
)
def test_config_of_another_shape(model, tmp_path, place, value):
    folder = save_pretrained(model, tmp_path / "own")
    config = json.loads((folder / "config.json").read_text())
    section = config["model"]
    for name in place[:-1]:
        section = section[name]
    section[place[-1]] = value
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(WeightsError, match=r"expected|do not fit"):
        load_pretrained(folder)


def test_nan_is_refused_and_can_be_allowed(model, tmp_path):
    model.tensors["lstm.1.bias"][0, 3] = np.nan
    folder = save_pretrained(model, tmp_path / "own")
    with pytest.raises(WeightsError, match=r"model\.safetensors: 'lstm\.1\.bias' has 1 of 48 values NaN"):
        load_pretrained(folder)
    assert load_pretrained(folder, allow_nonfinite=True).tensors["lstm.1.bias"].isnan().sum() == 1


def test_extra_that_is_not_json(model, tmp_path):
    with pytest.raises(WeightsError, match="'extra' holds what JSON cannot"):
        save_pretrained(replace(model, extra={"when": object()}), tmp_path / "own")
    assert not (tmp_path / "own" / own.WEIGHTS).exists()


def test_a_file_in_the_way(model, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WeightsError, match="cannot be written"):
        save_pretrained(model, tmp_path / "file")


def test_moved_models_still_load(model, tmp_path):
    shutil.move(save_pretrained(model, tmp_path / "own"), tmp_path / "elsewhere")
    assert_equal(load_pretrained(tmp_path / "elsewhere"), model)


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << at % 8
    path.write_bytes(data)


@pytest.mark.parametrize("dtype", [None, "float16", "int8"])
@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "vocab.txt"])
def test_a_flipped_bit_is_refused_or_harmless(model, tmp_path, dtype, file):
    """In what a model says of itself besides its numbers (`extra`), it may be either."""
    folder = save_pretrained(model, tmp_path / "own", dtype=dtype)
    whole, original = load_pretrained(folder), (folder / file).read_bytes()
    refused = []
    for at in np.linspace(0, len(original) - 1, 400).astype(int):
        flip(folder / file, at)
        try:
            found = load_pretrained(folder)
            len(found.vocabulary)
        except WeightsError as error:
            refused.append(str(error))
        else:
            assert file == "config.json"
            assert_equal(replace(found, extra={}), replace(whole, extra={}))
        (folder / file).write_bytes(original)
    assert len(refused) > 250
    assert all(str(folder) in message for message in refused)


def test_models_without_checksums_load(model, tmp_path):
    """As 0.1.0 wrote them; `verify_own` knows their digests."""
    folder = save_pretrained(model, tmp_path / "own")
    config = json.loads((folder / "config.json").read_text())
    del config["checksum"], config["weights"]["checksums"]
    (folder / "config.json").write_text(json.dumps(config))
    assert_equal(load_pretrained(folder), model)
    own.verify_own(folder)
    flip(folder / own.WEIGHTS, -1)
    load_pretrained(folder)
    with pytest.raises(WeightsError, match=r"model\.safetensors: not as it was saved"):
        own.verify_own(folder)


@pytest.mark.parametrize("format", ["elmokit", "official"])
def test_a_folder_appears_at_once(model, tmp_path, monkeypatch, format):
    """No file of it can be seen before all of them are there."""
    folder, seen = tmp_path / "new", []
    rename = os.rename

    def look(source, target):
        assert not folder.exists()
        seen.append(sorted(path.name for path in Path(source).iterdir()))
        rename(source, target)

    monkeypatch.setattr(os, "rename", look)
    save_pretrained(model, folder, format=format)
    assert seen == [sorted(path.name for path in folder.iterdir())]
    assert os.listdir(tmp_path / "new") == os.listdir(folder)
    assert [name for name in os.listdir(tmp_path) if name.startswith(".")] == []


def test_modes_follow_the_umask(model, tmp_path):
    before = os.umask(0o027)
    try:
        folder = save_pretrained(model, tmp_path / "new")
        official = save_pretrained(model, tmp_path / "newer", format="official")
    finally:
        os.umask(before)
    for place in (folder, official):
        assert place.stat().st_mode & 0o777 == 0o750
        assert {path.stat().st_mode & 0o777 for path in place.iterdir()} == {0o640}


def test_the_other_format_goes_when_a_model_is_replaced(model, tmp_path):
    folder = save_pretrained(model, tmp_path / "own")
    (folder / "notes.txt").write_text("mine")
    save_pretrained(other(model), folder, format="official")
    assert sorted(os.listdir(folder)) == ["README.md", "notes.txt", "options.json", "vocab.txt", "weights.hdf5"]
    assert load_pretrained(folder).vocabulary == other(model).vocabulary
    save_pretrained(model, folder)
    assert sorted(os.listdir(folder)) == ["README.md", "config.json", "model.safetensors", "notes.txt", "vocab.txt"]
    with pytest.raises(WeightsError, match="is there already"):
        save_pretrained(other(model), folder, overwrite=False)
    assert_equal(load_pretrained(folder), model)
