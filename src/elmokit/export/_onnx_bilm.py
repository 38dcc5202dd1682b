"""The biLM as an ONNX graph: types (U, W), index (B, T) and lengths (B,) to all layers (L, B, T, D) and their mask.

ONNX's own LSTM has neither projection nor clips, so the recurrence is a Scan over time steps whose body is written out
here. The input products stand before it, as one product for all steps. Batches are padded, and padding is masked. U, W,
B and T may differ from run to run; rows are cut after the longest word (see `elmokit.export.session`).

Weights may be stored as float16, or as int8 with a scale per row, as `elmokit.weights.storage` rounds them; casts and
products in the graph restore them.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from elmokit.export._onnx_graph import OnnxGraph
from elmokit.nn.bilm import BiLMConfig
from elmokit.nn.lstm import LstmConfig
from elmokit.weights.storage import SCALE

if TYPE_CHECKING:
    from onnx import ModelProto

Array = NDArray[Any]
ABOUT = (
    "ELMo. types: rows of the batch's distinct words, the first two those of sentence begin and end; index: which of "
    "them stands where, boundaries included; lengths: positions of each sentence, boundaries included."
)


def onnx_bilm(config: BiLMConfig, tensors: Mapping[str, Tensor]) -> "ModelProto":
    """`tensors` as `elmokit.weights.storage.pack` makes them: what goes into the file."""
    return _BiLM(config, tensors).build()


class _BiLM:
    def __init__(self, config: BiLMConfig, tensors: Mapping[str, Tensor]) -> None:
        self.config, self.tensors, self.graph = config, tensors, OnnxGraph()

    def build(self) -> "ModelProto":
        g, P, R = self.graph, self.config.lstm.projection_dim, len(self.config.directions)
        vectors = self.token_vectors("types")  # (U, P)
        places = g.op("Transpose", "index", perm=[1, 0])  # (T, B)
        layers = [self.run(direction, r, vectors, places) for r, direction in enumerate(self.config.directions)]
        joined = [g.op("Concat", *sides, axis=2) for sides in zip(*layers, strict=True)]  # (T, B, R * P) each
        stacked = g.op("Concat", *(g.op("Unsqueeze", x, g.integers(0)) for x in joined), axis=0)  # (L, T, B, R * P)
        mask = self.mask()  # (B, T)
        shown = g.op("Unsqueeze", mask, g.integers(0, 3))  # (1, B, T, 1)
        values = g.op("Transpose", stacked, perm=[0, 2, 1, 3])  # (L, B, T, R * P)
        g.output("layers", g.op("Where", shown, values, g.constant(np.float32(0))))
        g.output("mask", mask)
        return g.model(
            {"types": ("int32", ["U", "W"]), "index": ("int64", ["B", "T"]), "lengths": ("int64", ["B"])},
            {"layers": ("float", [self.config.depth, "B", "T", R * P]), "mask": ("bool", ["B", "T"])},
            about=ABOUT,
        )

    def mask(self) -> str:
        g = self.graph
        length = g.op("Gather", g.op("Shape", "index"), g.constant(np.int64(1)))  # T
        times = g.op("Range", g.constant(np.int64(0)), length, g.constant(np.int64(1)))  # (T,)
        return g.op("Less", times, g.op("Unsqueeze", "lengths", g.integers(1)))  # (B, T)

    # ---------------------------------------------------------------- token encoder

    def token_vectors(self, types: str) -> str:
        """elmokit.nn.char_cnn, operator by operator."""
        g, tokens = self.graph, self.config.tokens
        parts = []
        if tokens.word_dim:
            ids = g.op("Gather", types, g.constant(np.int64(0)), axis=1)  # (U,)
            parts.append(g.op("Gather", self.weight("tokens.words.weight"), ids))  # (U, word_dim)
        if tokens.char_dim:
            start = 1 if tokens.word_dim else 0
            rows = g.op("Slice", types, g.integers(start), g.integers(np.iinfo(np.int64).max), g.integers(1))  # (U, C)
            parts.append(self.highways(self.convolutions(rows)))
        features = parts[0] if len(parts) == 1 else g.op("Concat", *parts, axis=1)  # (U, n_features)
        return self.linear("tokens.projection", features) if tokens.project else features  # (U, P)

    def convolutions(self, rows: str) -> str:
        g, tokens = self.graph, self.config.tokens
        embedded = g.op("Gather", self.weight("tokens.characters.weight"), rows)  # (U, C, E)
        x = g.op("Transpose", embedded, perm=[0, 2, 1])  # (U, E, C)
        maxima = []
        for k in range(len(tokens.filters)):
            at = f"tokens.convolutions.{k}"
            found = g.op("Conv", x, self.weight(f"{at}.weight"), self.weight(f"{at}.bias"))  # (U, n, windows)
            maxima.append(g.op("ReduceMax", found, g.integers(2), keepdims=0))  # (U, n)
        return g.op("Relu" if tokens.activation == "relu" else "Tanh", g.op("Concat", *maxima, axis=1))

    def highways(self, x: str) -> str:
        g = self.graph
        for k in range(self.config.tokens.n_highway):
            gate = g.op("Sigmoid", self.linear(f"tokens.highways.{k}.gate", x))
            made = g.op("Relu", self.linear(f"tokens.highways.{k}.transform", x))
            # x + gate * (made - x): one product less than gate * made + (1 - gate) * x
            x = g.op("Add", x, g.op("Mul", gate, g.op("Sub", made, x)))  # (U, n_filters)
        return x

    def linear(self, at: str, x: str) -> str:
        product = self.graph.op("MatMul", x, self.weight(f"{at}.weight", np.transpose))
        return self.graph.op("Add", product, self.weight(f"{at}.bias"))

    # ---------------------------------------------------------------- recurrence

    def run(self, direction: str, r: int, vectors: str, places: str) -> list[str]:
        """All layers of one direction, (T, B, P) each, the token layer first."""
        g = self.graph
        turned = partial(g.op, "ReverseSequence", time_axis=0, batch_axis=1)  # each sentence at its own length
        if direction == "backward":
            places = turned(places, "lengths")
        x = g.op("Gather", vectors, places)  # (T, B, P)
        layers = [x]
        for k in range(self.config.n_layers):
            y = self.recurrence(f"lstm.{k}", r, x)
            x = g.op("Add", x, y) if k > 0 and self.config.skip_connections else y
            layers.append(x)
        return [turned(layer, "lengths") for layer in layers] if direction == "backward" else layers

    def recurrence(self, at: str, r: int, x: str) -> str:
        """elmokit.kernels.reference for one direction of one layer, (T, B, P) to (T, B, P)."""
        g, lstm = self.graph, self.config.lstm
        w_x = self.weight(f"{at}.weight_x", lambda a: a[r].T)  # (P, 4H)
        w_h = self.weight(f"{at}.weight_h", lambda a: a[r].T)  # (P, 4H)
        w_p = self.weight(f"{at}.projection", lambda a: a[r].T) if lstm.project else None  # (H, P)
        forget = np.zeros(4 * lstm.cell_dim, dtype=np.float32)
        forget[2 * lstm.cell_dim : 3 * lstm.cell_dim] = lstm.forget_bias
        bias = g.op("Add", self.weight(f"{at}.bias", lambda a: a[r]), g.constant(forget))  # (4H,)
        products = g.op("Add", g.op("MatMul", x, w_x), bias)  # (T, B, 4H)
        states = [self.zeros(lstm.projection_dim), self.zeros(lstm.cell_dim)]  # (B, P), (B, H)
        return g.scan(partial(_step, lstm=lstm, w_h=w_h, w_p=w_p), states, products)

    def zeros(self, width: int) -> str:
        g = self.graph
        return g.op("ConstantOfShape", g.op("Concat", g.op("Shape", "lengths"), g.integers(width), axis=0))

    # ---------------------------------------------------------------- weights

    def weight(self, name: str, arrange: Callable[[Array], Array] = lambda a: a) -> str:
        """A parameter in float32 as the operator wants it, from however it is stored."""
        g, stored = self.graph, self.tensors[name].numpy()
        kept = g.constant(arrange(stored), of=name)
        if stored.dtype == np.float32:
            return kept
        values = g.op("Cast", kept, to=1)  # to float32
        if (scale := self.tensors.get(name + SCALE)) is None:
            return values
        spread = scale.numpy().reshape(*scale.shape, *(1,) * (stored.ndim - scale.ndim))
        return g.op("Mul", values, g.constant(arrange(spread.astype(np.float32)), of=name + SCALE))


def _step(
    body: OnnxGraph, states: list[str], product: str, *, lstm: LstmConfig, w_h: str, w_p: str | None
) -> tuple[list[str], str]:
    """One time step of B rows; the forget bias is in the product already."""
    h, c = states  # (B, P), (B, H)
    gates = body.op("Add", product, body.op("MatMul", h, w_h))  # (B, 4H)
    i, j, f, o = body.ops("Split", gates, outputs=4, axis=1, num_outputs=4)
    kept = body.op("Mul", body.op("Sigmoid", f), c)
    added = body.op("Mul", body.op("Sigmoid", i), body.op("Tanh", j))
    c = _clip(body, body.op("Add", kept, added), lstm.rules.cell_clip)  # (B, H)
    h = body.op("Mul", body.op("Sigmoid", o), body.op("Tanh", c))  # (B, H)
    if w_p is not None:
        h = _clip(body, body.op("MatMul", h, w_p), lstm.rules.proj_clip)  # (B, P)
    return [h, c], h


def _clip(graph: OnnxGraph, x: str, limit: float | None) -> str:
    if limit is None:
        return x
    return graph.op("Clip", x, graph.constant(np.float32(-limit)), graph.constant(np.float32(limit)))
