"""Bulk output in AllenNLP's layout: `embed_file` and the `elmo` command."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from official_files import Files

from elmokit.compat.allennlp import ConfigurationError, ElmoEmbedder

TEXT = "The cat sat .\n  Hi\tthere   you \nHi there\nThe cat sat .\n"
LINES = [line.split() for line in TEXT.splitlines()]
INDEX = '{"The cat sat .": "3", "Hi\\tthere   you": "1", "Hi there": "2"}'


def embed(files: Files, path: Path, text: str = TEXT, **options: Any) -> dict[str, Any]:
    """What the file holds, read back."""
    stream = io.StringIO(text)
    ElmoEmbedder(files.options, files.weights).embed_file(stream, str(path), **options)
    assert stream.closed
    return contents(path)


def contents(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, node: found.update({name: node[...]}) if isinstance(node, h5py.Dataset) else None)
    return found


@pytest.mark.parametrize("output_format", ["all", "top", "average"])
def test_vectors_and_keys(files: Files, tmp_path: Path, output_format: str) -> None:
    found = embed(files, tmp_path / "out.hdf5", output_format=output_format, batch_size=2)
    assert sorted(found) == ["0", "1", "2", "3", "sentence_to_index"]
    layers = [stack for batch in files.run([LINES[:2], LINES[2:]]) for stack in batch]
    chosen = {"all": lambda x: x, "top": lambda x: x[-1], "average": lambda x: x.mean(axis=0)}[output_format]
    for k, stack in enumerate(layers):
        assert found[str(k)].dtype == np.float32
        np.testing.assert_allclose(found[str(k)], chosen(stack), rtol=0, atol=1e-5)


def test_layout_of_the_file(files: Files, tmp_path: Path) -> None:
    embed(files, tmp_path / "out.hdf5")
    with h5py.File(tmp_path / "out.hdf5") as file:
        index = file["sentence_to_index"]
        assert (index.shape, index.chunks) == ((1,), None)
        kind = h5py.check_string_dtype(index.dtype)
        assert (kind.encoding, kind.length) == ("utf-8", None)
        assert index[0] == INDEX.encode()
        assert (file["0"].dtype, file["0"].chunks, file["0"].compression) == (np.dtype("<f4"), None, None)
        assert not file.attrs
    assert [path.name for path in tmp_path.iterdir()] == ["out.hdf5"]


def test_what_is_said_of_sentences(files: Files, tmp_path: Path) -> None:
    out = tmp_path / "out.hdf5"
    assert "sentence_to_index" not in embed(files, out, forget_sentences=True)
    assert json.loads(embed(files, out, text="a\xa0b c")["sentence_to_index"][0]) == {"a\xa0b c": "0"}
    assert b"\\u00a0" in embed(files, out, text="a\xa0b c")["sentence_to_index"][0]
    assert [str(k) for k in embed(files, out, text="")] == ["sentence_to_index"]
    assert embed(files, out, text="")["sentence_to_index"][0] == b"{}"


def test_sentences_as_keys(files: Files, tmp_path: Path) -> None:
    out = tmp_path / "out.hdf5"
    found = embed(files, out, text="a  b\tc\n d\na / b\n", use_sentence_keys=True)
    assert {key: layers.shape for key, layers in found.items()} == {
        "a  b\tc": (3, 3, 12),
        "d": (3, 1, 12),
        "a / b": (3, 3, 12),  # HDF5 makes a group of it
    }


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("a\n\n b\n \n", {}, r"empty lines at indexes \[1, 3\]"),
        ("a\n\xa0\n", {}, r"empty lines at indexes \[1\]"),
        ("a\nb\na\n", {"use_sentence_keys": True}, "Key already exists in .*: 'a'. To encode duplicate sentences"),
        (".\n", {"use_sentence_keys": True}, "Key already exists"),
        ("a\na/b\n", {"use_sentence_keys": True}, "'a/b' cannot be a key"),
        ("a\0b\n", {"use_sentence_keys": True}, "cannot be a key"),
        ("a\n", {"output_format": "middle"}, "'middle'; expected one of all, top, average"),
        ("a\n", {"batch_size": 0}, "batch_size is 0"),
    ],
)
def test_refused_and_nothing_written(
    files: Files, tmp_path: Path, text: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        embed(files, tmp_path / "out.hdf5", text=text, **options)
    assert not list(tmp_path.iterdir())


def command(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", "NO_COLOR": "1"}
    line = [sys.executable, "-m", "elmokit", "elmo", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, env=environment, check=False)


def test_command(files: Files, tmp_path: Path) -> None:
    lines, out = tmp_path / "lines.txt", tmp_path / "out.hdf5"
    lines.write_text(TEXT)
    model = ["--options-file", files.options, "--weight-file", files.weights, "--cuda-device", "-1"]
    ran = command(lines, out, "--average", "--batch-size", "2", *model)
    assert (ran.returncode, ran.stderr) == (0, "")
    wanted = embed(files, tmp_path / "wanted.hdf5", output_format="average", batch_size=2)
    made = contents(out)
    assert made.pop("sentence_to_index") == wanted.pop("sentence_to_index")
    assert made.keys() == wanted.keys()
    for key, values in made.items():
        np.testing.assert_allclose(values, wanted[key], atol=1e-6)  # the other process may have other threads
    ran = command(lines, out, "--top", "--forget-sentences", "--stateless", "--batch-size", "1", *model)
    assert ran.returncode == 0, ran.stderr
    found = contents(out)
    assert sorted(found) == ["0", "1", "2", "3"]
    np.testing.assert_array_equal(found["0"], found["3"])
    lines.write_text("a\n\nb\n")
    ran = command(lines, tmp_path / "none.hdf5", "--all", "--use-sentence-keys", *model)
    assert ran.returncode == 2
    assert "empty lines at indexes [1]" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert not (tmp_path / "none.hdf5").exists()


@pytest.mark.parametrize("chosen", [[], ["--all", "--top"]])
def test_command_wants_one_of_three(tmp_path: Path, chosen: list[str]) -> None:
    ran = command(tmp_path / "lines.txt", tmp_path / "out.hdf5", *chosen)
    assert ran.returncode == 2
    assert "exactly one of --all, --top and --average is required" in ran.stderr
