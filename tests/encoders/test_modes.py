"""dtype as one switch: float32, bfloat16 and int8 on a CPU, near the exact vectors and blind to the batch."""

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import models
from elmokit.encoders import Elmo, Static, Syllables, WordTable, load_encoder, places
from elmokit.encoders.joined import Joined
from elmokit.encoders.places import FLOATS, INT8, pick_dtype
from elmokit.errors import InputError
from elmokit.kernels.cpu import inference as on_cpu
from elmokit.kernels.cpu.c import CompiledLstm, CompiledTokens, c_library
from elmokit.kernels.cpu.inference import TorchLstm
from elmokit.kernels.cpu.int8 import Int8Matrix
from elmokit.lm import LanguageModel
from elmokit.nn.lstm import LstmLayer
from elmokit.weights import Pretrained, inference, load_pretrained, save_pretrained
from elmokit.weights.storage import StoredTensors

# As wide as makes rounding average out, small enough to run in milliseconds.
OPTIONS = models.tiny_options(
    char_cnn={"filters": [[1, 8], [2, 16], [3, 40]]}, lstm={"dim": 64, "projection_dim": 32, "n_layers": 2}
)
MODEL = models.tiny(OPTIONS)
IN_TORCH = "int8 in torch"  # as where there is no compiler
IN_C = c_library() is not None
MODES = {  # cosines with the exact vectors, in the mean and at worst; what the batch may change
    "float32": (1.0, 1.0, 0 if IN_C else 1e-5),
    "bfloat16": (0.9995, 0.9995, 0 if IN_C else 1e-5),
    "int8": (0.999, 0.99, 0 if IN_C else 1e-4),
    IN_TORCH: (0.999, 0.99, 1e-4),
}
TEXT = [["The", "cat", "sat", "on", "the", "mat", "."], ["It", "purred"], [], ["A", "word", "or", "two"] * 6]

tokens = st.text(max_size=6) | st.sampled_from(["the", "cat", "<S>", "", "a" * 70, "猫"])
sentences = st.lists(st.lists(tokens, max_size=7), min_size=1, max_size=7)


def in_mode(pretrained: Pretrained, mode: str, **options: int) -> Elmo:
    with pytest.MonkeyPatch.context() as patch:
        if mode == IN_TORCH:
            patch.setattr(on_cpu, "c_library", lambda: None)
        return Elmo(pretrained, device="cpu", dtype="int8" if mode == IN_TORCH else mode, **options)


ELMOS = {mode: in_mode(MODEL.pretrained, mode, cache_words=50) for mode in MODES}


def cosines(found: list[np.ndarray], exact: list[np.ndarray]) -> np.ndarray:
    """(L, tokens)"""
    a, b = (np.concatenate(part, axis=1).astype(np.float64) for part in (found, exact))
    return (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)


@pytest.mark.parametrize("mode", MODES)
def test_vectors_are_near_the_exact_ones(mode: str) -> None:
    exact = Elmo(MODEL.pretrained, device="cpu", dtype="float64").encode_layers(TEXT)
    found = ELMOS[mode].encode_layers(TEXT)
    mean, worst, _ = MODES[mode]
    assert all(layers.dtype == np.float32 for layers in found)
    like = cosines(found, exact)
    assert like.mean(axis=1).min() >= mean - 1e-6
    assert like.min() >= worst - 1e-6


@pytest.mark.parametrize("mode", MODES)
@given(sentences, st.integers(1, 60))
def test_the_batch_changes_nothing(mode: str, given_sentences: list[list[str]], batch_tokens: int) -> None:
    elmo, allowed = ELMOS[mode], MODES[mode][2]
    together = elmo.encode_layers(given_sentences, batch_tokens=batch_tokens)
    for sentence, got in zip(given_sentences, together, strict=True):
        elmo.forget_words()
        np.testing.assert_allclose(got, elmo.encode_layers([sentence])[0], rtol=0, atol=allowed)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "options",
    [
        models.tiny_options(lstm={"dim": 12, "projection_dim": 12}),  # no projection
        models.tiny_options(lstm={"cell_clip": None, "proj_clip": None, "use_skip_connections": False}),
        models.tiny_options(char_cnn={"n_highway": 0, "activation": "tanh"}),
    ],
)
def test_every_kind_of_model_runs_in_every_mode(mode: str, options: dict) -> None:
    model = models.tiny(options)
    found = in_mode(model.pretrained, mode).encode_layers(TEXT[:1])
    assert cosines(found, [model.embed(TEXT[0])]).min() > (0.98 if mode in ("int8", IN_TORCH) else 0.999)


