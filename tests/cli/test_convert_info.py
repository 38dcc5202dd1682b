"""`elmokit convert` and `elmokit info`, run as commands."""

import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner

import models
import reference as ref
from elmokit import Elmo, TaskModel, save_pretrained
from elmokit.cli.convert import convert
from elmokit.cli.info import info
from elmokit.errors import WeightsError
from elmokit.kernels.cpu.c import c_library, compiled
from elmokit.native import build
from elmokit.weights import load_pretrained
from elmokit.weights.bundled import find_task_model

OLD = Path(__file__).parents[1] / "data" / "v0.1.0"
MANYLANGS = Path(__file__).parents[1] / "data" / "manylangs" / "both"
OPTIONS = {
    "lstm": {
        "dim": 6,
        "projection_dim": 4,
        "n_layers": 2,
        "cell_clip": 3,
        "proj_clip": 2.5,
        "use_skip_connections": True,
    },
    "char_cnn": {"activation": "relu", "embedding": {"dim": 3}, "filters": [[1, 2], [3, 3]], "n_highway": 1},
    "n_tokens_vocab": 4,
}

app = typer.Typer()
app.command()(convert)
app.command()(info)


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def model(tmp_path) -> Path:
    folder = tmp_path / "official"
    folder.mkdir()
    (folder / "options.json").write_text(json.dumps(OPTIONS))
    (folder / "vocab.txt").write_text("<S>\n</S>\n<UNK>\nthe\n")
    with h5py.File(folder / "weights.hdf5", "w") as file:
        for key, array in ref.random_official(np.random.default_rng(0), OPTIONS, softmax=True).items():
            file[key] = array
    return folder


def test_official_to_ours_and_back(model, tmp_path):
    said = run("convert", model, tmp_path / "own", "--licence", "cc-by-4.0")
    assert "(official) is now" in said
    assert 'license: "cc-by-4.0"' in (tmp_path / "own" / "README.md").read_text()
    run("convert", tmp_path / "own", tmp_path / "back", "--to", "official")
    assert json.loads((tmp_path / "back" / "options.json").read_text()) == OPTIONS
    with h5py.File(model / "weights.hdf5") as first, h5py.File(tmp_path / "back" / "weights.hdf5") as second:
        names: list[str] = []
        first.visit(names.append)
        for name in names:
            if isinstance(first[name], h5py.Dataset):
                assert first[name][...].tobytes() == second[name][...].tobytes()


def test_manylangs_to_ours(tmp_path):
    run("convert", MANYLANGS, tmp_path / "own")
    assert load_pretrained(tmp_path / "own").codec == load_pretrained(MANYLANGS).codec


def test_smaller_numbers_without_softmax(model, tmp_path):
    run("convert", model, tmp_path / "own", "--dtype", "int8", "--no-softmax")
    found = load_pretrained(tmp_path / "own")
    assert (found.softmax, found.stored) == (None, "int8")


def test_an_adaptive_softmax_can_be_left_out(tmp_path):
    adaptive = OLD / "models" / "adaptive"
    (tmp_path / "text.txt").write_text("The cat sat on the mat.\n")
    for change in (["--whiten", tmp_path / "text.txt", "--whiten-strength", 0.5], ["--projection-dim", 64]):
        with pytest.raises(WeightsError, match=r"adaptive softmax, .*; leave it out \(softmax=False, --no-softmax\)"):
            run("convert", adaptive, tmp_path / "own", *change)
        run("convert", adaptive, tmp_path / "own", *change, "--no-softmax")
        assert load_pretrained(tmp_path / "own").softmax is None
        shutil.rmtree(tmp_path / "own")


