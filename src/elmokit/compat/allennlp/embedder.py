"""AllenNLP's `ElmoEmbedder`: tokens in, NumPy arrays of all layers out, or an HDF5 file of them.

The file has one float32 dataset per line: (L, T, D) for "all", (T, D) for "top" and "average". Keys are line numbers
from 0, and `sentence_to_index` is a JSON object from line to key; with sentence keys, keys are the lines themselves.
The file appears when it is complete, or not at all.
"""

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import h5py
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.compat.allennlp.bilm import _ElmoBiLm, lazy_groups_of
from elmokit.compat.allennlp.indexer import ELMoTokenCharactersIndexer
from elmokit.compat.allennlp.source import ConfigurationError, Named, load_model
from elmokit.compat.allennlp.states import CarriedState
from elmokit.encoders.elmo.encoder import CACHE_WORDS
from elmokit.encoders.elmo.runner import Runner
from elmokit.encoders.places import pick_device
from elmokit.encoders.results import per_sentence
from elmokit.formats.atomic import atomic_path
from elmokit.formats.given import token_sentence
from elmokit.layers import LayerStack
from elmokit.text import Sentence
from elmokit.weights.catalogue import find

DEFAULT_OPTIONS_FILE, DEFAULT_WEIGHT_FILE = (places[0] for places in find("allennlp:original").files)
DEFAULT_BATCH_SIZE = 64
Layers = NDArray[np.floating[Any]]  # (L, T, D) float32

FORMATS: dict[str, Callable[[Layers], Layers]] = {
    "all": lambda layers: layers,
    "top": lambda layers: layers[-1],
    "average": lambda layers: layers.mean(axis=0),
}

logger = logging.getLogger(__name__)


class ElmoEmbedder:
    """A biLM for sentences given as token lists.

    `options_file` and `weight_file` are two files, or one of them a folder, archive or hub id; without them the model
    that comes with elmokit runs (AllenNLP fetched the original one). State is carried from batch to batch by row unless
    `stateful` is False: the same sentence then gives the same vectors every time.
    """

    def __init__(
        self,
        options_file: Named = None,
        weight_file: Named = None,
        cuda_device: int = -1,
        *,
        stateful: bool = True,
    ) -> None:
        self._pretrained = pretrained = load_model(options_file, weight_file)
        self.indexer = ELMoTokenCharactersIndexer()
        self.cuda_device = cuda_device
        bilm = pretrained.build(device=pick_device("cpu" if cuda_device < 0 else f"cuda:{cuda_device}"))
        self._runner = Runner(
            bilm, pretrained.codec.build(pretrained.config.tokens.max_characters), cache_words=CACHE_WORDS
        )
        self._carried = CarriedState(stateful=stateful)

    @cached_property
    def elmo_bilm(self) -> _ElmoBiLm:
        """The biLM over character ids. From now on its weights and its state are those that run here."""
        made = _ElmoBiLm(pretrained=self._pretrained, stateful=self._carried.stateful).to(self._runner.device)
        made._elmo_lstm.rows = self._carried.rows
        self._carried = made._elmo_lstm
        return made.eval()

    def reset_states(self) -> None:
        """Every row starts from zero again."""
        self._carried.reset_states()

    def embed_sentence(self, sentence: Sequence[str]) -> Layers:
        """All layers of one sentence. (L, T, D)"""
        return self.embed_batch([sentence])[0]

    def embed_batch(self, batch: Sequence[Sequence[str]]) -> list[Layers]:
        """All layers of each sentence, an (L, 0, D) array for an empty one."""
        sentences = _sentences(batch)
        if len(sentences) < 2 and not any(map(len, sentences)):  # not run: the state stays as it was, as there
            shape = self._runner.bilm.config.depth, 0, self._runner.bilm.config.width
            return [np.zeros(shape, dtype=np.float32) for _ in sentences]
        stack = self._run(sentences).inner()
        return per_sentence(stack.values, stack.mask)

    def embed_sentences(
        self, sentences: Iterable[Sequence[str]], batch_size: int = DEFAULT_BATCH_SIZE
    ) -> Iterator[Layers]:
        """The same for any number of sentences, one batch of `batch_size` after another."""
        if batch_size < 1:
            raise ConfigurationError(f"batch_size is {batch_size}; at least 1 sentence per batch is needed")
        return (layers for batch in lazy_groups_of(sentences, batch_size) for layers in self.embed_batch(batch))

    def batch_to_embeddings(self, batch: Sequence[Sequence[str]]) -> tuple[Tensor, Tensor]:
        """One batch as tensors: layers (B, L, T, D) and mask (B, T) int64."""
        stack = self._run(_sentences(batch)).inner()
        return stack.values.transpose(0, 1), stack.mask.long()

    def embed_file(
        self,
        input_file: IO[str],
        output_file_path: str | Path,
        output_format: str = "all",
        batch_size: int = DEFAULT_BATCH_SIZE,
        forget_sentences: bool = False,
        use_sentence_keys: bool = False,
    ) -> None:
        """One sentence per line, tokens between white space, to the HDF5 file described above."""
        embed_lines(
            self.embed_sentences,
            input_file,
            output_file_path,
            output_format=output_format,
            batch_size=batch_size,
            forget_sentences=forget_sentences,
            use_sentence_keys=use_sentence_keys,
        )
        input_file.close()

    @torch.no_grad()
    def _run(self, sentences: Sequence[Sentence]) -> LayerStack:
        runner = self._runner
        if "elmo_bilm" in self.__dict__ and (bilm := self.elmo_bilm.bilm) is not runner.bilm:
            self._runner = runner = Runner(bilm, runner.codec, cache_words=CACHE_WORDS)  # its weights were changed
        like = next(runner.bilm.parameters())
        return self._carried.through(
            runner.bilm, like, len(sentences), lambda state: runner.layers(sentences, state=state)
        )


def _sentences(batch: Sequence[Sequence[str]]) -> list[Sentence]:
    return [token_sentence(tokens, k) for k, tokens in enumerate(batch)]


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
    from rich.progress import track

    from elmokit._terminal import Console

    console = Console(stderr=True)
    if not console.is_terminal:  # some versions of rich print an empty line there
        return vectors
    return track(vectors, "embedding", total=total, console=console)