@pytest.mark.skipif(not IN_C, reason="nothing runs in C here")
def test_what_runs_in_c_where_it_can() -> None:
    for mode in MODES:
        bilm, compiled = ELMOS[mode].bilm, mode != IN_TORCH
        assert [isinstance(layer, CompiledLstm) for layer in bilm.lstm] == [compiled] * 2
        assert isinstance(bilm.tokens, CompiledTokens) == compiled


@pytest.mark.parametrize("mode", ["int8", IN_TORCH])
def test_words_and_one_direction_run_in_int8(mode: str) -> None:
    for model in (models.tiny_words(), models.tiny(directions=(1,))):
        found = in_mode(model.pretrained, mode).encode_layers(TEXT[:1])
        assert cosines(found, [model.embed(TEXT[0])]).min() > 0.98


def test_the_official_fixture_keeps_its_vectors(shared: Path) -> None:
    import json

    folder = shared / "fixtures" / "elmo-skip"
    rows = json.loads((folder / "sentences.json").read_text())
    text = [s.split() if isinstance(s, str) else s for row in rows for s in row]
    pretrained = load_pretrained(folder)
    exact = Elmo(pretrained, device="cpu", dtype="float64").encode_layers(text)
    for mode, (mean, worst, _) in MODES.items():
        like = cosines(in_mode(pretrained, mode).encode_layers(text), exact)
        assert like.mean(axis=1).min() >= mean - 1e-6, mode
        assert like.min() >= worst - 1e-6, mode


