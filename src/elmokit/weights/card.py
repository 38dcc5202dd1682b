"""A model in facts, for `elmokit info`; and its card, the README.md of a saved model, with the header hubs read."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor

from elmokit.weights.pretrained import Pretrained

CONVERT = {"int8": "in a quarter of the space", "int4": "in the four bits that it was trained for"}
MARK = "<!-- written by elmokit; remove this line to keep the card as it is when the model is saved again -->"
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


def write_card(pretrained: Pretrained, *, name: str, stored: str, size: int) -> str:
    """`stored` is the type of the numbers in the file, `size` its bytes. A licence comes from `extra["licence"]`."""
    facts = describe(pretrained)
    lstm, inputs = facts["lstm"], facts["input"]
    licence = json.dumps(str(pretrained.extra.get("licence", "unknown")))
    language = pretrained.extra.get("language")
    header = ["---", "library_name: elmokit", f"license: {licence}"]
    header += [f"language: {json.dumps(language)}"] if language else []
    header += ["tags:", "- elmo", "- word-embeddings", "- feature-extraction", "---"]
    tokenizer = facts["tokenizer"]
    words = f"{inputs['words']:,} words" if "words" in inputs else ""
    characters = (
        f"characters ({inputs['kind']}), up to {inputs['longest_word']} a word" if "characters" in inputs else ""
    )
    reads = " and ".join(part for part in (words, characters) if part)
    projected = f" projected to {lstm['projection']}" if lstm["projection"] else ""
    rows = [
        ("vectors", f"{facts['layers']} layers of {facts['width']} ({', '.join(facts['directions'])})"),
        ("input", reads),
        ("LSTM", f"{lstm['layers']} layers of {lstm['cell']}{projected}"),
        ("parameters", f"{facts['parameters']['total']:,}"),
        ("stored as", f"{stored}, {size / 1e6:,.1f} MB"),
        ("softmax", f"{facts['softmax'][0]:,} words" if facts["softmax"] else "none: gives vectors, not probabilities"),
        ("tokenizer", f"{tokenizer['name']}, version {tokenizer['version']}" if tokenizer else "not stated"),
    ]
    table = [f"| {what} | {value} |" for what, value in (*rows, *_training(pretrained.extra))]
    return "\n".join(
        [
            *header,
            MARK,
            "",
            f"# {name}",
            "",
            "An ELMo model: deep contextual word vectors from a bidirectional language model over characters."
            if "characters" in inputs
            else "An ELMo model: deep contextual word vectors from a bidirectional language model.",
            "",
            "| | |",
            "| --- | --- |",
            *table,
            "",
            "```python",
            "from elmokit import Elmo",
            "",
            f'elmo = Elmo.from_pretrained("{name}")  # or the path of this folder',
            'elmo.encode_tokens(["One sentence.", "And another."])',
            "```",
            "",
            *([] if stored.startswith("int") else [_smaller(pretrained.extra), ""]),
        ]
    )


def _smaller(extra: Mapping[str, Any]) -> str:
    last: Any = extra.get("finetuning") or extra.get("training")
    try:
        kind = "int4" if last["config"]["stored_as"] == "int4" else "int8"
    except (TypeError, KeyError):  # not as elmokit writes it, or of a version that had no choice
        kind = "int8"
    return f"To store it {CONVERT[kind]}: `elmokit convert THIS-FOLDER SMALLER-FOLDER --dtype {kind}`."


def _training(extra: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What `elmokit pretrain` and `elmokit finetune` note of a training; nothing for models from elsewhere."""
    for key, done in (("training", "pre-trained on"), ("finetuning", "fine-tuned on")):
        noted: Any = extra.get(key)
        try:
            text, config, after = noted["corpus"], noted["config"], noted.get("heldout_perplexity")
            yield done, ", ".join(f"{text[what]:,} {what}" for what in ("tokens", "sentences", "types"))
            if after:
                before = noted.get("heldout_perplexity_before")
                was = f" ({before['mean']:.2f} before)" if before else ""
                on = f"{after['predictions']:,} predictions each way"
                yield "held-out perplexity", f"{after['mean']:.2f}{was}, on {on}"
            length = next(f"{config[what]:g} {what}" for what in ("minutes", "steps", "epochs") if config[what])
            names = ("rows", "window", "optimizer", "learning_rate", "dropout", "softmax", "seed")
            yield "settings", ", ".join([length, *(f"{name} {config[name]}" for name in names)])
        except (TypeError, KeyError, ValueError, StopIteration):  # not as elmokit writes it
            continue
