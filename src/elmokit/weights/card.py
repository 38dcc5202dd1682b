"""The README.md of a saved model: a short card with the header that model hubs read."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from elmokit.weights.description import describe
from elmokit.weights.pretrained import Pretrained

SMALLER = "To store it in a quarter of the space: `elmokit convert THIS-FOLDER SMALLER-FOLDER --dtype int8`."
MARK = "<!-- written by elmokit; remove this line to keep the card as it is when the model is saved again -->"


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
            *([] if stored.startswith("int") else [SMALLER, ""]),
        ]
    )


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
                yield "held-out perplexity", f"{after['mean']:.2f}{was}, on {text['heldout_tokens']:,} tokens"
            length = next(f"{config[what]:g} {what}" for what in ("minutes", "steps", "epochs") if config[what])
            names = ("rows", "window", "optimizer", "learning_rate", "dropout", "softmax", "seed")
            yield "settings", ", ".join([length, *(f"{name} {config[name]}" for name in names)])
        except (TypeError, KeyError, ValueError, StopIteration):  # not as elmokit writes it
            continue
