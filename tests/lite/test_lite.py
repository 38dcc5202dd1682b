"""elmokit.lite gives what Elmo gives in C, bit for bit, without torch; and refuses what it cannot run."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import models
from elmokit import Elmo, load_pretrained, save_pretrained
from elmokit.errors import ElmokitError, InputError, WeightsError
from elmokit.kernels.cpu.c import CompiledTokens
from elmokit.lite import LiteElmo
from elmokit.native import library
from elmokit.native.library import c_library
from elmokit.shape import parameter_shapes
from elmokit.weights import CodecSpec
from elmokit.weights.described import bundled_models

pytestmark = pytest.mark.skipif(c_library() is None, reason="nothing runs in C here")

TEXTS = [
    "The river burst its banks after three days of rain.",
    "She paid it in.",
    "",
    "Ünïcode, 東京 and 👩‍🔬 are words, too; antidisestablishmentarianism is a long one!",
    "The river burst its banks.",
]
STORED = ("float32", "float16", "bfloat16", "int8", "int4")
WIDE = {"lstm": {"cell_clip": 3, "proj_clip": 3, "dim": 64, "projection_dim": 64, "n_layers": 2}}


@pytest.fixture(scope="module", params=STORED)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model; four bits need widths of 64."""
    tiny = models.tiny(models.tiny_options(**WIDE))
    return save_pretrained(tiny.pretrained, tmp_path_factory.mktemp("lite") / request.param, dtype=request.param)


@pytest.mark.parametrize("dtype", ["default", "float32", "bfloat16", "int8"])
def test_a_model_stored_in_any_type_gives_the_same_bits_in_every_mode(folder: Path, dtype: str) -> None:
    same(Elmo.from_pretrained(folder, dtype=dtype, device="cpu"), LiteElmo(folder, dtype=dtype))


@pytest.mark.parametrize("name", bundled_models())
def test_a_bundled_model_gives_the_same_bits(name: str) -> None:
    same(Elmo.from_pretrained(name, device="cpu"), LiteElmo.from_pretrained(name))


def same(elmo: Elmo, lite: LiteElmo) -> None:
    assert (lite.width, lite.layer_names) == (elmo.width, elmo.layer_names)
    assert lite.dtype == str(elmo.dtype).removeprefix("torch.")
    for layers in ("average", "top", "all", "concat:0,-1", "weights:.2,.3,.5*1.5"):
        for normalise in (False, True):
            found = lite.encode(TEXTS, layers=layers, normalise=normalise)
            assert np.array_equal(found, elmo.encode(TEXTS, layers=layers, normalise=normalise))
        each = zip(lite.encode_tokens(TEXTS, layers=layers), elmo.encode_tokens(TEXTS, layers=layers), strict=True)
        assert all(np.array_equal(a, b) for a, b in each)
    every = zip(lite.encode_layers(TEXTS), elmo.encode_layers(TEXTS), strict=True)
    assert all(a.shape == b.shape and np.array_equal(a, b) for a, b in every)
    one = lite.encode_tokens(TEXTS[0])
    assert np.array_equal(one, elmo.encode_tokens(TEXTS[0]))
    assert np.array_equal(one, lite.encode_tokens(TEXTS, batch_tokens=8)[0]), "alone and among others"
    assert np.array_equal(lite.encode_layers(TEXTS[0], layers="top")[0], one) == (len(lite.layer_names) == 1)
    given = [["Already", "tokenised"], []]
    assert all(map(np.array_equal, lite.encode_layers(given), elmo.encode_layers(given)))
    assert lite.encode([]).shape == (0, lite.width)


def test_one_direction_and_one_layer(tmp_path: Path) -> None:
    whole = load_pretrained(save_pretrained(models.tiny(models.tiny_options(**WIDE)).pretrained, tmp_path / "both"))
    config = replace(whole.config, directions=("backward",), n_layers=1, skip_connections=False)
    tensors = {n: t[1:].clone() if n.startswith("lstm.") else t for n, t in whole.tensors.items() if "lstm.1" not in n}
    folder = save_pretrained(replace(whole, config=config, tensors=tensors, softmax=None), tmp_path / "one")
    same_layers = zip(
        LiteElmo(folder).encode_layers(TEXTS), Elmo.from_pretrained(folder).encode_layers(TEXTS), strict=True
    )
    assert all(np.array_equal(a, b) for a, b in same_layers)


