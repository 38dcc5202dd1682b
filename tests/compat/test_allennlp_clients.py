"""Programs as users of AllenNLP wrote them, but for their import lines."""

import copy
import pickle
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from official_files import Files
from torch import Tensor, nn

import reference
from elmokit.compat.allennlp import (
    DEFAULT_BATCH_SIZE,
    DEFAULT_OPTIONS_FILE,
    DEFAULT_WEIGHT_FILE,
    ConfigurationError,
    Elmo,
    ELMoCharacterMapper,
    ElmoEmbedder,
    ELMoTokenCharactersIndexer,
    ElmoTokenEmbedder,
    _ElmoBiLm,
    _ElmoCharacterEncoder,
    batch_to_ids,
    lazy_groups_of,
)
from elmokit.weights.catalogue import find

S = [["The", "cat", "sat", "."], ["Hi", "there"]]


def stacks(files: Files, sentences: list[list[str]] = S) -> list[Any]:
    """Each sentence from zero state, boundaries included. (L, T + 2, D)"""
    return [reference.embed(files.tiny.weights, files.tiny.options, tokens)[0] for tokens in sentences]


def test_the_language_model_by_itself(files: Files) -> None:
    """As programs that take word vectors out of `_ElmoBiLm` call it."""
    bilm = _ElmoBiLm(options_file=files.options, weight_file=files.weights)
    bilm.eval()
    found = bilm(batch_to_ids(S))
    assert (bilm.num_layers, bilm.get_output_dim(), len(found["activations"])) == (3, 12, 3)
    for k, layer in enumerate(found["activations"]):
        for row, wanted in zip(layer, stacks(files), strict=True):
            np.testing.assert_allclose(row[: wanted.shape[1]], wanted[k], rtol=0, atol=1e-5)
    assert found["mask"].tolist() == [[1] * 6, [1] * 4 + [0] * 2]


def test_the_character_encoder_by_itself(files: Files) -> None:
    encoder = _ElmoCharacterEncoder(files.options, files.weights)
    found = encoder(batch_to_ids(S))
    assert (encoder.get_output_dim(), found["token_embedding"].shape, found["mask"].dtype) == (
        6,
        (2, 6, 6),
        torch.int64,
    )
    for row, wanted in zip(found["token_embedding"], stacks(files), strict=True):
        np.testing.assert_allclose(row[: wanted.shape[1]], wanted[0][:, :6], rtol=0, atol=1e-5)
    assert not any(p.requires_grad for p in encoder.parameters())
    assert encoder._beginning_of_sentence_characters[1] == 257
    tuned = _ElmoCharacterEncoder(files.options, files.weights, requires_grad=True)
    tuned(batch_to_ids(S))["token_embedding"].sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in tuned.parameters())
    bilm = _ElmoBiLm(files.options, files.weights)
    torch.testing.assert_close(bilm._token_embedder(batch_to_ids(S))["token_embedding"], found["token_embedding"])


def test_words_to_characters() -> None:
    """Called on the class in 0.4 to 0.8, on an object from 0.9 on."""
    ids = ELMoCharacterMapper.convert_word_to_char_ids("hello")
    assert ids == ELMoCharacterMapper().convert_word_to_char_ids("hello") == batch_to_ids([["hello"]])[0, 0].tolist()
    assert np.reshape(ids, [1, 1, 50]).shape == (1, 1, 50)
    for word in ("<S>", "</S>", "naïve", "x" * 60, ""):
        assert ELMoCharacterMapper.convert_word_to_char_ids(word) == reference.sentence_rows([word])[1].tolist()
    marked = ELMoCharacterMapper({"<first>": 1})
    assert marked.convert_word_to_char_ids("<first>") == [259, 2, 260] + [261] * 47
    assert marked.convert_word_to_char_ids("a") == ELMoCharacterMapper.convert_word_to_char_ids("a")
    assert marked != ELMoCharacterMapper()
    assert ELMoCharacterMapper.beginning_of_sentence_characters == [258, 256, 259] + [260] * 47
    assert (ELMoCharacterMapper.max_word_length, ELMoCharacterMapper.padding_character) == (50, 260)


