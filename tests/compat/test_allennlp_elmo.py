"""AllenNLP's modules against the reference, and weights under AllenNLP's names."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from official_files import Files
from torch import Tensor, nn

import models
import reference
from elmokit.compat.allennlp import ConfigurationError, Elmo, ElmoTokenEmbedder, ScalarMix, batch_to_ids
from elmokit.errors import InputError

S = [["The", "cat", "sat", "on", "the", "mat", "."], ["Hi"], ["naïve", "x" * 60, "<S>", ""]]


def stacks(files: Files, sentences: list[list[str]] = S) -> list[Any]:
    """Each sentence from zero state, boundaries included. (L, T + 2, D)"""
    return [reference.embed(files.tiny.weights, files.tiny.options, tokens)[0] for tokens in sentences]


def first(module: Elmo, *inputs: Any) -> Tensor:
    found: Tensor = module(*inputs)["elmo_representations"][0]
    return found


def test_ids() -> None:
    ids = batch_to_ids(S)
    assert (ids.shape, ids.dtype) == ((3, 7, 50), torch.int64)
    for row, tokens in zip(ids.numpy(), S, strict=True):
        np.testing.assert_array_equal(row[: len(tokens)], reference.sentence_rows(tokens)[1:-1])
        assert not row[len(tokens) :].any()
    assert batch_to_ids([[], ["a"]]).shape == (2, 1, 50)
    assert batch_to_ids([[]]).shape == (1, 0, 50)
    assert batch_to_ids([]).shape == (0, 0, 50)


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("keep", [False, True])
def test_representations_equal_the_reference(files: Files, norm: bool, keep: bool) -> None:
    elmo = Elmo(files.options, files.weights, 2, do_layer_norm=norm, keep_sentence_boundaries=keep).eval()
    found = elmo(batch_to_ids(S))
    assert isinstance(found["elmo_representations"], list)
    assert found["mask"].dtype == torch.int64
    extra = 2 if keep else 0
    assert found["mask"].sum(dim=1).tolist() == [len(tokens) + extra for tokens in S]
    mixed = reference.mix(stacks(files), [0, 0, 0], norm="allennlp" if norm else None)
    for got in found["elmo_representations"]:
        assert (got.shape, got.dtype) == ((3, 7 + extra, 12), torch.float32)
        for row, wanted in zip(got.detach(), mixed, strict=True):
            wanted = wanted if keep else wanted[1:-1]
            np.testing.assert_allclose(row[: len(wanted)], wanted, rtol=0, atol=1e-5)
            if not (keep and norm):  # that one scales the padding along, as it did there
                assert not row[len(wanted) :].any()


def test_padding_columns_leading_axes_and_empty_rows(files: Files) -> None:
    ids = batch_to_ids(S)
    wide = torch.cat([ids, ids.new_zeros(3, 4, 50)], dim=1)

    def run(inputs: Tensor) -> Any:
        return Elmo(files.options, files.weights, 1, dropout=0)(inputs)

    plain, padded = run(ids), run(wide)
    assert padded["mask"].shape == (3, 11)
    torch.testing.assert_close(padded["elmo_representations"][0][:, :7], plain["elmo_representations"][0])
    assert not padded["elmo_representations"][0][:, 7:].any()
    four = run(torch.stack([ids, ids]))
    assert (four["elmo_representations"][0].shape, four["mask"].shape) == ((2, 3, 7, 12), (2, 3, 7))
    torch.testing.assert_close(four["elmo_representations"][0][1], plain["elmo_representations"][0])
    nothing = run(ids.new_zeros(2, 3, 50))
    assert nothing["mask"].sum() == 0
    assert nothing["elmo_representations"][0].shape == (2, 3, 12)
    assert not nothing["elmo_representations"][0].any()
    with pytest.raises(ConfigurationError, match="padding between its words"):
        run(torch.cat([ids.new_zeros(3, 1, 50), ids], dim=1))
    with pytest.raises(ConfigurationError, match="expected 0 to 261"):
        run(ids + 100)


def test_state_is_carried_and_can_be_switched_off(files: Files) -> None:
    ids = batch_to_ids(S)
    elmo = Elmo(files.options, files.weights, 1, dropout=0)
    once, twice = first(elmo, ids), first(elmo, ids)
    wanted = reference.average(files.run([S, S])[1])
    np.testing.assert_allclose(twice[0].detach(), wanted[0], rtol=0, atol=1e-5)
    assert (once - twice).abs().max() > 1e-3
    elmo._elmo_lstm._elmo_lstm.stateful = False  # what users of AllenNLP wrote
    torch.testing.assert_close(first(elmo, ids), once)
    off = Elmo(files.options, files.weights, 1, dropout=0, stateful=False)
    for _ in range(2):
        torch.testing.assert_close(first(off, ids), once)


def test_what_is_trained(files: Files) -> None:
    ids = batch_to_ids(S)
    frozen = Elmo(files.options, files.weights, 2)
    trained = {name for name, p in frozen.named_parameters() if p.requires_grad}
    assert trained == {
        f"scalar_mix_{k}.{n}" for k in (0, 1) for n in ["gamma", *(f"scalar_parameters.{j}" for j in range(3))]
    }
    fixed = Elmo(files.options, files.weights, 1, dropout=0, scalar_mix_parameters=[-9e10, 1, -9e10])
    got = first(fixed, ids)
    assert not got.requires_grad
    np.testing.assert_allclose(got[1, 0], stacks(files)[1][1, 1], rtol=0, atol=1e-5)
    tuned = Elmo(files.options, files.weights, 1, requires_grad=True)
    with torch.inference_mode():
        tuned(ids)  # an evaluation in between leaves its state behind
    for _ in range(2):
        tuned.zero_grad()
        first(tuned, ids).sum().backward()
    weights = list(tuned._elmo_lstm.parameters())
    assert len(weights) == 1 + 2 * 3 + 2 * 2 + 2 + 2 * 2 * 4
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in weights)
    torch.testing.assert_close(first(Elmo(files.options, files.weights, 1, dropout=0), ids), first(frozen.eval(), ids))


def test_dropout_is_drawn_for_each_representation(files: Files) -> None:
    elmo = Elmo(files.options, files.weights, 2, dropout=0.5)
    a, b = elmo(batch_to_ids(S))["elmo_representations"]
    assert 0.2 < (a[0] == 0).float().mean() < 0.8
    assert not torch.equal(a == 0, b == 0)


def test_cached_words(files: Files) -> None:
    words = ["<pad>", "The", "cat", "Hi"]
    ids, numbers = batch_to_ids([["The", "cat"], ["Hi"]]), torch.tensor([[1, 2], [3, 0]])
    plain = first(Elmo(files.options, files.weights, 1, dropout=0), ids)

    def cached(**options: Any) -> Elmo:
        return Elmo(files.options, files.weights, 1, dropout=0, vocab_to_cache=words, stateful=False, **options)

    elmo = cached()
    torch.testing.assert_close(first(elmo, ids, numbers), plain)
    other = batch_to_ids([["mat", "mat"], ["mat"]])
    torch.testing.assert_close(first(elmo, other, numbers), plain, msg="known words come from the table")
    torch.testing.assert_close(
        first(elmo, ids, numbers + 4 * (numbers > 0)), plain, msg="unknown: the characters are read"
    )
    tuned = cached(requires_grad=True)
    first(tuned, ids, numbers).sum().backward()
    assert tuned._elmo_lstm._token_embedder._char_embedding_weights.grad.abs().sum() > 0
    with torch.no_grad():
        elmo._elmo_lstm._token_embedder._projection.bias.add_(1)
    changed = {name: value.clone() for name, value in elmo.state_dict().items()}
    fresh = cached()
    first(fresh, ids, numbers)
    fresh.load_state_dict(changed)
    torch.testing.assert_close(first(fresh, ids, numbers), first(elmo, ids), msg="the table follows the weights")


def test_arguments(files: Files) -> None:
    ids = batch_to_ids(S)
    found = Elmo(files.options, files.weights, 0)(ids)
    assert found["elmo_representations"] == []
    with pytest.raises(
        ConfigurationError, match=r"Length of initial_scalar_parameters \[1, 2\] differs from mixture_size 3"
    ):
        Elmo(files.options, files.weights, 1, scalar_mix_parameters=[1, 2])
    biLM = Elmo(files.options, files.weights, 1)._elmo_lstm
    assert Elmo(None, None, 1, module=biLM).get_output_dim() == 12
    with pytest.raises(ConfigurationError, match="Don't provide options_file or weight_file with module"):
        Elmo(files.options, files.weights, 1, module=biLM)
    given = {
        "options_file": files.options,
        "weight_file": files.weights,
        "num_output_representations": 2,
        "dropout": 0.0,
    }
    assert len(Elmo.from_params(given)(ids)["elmo_representations"]) == 2


def test_scalar_mix() -> None:
    rng = np.random.default_rng(0)
    tensors = [torch.from_numpy(x) for x in rng.standard_normal((3, 2, 3, 4)).astype(np.float32)]
    mask = torch.tensor([[1, 1, 1], [1, 0, 0]])
    mix = ScalarMix(3, initial_scalar_parameters=[0.1, 0.2, 0.3])
    assert list(mix.state_dict()) == ["gamma", "scalar_parameters.0", "scalar_parameters.1", "scalar_parameters.2"]
    assert {tuple(p.shape) for p in mix.parameters()} == {(1,)}
    nn.init.constant_(mix.gamma, 2.0)
    sentences = [torch.stack(tensors)[:, b, : int(mask[b].sum())].double().numpy() for b in range(2)]
    for wanted, got in zip(reference.mix(sentences, [0.1, 0.2, 0.3], 2.0), mix(tensors), strict=True):
        np.testing.assert_allclose(got[: len(wanted)].detach(), wanted, rtol=0, atol=1e-6)
    mix.do_layer_norm = True
    for given in (mask, mask.bool()):
        normed = reference.mix(sentences, [0.1, 0.2, 0.3], 2.0, norm="allennlp")
        for wanted, got in zip(normed, mix(tensors, given), strict=True):
            np.testing.assert_allclose(got[: len(wanted)].detach(), wanted, rtol=0, atol=1e-5)
    with pytest.raises(ConfigurationError, match="2 tensors were passed, but the module was initialized to mix 3"):
        mix(tensors[:2], mask)
    with pytest.raises(ConfigurationError, match="needs the mask"):
        mix(tensors)
    assert not any(p.requires_grad for p in ScalarMix(2, trainable=False).parameters())


def test_token_embedder(files: Files) -> None:
    ids = batch_to_ids(S)
    plain = ElmoTokenEmbedder(files.options, files.weights, dropout=0)
    assert plain.get_output_dim() == 12
    torch.testing.assert_close(plain(ids), first(Elmo(files.options, files.weights, 1, dropout=0), ids))
    projected = ElmoTokenEmbedder(files.options, files.weights, projection_dim=5)
    assert (projected.get_output_dim(), projected(torch.stack([ids, ids])).shape) == (5, (2, 3, 7, 5))
    assert {"_projection.weight", "_elmo.scalar_mix_0.gamma"} <= set(projected.state_dict())


def allennlp_names(weights: dict[str, Any], layers: int, filters: int, highways: int) -> dict[str, Tensor]:
    """Official arrays as AllenNLP's biLM holds them: gates i, f, candidate, o; forget bias added; gate turned."""
    out: dict[str, Any] = {}
    table = weights["char_embed"]
    at = "_elmo_lstm._token_embedder."
    out[at + "_char_embedding_weights"] = np.concatenate([np.zeros((1, table.shape[1]), table.dtype), table])
    for i in range(filters):
        out[f"{at}char_conv_{i}.weight"] = weights[f"CNN/W_cnn_{i}"][0].transpose(2, 1, 0)
        out[f"{at}char_conv_{i}.bias"] = weights[f"CNN/b_cnn_{i}"]
    for k in range(highways):
        w, b = ([weights[f"CNN_high_{k}/{x}_transform"], -weights[f"CNN_high_{k}/{x}_carry"]] for x in "Wb")
        out[f"{at}_highways._layers.{k}.weight"] = np.concatenate(w, axis=1).T
        out[f"{at}_highways._layers.{k}.bias"] = np.concatenate(b)
    out[at + "_projection.weight"] = weights["CNN_proj/W_proj"].T
    out[at + "_projection.bias"] = weights["CNN_proj/b_proj"]
    for d, side in enumerate(("forward", "backward")):
        for layer in range(layers):
            cell = reference.cell_name(weights, d, layer)
            i, j, f, o = np.split(weights[cell + "W_0"].T, 4)
            both = np.concatenate([i, f, j, o])
            width = both.shape[1] // 2
            i, j, f, o = np.split(weights[cell + "B"], 4)
            at = f"_elmo_lstm._elmo_lstm.{side}_layer_{layer}."
            out[at + "input_linearity.weight"], out[at + "state_linearity.weight"] = both[:, :width], both[:, width:]
            out[at + "state_linearity.bias"] = np.concatenate([i, f + 1, j, o])
            out[at + "state_projection.weight"] = weights[cell + "W_P_0"].T
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in out.items()}


