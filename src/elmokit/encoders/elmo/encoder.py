"""`Elmo`: the biLM as an encoder. Two lines to the first result, and the same vectors whatever the batch."""

import tempfile
from functools import cached_property
from pathlib import Path

import torch

from elmokit.encoders.elmo.carry import CarriedElmo
from elmokit.encoders.elmo.runner import CacheInfo, Runner
from elmokit.encoders.encoder import Context, Encoder, digest_of
from elmokit.encoders.places import FLOATS, INT8
from elmokit.errors import InputError
from elmokit.kernels.cpu.inference import arithmetic
from elmokit.nn.bilm import BiLM
from elmokit.text import Tokenizer
from elmokit.weights import Pretrained, load_pretrained, save_pretrained
from elmokit.weights.inference import CPU_MODES, inference_model, usual_mode
from elmokit.weights.pretrained import choose_tokenizer

CACHE_WORDS = 65_536


class Elmo(Encoder):
    """A pre-trained biLM that turns sentences into vectors; `Encoder` tells what may be given and the options.

    Every sentence starts from zero state, so it gets the same vectors (to float32 rounding) whatever its batch. Mixes
    with layer norm use the whole batch by definition, and `carry()` exists for state in the older tools' way.
    A model stored as floats runs in float32, one stored as int8 or int4 (the bundled ones) in int8 on a CPU that can.
    dtype="float32", "int8" and "bfloat16" say otherwise; docs/performance.md tells what each costs.
    """

    modes = (*FLOATS, INT8)

    def __init__(
        self,
        pretrained: Pretrained,
        *,
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "default",
        tokenizer: str | Tokenizer | None = None,
        allow_other_tokenizer: bool = False,
        cache_words: int = CACHE_WORDS,
    ) -> None:
        if cache_words < 1:
            raise InputError(f"cache_words is {cache_words}; the word cache needs room for at least one word")
        chosen = choose_tokenizer(pretrained, tokenizer, allow_other=allow_other_tokenizer)
        super().__init__(chosen, device=device, dtype=dtype)
        self.pretrained = pretrained
        self.codec = pretrained.codec.build(pretrained.config.tokens.max_characters)
        self.cache_words = cache_words
        self.placed()

    @classmethod
    def from_pretrained(
        cls,
        source: str | Path | None = None,
        *,
        revision: str | None = None,
        local_files_only: bool = False,
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "default",
        tokenizer: str | Tokenizer | None = None,
        allow_other_tokenizer: bool = False,
        cache_words: int = CACHE_WORDS,
    ) -> "Elmo":
        """From a bundled name, a model folder or archive (official, ManyLangs, our own), or a Hugging Face hub id.

        A model saved by elmokit names its tokenizer and refuses another unless `allow_other_tokenizer`. Models of older
        tools name none: official ones run with "english", ManyLangs ones with "unicode", or the one given.
        """
        pretrained = load_pretrained(source, revision=revision, local_files_only=local_files_only)
        return cls(
            pretrained,
            device=device,
            dtype=dtype,
            tokenizer=tokenizer,
            allow_other_tokenizer=allow_other_tokenizer,
            cache_words=cache_words,
        )

    def save_pretrained(self, folder: str | Path) -> Path:
        """Write the model in elmokit's own format, to be read by `from_pretrained`."""
        return save_pretrained(self.pretrained, folder)

    def push_to_hub(self, repo_id: str, *, revision: str | None = None, private: bool = False) -> str:
        """Upload the model to the Hugging Face hub, making the repository where there is none; returns its address."""
        from elmokit.weights.hub import push_to_hub

        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(folder)
            return push_to_hub(folder, repo_id, revision=revision, private=private)

    def _build(self, device: torch.device, dtype: torch.dtype) -> Runner:
        return Runner(
            inference_model(self.pretrained, device=device, dtype=dtype), self.codec, cache_words=self.cache_words
        )

    def _usual(self, device: torch.device) -> torch.dtype:
        return usual_mode(self.pretrained, device)

    def arithmetic_in(self, device: torch.device, dtype: torch.dtype) -> str:
        in_mode = device.type == "cpu" and dtype in CPU_MODES
        return arithmetic(dtype) if in_mode else super().arithmetic_in(device, dtype)

    @property
    def width(self) -> int:
        """D, the size of one layer's vector."""
        return self.pretrained.config.width

    @property
    def layer_names(self) -> tuple[str, ...]:
        return self.pretrained.config.layer_names

    @property
    def context(self) -> Context:
        """Both sides; or one, for a model with one direction only."""
        directions = self.pretrained.config.directions
        return "both" if len(directions) == 2 else "left" if directions == ("forward",) else "right"

    @property
    def source(self) -> str:
        return self.pretrained.source or "an ELMo"

    @property
    def bilm(self) -> BiLM:
        """The network in its own place."""
        return self._runner.bilm

    @property
    def _runner(self) -> Runner:
        runner = self.placed()
        assert isinstance(runner, Runner)
        return runner

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the configuration and all weights: equal for equal models, wherever they were read from."""
        return digest_of((self.pretrained.config, self.pretrained.codec), self.pretrained.tensors)

    @property
    def longest_word(self) -> int:
        return self.pretrained.config.tokens.max_characters - 2

    def overlong(self, word: str) -> bool:
        return self.codec.overlong(word)

    @property
    def cache_info(self) -> CacheInfo:
        """Hits, misses, size and capacity of the word cache in its own place."""
        return self._runner.cache.info

    def forget_words(self) -> None:
        """Empty the word cache."""
        for runner in self._built.all():
            assert isinstance(runner, Runner)
            runner.forget_words()

    def carry(self) -> CarriedElmo:
        """A session that carries LSTM state from batch to batch by row, as AllenNLP and bilm-tf did."""
        return CarriedElmo(self._runner, self.tokenizer)