def test_options_that_say_nothing_together(model, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("The cat sat on the mat.\n")
    for flag, value in (("--temper", text), ("--softmax-words", 3)):
        with pytest.raises(WeightsError, match=f"{flag} changes the output layer, which --no-softmax leaves out"):
            run("convert", model, tmp_path / "own", flag, value, "--no-softmax")
    for strength in (0, 1):
        with pytest.raises(WeightsError, match="--whiten-strength goes with --whiten"):
            run("convert", model, tmp_path / "own", "--whiten-strength", strength)
    assert not (tmp_path / "own").exists()


def test_fewer_words(model, tmp_path):
    before = load_pretrained(model)
    run("convert", model, tmp_path / "all")
    run("convert", model, tmp_path / "own", "--softmax-words", 3)
    cut = load_pretrained(tmp_path / "own")
    assert cut.vocabulary == before.vocabulary[:3]
    assert np.array_equal(cut.softmax.weight, load_pretrained(tmp_path / "all").softmax.weight[:3])
    assert cut.softmax.words == len(cut.softmax.bias) == 3
    with pytest.raises(WeightsError, match="its first 2 words lack"):
        run("convert", model, tmp_path / "less", "--softmax-words", 2)
    run("convert", model, tmp_path / "none", "--no-softmax")
    with pytest.raises(WeightsError, match="no plain softmax"):
        run("convert", tmp_path / "none", tmp_path / "less", "--softmax-words", 3)


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_packed_numbers_stay_packed(kind, tmp_path):
    save_pretrained(
        models.tiny(models.tiny_options(lstm={"dim": 128, "projection_dim": 64})).pretrained, tmp_path / "a"
    )
    run("convert", tmp_path / "a", tmp_path / "b", "--dtype", kind)
    run("convert", tmp_path / "b", tmp_path / "c")
    first, second = (load_pretrained(tmp_path / name) for name in "bc")
    assert first.stored == second.stored == kind
    assert all(torch.equal(first.tensors[name], second.tensors[name]) for name in first.tensors)
    run("convert", tmp_path / "b", tmp_path / "d", "--cell-dim", 192)
    assert load_pretrained(tmp_path / "d").stored == kind
    (tmp_path / "text.txt").write_text("The cat sat on the mat. A dog ran home.\n" * 20, encoding="utf-8")
    run("convert", tmp_path / "b", tmp_path / "w", "--whiten", tmp_path / "text.txt")
    assert load_pretrained(tmp_path / "w").stored == "float32"  # every number is another; none is rounded anew
    run("convert", tmp_path / "b", tmp_path / "e", "--dtype", "float32")
    assert load_pretrained(tmp_path / "e").stored == "float32"
    Elmo.from_pretrained(tmp_path / "b", device="cpu").save_pretrained(tmp_path / "f")
    assert load_pretrained(tmp_path / "f").stored == kind


def test_a_task_model_stays_as_it_is_stored(tmp_path):
    run("convert", "ner", tmp_path / "ner")
    whole, copied = (TaskModel.from_pretrained(model, device="cpu") for model in ("ner", tmp_path / "ner"))
    for name, values in whole.network.state_dict().items():
        assert torch.equal(values, copied.network.state_dict()[name])
    run("convert", "ner", tmp_path / "half", "--dtype", "bfloat16")
    run("convert", tmp_path / "half", tmp_path / "again")
    sizes = [(tmp_path / name / "weights.safetensors").stat().st_size for name in ("half", "again")]
    assert sizes[0] == sizes[1]
    bundled = find_task_model("ner") / "weights.safetensors"
    assert (tmp_path / "ner" / "weights.safetensors").stat().st_size == bundled.stat().st_size


def test_files_can_be_read_by_others(model, tmp_path):
    run("convert", model, tmp_path / "own")
    assert len({path.stat().st_mode for path in (tmp_path / "own").iterdir()}) == 1


def test_a_model_is_not_overwritten_by_accident(model, tmp_path):
    run("convert", model, tmp_path / "own")
    with pytest.raises(WeightsError, match="a model is there already"):
        run("convert", MANYLANGS, tmp_path / "own")
    run("convert", MANYLANGS, tmp_path / "own", "--overwrite")
    assert load_pretrained(tmp_path / "own").origin == "manylangs"


@pytest.mark.parametrize(
    ("there", "file", "what"),
    [
        ("unfinished/pretraining", "config.json", "a training run"),
        ("unfinished/new-softmax", "config.json", "a training run"),
        ("unfinished/training", "checkpoint.pt", "an unfinished training"),
        ("unfinished/prepared", "manifest.json", "a prepared corpus"),
        ("tasks/ner", "config.json", "a task model"),
        ("onnx/float32", "config.json", "something else"),
    ],
)
def test_only_models_are_overwritten(there, file, what, model, tmp_path):
    taken = shutil.copytree(OLD / there, tmp_path / "taken")
    before = {path: path.read_bytes() for path in taken.rglob("*") if path.is_file()}
    for more in ((), ("--overwrite",)):
        with pytest.raises(WeightsError, match=rf"holds {what} \({file}\), which a model cannot replace; give another"):
            run("convert", model, taken, *more)
    assert before == {path: path.read_bytes() for path in taken.rglob("*") if path.is_file()}


def test_a_task_model_replaces_only_task_models(model, tmp_path):
    run("convert", model, tmp_path / "own")
    for folder in (model, tmp_path / "own"):
        for more in ((), ("--overwrite",)):
            with pytest.raises(WeightsError, match=r"holds a model .*which a task model cannot replace"):
                run("convert", "ner", folder, *more)
    run("convert", "ner", tmp_path / "ner")
    with pytest.raises(WeightsError, match=r"a task model is there already \(config.json\).*--overwrite"):
        run("convert", "ner", tmp_path / "ner")
    run("convert", "ner", tmp_path / "ner", "--overwrite", "--dtype", "int8")
    assert TaskModel.from_pretrained(tmp_path / "ner", device="cpu").predict("Jane left.")


def test_info_for_programs(model):
    facts = json.loads(run("info", model, "--json"))
    assert facts["format"] == "official"
    assert facts["parameters"]["softmax"] == 4 * 4 + 4
    assert facts["parameters"]["total"] == sum(n for part, n in facts["parameters"].items() if part != "total")
    assert (facts["layers"], facts["width"], facts["vocabulary"], facts["softmax"]) == (3, 8, 4, [4, 4])
    assert facts["lstm"]["projection_clip"] == 2.5
    assert facts["bytes_on_disk"] == sum(path.stat().st_size for path in model.iterdir())


def test_info_tells_how_this_cpu_runs_it(model, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    found = c_library()
    facts = json.loads(run("info", model, "--json"))["cpu"]
    assert (facts["compiled"], facts["variant"]) == (found is not None, found and found.variant)
    assert (f"C functions compiled ({found and found.variant})" in run("info", model)) == (found is not None)


@pytest.mark.parametrize("built", [True, False])
def test_info_tells_why_this_cpu_runs_no_c(model, built, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.delenv("ELMOKIT_NATIVE", raising=False)
    monkeypatch.delenv("ELMOKIT_LIBRARY", raising=False)
    if built:
        monkeypatch.setenv("ELMOKIT_NATIVE", "0")
        told = "switched off by ELMOKIT_NATIVE=0"
    else:
        monkeypatch.setattr(build, "NAME", "not-there.so")
        told = f"the library was not built; with a C compiler, run python {build.__file__}"
    compiled.cache_clear()
    try:
        assert f"float32 by default; C functions not compiled: {told}" in run("info", model)
        run("convert", model, tmp_path / "own", "--dtype", "int8")
        facts = json.loads(run("info", tmp_path / "own", "--json"))
        told_in_full = {"mode": "float32", "arithmetic": "float32", "compiled": False, "why_not": told, "variant": None}
        assert facts["cpu"] == told_in_full
    finally:
        compiled.cache_clear()


def test_info_for_people(model, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    said = run("info", model)
    for text in (
        "official (HDF5",
        "3 layers of 8",
        "2 layers of 6 cells, projected to 4",
        "cell 3, output 2.5",
        "4 words",
    ):
        assert text in said
    assert "ELMoForManyLangs" in run("info", MANYLANGS)
    run("convert", model, tmp_path / "own", "--dtype", "int8")
    assert "elmokit (safetensors), made by official tools; numbers in int8" in run("info", tmp_path / "own")
