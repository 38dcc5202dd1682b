"""A model in facts: what `elmokit info` prints and a model card says."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from torch import Tensor

from elmokit.weights.pretrained import Pretrained

PARTS = {  # by the start of a parameter's name
    "tokens.words": "word vectors",
    "tokens.characters": "character vectors",
    "tokens.convolutions": "convolutions",
    "tokens.highways": "highways",
    "tokens.projection": "token projection",
    "lstm": "LSTM",
}


def type_names(tensors: Iterable[Tensor]) -> str:
    return ", ".join(sorted({str(tensor.dtype).removeprefix("torch.") for tensor in tensors}))


def count_parameters(pretrained: Pretrained) -> dict[str, int]:
    """Trained numbers by part. The zero row of masked characters is not one of them."""
    counts: Counter[str] = Counter()
    for name, tensor in pretrained.tensors.items():
        counts[next(part for start, part in PARTS.items() if name.startswith(start))] += tensor.numel()
    if pretrained.codec.kind == "bytes":
        counts["character vectors"] -= pretrained.config.tokens.char_dim
    if pretrained.softmax is not None:
        counts["softmax"] = sum(values.numel() for values in pretrained.softmax.named.values())
    return dict(counts)


def describe(pretrained: Pretrained) -> dict[str, Any]:
    """Facts in JSON's types."""
    config, tokens, lstm = pretrained.config, pretrained.config.tokens, pretrained.config.lstm
    parts = count_parameters(pretrained)
    inputs: dict[str, Any] = {"kind": pretrained.codec.kind}
    if tokens.char_dim:
        inputs |= {
            "characters": tokens.n_characters,
            "character_width": tokens.char_dim,
            "longest_word": tokens.max_characters - 2,
            "filters": [list(pair) for pair in tokens.filters],
            "activation": tokens.activation,
            "highways": tokens.n_highway,
        }
    if tokens.word_dim:
        inputs |= {"words": tokens.n_words, "word_width": tokens.word_dim}
    tokenizer = pretrained.tokenizer
    return {
        "source": pretrained.source,
        "format": pretrained.format,
        "origin": pretrained.origin,
        "layers": config.depth,
        "width": config.width,
        "directions": list(config.directions),
        "input": inputs,
        "lstm": {
            "layers": config.n_layers,
            "cell": lstm.cell_dim,
            "projection": lstm.projection_dim if lstm.project else None,
            "skip_connections": config.skip_connections,
            "cell_clip": lstm.cell_clip,
            "projection_clip": lstm.proj_clip if lstm.project else None,
            "forget_bias": lstm.forget_bias,
        },
        "parameters": {**parts, "total": sum(parts.values())},
        "vocabulary": None if pretrained.vocabulary is None else len(pretrained.vocabulary),
        "softmax": None if pretrained.softmax is None else [pretrained.softmax.words, lstm.projection_dim],
        "tokenizer": None if tokenizer is None else {"name": tokenizer.name, "version": tokenizer.version},
        "dtype": pretrained.stored or type_names(pretrained.tensors.values()),
    }
