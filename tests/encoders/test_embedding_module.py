"""ELMo as a part of someone's own network."""

import numpy as np
import pytest
import torch
from torch import nn

import models
import reference
from elmokit.batch import build_batch
from elmokit.encoders import Elmo, ElmoEmbedding
from elmokit.errors import InputError
from elmokit.nn.mix import MixConfig
from elmokit.text import Sentence

SENTENCES = [["The", "cat", "sat"], ["a"], []]


class Tagger(nn.Module):
    def __init__(self, **options: object) -> None:
        super().__init__()
        self.elmo = ElmoEmbedding(models.tiny().pretrained, **options)  # type: ignore[arg-type]
        self.out = nn.Linear(self.elmo.width, 2)

    def forward(self, sentences: list[list[str]]) -> torch.Tensor:
        result: torch.Tensor = self.out(self.elmo(sentences).vectors)
        return result


def test_output_is_the_mix_of_the_layers() -> None:
    module = ElmoEmbedding(models.tiny().pretrained, mixes=[MixConfig(weights=(0.5, 0.0, -0.5), gamma=2.0)])
    out = module(SENTENCES)
    assert out.vectors.shape == (3, 3, 12)
    assert out.mask.tolist() == [[True] * 3, [True, False, False], [False] * 3]
    stacks = [reference.embed(models.tiny().weights, models.tiny_options(), s)[0] for s in SENTENCES]
    for row, want in zip(out.vectors, reference.mix(stacks, [0.5, 0.0, -0.5], 2.0), strict=True):
        inner = reference.drop_boundaries(want)
        np.testing.assert_allclose(row[: len(inner)].detach(), inner, atol=1e-5)
        assert not row[len(inner) :].any()


def test_frozen_by_default_even_in_a_training_network() -> None:
    network = Tagger()
    network.train()
    assert network.training
    assert not network.elmo.bilm.training
    network(SENTENCES).sum().backward()
    assert all(p.grad is None for p in network.elmo.bilm.parameters())
    (mix,) = network.elmo.mixes
    assert mix.weights.grad is not None
    assert mix.gamma.grad is not None
    trainable = {name for name, p in network.named_parameters() if p.requires_grad}
    assert trainable == {"elmo.mixes.0.weights", "elmo.mixes.0.gamma", "out.weight", "out.bias"}


def test_gradients_into_the_bilm_on_request_leave_the_source_alone() -> None:
    pretrained = models.tiny().pretrained
    module = ElmoEmbedding(pretrained, fine_tune=True)
    assert module.bilm.training
    before = {name: value.clone() for name, value in pretrained.tensors.items()}
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    module([["The", "cat"]]).vectors.square().sum().backward()
    assert all(p.grad is not None for p in module.bilm.parameters())
    optimizer.step()
    assert any(not torch.equal(p, before[name]) for name, p in module.bilm.named_parameters())
    assert all(torch.equal(value, before[name]) for name, value in pretrained.tensors.items())


def test_requires_grad_trains_everything() -> None:
    module = ElmoEmbedding(models.tiny().pretrained, dropout=0.5)
    frozen = module([["a", "cat"]])
    frozen.vectors.sum().backward()
    assert all(p.grad is None for p in module.bilm.parameters())
    assert not module.bilm.training
    assert module.requires_grad_(True) is module
    assert module.fine_tune
    assert module.bilm.training
    module([["a", "cat"]]).vectors.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in module.parameters())
    module.requires_grad_(False)
    assert not module.fine_tune
    assert not module.bilm.training
    assert not module([["a", "cat"]]).vectors.requires_grad
    module.bilm.lstm[1].requires_grad_(True)  # a part of it
    module([["a", "cat"]]).vectors.sum().backward()
    assert module.bilm.lstm[1].bias.grad is not None


def test_several_mixes_over_one_run() -> None:
    module = ElmoEmbedding(models.tiny().pretrained, mixes=[MixConfig(), MixConfig(gamma=3.0, l2=0.5)])
    first, second = module(SENTENCES).outputs
    torch.testing.assert_close(second, 3 * first)
    with torch.no_grad():
        module.mixes[1].weights += 1.0
    assert module.penalty().item() == pytest.approx(0.5 * 3, rel=1e-5)


def test_batches_and_layers_made_before() -> None:
    module = ElmoEmbedding(models.tiny().pretrained)
    batch = build_batch([Sentence.of(s) for s in SENTENCES], module.codec)
    expected = module(SENTENCES).vectors
    torch.testing.assert_close(module(batch).vectors, expected)
    torch.testing.assert_close(module(module.layers(batch)).vectors, expected)
    elmo = Elmo(models.tiny().pretrained)
    torch.testing.assert_close(module(elmo.run([Sentence.of(s) for s in SENTENCES])).vectors, expected)


def test_state_dict_holds_everything() -> None:
    trained, fresh = Tagger(), Tagger()
    with torch.no_grad():
        trained.elmo.mixes[0].weights += torch.tensor([1.0, 2.0, 3.0])
        trained.elmo.bilm.lstm[0].bias += 0.5
    fresh.load_state_dict(trained.state_dict())
    torch.testing.assert_close(fresh(SENTENCES), trained(SENTENCES))


def test_moves_with_its_parent() -> None:
    network = Tagger().double()
    assert network(SENTENCES).dtype == torch.float64


def test_carried_state_equals_the_session_and_can_be_reset() -> None:
    pretrained = models.tiny().pretrained
    module = ElmoEmbedding(pretrained, state="carried")
    session = Elmo(pretrained).carry()
    first = module.layers([["a", "cat"]]).inner().values
    for batch in ([["a", "cat"]], [["b"], ["c", "d"]], [["e"]]):
        if batch != [["a", "cat"]]:
            got = module.layers(batch).inner().values
            want = session.encode_layers(batch)[0]
            np.testing.assert_allclose(got[:, 0, : want.shape[1]], want, atol=1e-5)
        else:
            session.encode_layers(batch)
    module.reset()
    torch.testing.assert_close(module.layers([["a", "cat"]]).inner().values, first)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="a mix of 2 layers was given, but the model has 3"):
        ElmoEmbedding(models.tiny().pretrained, mixes=[MixConfig(n_layers=2)])
    for token in (None, 3):
        with pytest.raises(InputError, match=r"token 1 of sentence 1 is .*; expected a string"):
            ElmoEmbedding(models.tiny().pretrained)([["a"], ["the", token]])
    with pytest.raises(InputError, match="sentence 0 is a string"):
        ElmoEmbedding(models.tiny().pretrained)(["a string"])
