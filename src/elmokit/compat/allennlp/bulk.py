"""Lines of tokens to an HDF5 file in AllenNLP's layout.

One float32 dataset per line: (L, T, D) for "all", (T, D) for "top" and "average". Keys are line numbers from 0, and
`sentence_to_index` is a JSON object from line to key; with sentence keys, keys are the lines themselves. The file
appears when it is complete, or not at all.
"""

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from elmokit.compat.allennlp.errors import ConfigurationError
from elmokit.formats.atomic import atomic_path

Layers = NDArray[np.floating[Any]]

FORMATS: dict[str, Callable[[Layers], Layers]] = {
    "all": lambda layers: layers,
    "top": lambda layers: layers[-1],
    "average": lambda layers: layers.mean(axis=0),
}

logger = logging.getLogger(__name__)


def embed_lines(
    embed: Callable[[Iterable[Sequence[str]], int], Iterator[Layers]],
    lines: Iterable[str],
    output: str | Path,
    *,
    output_format: str = "all",
    batch_size: int = 64,
    forget_sentences: bool = False,
    use_sentence_keys: bool = False,
) -> None:
    """Blank lines, and duplicates among sentence keys, are refused before anything runs."""
    if output_format not in FORMATS:
        raise ConfigurationError(f"output_format is {output_format!r}; expected one of {', '.join(FORMATS)}")
    sentences = [line.strip() for line in lines]
    keys = sentences if use_sentence_keys else [str(k) for k in range(len(sentences))]
    _check(sentences, output, use_sentence_keys=use_sentence_keys)
    vectors = embed((sentence.split() for sentence in sentences), batch_size)
    with atomic_path(output) as part, h5py.File(part, "w") as file:
        for key, layers in zip(keys, _tracked(vectors, len(keys)), strict=True):
            _write(file, key, FORMATS[output_format](layers), output)
        if not forget_sentences and not use_sentence_keys:
            index = dict(zip(sentences, keys, strict=True))  # the last of duplicates stays
            file.create_dataset("sentence_to_index", (1,), dtype=h5py.string_dtype())[0] = json.dumps(index)


def _check(sentences: Sequence[str], output: str | Path, *, use_sentence_keys: bool) -> None:
    if blank := [k for k, sentence in enumerate(sentences) if not sentence]:
        raise ConfigurationError(f"Your input file contains empty lines at indexes {blank}. Please remove them.")
    if not use_sentence_keys:
        return
    logger.warning("sentences are keys now: in one with a slash, HDF5 makes a group of each part before it")
    if repeated := [sentence for sentence, n in Counter(sentences).items() if n > 1]:
        raise _taken(repeated[0], output)


def _write(file: h5py.File, key: str, values: Layers, output: str | Path) -> None:
    if "\0" in key:
        raise _unusable(key, output, "HDF5 would end it at its NUL character")
    try:
        taken = key in file
        if not taken:
            file.create_dataset(key, data=values, dtype="float32")
    except (TypeError, ValueError) as error:  # "a" and then "a/b"
        raise _unusable(key, output, str(error)) from None
    if taken:
        raise _taken(key, output)


def _taken(key: str, output: str | Path) -> ConfigurationError:
    return ConfigurationError(
        f"Key already exists in {output}: {key!r}. To encode duplicate sentences, do not pass the "
        f"--use-sentence-keys flag."
    )


def _unusable(key: str, output: str | Path, reason: str) -> ConfigurationError:
    return ConfigurationError(f"{key!r} cannot be a key of {output} ({reason}); use line numbers as keys")


def _tracked(vectors: Iterator[Layers], total: int) -> Iterable[Layers]:
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track(vectors, "embedding", total=total, console=console, disable=not console.is_terminal)
