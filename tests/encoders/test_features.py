"""Joined features: each encoder with its own layers, side by side, trained or fixed."""

import numpy as np
import pytest
import torch

import models
from elmokit import Elmo, Features, Joined, MixConfig, Part, Sentence, Static
from elmokit.encoders.static.table import WordTable
from elmokit.errors import InputError

ELMO = Elmo(models.tiny().pretrained, device="cpu")
GLOVE = Static(WordTable(["the", "cat"], np.random.default_rng(0).normal(size=(2, 5)).astype(np.float32)), device="cpu")
SENTENCES = [["the", "cat", "sat"], [], ["cat"]]


def test_vectors_stand_side_by_side() -> None:
    features = Features([GLOVE, ELMO])
    assert features.width == 5 + 12
    out = features(SENTENCES)
    assert out.vectors.shape == (3, 3, 17)
    assert out.mask.tolist() == [[True] * 3, [False] * 3, [True, False, False]]
    assert not out.vectors[~out.mask].any()
    for k, (glove, elmo) in enumerate(zip(GLOVE.encode_tokens(SENTENCES), ELMO.encode_tokens(SENTENCES), strict=True)):
        got = out.vectors[k, : len(glove)].detach().numpy()
        np.testing.assert_allclose(got, np.concatenate([glove, elmo], -1), atol=1e-6, err_msg="untrained: the average")


def test_each_part_has_its_own_layers() -> None:
    features = Features([Part(ELMO, "mix:1..-1"), Part(ELMO, "concat:0,2"), Part(ELMO, 0)])
    assert features.width == 12 + 24 + 12
    assert {name: tuple(p.shape) for name, p in features.named_parameters()} == {
        "mixes.0.weights": (2,),
        "mixes.0.gamma": (1,),
    }
    (layers,) = ELMO.encode_layers([["a", "cat"]])
    want = np.concatenate([layers[1:].mean(0), layers[0], layers[2], layers[0]], -1)
    np.testing.assert_allclose(features([["a", "cat"]]).vectors[0].detach().numpy(), want, atol=1e-6)


def test_mixes_learn_and_encoders_do_not() -> None:
    torch.manual_seed(0)
    features = Features([GLOVE, Part(ELMO, mix=MixConfig(l2=0.1))])
    stacks = features.layers([Sentence.of(s) for s in SENTENCES])
    target = ELMO.run([Sentence.of(s) for s in SENTENCES]).inner().values[2]  # (B, T, 12)
    optimizer = torch.optim.Adam(features.parameters(), lr=0.2)
    for _ in range(60):
        optimizer.zero_grad()
        loss = (features(stacks).vectors[..., 5:] - target).square().sum()
        loss.backward()
        optimizer.step()
    shares = features.mixes["1"].shares
    assert shares.argmax() == 2, "the layer that was asked for has the largest share"
    assert features.penalty().item() == pytest.approx(0.1 * features.mixes["1"].weights.square().sum().item(), rel=1e-5)
    assert sorted(features.state_dict()) == ["mixes.1.gamma", "mixes.1.weights"]
    assert Features([GLOVE]).penalty().item() == 0


def test_layer_norm_and_number_types() -> None:
    features = Features([GLOVE, Part(ELMO, mix=MixConfig(layer_norm="allennlp"))]).double()
    out = features(SENTENCES)
    assert out.vectors.dtype == torch.float64
    assert out.vectors[out.mask][:, 5:].std().item() == pytest.approx(1, abs=0.5)


def test_joined_is_an_encoder() -> None:
    joined = Joined([GLOVE, Part(ELMO, "top")])
    assert (joined.depth, joined.width, joined.context, joined.layer_names) == (1, 17, "both", ("joined",))
    assert (joined.longest_word, joined.overlong("a" * 60), joined.overlong("a")) == (48, True, False)
    assert (Joined([GLOVE]).unknown("dog"), joined.unknown("dog"), Joined([GLOVE]).context) == (True, False, "none")
    for dtype in (None, "float64", None):
        got = joined.encode_tokens(SENTENCES, dtype=dtype)
        glove, elmo = GLOVE.encode_tokens(SENTENCES), ELMO.encode_tokens(SENTENCES, layers="top")
        for k in range(3):
            np.testing.assert_allclose(got[k], np.concatenate([glove[k], elmo[k]], -1), atol=1e-5)
    assert joined.encode("The cat.").shape == (17,)
    assert joined.fingerprint != Joined([GLOVE, Part(ELMO, 0)]).fingerprint


def test_what_cannot_be_joined() -> None:
    with pytest.raises(InputError, match="no encoders were given"):
        Features([])
    with pytest.raises(InputError, match="'all' keep the layers apart"):
        Joined([Part(ELMO, "all")])
    with pytest.raises(InputError, match="layer 7, but"):
        Features([Part(ELMO, 7)])
    with pytest.raises(InputError, match="1 stacks of layers given for 2 encoders"):
        Features([GLOVE, ELMO])(Features([GLOVE]).layers(SENTENCES))
    with pytest.raises(InputError, match="sentence 0 is a string"):
        Features([GLOVE])(["text"])