def test_the_indexer(files: Files) -> None:
    embedder = ElmoEmbedder(files.options, files.weights)
    assert embedder.indexer == ELMoTokenCharactersIndexer()
    tokens = [SimpleNamespace(text=word) for word in S[0]]
    old = embedder.indexer.tokens_to_indices(tokens, None, "elmo")
    new = embedder.indexer.tokens_to_indices(S[0], None)
    assert old["elmo"] == new["elmo_tokens"] == batch_to_ids(S[:1])[0].tolist()
    padded = embedder.indexer.as_padded_tensor(old, {"elmo": 6}, {})["elmo"]
    assert (padded.shape, padded.dtype) == ((6, 50), torch.int64)
    assert not padded[4:].any()
    assert embedder.indexer.pad_token_sequence(old, {"elmo": 2}, {})["elmo"] == old["elmo"][:2]
    lengths = embedder.indexer.get_padding_lengths(new)
    torch.testing.assert_close(embedder.indexer.as_padded_tensor_dict(new, lengths)["elmo_tokens"], padded[:4])
    assert embedder.indexer.get_padding_lengths(old["elmo"][0]) == {}
    assert embedder.indexer.as_padded_tensor({"elmo": []}, {"elmo": 0}, {})["elmo"].shape == (0, 50)
    embedder.indexer.count_vocab_items(tokens[0], {})
    with pytest.raises(ConfigurationError, match="needs a tokenizer that retains text"):
        embedder.indexer.tokens_to_indices([SimpleNamespace(text=None)], None, "elmo")


def test_groups() -> None:
    groups = lazy_groups_of(iter(range(5)), 2)
    assert next(groups) == [0, 1]
    assert list(groups) == [[2, 3], [4]]
    assert list(lazy_groups_of([], 3)) == []
    with pytest.raises(ConfigurationError, match="group_size is 0"):
        lazy_groups_of([1], 0)


def test_defaults() -> None:
    assert find("allennlp:original").files[0][0] == DEFAULT_OPTIONS_FILE
    assert DEFAULT_WEIGHT_FILE.endswith("/elmo_2x4096_512_2048cnn_2xhighway_weights.hdf5")
    assert DEFAULT_BATCH_SIZE == 64


def test_states_are_read_set_and_forgotten(files: Files) -> None:
    """As programs wrote that wanted the same vectors each time, or went back to an earlier state."""
    embedder = ElmoEmbedder(files.options, files.weights)
    once = embedder.embed_batch(S)
    lstm = embedder.elmo_bilm._elmo_lstm
    outputs, cells = lstm._states
    assert (outputs.shape, cells.shape) == ((2, 2, 12), (2, 2, 24))
    kept = lstm._states
    twice = embedder.embed_batch(S)
    lstm._states = kept
    for again, other in zip(embedder.embed_batch(S), twice, strict=True):
        np.testing.assert_allclose(again, other, rtol=0, atol=1e-6)
    for forget in (lambda: setattr(lstm, "_states", None), lstm.reset_states, embedder.reset_states):
        forget()
        assert lstm._states is None
        for again, other in zip(embedder.embed_batch(S), once, strict=True):
            np.testing.assert_allclose(again, other, rtol=0, atol=1e-6)
    lstm.reset_states(torch.tensor([True, False]))
    mixed = embedder.embed_batch(S)
    np.testing.assert_allclose(mixed[0], once[0], rtol=0, atol=1e-6)
    np.testing.assert_allclose(mixed[1], twice[1], rtol=0, atol=1e-6)
    with pytest.raises(ValueError, match="a mask of 3 rows, but 2 rows"):
        lstm.reset_states(torch.zeros(3))


def test_the_embedder_runs_what_its_model_became(files: Files) -> None:
    embedder = ElmoEmbedder(files.options, files.weights, stateful=False)
    before = embedder.embed_sentence(S[0])
    np.testing.assert_allclose(embedder.elmo_bilm(batch_to_ids(S[:1]))["activations"][2][0, 1:-1], before[2], atol=1e-6)
    np.testing.assert_allclose(embedder.embed_sentence(S[0]), before, rtol=0, atol=1e-6)
    with torch.no_grad():
        for name, weight in embedder.elmo_bilm.named_parameters():
            if "backward_layer_1" in name:
                weight.zero_()
    after = embedder.embed_sentence(S[0])
    np.testing.assert_allclose(after[2, :, 6:], after[1, :, 6:], rtol=0, atol=1e-6)  # what the layer adds is gone
    np.testing.assert_allclose(after[:, :, :6], before[:, :, :6], rtol=0, atol=1e-6)
    assert (after[2, :, 6:] != before[2, :, 6:]).any()


def test_states_are_found_among_the_modules(files: Files) -> None:
    network = nn.ModuleDict({"elmo": Elmo(files.options, files.weights, 1, dropout=0), "top": nn.Linear(12, 2)})
    ids = batch_to_ids(S)
    once = network["elmo"](ids)["elmo_representations"][0]
    for module in network.modules():
        if getattr(module, "stateful", False):
            module.reset_states()
    torch.testing.assert_close(network["elmo"](ids)["elmo_representations"][0], once)
    for module in network.modules():
        if hasattr(module, "stateful"):
            module.stateful = False
    torch.testing.assert_close(network["elmo"](ids)["elmo_representations"][0], once)