def test_a_network_saved_by_allennlp_loads(files: Files) -> None:
    other = models.tiny(seed=9)  # stands for a biLM that was fine-tuned there
    saved = allennlp_names(other.weights, layers=2, filters=3, highways=2)
    saved["_elmo_lstm._word_embedding.weight"] = torch.zeros(5, 6)
    saved |= {"scalar_mix_0.gamma": torch.tensor([2.0])}
    saved |= {f"scalar_mix_0.scalar_parameters.{k}": torch.tensor([w]) for k, w in enumerate((0.1, 0.2, 0.3))}
    network = nn.ModuleDict({"elmo": Elmo(files.options, files.weights, 1, dropout=0)})
    found = network.load_state_dict({f"elmo.{name}": value for name, value in saved.items()})
    assert (found.missing_keys, found.unexpected_keys) == ([], [])
    layers = [reference.embed(other.weights, other.options, tokens)[0] for tokens in S]
    wanted = reference.mix(layers, [0.1, 0.2, 0.3], 2.0)
    got = first(network["elmo"], batch_to_ids(S))
    np.testing.assert_allclose(got[0].detach(), wanted[0][1:-1], rtol=0, atol=1e-5)
    written = network["elmo"].state_dict()  # as it was there
    assert written.keys() == saved.keys() - {"_elmo_lstm._word_embedding.weight"}
    assert all(torch.equal(written[name], saved[name]) for name in written)
    again = Elmo(files.options, files.weights, 1, dropout=0)
    again.load_state_dict(written)
    torch.testing.assert_close(first(again, batch_to_ids(S)), got)


