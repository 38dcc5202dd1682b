"""AllenNLP's `ElmoEmbedder`: tokens in, NumPy arrays of all layers out."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.compat.allennlp.bilm import CharacterBiLM
from elmokit.compat.allennlp.bulk import embed_lines
from elmokit.compat.allennlp.errors import ConfigurationError
from elmokit.compat.allennlp.source import Named, load_model
from elmokit.compat.allennlp.state import CarriedState
from elmokit.encoders.elmo.encoder import CACHE_WORDS
from elmokit.encoders.elmo.runner import Runner
from elmokit.encoders.places import pick_device
from elmokit.encoders.results import per_sentence
from elmokit.layers import LayerStack
from elmokit.text import Sentence

DEFAULT_BATCH_SIZE = 64
Layers = NDArray[np.floating[Any]]  # (L, T, D) float32


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
        pretrained = load_model(options_file, weight_file)
        self.cuda_device = cuda_device
        bilm = pretrained.build(device=pick_device("cpu" if cuda_device < 0 else f"cuda:{cuda_device}"))
        self._runner = Runner(
            bilm, pretrained.codec.build(pretrained.config.tokens.max_characters), cache_words=CACHE_WORDS
        )
        self._carried = CarriedState(bilm, stateful=stateful)

    @cached_property
    def elmo_bilm(self) -> CharacterBiLM:
        """The biLM over character ids; shares weights and state: `elmo_bilm._elmo_lstm.reset_states()`."""
        return CharacterBiLM(self._runner.bilm, self._runner.codec, self._carried)

    def reset_states(self) -> None:
        """Every row starts from zero again."""
        self._carried.reset_states()

    def embed_sentence(self, sentence: Sequence[str]) -> Layers:
        """All layers of one sentence. (L, T, D)"""
        return self.embed_batch([sentence])[0]

    def embed_batch(self, batch: Sequence[Sequence[str]]) -> list[Layers]:
        """All layers of each sentence, an (L, 0, D) array for an empty one."""
        if (
            not any(map(len, batch)) and len(batch) < 2
        ):  # nothing to run; an empty sentence alone left the state as it was
            shape = self._runner.bilm.config.depth, 0, self._runner.bilm.config.width
            return [np.zeros(shape, dtype=np.float32) for _ in batch]
        stack = self._run(batch).inner()
        return per_sentence(stack.values, stack.mask)

    def embed_sentences(
        self, sentences: Iterable[Sequence[str]], batch_size: int = DEFAULT_BATCH_SIZE
    ) -> Iterator[Layers]:
        """The same for any number of sentences, in batches of `batch_size` as they are asked for."""
        if batch_size < 1:
            raise ConfigurationError(f"batch_size is {batch_size}; at least 1 sentence per batch is needed")
        waiting = iter(sentences)
        batches = iter(lambda: list(islice(waiting, batch_size)), [])
        return (layers for batch in batches for layers in self.embed_batch(batch))

    def batch_to_embeddings(self, batch: Sequence[Sequence[str]]) -> tuple[Tensor, Tensor]:
        """One batch as tensors: layers (B, L, T, D) and mask (B, T) int64."""
        stack = self._run(batch).inner()
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
        """One sentence per line, tokens between white space, to HDF5; see `elmokit.compat.allennlp.bulk`."""
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
    def _run(self, batch: Sequence[Sequence[str]]) -> LayerStack:
        sentences = [Sentence.of(tokens) for tokens in batch]
        return self._carried.through(len(sentences), lambda state: self._runner.layers(sentences, state=state))
