"""`Embedder.sents2elmo` against the vectors that elmoformanylangs itself gave, and its command."""

import json
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from elmokit.compat.manylangs import Embedder, read_sentences, write_layers
from elmokit.errors import InputError, WeightsError

DATA = Path(__file__).parents[1] / "data" / "manylangs"
SENTENCES = json.loads((DATA / "sentences.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["both", "characters", "words"])
def test_every_layer_code(name: str) -> None:
    embedder = Embedder(str(DATA / name), batch_size=2)
    depth = embedder.config["encoder"]["n_layers"] + 1
    expected = np.load(DATA / "expected.npz")
    for code in range(-2, depth):
        got = embedder.sents2elmo(SENTENCES, output_layer=code)
        assert all(vectors.dtype == np.float32 for vectors in got)
        shape = (depth,) if code == -2 else ()
        assert [vectors.shape for vectors in got] == [(*shape, len(tokens), 12) for tokens in SENTENCES]
        np.testing.assert_allclose(np.concatenate(got, axis=-2), expected[f"{name}/{code}"], rtol=0, atol=1e-5)


def test_input(tmp_path: Path) -> None:
    embedder = Embedder(DATA / "both")
    assert (embedder.batch_size, embedder.model_dir) == (64, str(DATA / "both"))
    assert embedder.sents2elmo([]) == []
    mean = embedder.sents2elmo(tuple(tokens) for tokens in SENTENCES)
    for again, once in zip(embedder.sents2elmo(SENTENCES), mean, strict=True):
        np.testing.assert_array_equal(again, once)
    assert embedder.sents2elmo(["ab", ["c"]])[0].shape == (2, 12), "a string is its characters, as it was"
    for code in (3, -3):
        with pytest.raises(InputError, match=f"output_layer is {code}; expected 0 to 2, -1"):
            embedder.sents2elmo(SENTENCES, output_layer=code)
    with pytest.raises(WeightsError, match="nowhere"):
        Embedder(tmp_path / "nowhere")
    for wrong in (["the", None], ["the", 3], None):
        with pytest.raises(InputError, match=r"sentence 1 is .*; expected a (string|list of tokens)"):
            embedder.sents2elmo([["a"], wrong])  # type: ignore[list-item]


CONLL = """# text = a
1-2\tDu\t_
1\tCô\t_
2\tông ty\t_

1\tHi\t_
1.1\tgone\t_
2\tA/B\t_
3\t.\t_
"""


def test_input_formats(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_text(CONLL, encoding="utf-8")
    assert read_sentences(path, "conll") == [["Cô", "ông ty"], ["Hi", "A/B", "."]]
    assert read_sentences(path, "conll_char") == [["C", "ô", *"ông ty"], ["H", "i", "A", "/", "B", "."]]
    assert read_sentences(path, "conll_char_vi")[0] == ["Cô", "ông", "ty"]
    path.write_text("one\ttwo words\nthree\n\n")
    assert read_sentences(path) == [["one", "two words"], ["three"]]
    path.write_text("")
    assert read_sentences(path) == read_sentences(path, "conll") == []
    with pytest.raises(InputError, match="expected one of plain, conll, conll_char, conll_char_vi"):
        read_sentences(path, "xml")
    path.write_text("no tabs\n")
    with pytest.raises(InputError, match="has no second column"):
        read_sentences(path, "conll")


def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "in.conllu").write_text(CONLL + "\n" + CONLL.split("\n\n")[1], encoding="utf-8")
    line = [sys.executable, "-m", "elmokit", "manylangs", "test", "--input_format", "conll", "--input", "in.conllu"]
    line += ["--model", str(DATA / "both"), "--output_prefix", "out", "--output_format", "hdf5,txt"]
    ran = subprocess.run(
        [*line, "--output_layer", "-1,0", "--gpu", "-1", "--batch_size", "32"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    names = ["out.ly-1.hdf5", "out.ly-1.txt", "out.ly0.hdf5", "out.ly0.txt"]
    assert sorted(path.name for path in tmp_path.glob("out*")) == names
    sentences = [["Cô", "ông ty"], ["Hi", "A/B", "."]]
    for layer in (-1, 0):
        wanted = Embedder(DATA / "both").sents2elmo(sentences, output_layer=layer)
        with h5py.File(tmp_path / f"out.ly{layer}.hdf5") as file:
            assert list(file) == ["Cô\tông ty", "Hi\tA$backslash$B\t$period$"]  # a sentence that comes again, once
            for key, values in zip(file, wanted, strict=True):
                assert file[key].dtype == np.float32
                np.testing.assert_allclose(file[key][...], values, rtol=0, atol=1e-6)
        lines = (tmp_path / f"out.ly{layer}.txt").read_text(encoding="utf-8").split("\n")
        assert [line.partition("\t")[0] for line in lines] == ["Cô", "ông ty", "", "Hi", "A/B", ".", "", ""]
        np.testing.assert_allclose([float(x) for x in lines[0].split("\t")[1:]], wanted[0][0], rtol=0, atol=1e-6)
    ran = subprocess.run([*line, "--output_layer", "two"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "expected numbers" in ran.stderr


def test_what_is_not_written(tmp_path: Path) -> None:
    embedder = Embedder(DATA / "both")
    for options, said in (
        ({"layers": [3], "formats": ["hdf5"]}, "output layer 3; expected 0 to 2, or -1"),
        ({"layers": [0], "formats": ["csv"]}, "'csv' is not known; expected hdf5 or txt"),
    ):
        with pytest.raises(InputError, match=said):
            write_layers(embedder, [["a"]], str(tmp_path / "out"), **options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="a sentence has no words"):
        write_layers(embedder, [["a"], []], str(tmp_path / "out"), layers=[0], formats=["hdf5"])
    assert not list(tmp_path.iterdir())