def test_a_network_saved_by_elmokit_0_1_0_loads(files: Files) -> None:
    """It had names of its own, both directions in one tensor."""
    other = models.tiny(seed=9)
    old = {f"_elmo_lstm.bilm.{name}": values for name, values in other.pretrained.build().state_dict().items()}
    old |= {name: t for name, t in Elmo(files.options, files.weights, 1).state_dict().items() if "scalar" in name}
    elmo = Elmo(files.options, files.weights, 1, dropout=0)
    elmo.load_state_dict(old)
    wanted = reference.mix([reference.embed(other.weights, other.options, tokens)[0] for tokens in S], [0, 0, 0])
    np.testing.assert_allclose(first(elmo, batch_to_ids(S))[0].detach(), wanted[0][1:-1], rtol=0, atol=1e-5)
    del old["_elmo_lstm.bilm.lstm.0.bias"]
    with pytest.raises(RuntimeError, match="Missing key"):
        Elmo(files.options, files.weights, 1).load_state_dict(old)


@pytest.mark.parametrize(
    "absent",
    [
        "_token_embedder.char_conv_1.bias",
        "_elmo_lstm.backward_layer_1.input_linearity.weight",
        "_elmo_lstm.forward_layer_0.state_linearity.bias",
        "_elmo_lstm.forward_layer_0.state_projection.weight",
        "_token_embedder._highways._layers.1.weight",
    ],
)
def test_a_checkpoint_of_allennlp_that_lacks_a_key_is_incomplete(files: Files, absent: str) -> None:
    saved = allennlp_names(models.tiny(seed=9).weights, layers=2, filters=3, highways=2)
    saved |= {name: t for name, t in Elmo(files.options, files.weights, 1).state_dict().items() if "scalar" in name}
    del saved[f"_elmo_lstm.{absent}"]
    elmo = Elmo(files.options, files.weights, 1)
    before = elmo.state_dict()[f"_elmo_lstm.{absent}"].clone()
    with pytest.raises(RuntimeError, match=rf"Missing key.*_elmo_lstm\.{absent}"):
        elmo.load_state_dict(saved)
    found = elmo.load_state_dict(saved, strict=False)
    assert found.missing_keys == [f"_elmo_lstm.{absent}"]
    torch.testing.assert_close(elmo.state_dict()[f"_elmo_lstm.{absent}"], before)


