"""ELMoForManyLangs' `Embedder`: its models, and any other that elmokit reads, with its codes for layers.

It carried state over batches that it shuffled, so only its first batch could ever be reproduced. Here every sentence
starts from zero: the vectors of its first batch, each time.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from elmokit.encoders import Elmo
from elmokit.errors import InputError
from elmokit.formats.atomic import atomic_path
from elmokit.formats.given import token_sentence
from elmokit.formats.streams import read_lines

__all__ = ["Embedder", "read_sentences", "write_layers"]

ALL, AVERAGE = -2, -1


class Embedder:
    """A model folder or archive. `batch_size` has no effect on vectors or memory: batches are cut by their words."""

    def __init__(self, model_dir: str | Path, batch_size: int = 64, *, device: str = "auto") -> None:
        self.model_dir = str(model_dir)
        self.batch_size = batch_size
        self.model = Elmo.from_pretrained(model_dir, dtype="float32", device=device)
        self.config: dict[str, Any] = self.model.pretrained.extra.get("manylangs", {}).get("config", {})
        self.use_cuda = self.model.device.type == "cuda"

    def sents2elmo(
        self, sents: Iterable[Sequence[str]], output_layer: int = AVERAGE
    ) -> list[NDArray[np.floating[Any]]]:
        """Token lists to one float32 array each: layer `output_layer` (T, D); -1 the mean; -2 all layers (L, T, D)."""
        depth = len(self.model.layer_names)
        if not ALL <= output_layer < depth:
            raise InputError(f"output_layer is {output_layer}; expected 0 to {depth - 1}, -1 (mean) or -2 (all layers)")
        layers = {ALL: "all", AVERAGE: "average"}.get(output_layer, output_layer)
        return self.model.encode_tokens((token_sentence(tokens, k) for k, tokens in enumerate(sents)), layers=layers)


def read_sentences(path: str | Path, input_format: str = "plain") -> list[list[str]]:
    """Token lists of a file: `plain`, words between tabs, or CoNLL-U (`conll`), its words cut into characters
    (`conll_char`) or at spaces (`conll_char_vi`).
    """
    if input_format not in INPUT_FORMATS:
        raise InputError(f"input format {input_format!r} is not known; expected one of {', '.join(INPUT_FORMATS)}")
    text = "\n".join(line.rstrip("\r\n") for line in read_lines(path)).strip()
    if input_format == "plain":
        return [line.split("\t") for line in text.split("\n")] if text else []
    cut = INPUT_FORMATS[input_format]
    return [[part for word in _words(block, path) for part in cut(word)] for block in text.split("\n\n") if block]


INPUT_FORMATS: dict[str, Callable[[str], Iterable[str]]] = {
    "plain": lambda word: (word,),
    "conll": lambda word: (word,),
    "conll_char": lambda word: word,
    "conll_char_vi": lambda word: word.split(),
}


def _words(block: str, path: str | Path) -> Iterator[str]:
    for line in block.split("\n"):
        fields = line.split("\t")
        if line.startswith("#") or "-" in fields[0] or "." in fields[0]:  # a comment, words joined, a word left out
            continue
        if len(fields) < 2:
            raise InputError(f"{path}: the line {line!r} has no second column; expected CoNLL-U with tabs")
        yield fields[1]


def write_layers(
    embedder: Embedder,
    sentences: Sequence[Sequence[str]],
    prefix: str,
    *,
    layers: Sequence[int],
    formats: Sequence[str],
) -> list[Path]:
    """A file `PREFIX.lyLAYER.FORMAT` for each layer and format; a sentence that comes again is written once.

    In .hdf5 the key is the sentence, tabs between its words, with `$period$` for a dot and `$backslash$` for a slash;
    the value is (T, D). In .txt a line is a word and its numbers, and a blank line ends a sentence.
    """
    if unknown := [name for name in formats if name not in WRITERS]:
        raise InputError(f"output format {unknown[0]!r} is not known; expected {' or '.join(WRITERS)}")
    if wrong := [layer for layer in layers if not AVERAGE <= layer < len(embedder.model.layer_names)]:
        raise InputError(f"output layer {wrong[0]}; expected 0 to {len(embedder.model.layer_names) - 1}, or -1 (mean)")
    if "" in (keys := {key_of(sentence): list(sentence) for sentence in reversed(sentences)}):
        raise InputError("a sentence has no words; take blank lines out of the input")
    given = dict(reversed(keys.items()))
    found = embedder.sents2elmo(list(given.values()), output_layer=ALL)
    written = []
    for layer in layers:
        chosen = [values.mean(axis=0) if layer == AVERAGE else values[layer] for values in found]
        for name in formats:
            path = Path(f"{prefix}.ly{layer}.{name}")
            with atomic_path(path) as part:
                WRITERS[name](part, given, chosen)
            written.append(path)
    return written


def key_of(sentence: Sequence[str]) -> str:
    """A sentence as a key of its HDF5 files."""
    return "\t".join(sentence).replace(".", "$period$").replace("/", "$backslash$")


def _write_hdf5(path: Path, given: dict[str, list[str]], found: Sequence[NDArray[Any]]) -> None:
    with h5py.File(path, "w") as file:
        for key, values in zip(given, found, strict=True):
            file.create_dataset(key, data=values, dtype="float32")


def _write_text(path: Path, given: dict[str, list[str]], found: Sequence[NDArray[Any]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for words, values in zip(given.values(), found, strict=True):
            for word, row in zip(words, values, strict=True):
                file.write("\t".join([word, *(f"{number:.8f}" for number in row)]) + "\n")
            file.write("\n")


WRITERS: dict[str, Callable[[Path, dict[str, list[str]], Sequence[NDArray[Any]]], None]] = {
    "hdf5": _write_hdf5,
    "txt": _write_text,
}
