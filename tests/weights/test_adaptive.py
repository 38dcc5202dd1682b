import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import models
from elmokit.errors import WeightsError
from elmokit.lm import LanguageModel
from elmokit.nn.softmax import AdaptiveSoftmax
from elmokit.weights import AdaptiveTensors, Pretrained, load_pretrained, save_pretrained

WORDS = ("<S>", "</S>", "<UNK>", *(f"w{k}" for k in range(37)))


@pytest.fixture
def adaptive() -> Pretrained:
    """A tiny model with an adaptive softmax of three clusters."""
    plain = models.tiny().pretrained
    torch.manual_seed(3)
    layer = AdaptiveSoftmax(len(WORDS), plain.config.lstm.projection_dim, cutoffs=(10, 25))
    softmax = AdaptiveTensors(len(WORDS), 6, layer.cutoffs, {n: t.detach() for n, t in layer.state_dict().items()})
    return replace(plain, vocabulary=WORDS, softmax=softmax)


def test_saved_and_loaded_it_gives_the_same_probabilities(adaptive: Pretrained, tmp_path: Path) -> None:
    save_pretrained(adaptive, tmp_path / "model")
    loaded = load_pretrained(tmp_path / "model")
    assert isinstance(loaded.softmax, AdaptiveTensors)
    assert (loaded.softmax.words, loaded.softmax.width, loaded.softmax.cutoffs) == (40, 6, (10, 25))
    before, after = (LanguageModel(p, device="cpu").score([["w1", "w20", "w36", "?"]])[0] for p in (adaptive, loaded))
    for side in ("forward", "backward"):  # a mapped file may lie otherwise in memory, and sums end otherwise with it
        assert getattr(after, side) == pytest.approx(getattr(before, side), rel=1e-6)
    assert before.forward is not None
    # Every word's probability is one of a distribution: they sum to 1 over the vocabulary.
    hidden = torch.randn(4, 6)
    torch.testing.assert_close(loaded.softmax.build().log_probs(hidden).exp().sum(dim=1), torch.ones(4))


def test_an_archive_keeps_it(adaptive: Pretrained, tmp_path: Path) -> None:
    save_pretrained(adaptive, tmp_path / "model")
    archive = shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path / "model")
    loaded = load_pretrained(archive)
    assert isinstance(loaded.softmax, AdaptiveTensors)
    assert isinstance(adaptive.softmax, AdaptiveTensors)
    for name, values in adaptive.softmax.named.items():
        assert torch.equal(loaded.softmax.named[name], values)


def test_the_official_format_refuses_it(adaptive: Pretrained, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"no place for an adaptive softmax.*softmax=False"):
        save_pretrained(adaptive, tmp_path / "official", format="official")
    assert not list(tmp_path.iterdir())
    save_pretrained(adaptive, tmp_path / "official", format="official", softmax=False)
    assert load_pretrained(tmp_path / "official").softmax is None


@pytest.mark.parametrize("cutoffs", [[25, 10], [10], [], "10", [0, 25], [10, 99]])
def test_cutoffs_that_do_not_fit_are_refused(adaptive: Pretrained, tmp_path: Path, cutoffs: object) -> None:
    save_pretrained(adaptive, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["softmax"]["cutoffs"] = cutoffs
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(WeightsError, match=r"cutoffs|softmax of shapes"):
        load_pretrained(tmp_path)
