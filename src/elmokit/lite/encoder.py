"""`LiteElmo`: sentences to vectors, the same numbers bit for bit as `Elmo` in C."""

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

from elmokit.batch import in_order, index_words, plan_batches
from elmokit.chars import TypeRows
from elmokit.errors import InputError, WeightsError
from elmokit.formats.given import Given, read_request
from elmokit.layers import LayerChoice, Vectors, mean_rows, unit_rows
from elmokit.lite.model import LiteModel, Mode, StoredArrays
from elmokit.text import Sentence, Tokenizer
from elmokit.weights.described import BUNDLED, CONFIG, DEFAULT, bundled_models, choose_tokenizer, read_described

BATCH_TOKENS = 4096  # positions per batch, padding included
WINDOW = 16  # batches read ahead, so that sentences of like length come together
CACHE_WORDS = 65_536


class LiteElmo:
    """A pre-trained biLM by NumPy and C. What may be given, and `layers`, are as for `Elmo`; no trained mixes.

    It runs every model in elmokit's own format: the bundled ones, those that elmokit trains, and models of the older
    tools once converted (`elmokit convert`), of characters, words or both. It may be called from any number of threads.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        dtype: str = "default",
        tokenizer: str | Tokenizer | None = None,
        allow_other_tokenizer: bool = False,
        cache_words: int = CACHE_WORDS,
    ) -> None:
        described = read_described(Path(folder))
        weights = StoredArrays(described)
        codec = described.codec()
        described.check_itself()
        self.config, self.source = described.config, str(folder)
        self.tokenizer = choose_tokenizer(described, tokenizer, allow_other=allow_other_tokenizer)
        self.codec = codec.build(self.config.tokens.max_characters)
        self.model = LiteModel(self.config, weights, _mode(dtype, whole=weights.whole))
        self.cache_words = cache_words
        self.known: dict[str, Vectors] = {}  # (P,) each, the oldest first
        self.lock = threading.Lock()
        self.boundaries = self.model.tokens(np.stack([self.codec.begin, self.codec.end]))  # (2, P)

    @classmethod
    def from_pretrained(
        cls,
        source: str | Path | None = None,
        *,
        dtype: str = "default",
        tokenizer: str | Tokenizer | None = None,
        allow_other_tokenizer: bool = False,
        cache_words: int = CACHE_WORDS,
    ) -> "LiteElmo":
        """From a bundled name (default: the English model) or a folder in elmokit's own format.

        `dtype` is "float32", "bfloat16", "int8", "auto" (int8) or "default": int8 where the model is stored so.
        """
        return cls(
            _folder(source),
            dtype=dtype,
            tokenizer=tokenizer,
            allow_other_tokenizer=allow_other_tokenizer,
            cache_words=cache_words,
        )

    @property
    def width(self) -> int:
        """D, the size of one layer's vector."""
        return self.config.width

    @property
    def layer_names(self) -> tuple[str, ...]:
        return self.config.layer_names

    @property
    def dtype(self) -> str:
        """The mode it multiplies in."""
        return self.model.mode

    def encode(
        self,
        sentences: Given,
        *,
        layers: str | int | LayerChoice = "average",
        normalise: bool = False,
        batch_tokens: int = BATCH_TOKENS,
    ) -> Vectors:
        """One vector per sentence, the mean over its tokens: (N, D), or (D,) for one string; zero for an empty one."""
        choice = LayerChoice.parse(layers)

        def pooled(values: Vectors, counts: Any) -> list[Vectors]:
            means = mean_rows(values, counts)
            return list(np.moveaxis(unit_rows(means) if normalise else means, -2, 0))

        found, single = self._run(sentences, choice, pooled, batch_tokens)
        if single:
            return found[0]
        last = choice.width(self.config.depth, self.width)
        axes = (self.config.depth, last) if choice.kind == "all" else (last,)
        return np.stack(found) if found else np.zeros((0, *axes), np.float32)

    def encode_tokens(
        self,
        sentences: Given,
        *,
        layers: str | int | LayerChoice = "average",
        normalise: bool = False,
        batch_tokens: int = BATCH_TOKENS,
    ) -> Any:
        """One vector per token: a list of (T, D), or (T, D) for one string; (0, D) for an empty sentence."""

        def each(values: Vectors, counts: Any) -> list[Vectors]:
            cut = [values[..., b, :count, :].copy() for b, count in enumerate(counts.tolist())]
            return [unit_rows(rows) for rows in cut] if normalise else cut

        found, single = self._run(sentences, LayerChoice.parse(layers), each, batch_tokens)
        return found[0] if single else found

    def encode_layers(
        self,
        sentences: Given,
        *,
        layers: str | int | LayerChoice = "all",
        normalise: bool = False,
        batch_tokens: int = BATCH_TOKENS,
    ) -> Any:
        """Every layer of every token: a list of (L, T, D), or (L, T, D) for one string; layer 0 knows no context."""
        found = self.encode_tokens(sentences, layers=layers, normalise=normalise, batch_tokens=batch_tokens)
        if isinstance(found, np.ndarray):
            return found if found.ndim == 3 else found[None]
        return [rows if rows.ndim == 3 else rows[None] for rows in found]

    def __repr__(self) -> str:
        return f"LiteElmo({self.source!r}, {self.config.depth} x {self.width}, dtype={self.dtype!r})"

    def _run(
        self, sentences: Given, choice: LayerChoice, shape: Callable[[Vectors, Any], list[Vectors]], batch_tokens: int
    ) -> tuple[list[Vectors], bool]:
        """A result for each sentence in the order given, and whether one string was given."""
        if batch_tokens < 1:
            raise InputError(f"batch_tokens is {batch_tokens}; a batch holds at least one position")
        request = read_request(sentences, tokenizer=self.tokenizer)

        def results() -> Iterator[tuple[int, Vectors]]:
            for batch in plan_batches(request.sentences, batch_tokens=batch_tokens, window=WINDOW):
                values, counts = self._chosen([sentence for _, sentence in batch], choice)
                for (position, _), made in zip(batch, shape(values, counts), strict=True):
                    yield position, made

        return list(in_order(results())), request.single

    def _chosen(self, sentences: Sequence[Sentence], choice: LayerChoice) -> tuple[Vectors, Any]:
        """The chosen layers of a batch without boundaries, zero at padding, and the words of each sentence (B,)."""
        words, index, lengths = index_words(sentences)
        stack = self.model.layers(self._word_vectors(words), index, lengths)  # (L, B, T, D)
        mask = np.arange(index.shape[1]) < lengths[:, None]  # (B, T)
        return choice.apply(stack[:, :, 1:-1]) * mask[:, 2:, None], lengths - 2

    def _word_vectors(self, words: Sequence[str]) -> Vectors:
        """The two boundaries' vectors, then those of the words. (U, P)"""
        with self.lock:
            found = {word: self.known[word] for word in words if word in self.known}
        if new := [word for word in words if word not in found]:
            rows: TypeRows = self.codec.encode(new)
            found |= zip(new, self.model.tokens(rows), strict=True)
            with self.lock:
                self.known |= {word: found[word].copy() for word in new[-self.cache_words :]}
                for old in list(self.known)[: max(0, len(self.known) - self.cache_words)]:
                    del self.known[old]
        return np.concatenate([self.boundaries, *(found[word][None] for word in words)])


def _folder(source: str | Path | None) -> Path:
    name = DEFAULT if source is None else str(source)
    if re.fullmatch(r"\w[\w.-]*", name) and (BUNDLED / name / CONFIG).is_file():
        return BUNDLED / name
    path = Path(name).expanduser()
    if (path / CONFIG).is_file():
        return path
    raise WeightsError(
        f"no model {name!r} that elmokit.lite can read: neither a bundled one ({', '.join(bundled_models())}) nor a "
        f"folder with {CONFIG}; models of older tools are converted by elmokit convert"
    )


def _mode(dtype: str, *, whole: bool) -> Mode:
    name = {"default": "int8" if whole else "float32", "auto": "int8"}.get(str(dtype), str(dtype))
    for mode in get_args(Mode):
        if name == mode:
            return mode  # type: ignore[no-any-return]
    raise InputError(f"dtype {dtype!r} does not fit here; expected auto, default or one of {', '.join(get_args(Mode))}")
