"""Four bits chosen for a text: the second moments of the inputs, the rounding that uses them, and the command."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

import models
from elmokit import Elmo, load_pretrained, save_pretrained
from elmokit.batch import build_batch
from elmokit.cli import app
from elmokit.errors import WeightsError
from elmokit.text import Sentence
from elmokit.weights.calibrate import first_sentences, input_moments
from elmokit.weights.storage import GROUP, quantise_groups, widen_groups

WIDE = {"lstm": {"projection_dim": GROUP, "dim": 2 * GROUP}, "char_cnn": {"filters": [[1, GROUP], [2, GROUP]]}}
TEXT = [["The", "river", "burst", "its", "banks"], ["The", "bank", "burst"], ["River"]]


def outer(inputs: torch.Tensor) -> torch.Tensor:
    return inputs.mT @ inputs


def test_moments_are_those_of_what_the_network_computes() -> None:
    pretrained = models.tiny(models.tiny_options(**WIDE)).pretrained
    pretrained.tensors["tokens.projection.bias"].zero_()
    sentences = [Sentence.of(tokens) for tokens in TEXT]
    found = input_moments(pretrained, sentences)
    batch = build_batch(sentences, pretrained.codec.build(pretrained.config.tokens.max_characters))
    network = pretrained.build()
    stack, _ = network(torch.from_numpy(batch.types), torch.from_numpy(batch.index), batch.lengths)
    layers = stack.values[:, stack.mask].unflatten(2, (2, GROUP))  # (L, N, R, P)
    for r in (0, 1):
        for k in (0, 1):
            torch.testing.assert_close(found[f"lstm.{k}.weight_x"][r], outer(layers[k, :, r]), rtol=1e-4, atol=1e-4)
    both = outer(layers[2].flatten(0, 1))
    torch.testing.assert_close(found["softmax.weight"], both, rtol=1e-4, atol=1e-4)
    matrix = pretrained.tensors["tokens.projection.weight"].float()  # without a bias, out = matrix in
    through = matrix @ found["tokens.projection.weight"] @ matrix.T
    torch.testing.assert_close(through, outer(layers[0, :, 0]), rtol=1e-3, atol=1e-3)
    # A sentence's first step has no output before it, its last output is before nothing.
    before = found["lstm.0.weight_h"][0].trace()
    assert 0 < before < outer(layers[1, :, 0]).trace()
    assert {name.rsplit(".", 1)[0] for name in found} == {
        *("lstm.0", "lstm.1", "softmax", "tokens.projection"),
        *(f"tokens.highways.{k}.{part}" for k in (0, 1) for part in ("gate", "transform")),
    }
    assert found["lstm.0.projection"].shape == (2, 2 * GROUP, 2 * GROUP)


def error(found: torch.Tensor, values: torch.Tensor, moments: torch.Tensor) -> float:
    off = found - values
    return float(((off @ moments) * off).sum())


def test_inputs_that_go_together_take_the_error_back() -> None:
    source = torch.Generator().manual_seed(0)
    values = torch.randn(3, 50, 2 * GROUP, generator=source)
    inputs = torch.randn(3, 4000, 12, generator=source) @ torch.randn(3, 12, 2 * GROUP, generator=source)
    moments = outer(inputs + 0.3 * torch.randn(3, 4000, 2 * GROUP, generator=source))
    plain, chosen = widen_groups(*quantise_groups(values)), widen_groups(*quantise_groups(values, moments))
    assert error(chosen, values, moments) < 0.3 * error(plain, values, moments)
    assert (chosen - values).square().mean() < 4 * (plain - values).square().mean()  # no number runs away


def test_inputs_that_do_not_go_together_change_nothing() -> None:
    values = torch.randn(40, 2 * GROUP, generator=torch.Generator().manual_seed(1))
    for a, b in zip(quantise_groups(values), quantise_groups(values, 5 * torch.eye(2 * GROUP)), strict=True):
        assert torch.equal(a, b)
    nothing = quantise_groups(values, torch.zeros(2 * GROUP, 2 * GROUP))  # inputs that were always 0
    assert torch.equal(nothing[0], quantise_groups(values)[0])


def test_rounded_again_they_stay_the_same() -> None:
    """Also after a change of all numbers by a factor, and when they are chosen for other inputs."""
    source = torch.Generator().manual_seed(2)
    values, other = torch.randn(2, 300, 2 * GROUP, generator=source).unbind()
    inputs = torch.randn(4000, 12, generator=source) @ torch.randn(12, 2 * GROUP, generator=source)
    moments = outer(inputs + 0.3 * torch.randn(4000, 2 * GROUP, generator=source))
    packed, scales = quantise_groups(values, moments)
    largest = numbers_of(packed).abs().amax(dim=-1)
    assert 4 <= largest.min() < largest.max() == 7
    rounded = widen_groups(packed, scales)
    for again in (quantise_groups(rounded), quantise_groups(rounded, outer(other))):
        assert torch.equal(again[0], packed)
        assert torch.equal(again[1], scales)
    assert torch.equal(quantise_groups(0.9 * rounded)[0], packed)


def numbers_of(packed: torch.Tensor) -> torch.Tensor:
    """Bytes (n, K / 2) as whole numbers (n, G, 64)."""
    return torch.stack([packed & 15, packed >> 4], dim=-1).int().sub(8).reshape(len(packed), -1, GROUP)


def test_text_in_any_format(tmp_path: Path) -> None:
    pretrained = models.tiny().pretrained
    lines = ["The river burst. It rose.", "", "The bank."]
    (tmp_path / "a.txt").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "a.jsonl").write_text("".join(f'{{"id": 7, "text": "{line}"}}\n' for line in lines), encoding="utf-8")
    rows = "".join(f"{k}\t{word}" + "\t_" * 8 + "\n" for k, word in enumerate(["The", "bank", "."], 1))
    (tmp_path / "a.conllu").write_text(rows + "\n", encoding="utf-8")
    expected = [("The", "river", "burst", "."), ("It", "rose", "."), ("The", "bank", ".")]
    for name in ("a.txt", "a.jsonl"):
        assert [s.tokens for s in first_sentences(pretrained, [str(tmp_path / name)])] == expected
    both = first_sentences(pretrained, [str(tmp_path / "a.conllu"), str(tmp_path / "a.txt")])
    assert [s.tokens for s in both] == [expected[2], *expected]


def convert(*given: object) -> None:
    CliRunner().invoke(app, ["convert", *map(str, given)], catch_exceptions=False)


def test_the_command(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("The river burst its banks. The bank lent money to the river.\n" * 5, encoding="utf-8")
    model = save_pretrained(models.tiny(models.tiny_options(**WIDE)).pretrained, tmp_path / "model")
    convert(model, tmp_path / "plain", "--dtype", "int4")
    convert(model, tmp_path / "chosen", "--dtype", "int4", "--calibrate", text)
    exact, plain, chosen = (
        Elmo.from_pretrained(tmp_path / name, device="cpu").encode_layers(TEXT, dtype="float32")
        for name in ("model", "plain", "chosen")
    )
    off = [sum(float(np.square(a - b).sum()) for a, b in zip(exact, those, strict=True)) for those in (plain, chosen)]
    assert off[1] < 0.9 * off[0]
    assert load_pretrained(tmp_path / "chosen").stored == load_pretrained(tmp_path / "plain").stored
    convert(tmp_path / "chosen", tmp_path / "again")
    convert(tmp_path / "chosen", tmp_path / "floats", "--dtype", "float32")
    convert(tmp_path / "floats", tmp_path / "back", "--dtype", "int4")
    convert(tmp_path / "chosen", tmp_path / "twice", "--dtype", "int4", "--calibrate", text)
    first = load_file(tmp_path / "chosen" / "model.safetensors")
    for name in ("again", "back", "twice"):
        found = load_file(tmp_path / name / "model.safetensors")
        assert all(torch.equal(found[part], values) for part, values in first.items())
    with pytest.raises(WeightsError, match="--calibrate goes with --dtype int4"):
        convert(model, tmp_path / "other", "--dtype", "int8", "--calibrate", text)
    text.write_text("\n", encoding="utf-8")
    with pytest.raises(WeightsError, match="no text in it"):
        convert(model, tmp_path / "other", "--dtype", "int4", "--calibrate", text)
    assert not (tmp_path / "other").exists()