def test_parameters_by_their_old_names(files: Files) -> None:
    """As programs wrote that fine-tune the top layer alone."""
    elmo = Elmo(files.options, files.weights, 1, dropout=0, requires_grad=True)
    for name, weight in elmo.named_parameters():
        if name.startswith("_elmo_lstm."):
            weight.requires_grad = "forward_layer_1" in name or "backward_layer_1" in name
    elmo(batch_to_ids(S))["elmo_representations"][0].sum().backward()
    trained = {name for name, weight in elmo._elmo_lstm.named_parameters() if weight.grad is not None}
    kinds = "input_linearity.weight", "state_linearity.weight", "state_linearity.bias", "state_projection.weight"
    assert trained == {f"_elmo_lstm.{side}_layer_1.{kind}" for side in ("forward", "backward") for kind in kinds}
    names = {name for name, _ in elmo._elmo_lstm.named_parameters()}
    assert {
        f"_elmo_lstm.{side}_layer_{k}.{kind}" for side in ("forward", "backward") for k in (0, 1) for kind in kinds
    } < names
    assert {"_token_embedder._char_embedding_weights", "_token_embedder.char_conv_0.weight"} < names
    assert elmo._elmo_lstm._elmo_lstm.forward_layer_0.state_projection.weight.shape == (6, 12)


def test_gradients_are_those_of_the_stacked_network(files: Files) -> None:
    """Assembled from two directions' weights, the network has the gradients of one that holds both."""
    elmo = Elmo(files.options, files.weights, 1, dropout=0, requires_grad=True)
    elmo(batch_to_ids(S))["elmo_representations"][0].square().sum().backward()
    weight = elmo._elmo_lstm._elmo_lstm.backward_layer_0.input_linearity.weight
    with torch.no_grad():
        change = torch.randn(weight.shape, generator=torch.Generator().manual_seed(0))
        change /= change.norm()
        predicted = float((weight.grad * change).sum())
        losses = []
        for step in (1e-3, -1e-3):
            weight.add_(change, alpha=step)
            elmo._elmo_lstm._elmo_lstm.reset_states()
            losses.append(float(elmo(batch_to_ids(S))["elmo_representations"][0].double().square().sum()))
            weight.sub_(change, alpha=step)
    assert abs((losses[0] - losses[1]) / 2e-3 - predicted) < 0.02 * max(1.0, abs(predicted))


def test_frozen_and_thawed(files: Files) -> None:
    elmo = Elmo(files.options, files.weights, 1, dropout=0)
    assert elmo(batch_to_ids(S))["elmo_representations"][0].grad_fn is not None  # the mix is trained
    elmo.requires_grad_(True)
    elmo(batch_to_ids(S))["elmo_representations"][0].sum().backward()
    assert all(p.grad is not None for p in elmo._elmo_lstm.parameters())
    elmo.requires_grad_(False)
    assert elmo(batch_to_ids(S))["elmo_representations"][0].grad_fn is None
    step = elmo._elmo_lstm.bilm
    assert elmo._elmo_lstm.bilm is step, "while it is frozen, it is assembled once"
    half = Elmo(files.options, files.weights, 1, dropout=0, stateful=False).double()
    found = half(batch_to_ids(S))["elmo_representations"][0]
    assert found.dtype == torch.float64
    wanted = reference.mix(stacks(files), [0, 0, 0])
    np.testing.assert_allclose(found[0].detach(), wanted[0][1:-1], rtol=0, atol=1e-9 + 1e-6)


