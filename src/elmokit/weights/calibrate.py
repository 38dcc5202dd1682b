"""What the inputs of a model's matrices are like on some text, so that its four bits can be chosen for such text.

Rounding a weight makes an error in its row's output. Weights of the same row whose inputs go together with its own can
take most of the error back, if they are rounded after it (Frantar et al. 2022). Which inputs go together is said by
their second moments: for inputs (N, K) of a matrix, the sum of their outer products (K, K).
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from elmokit.batch import build_batch, plan_batches
from elmokit.errors import WeightsError
from elmokit.formats.read import read_sentences
from elmokit.nn.bilm import BiLM, Packing
from elmokit.nn.lstm import LstmLayer
from elmokit.text import Sentence
from elmokit.weights.pretrained import Pretrained, choose_tokenizer

BATCH_TOKENS = 2048
TOKENS = 20_000  # to calibrate with


@torch.no_grad()
def input_moments(pretrained: Pretrained, sentences: Iterable[Sentence]) -> dict[str, Tensor]:
    """The second moments of each matrix's inputs, by the matrix's name: (K, K), in an LSTM (R, K, K).

    The model runs in float32 on the CPU. The softmax's are named as in files, "softmax.weight".
    """
    model, codec, sums = pretrained.build(), pretrained.codec.build(pretrained.config.tokens.max_characters), _Sums()
    watched = [(n, part) for n, part in model.tokens.named_modules() if isinstance(part, nn.Linear)]
    hooks = [part.register_forward_pre_hook(sums.hook(f"tokens.{name}.weight")) for name, part in watched]
    for batch in plan_batches(sentences, batch_tokens=BATCH_TOKENS):
        tokens = build_batch([sentence for _, sentence in batch], codec)
        packing = Packing.of(tokens.lengths, backward=[d == "backward" for d in model.config.directions])
        types = torch.from_numpy(tokens.index).reshape(-1)[packing.places(torch.device("cpu"))]  # (R, N)
        counts = np.bincount(types[0].numpy(), minlength=len(tokens.types))
        sums.counts = torch.from_numpy(counts.astype(np.float32))
        vectors = model.tokens(torch.from_numpy(tokens.types))  # (U, P)
        top = _run(model, vectors[types], packing.steps, sums)
        sums.add("softmax.weight", top.flatten(0, 1))
    for hook in hooks:
        hook.remove()
    return sums.found


def first_sentences(pretrained: Pretrained, sources: Sequence[str]) -> list[Sentence]:
    """The first sentences of each file, in any format; lines of text are paragraphs. About 20,000 tokens in all."""
    cut = choose_tokenizer(pretrained, None, allow_other=False)
    found: list[Sentence] = []
    for source in sources:
        tokens = 0
        for sentence in filter(len, read_sentences(source, tokenizer=cut, lines="paragraphs")):
            if tokens >= TOKENS // len(sources):
                break
            found.append(sentence)
            tokens += len(sentence.tokens)
    if not found:
        raise WeightsError(f"{', '.join(sources)}: no text in it")
    return found


class _Sums:
    """Second moments so far; `counts` says how often each type of the present batch occurs."""

    def __init__(self) -> None:
        self.found: dict[str, Tensor] = {}
        self.counts = torch.zeros(0)

    def add(self, name: str, inputs: Tensor) -> None:
        """Inputs (..., n, K)."""
        found = inputs.mT @ inputs
        self.found[name] = self.found[name] + found if name in self.found else found

    def hook(self, name: str) -> Callable[[nn.Module, tuple[Tensor]], None]:
        def see(_: nn.Module, given: tuple[Tensor]) -> None:
            self.add(name, given[0] * self.counts.sqrt()[:, None])

        return see


def _run(model: BiLM, x: Tensor, steps: tuple[int, ...], sums: _Sums) -> Tensor:
    """The LSTM layers over packed input (R, N, P), step by step; returns the top layer's output."""
    for k, layer in enumerate(model.lstm):
        assert isinstance(layer, LstmLayer)
        y = _run_layer(layer, f"lstm.{k}.", x, steps, sums)
        x = x + y if k > 0 and model.config.skip_connections else y
    return x


def _run_layer(layer: LstmLayer, name: str, x: Tensor, steps: tuple[int, ...], sums: _Sums) -> Tensor:
    rules = layer.config.rules
    h, c = x.new_zeros(len(x), steps[0], layer.weight_h.shape[2]), x.new_zeros(len(x), steps[0], layer.config.cell_dim)
    before, cells, outputs = [], [], []
    for product in torch.split(torch.baddbmm(layer.bias[:, None], x, layer.weight_x.mT), list(steps), dim=1):
        h, c = h[:, : product.shape[1]], c[:, : product.shape[1]]
        before.append(h)
        i, j, f, o = torch.baddbmm(product, h, layer.weight_h.mT).chunk(4, dim=2)
        c = torch.sigmoid(f + rules.forget_bias) * c + torch.sigmoid(i) * torch.tanh(j)
        if rules.cell_clip is not None:
            c = c.clamp(-rules.cell_clip, rules.cell_clip)
        h = torch.sigmoid(o) * torch.tanh(c)
        if layer.projection is not None:
            cells.append(h)
            h = torch.bmm(h, layer.projection.mT)
            if rules.proj_clip is not None:
                h = h.clamp(-rules.proj_clip, rules.proj_clip)
        outputs.append(h)
    sums.add(f"{name}weight_x", x)
    sums.add(f"{name}weight_h", torch.cat(before, dim=1))
    if cells:
        sums.add(f"{name}projection", torch.cat(cells, dim=1))
    return torch.cat(outputs, dim=1)
