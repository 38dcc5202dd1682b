"""Rows of ids through a network: padded to one length, or, where the network can, end to end without padding.

All of a BERT but its attention works position by position. So texts may stand end to end in one long row, each with its
positions counted from its own first piece, if attention stays within each text; `_Apart` sees to that. Which networks
can do so is a list, and even for these it is tried, since the library's versions differ.
"""

import inspect
import math
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention as attend
from torch.overrides import TorchFunctionMode

from elmokit.errors import WeightsError

END_TO_END = frozenset({"bert", "camembert", "electra", "ernie", "roberta", "xlm-roberta"})  # config.json's model_type
Rows = Sequence[Sequence[int]]


class Hidden(NamedTuple):
    """All layers of some rows, and where in them each row begins."""

    layers: list[Tensor]  # L times (N, D)
    begins: list[int]


def padded(network: nn.Module, rows: Rows, *, filler: int, left_only: bool = False) -> Hidden:
    """The rows one below the other. Layer 0 are the embeddings.

    What a network that looks to the left makes of the padding behind a row changes nothing in the row. In float64 it
    gets no mask of it: transformers before 5 cannot make one.
    """
    longest = max(map(len, rows))
    device = _place(network)
    ids = torch.tensor([[*row, *[filler] * (longest - len(row))] for row in rows], device=device)  # (b, s)
    real = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows], device=device)  # (b, s)
    if left_only and next(network.parameters()).dtype == torch.float64:
        real = torch.ones_like(real)
    return Hidden(_run(network, input_ids=ids, attention_mask=real), [longest * k for k in range(len(rows))])


class LongRow:
    """The rows one behind the other; quickest where rows of one length are neighbours."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        self.first = _first_position(network)
        self.typed = "token_type_ids" in inspect.signature(network.forward).parameters

    def __call__(self, rows: Rows) -> Hidden:
        device, lengths = _place(self.network), [len(row) for row in rows]
        ids = torch.tensor([[piece for row in rows for piece in row]], device=device)  # (1, N)
        positions = torch.tensor([[self.first + k for n in lengths for k in range(n)]], device=device)
        more = {"token_type_ids": torch.zeros_like(ids)} if self.typed else {}
        with _Apart(lengths):
            return Hidden(
                _run(self.network, input_ids=ids, position_ids=positions, **more), [0, *accumulate(lengths[:-1])]
            )

    @classmethod
    @torch.no_grad()
    def of(cls, network: nn.Module, rows: Rows, *, filler: int) -> "LongRow | None":
        """None where it does not give what `padded` does: most kinds of network; also on GPUs, and in bfloat16."""
        weight, kind = next(network.parameters()), getattr(getattr(network, "config", None), "model_type", "")
        if weight.device.type != "cpu" or weight.dtype.itemsize < 4 or kind not in END_TO_END:
            return None
        made, want = cls(network), padded(network, rows, filler=filler)
        try:
            got = made(rows)
        except Exception:  # whatever a version of the library raises: then it cannot
            return None
        for row, there, here in zip(rows, want.begins, got.begins, strict=True):
            for wanted, found in zip(want.layers, got.layers, strict=True):
                expected = wanted[there : there + len(row)]
                near = 1e-4 * float(expected.abs().max())
                if not torch.allclose(found[here : here + len(row)], expected, atol=near, rtol=0):
                    return None
        return made


class _Apart(TorchFunctionMode):
    """Attention of a row of texts stays within each of them; texts of one length run together."""

    def __init__(self, lengths: Sequence[int]) -> None:
        super().__init__()
        self.runs = [(length, len(list(some))) for length, some in groupby(lengths)]

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if function is not attend:
            return function(*args, **kwargs)
        query, key, value = args[:3] if args else (kwargs[name] for name in ("query", "key", "value"))
        parts, begin = [], 0
        for length, count in self.runs:
            some = slice(begin, begin + length * count)
            # (1, H, n * T, d) to (n, H, T, d)
            q, k, v = (whole[0, :, some].unflatten(1, (count, length)).transpose(0, 1) for whole in (query, key, value))
            made = attend(q, k, v, scale=kwargs.get("scale"))
            parts.append(made.transpose(0, 1).flatten(1, 2))  # (H, n * T, d)
            begin = some.stop
        return torch.cat(parts, dim=1)[None]


def cut_long_rows(lengths: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Stretches (begin, end) of rows for one long row each, all about as long, `most` pieces if rows allow it."""
    total = sum(lengths)
    share = total / max(math.ceil(total / most), 1)
    begin = done = 0
    for end, reached in enumerate(accumulate(lengths), start=1):
        if reached - done >= share - lengths[end - 1] / 2 or end == len(lengths):
            yield begin, end
            begin, done = end, reached


def cut_padded_rows(lengths: Sequence[int], most: int, once: int) -> list[tuple[int, int]]:
    """Stretches (begin, end) of rows, which come sorted by length, with at most `most` positions or one row.

    Those that cost least: a stretch costs its positions, padding included, and `once` more.
    """
    ends = [k for k in range(1, len(lengths) + 1) if k == len(lengths) or lengths[k] != lengths[k - 1]]
    edges = [0, *ends]  # rows of one length are parted by `most` only
    costs, before = [0.0], [0]
    for k in range(1, len(edges)):
        length, best = lengths[edges[k] - 1], (math.inf, 0)
        for j in range(k - 1, -1, -1):
            rows = edges[k] - edges[j]
            best = min(best, (costs[j] + rows * length + once * math.ceil(rows / max(most // length, 1)), j))
            if rows * length > most:
                break
        costs.append(best[0])
        before.append(best[1])
    found, k = list[tuple[int, int]](), len(ends)
    while k:
        begin, end = edges[before[k]], edges[k]
        rows = max(most // lengths[end - 1], 1)
        found += [(max(stop - rows, begin), stop) for stop in range(end, begin, -rows)]
        k = before[k]
    return found[::-1]


def _run(network: nn.Module, **given: Tensor) -> list[Tensor]:
    made: Any = network(**given, output_hidden_states=True, return_dict=True)
    if made.hidden_states is None:
        raise WeightsError(f"{type(network).__name__} does not hand out its layers, so it cannot be used here")
    return [layer.flatten(0, 1) for layer in made.hidden_states]


def _first_position(network: nn.Module) -> int:
    """RoBERTa counts positions from behind its padding."""
    for name, table in network.named_modules():
        if isinstance(table, nn.Embedding) and "position" in name and table.padding_idx is not None:
            return table.padding_idx + 1
    return 0


def _place(network: nn.Module) -> torch.device:
    return next(network.parameters()).device