class TestStoredInt8:
    @pytest.mark.skipif(not IN_C, reason="nothing runs in C here")
    def test_goes_into_the_products_as_it_is(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        save_pretrained(MODEL.pretrained, tmp_path, dtype="int8")
        stored = load_pretrained(tmp_path)
        expected = ELMOS["int8"].encode_layers(TEXT)  # quantised here, from floats, by the same rule
        from elmokit.kernels.cpu import int8
        from elmokit.weights import storage

        def fail(*given: object) -> None:
            raise AssertionError("int8 weights were turned into floats and back")

        monkeypatch.setattr(int8, "quantise", fail)
        wide = []
        real = storage.dequantise
        monkeypatch.setattr(storage, "dequantise", lambda q, s: wide.append(q.numel()) or real(q, s))
        elmo = in_mode(stored, "int8")
        assert max(wide) < MODEL.pretrained.tensors["lstm.0.weight_x"].numel(), "only characters and convolutions are"
        like = cosines(elmo.encode_layers(TEXT), expected)
        assert like.min() > 0.999, "characters and convolutions were rounded for the file, the rest is the same"

    def test_runs_as_floats_in_torch(self, tmp_path: Path) -> None:
        save_pretrained(MODEL.pretrained, tmp_path, dtype="int8")
        stored = load_pretrained(tmp_path)
        exact = Elmo(stored, device="cpu", dtype="float64").encode_layers(TEXT)
        for mode in (IN_TORCH, "float32"):
            for found, expected in zip(in_mode(stored, mode).encode_layers(TEXT), exact, strict=True):
                np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)

    def test_runs_as_it_is_stored(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        save_pretrained(MODEL.pretrained, tmp_path, dtype="int8")
        for library, mode in ((object(), torch.int8), (None, torch.float32)):
            monkeypatch.setattr(inference, "c_library", lambda library=library: library)
            elmo = Elmo.from_pretrained(tmp_path, device="cpu")
            assert elmo.dtype == load_encoder(tmp_path, device="cpu").dtype == mode
            assert inference.usual_mode(elmo.pretrained, torch.device("cuda")) == torch.float32
        assert Elmo(MODEL.pretrained, device="cpu").dtype == torch.float32
        assert elmo.fingerprint == Elmo.from_pretrained(tmp_path, device="cpu", dtype="int8").fingerprint

    def test_another_mode_for_one_call_and_back(self, tmp_path: Path) -> None:
        save_pretrained(MODEL.pretrained, tmp_path, dtype="int8")
        elmo = Elmo.from_pretrained(tmp_path, device="cpu", dtype="float32")
        exact = elmo.encode_layers(TEXT)
        usual = elmo.encode_layers(TEXT, dtype="default")
        if IN_C:
            assert cosines(usual, exact).min() < 1 - 1e-7
        assert cosines(usual, exact).min() > 0.99
        np.testing.assert_array_equal(elmo.encode_layers(TEXT)[0], exact[0])

    def test_reads_as_floats_by_name(self, tmp_path: Path) -> None:
        save_pretrained(MODEL.pretrained, tmp_path, dtype="int8")
        tensors = load_pretrained(tmp_path).tensors
        assert isinstance(tensors, StoredTensors)
        assert isinstance(tensors.stored("lstm.0.weight_h"), Int8Matrix)
        assert tensors["lstm.0.weight_h"].dtype == torch.float32
        assert set(tensors) == set(MODEL.pretrained.tensors)

    @pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
    def test_copies_are_saved_and_loaded(self, tmp_path: Path, dtype: str) -> None:
        save_pretrained(MODEL.pretrained, tmp_path / "small", dtype=dtype)  # type: ignore[arg-type]
        save_pretrained(MODEL.pretrained, tmp_path / "whole")
        small, whole = ((tmp_path / name / "model.safetensors").stat().st_size for name in ("small", "whole"))
        assert small < whole * (0.55 if dtype == "bfloat16" else 0.4)
        exact = ELMOS["float32"].encode_layers(TEXT)
        for mode in (dtype, "float32"):
            found = Elmo.from_pretrained(tmp_path / "small", device="cpu", dtype=mode).encode_layers(TEXT)
            assert cosines(found, exact).min() > 0.99


class TestAuto:
    @pytest.mark.parametrize(
        ("compiled", "bfloat16", "elmo", "others"),
        [
            (False, False, "float32", "float32"),
            (True, False, "int8", "float32"),
            (True, True, "int8", "bfloat16"),
            (False, True, "float32", "bfloat16"),
        ],
    )
    def test_takes_what_the_cpu_has(
        self, compiled: bool, bfloat16: bool, elmo: str, others: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(places, "c_library", lambda: object() if compiled else None)
        monkeypatch.setattr(places, "has_bfloat16", lambda: bfloat16)
        cpu = torch.device("cpu")
        assert pick_dtype("auto", cpu, modes=Elmo.modes) == getattr(torch, elmo)
        assert pick_dtype("auto", cpu, modes=FLOATS) == getattr(torch, others)
        assert Elmo(MODEL.pretrained, device="cpu", dtype="auto").dtype == getattr(torch, elmo)

    def test_takes_half_precision_on_cuda(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for able, expected in ((True, torch.bfloat16), (False, torch.float16)):
            monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda able=able, **_: able)
            assert pick_dtype("auto", torch.device("cuda")) == expected

    def test_names_and_types_mean_the_same(self) -> None:
        cpu = torch.device("cpu")
        assert pick_dtype(torch.bfloat16, cpu) == pick_dtype("bfloat16", cpu) == torch.bfloat16
        assert pick_dtype(torch.int8, cpu, modes=(*FLOATS, INT8)) == torch.int8


def test_int8_is_refused_where_it_cannot_run() -> None:
    with pytest.raises(InputError, match="int8 runs on a CPU, not on cuda"):
        inference.inference_model(MODEL.pretrained, device=torch.device("cuda"), dtype=torch.int8)
    with pytest.raises(InputError, match="dtype 'int8' does not fit here; expected auto or one of float32"):
        LanguageModel(MODEL.pretrained, device="cpu", dtype="int8")


def test_the_switch_can_be_turned_for_one_call() -> None:
    elmo = Elmo(MODEL.pretrained, device="cpu")
    exact = elmo.encode("one sentence")
    rounded = elmo.encode("one sentence", dtype="int8")
    assert 0 < np.abs(rounded - exact).max() < 0.1
    np.testing.assert_array_equal(elmo.encode("one sentence"), exact)


@pytest.mark.parametrize("mode", ["float32", "bfloat16", "int8"])
def test_copies_can_be_made_and_sent_to_other_processes(mode: str, tmp_path: Path) -> None:
    save_pretrained(MODEL.pretrained, tmp_path, dtype="int8")
    for pretrained in (MODEL.pretrained, load_pretrained(tmp_path)):
        elmo = Elmo(pretrained, device="cpu", dtype=mode)
        expected = elmo.encode_layers(TEXT)
        for another in (copy.deepcopy(elmo), pickle.loads(pickle.dumps(elmo))):
            assert another.dtype == elmo.dtype
            for found, exact in zip(another.encode_layers(TEXT), expected, strict=True):
                np.testing.assert_array_equal(found, exact)


def test_joined_parts_without_such_a_mode_run_in_float32() -> None:
    elmo = Elmo(MODEL.pretrained, device="cpu", dtype="int8")

    class Other(Elmo):
        modes = FLOATS

    joined = Joined([elmo, Other(MODEL.pretrained, device="cpu")])
    vector = joined.encode("one sentence")
    np.testing.assert_allclose(vector[:64], elmo.encode("one sentence"), atol=1e-6)  # torch takes the mean
    np.testing.assert_allclose(vector[64:], ELMOS["float32"].encode("one sentence"), atol=1e-6)


def test_wrapped_and_joined_encoders_run_in_another_place_as_the_model_does(tmp_path: Path) -> None:
    """int8 is the default on a CPU alone."""
    save_pretrained(MODEL.pretrained, tmp_path, dtype="int8")
    elmo = Elmo.from_pretrained(tmp_path, device="cpu")
    for around in (Syllables(elmo), Joined([elmo])):
        assert around.dtype == elmo.dtype == (torch.int8 if IN_C else torch.float32)
        assert around.arithmetic == elmo.arithmetic
        assert around._mode(around._wanted, torch.device("cuda")) == torch.float32
        assert around.to("cpu", dtype="float64").dtype == torch.float64
    static = Static(WordTable(["a"], np.ones((1, 3), dtype=np.float32)), device="cpu")
    assert Syllables(static).arithmetic_in(torch.device("cpu"), torch.int8) == "float32"  # it has no such mode


def test_a_model_that_cannot_be_moved_stays_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    elmo = Elmo(MODEL.pretrained, device="cpu")
    expected = elmo.encode("one sentence")

    def full(*given: object) -> None:
        raise MemoryError

    monkeypatch.setattr(elmo, "_build", full)
    with pytest.raises(MemoryError):
        elmo.to("cpu", dtype="float64")
    assert elmo.dtype == torch.float32
    np.testing.assert_array_equal(elmo.encode("one sentence"), expected)


@pytest.mark.parametrize(
    "compiled", [False, pytest.param(True, marks=pytest.mark.skipif(not IN_C, reason="no C here"))]
)
def test_a_prepared_network_holds_no_second_copy(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In float32 the matrices are those of the file, not copies."""
    if not compiled:
        monkeypatch.setattr(on_cpu, "c_library", lambda: None)
    layer = Elmo(MODEL.pretrained, device="cpu").bilm.lstm[0]
    for k, name in enumerate(("weight_x", "weight_h", "projection")):
        source = MODEL.pretrained.tensors[f"lstm.0.{name}"]
        if compiled:
            assert isinstance(layer, CompiledLstm)
            there = layer.directions[0].matrices[k].structure.values
        else:
            assert isinstance(layer, TorchLstm)
            there = (layer.weights.x, layer.weights.h, layer.weights.projection)[k].data_ptr()
        assert there == source.data_ptr()


def test_float64_is_run_by_the_plain_network() -> None:
    built: Pretrained = MODEL.pretrained
    assert isinstance(Elmo(built, device="cpu", dtype="float64").bilm.lstm[0], LstmLayer)


def test_an_encoder_names_its_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_cpu, "c_library", lambda: None)
    said = {"int8": "float32 with int8 weights", "bfloat16": "float32 with bfloat16 weights"}
    for mode in ("float32", "float64", "int8", "bfloat16"):
        assert ELMOS["float32"].arithmetic_in(torch.device("cpu"), getattr(torch, mode)) == said.get(mode, mode)
    assert ELMOS["float32"].arithmetic_in(torch.device("cuda"), torch.bfloat16) == "bfloat16 on cuda"


@pytest.mark.skipif(not IN_C, reason="nothing runs in C here")
def test_arithmetic_in_c_is_not_that_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told apart exactly where the numbers are."""
    there = {mode: (ELMOS[mode].arithmetic, ELMOS[mode].encode_layers(TEXT)) for mode in ("int8", "float32")}
    assert there["int8"][0].startswith("int8 in C, activations of ")
    assert ELMOS["bfloat16"].arithmetic in {f"bfloat16 in C, {how}" for how in ("as int16", "by vectors", "by tiles")}
    assert Joined([ELMOS["float32"], ELMOS["int8"]]).arithmetic == "float32"
    monkeypatch.setattr(on_cpu, "c_library", lambda: None)
    for mode, (named, vectors) in there.items():
        elmo = Elmo(MODEL.pretrained, device="cpu", dtype=mode)
        far = max(float(np.abs(a - b).max(initial=0)) for a, b in zip(elmo.encode_layers(TEXT), vectors, strict=True))
        assert (elmo.arithmetic == named) == (far < 1e-4), mode