def test_states_are_modules(files: Files) -> None:
    """As users of AllenNLP found and reset them; copies and pickles of a network work."""
    network = nn.Sequential(Elmo(files.options, files.weights, 1, dropout=0))
    ids = batch_to_ids(S)
    once = first(network[0], ids)
    (state,) = (module for module in network.modules() if hasattr(module, "stateful"))
    state.reset_states()
    torch.testing.assert_close(first(network[0], ids), once)
    assert state.state_dict().keys() == dict(state.named_parameters()).keys(), "weights, but no state"
    twice = first(network[0], ids)
    again = pickle.loads(pickle.dumps(copy.deepcopy(network)))
    state.reset_states()
    assert (first(again[0], ids) - twice).abs().max() > 1e-3, "a copy has a state of its own"
    torch.testing.assert_close(first(network[0], ids), once)


@pytest.mark.parametrize("shape", [(1, 0), (0, 0), (2, 0), (0, 3), (2, 0, 4), (2, 3, 0)])
@pytest.mark.parametrize("keep", [False, True])
def test_nothing_to_embed(files: Files, shape: tuple[int, ...], keep: bool) -> None:
    elmo = Elmo(files.options, files.weights, 1, keep_sentence_boundaries=keep)
    found = elmo(torch.zeros(*shape, 50, dtype=torch.int64))
    wide = (*shape[:-1], shape[-1] + (2 if keep else 0))
    assert found["elmo_representations"][0].shape == (*wide, 12)
    assert found["mask"].shape == wide
    assert elmo(batch_to_ids([[]]))["mask"].shape == (1, 2 if keep else 0)


@pytest.mark.parametrize("token", [None, 3, b"cat", ["cat"]])
def test_tokens_that_are_no_strings(token: Any) -> None:
    with pytest.raises(InputError, match=rf"token 1 of sentence 1 is {type(token).__name__} .*; expected a string"):
        batch_to_ids([["a"], ["the", token]])
    with pytest.raises(InputError, match="sentence 0 is NoneType None; expected a list of tokens"):
        batch_to_ids([None])  # type: ignore[list-item]