def test_cached_words_with_word_ids_alone(files: Files) -> None:
    """As programs call it whose batches hold word ids (B, T): `elmo(words, words)` or `elmo(chars, words)`."""
    words = ["@@PADDING@@", "@@UNKNOWN@@", "The", "cat", "Hi"]
    elmo = Elmo(files.options, files.weights, 1, dropout=0, vocab_to_cache=words, stateful=False)
    numbers = torch.tensor([[2, 3, 4], [4, 0, 0]])
    wanted = elmo(batch_to_ids([["The", "cat", "Hi"], ["Hi"]]))
    for found in (elmo(numbers, numbers), elmo(numbers), elmo(torch.zeros(2, 3, 50, dtype=torch.int64), numbers)):
        torch.testing.assert_close(found["elmo_representations"][0], wanted["elmo_representations"][0])
        assert found["mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    deep = torch.stack([numbers, numbers])
    assert elmo(deep, deep)["elmo_representations"][0].shape == (2, 2, 3, 12)
    with pytest.raises(ConfigurationError, match="word ids alone need vocab_to_cache"):
        elmo(numbers + 9, numbers + 9)
    with pytest.raises(ConfigurationError, match="word ids alone need vocab_to_cache"):
        Elmo(files.options, files.weights, 1)(numbers, numbers)


def test_a_table_of_words_made_later(files: Files) -> None:
    bilm = _ElmoBiLm(files.options, files.weights, vocab_to_cache=["", "The", "cat"], stateful=False)
    plain = bilm(batch_to_ids([["The", "cat"]]))["activations"]
    cached = bilm(batch_to_ids([["The", "cat"]]), torch.tensor([[1, 2]]))["activations"]
    torch.testing.assert_close(cached, plain)
    bilm.create_cached_cnn_embeddings(["", "Hi"])
    torch.testing.assert_close(
        bilm(torch.tensor([[1]]), torch.tensor([[1]]))["activations"], bilm(batch_to_ids([["Hi"]]))["activations"]
    )
    assert bilm._word_embedding.weight.shape == (2, 6)
    np.testing.assert_allclose(bilm._bos_embedding, stacks(files)[0][0][0, :6], rtol=0, atol=1e-5)
    np.testing.assert_allclose(bilm._eos_embedding, stacks(files)[0][0][-1, :6], rtol=0, atol=1e-5)
    assert _ElmoBiLm(files.options, files.weights)._word_embedding is None


class Params(dict[str, Any]):
    """As much of AllenNLP's class as `from_params` was given."""

    def assert_empty(self, name: str) -> None:
        assert not self, name


def test_from_params(files: Files) -> None:
    given = {
        "type": "elmo_token_embedder", "options_file": files.options, "weight_file": files.weights,
        "do_layer_norm": "false", "dropout": "0.0", "requires_grad": "true", "projection_dim": "5",
        "scalar_mix_parameters": ["0.1", 0.2, "0.3"],
    }  # fmt: skip
    params = Params(given)
    embedder = ElmoTokenEmbedder.from_params(None, params)
    params.assert_empty("ElmoTokenEmbedder")
    assert embedder(batch_to_ids(S)).shape == (2, 4, 5)
    assert embedder._elmo._dropout.p == 0
    assert all(p.requires_grad for p in embedder._elmo._elmo_lstm.parameters())
    mix = [float(w.detach()) for w in embedder._elmo._scalar_mixes[0].scalar_parameters]
    np.testing.assert_allclose(mix, [0.1, 0.2, 0.3])
    assert ElmoTokenEmbedder.from_params(given).get_output_dim() == 5
    vocabulary = SimpleNamespace(get_token_to_index_vocabulary=lambda namespace: {"": 0, "The": 1, "cat": 2})
    cached = ElmoTokenEmbedder.from_params(
        vocab=vocabulary, params={**given, "namespace_to_cache": "tokens", "requires_grad": False}
    )
    numbers = torch.tensor([[1, 2]])
    torch.testing.assert_close(cached(numbers, numbers).shape, torch.Size([1, 2, 5]))
    few = {"options_file": files.options, "weight_file": files.weights, "num_output_representations": "2"}
    assert len(Elmo.from_params(few)(batch_to_ids(S))["elmo_representations"]) == 2
    for wrong, said in (
        ({"dropout": "much"}, "dropout is 'much'; expected a number"),
        ({"requires_grad": "perhaps"}, "requires_grad is 'perhaps'; expected true or false"),
        ({"size": 3}, "Extra parameters passed: size"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            Elmo.from_params({**few, **wrong})
    with pytest.raises(ConfigurationError, match="there is no vocabulary"):
        ElmoTokenEmbedder.from_params({**given, "namespace_to_cache": "tokens"})


def test_copies_pickles_and_threads(files: Files) -> None:
    elmo = Elmo(files.options, files.weights, 1, dropout=0, stateful=False, requires_grad=True)
    ids = batch_to_ids(S)
    wanted = elmo(ids)["elmo_representations"][0].detach()
    for other in (copy.deepcopy(elmo), pickle.loads(pickle.dumps(elmo)), elmo.requires_grad_(False)):
        torch.testing.assert_close(other(ids)["elmo_representations"][0], wanted, check_device=True)
    found: list[Tensor] = []
    workers = [threading.Thread(target=lambda: found.append(elmo(ids)["elmo_representations"][0])) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(found) == 4
    for one in found:
        torch.testing.assert_close(one, wanted)