UNSPELT = {"char_dim": 0, "n_characters": 0, "filters": (), "n_highway": 0, "word_dim": 64, "pad_id": None}
KINDS = {
    "tanh": {"activation": "tanh"},
    "words": UNSPELT,
    "words not projected": {**UNSPELT, "project": False},
    "words and characters": {"word_dim": 64, "n_characters": 11, "pad_id": 9, "activation": "tanh"},
    "characters of a dictionary": {"n_characters": 11, "pad_id": 9},
}
WORDS = ("<oov>", "<bos>", "<eos>", "<S>", "</S>", "<UNK>", "The", "river", "banks", ".", "She")
CHARACTERS = ("<bos>", "<eos>", "<oov>", "<bow>", "<eow>", "e", "r", "i", "v", "<pad>", "T")


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_gives_the_same_bits(kind: str, stored: str, tmp_path: Path) -> None:
    """Those that older tools have and elmokit's own format holds: tanh, words alone, words with characters."""
    tiny = models.tiny(models.tiny_options(**WIDE)).pretrained
    changes = KINDS[kind] | ({"n_words": len(WORDS)} if KINDS[kind].get("word_dim") else {})
    config = replace(tiny.config, tokens=replace(tiny.config.tokens, **changes))
    source = np.random.default_rng(1)
    tensors = {
        name: torch.from_numpy(source.standard_normal(shape).astype(np.float32) * np.float32(shape[-1] ** -0.5))
        for name, shape in parameter_shapes(config).items()
    }
    codec = CodecSpec()
    if kind.startswith("words not") or kind == "words":
        codec = CodecSpec("words", words=WORDS)
    elif kind != "tanh":
        words = WORDS if config.tokens.word_dim else None
        codec = CodecSpec("dictionary", words=words, characters=CHARACTERS)
    made = replace(tiny, config=config, tensors=tensors, codec=codec, softmax=None)
    folder = save_pretrained(made, tmp_path / "model", dtype=stored)
    if stored == "int4":
        elmo = Elmo.from_pretrained(folder, device="cpu")
        assert without_torch(folder) == elmo.encode("A sentence.").tobytes().hex()
    for dtype, allowed in (("float32", 1e-5), ("bfloat16", 0.05), ("int8", 0.1)):
        elmo, lite = Elmo.from_pretrained(folder, dtype=dtype, device="cpu"), LiteElmo(folder, dtype=dtype)
        assert isinstance(elmo.bilm.tokens, CompiledTokens)
        found, expected = lite.encode_layers(TEXTS), elmo.encode_layers(TEXTS)
        assert all(map(np.array_equal, found, expected))
        alone = [lite.encode_layers([text])[0] for text in TEXTS]
        assert all(map(np.array_equal, alone, found)), "alone and among others"
        exact = Elmo.from_pretrained(folder, dtype="float64", device="cpu").encode_layers(TEXTS)
        for some, right in zip(found, exact, strict=True):
            np.testing.assert_allclose(some, right, rtol=0, atol=allowed)


def test_words_are_forgotten_when_there_are_too_many(folder: Path) -> None:
    lite, small = LiteElmo(folder), LiteElmo(folder, cache_words=3)
    for _ in range(2):
        assert all(map(np.array_equal, lite.encode_tokens(TEXTS), small.encode_tokens(TEXTS)))
    assert len(small.known) == 3


def test_from_many_threads(folder: Path) -> None:
    lite = LiteElmo(folder, cache_words=5)
    expected = [lite.encode_tokens(text) for text in TEXTS]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lite.encode_tokens, TEXTS * 20))
    assert all(map(np.array_equal, found, expected * 20))


def test_nothing_of_it_imports_torch(folder: Path) -> None:
    assert without_torch(folder) == LiteElmo(folder).encode("A sentence.").tobytes().hex()


def without_torch(folder: Path) -> str:
    """The vector of a sentence as another process makes it, in which importing torch fails."""
    script = (
        "import sys; sys.modules['torch'] = None\n"  # importing it is an error from here on
        "from elmokit.lite import LiteElmo\n"
        f"print(LiteElmo({str(folder)!r}).encode('A sentence.').tobytes().hex())\n"
        "loaded = {name for name, module in sys.modules.items() if module}\n"
        "assert not {'torch', 'safetensors', 'h5py', 'rich', 'typer', 'huggingface_hub'} & loaded"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


class TestRefused:
    def test_a_damaged_file(self, folder: Path, tmp_path: Path) -> None:
        for path in folder.iterdir():
            (tmp_path / path.name).write_bytes(path.read_bytes())
        weights = tmp_path / "model.safetensors"
        data = bytearray(weights.read_bytes())
        data[-1] ^= 1
        weights.write_bytes(data)
        with pytest.raises(WeightsError, match="is not as it was saved"):
            LiteElmo(tmp_path)
        weights.write_bytes(bytes(data[:-1]))
        with pytest.raises(WeightsError, match="fetch or copy it again"):
            LiteElmo(tmp_path)

    def test_what_is_no_model(self, tmp_path: Path) -> None:
        with pytest.raises(WeightsError, match=r"neither a bundled one \(en"):
            LiteElmo.from_pretrained(tmp_path)

    @pytest.mark.parametrize("dtype", ["float64", "float16", "int4", ""])
    def test_other_types(self, folder: Path, dtype: str) -> None:
        with pytest.raises(InputError, match="expected auto, default or one of float32, bfloat16, int8"):
            LiteElmo(folder, dtype=dtype)

    def test_another_tokenizer(self) -> None:
        with pytest.raises(InputError, match="was trained with"):
            LiteElmo.from_pretrained(tokenizer="whitespace")

    def test_without_c(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ELMOKIT_NATIVE", "0")
        library.compiled.cache_clear()
        try:
            with pytest.raises(ElmokitError, match="runs in C alone, which is not there: switched off"):
                LiteElmo(folder)
        finally:
            monkeypatch.undo()
            library.compiled.cache_clear()
