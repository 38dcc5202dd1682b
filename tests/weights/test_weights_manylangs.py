"""ELMoForManyLangs folders: the vectors that tool itself gave, and its damaged files."""

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from elmokit.batch import build_batch
from elmokit.errors import WeightsError
from elmokit.text import Sentence
from elmokit.weights import load_pretrained

DATA = Path(__file__).parents[1] / "data" / "manylangs"
KINDS = ["both", "characters", "words"]


@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_tool(kind):
    model = load_pretrained(DATA / kind)
    sentences = [Sentence(tuple(s)) for s in json.loads((DATA / "sentences.json").read_text(encoding="utf-8"))]
    batch = build_batch(sentences, model.codec.build(model.config.tokens.max_characters))
    network = model.build()
    with torch.inference_mode():
        stack, _ = network(torch.from_numpy(batch.types).long(), torch.from_numpy(batch.index), batch.lengths)
    inner = stack.inner()
    found = inner.values[:, inner.mask].numpy()  # (L, N, D)
    np.testing.assert_allclose(found, np.load(DATA / "expected.npz")[f"{kind}/-2"], rtol=0, atol=1e-6)


def test_what_the_folders_say():
    both, characters, words = (load_pretrained(DATA / kind) for kind in KINDS)
    assert both.origin == "manylangs"
    assert both.config.lstm.forget_bias == 0.0
    assert (both.config.lstm.cell_clip, both.config.lstm.proj_clip) == (0.6, 0.8)
    assert both.codec.words[10] == "\u3000"
    assert both.codec.characters[32] == "\u3000"
    assert (characters.config.lstm.cell_clip, characters.config.tokens.max_characters) == (None, 10)
    assert characters.codec.words is None
    assert (words.config.lstm.proj_clip, words.config.tokens.char_dim) == (None, 0)
    assert words.codec.characters is None


@pytest.fixture
def folder(tmp_path) -> Path:
    return Path(shutil.copytree(DATA / "both", tmp_path / "both"))


def settle(folder: Path, **paths: str) -> None:
    (folder / "config.json").write_text(json.dumps({"seed": 1, **paths}))


def test_config_is_found_where_it_may_lie(folder):
    made = json.loads((folder / "tiny.json").read_text())
    made["encoder"]["cell_clip"] = 7
    (folder / "configs").mkdir()
    (folder / "configs" / "tiny.json").write_text(json.dumps(made))
    settle(folder, config_path="configs/tiny.json")
    assert load_pretrained(folder).config.lstm.cell_clip == 7  # as stated, from the folder
    settle(folder, config_path="C:\\models\\tiny.json")
    assert load_pretrained(folder).config.lstm.cell_clip == 0.6  # its last part, in the folder
    for stated in ({"config_path": "/elsewhere/cnn_50_100_512_4096_sample.json"}, {}):
        settle(folder, **stated)
        model = load_pretrained(folder)  # the standard, with sizes from the tensors
        assert (model.config.lstm.cell_clip, model.config.lstm.cell_dim) == (3.0, 10)
        assert model.config.tokens.max_characters == 50


def test_sizes_come_from_the_tensors(folder):
    made = json.loads((folder / "tiny.json").read_text())
    made["encoder"] |= {"dim": 4096, "projection_dim": 512, "n_layers": 7}
    (folder / "tiny.json").write_text(json.dumps(made))
    assert load_pretrained(folder).config == load_pretrained(DATA / "both").config


def test_numbers_that_no_symbol_has_stay_unused(folder):
    lines = [
        line for line in (folder / "word.dic").read_text(encoding="utf-8").splitlines() if not line.startswith("cat\t")
    ]
    (folder / "word.dic").write_text("\n".join(lines), encoding="utf-8")
    words = load_pretrained(folder).codec.words
    assert (len(words), words[5], words[6]) == (12, "<unused 5>", "the")


def change_state(folder: Path, name: str, key: str, value: torch.Tensor | None) -> None:
    state = torch.load(folder / name, weights_only=True)
    if value is None:
        del state[key]
    else:
        state[key] = value
    torch.save(state, folder / name)


class Evil:
    def __reduce__(self):
        return Path.touch, (Path("pwned"),)


def name_part(folder: Path, part: str, name: str) -> None:
    made = json.loads((folder / "tiny.json").read_text())
    made[part]["name"] = name
    (folder / "tiny.json").write_text(json.dumps(made))


TOKENS, ENCODER = "token_embedder.pkl", "encoder.pkl"
BIAS, WEIGHT = "forward_layer_1.state_linearity.bias", "backward_layer_0.input_linearity.weight"
DAMAGE = {
    "missing key": (lambda f: change_state(f, ENCODER, WEIGHT, None), rf"encoder\.pkl: '{WEIGHT}' is missing"),
    "wrong shape": (
        lambda f: change_state(f, ENCODER, BIAS, torch.zeros(44)),
        rf"encoder\.pkl: '{BIAS}' has shape \(44,\), expected \(40,\)",
    ),
    "integers": (lambda f: change_state(f, ENCODER, BIAS, torch.zeros(40, dtype=torch.long)), "expected float32"),
    "NaN": (lambda f: change_state(f, ENCODER, BIAS, torch.full((40,), torch.nan)), "40 of 40 values NaN"),
    "huge, from one number": (
        lambda f: change_state(f, ENCODER, WEIGHT, torch.zeros(1).expand(10**7, 10**6)),
        r"shape \(10000000, 1000000\), expected \(40, 6\)",
    ),
    "code": (lambda f: (f / ENCODER).write_bytes(pickle.dumps(Evil())), r"encoder\.pkl: cannot be read as weights"),
    "cut": (lambda f: (f / TOKENS).write_bytes((DATA / "both" / TOKENS).read_bytes()[:900]), r"token_embedder\.pkl"),
    "empty": (lambda f: (f / TOKENS).write_bytes(b""), r"token_embedder\.pkl: cannot be read as weights"),
    "a list": (lambda f: torch.save([1, 2], f / TOKENS), r"token_embedder\.pkl: holds list, expected a dictionary"),
    "no encoder": (lambda f: (f / ENCODER).unlink(), r"encoder\.pkl: no such file"),
    "no config": (lambda f: (f / "config.json").unlink(), r"config\.json: no such file"),
    "no dictionary": (lambda f: (f / "char.dic").unlink(), r"char\.dic: no such file"),
    "dictionary too long": (
        lambda f: (f / "word.dic").write_text("<oov>\t0\n<bos>\t1\n<eos>\t2\nx\t12"),
        r"word\.dic: 'x' has number 12, but the model has 12",
    ),
    "dictionary without marks": (lambda f: (f / "word.dic").write_text("a\t0\n"), "<oov>, <bos>, <eos> missing"),
    "dictionary of words": (lambda f: (f / "char.dic").write_text("just\nwords\n"), r"char\.dic: line 1 is 'just'"),
    "encoder of another kind": (
        lambda f: name_part(f, "encoder", "lstm"),
        r"tiny\.json: encoder\.name is 'lstm'; expected 'elmo'",
    ),
    "tokens of another kind": (lambda f: name_part(f, "token_embedder", "lstm"), "token_embedder.name is 'lstm'"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_gives_one_clear_error(folder, name, monkeypatch):
    monkeypatch.chdir(folder)
    damage, message = DAMAGE[name]
    damage(folder)
    with pytest.raises(WeightsError, match=message) as caught:
        load_pretrained(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (folder / "pwned").exists()
