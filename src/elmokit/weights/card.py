"""The README.md of a saved model: a short card with the header that model hubs read."""

import json

from elmokit.weights.description import describe
from elmokit.weights.pretrained import Pretrained

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
    table = [f"| {what} | {value} |" for what, value in rows]
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
        ]
    )
