"""ELMo as scikit-learn transformers: texts to a matrix, with a row per text or a row per token.

make_pipeline(ElmoVectorizer(layers="concat:1,2", weights="idf"), LogisticRegression()).fit(texts, labels)
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from elmokit.encoders import Embedding, Encoder
from elmokit.errors import InputError, MissingExtraError, WeightsError
from elmokit.integrations.models import Model, encoder_for
from elmokit.layers import LayerChoice, unit_rows
from elmokit.text import Sentence

try:
    from sklearn import get_config
    from sklearn.base import BaseEstimator, TransformerMixin
    from sklearn.utils.validation import check_is_fitted
except ImportError as error:
    raise MissingExtraError(f"scikit-learn is needed ({error})", extra="sklearn") from error

__all__ = ["ElmoTokenVectorizer", "ElmoVectorizer"]

Rows = NDArray[np.float32]
Pooling = Literal["mean", "max", "first", "last"]
POOLINGS = ("mean", "max", "first", "last")
ENGINE = "elmo"  # what names of features begin with


class _Vectorizer(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """What both share. Parameters are kept as given, as scikit-learn asks; `fit` looks at them."""

    model: Model
    layers: str | int
    device: str
    batch_tokens: int | None
    normalise: bool

    @property
    def encoder(self) -> Encoder:
        """The model. All vectorizers of one process that name the same model share it; it is not pickled."""
        return encoder_for(self.model, device=self.device)

    def fit_transform(self, X: Any, y: Any = None, **options: Any) -> Any:
        """`fit`, then `transform` of the same texts; what can be read but once is held."""
        return super().fit_transform(list(X) if isinstance(X, Iterator) else X, y, **options)

    def _learn(self) -> None:
        choice, encoder = LayerChoice.parse(self.layers), self.encoder
        if choice.kind == "all":
            raise InputError("layers 'all' keep the layers apart, expected a choice that makes one vector of them")
        choice.indices(encoder.depth)
        self.n_features_out_ = choice.width(encoder.depth, encoder.width)
        self.fingerprint_ = encoder.fingerprint

    def _embed(self, texts: Any) -> Iterator[Embedding]:
        check_is_fitted(self, "fingerprint_")
        encoder = self.encoder
        if encoder.fingerprint != self.fingerprint_:
            raise WeightsError(f"{encoder.source}: not the model that this vectorizer was fitted with; fit it again")
        return encoder.stream(read_texts(texts), layers=self.layers, batch_tokens=self.batch_tokens)

    def _finish(self, rows: list[Rows]) -> Rows:
        """The matrix (N, D)."""
        made = np.stack(rows) if rows else np.zeros((0, self.n_features_out_), dtype=np.float32)
        return unit_rows(made) if self.normalise else made

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """elmo0, elmo1 ..., one per column."""
        check_is_fitted(self, "n_features_out_")
        return np.array([f"{ENGINE}{k}" for k in range(self.n_features_out_)], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        return tags


class ElmoVectorizer(_Vectorizer):
    """Texts, or token lists, to a matrix (N, D): one row per text.

    model      what `load_encoder` takes: None for the bundled model, a folder, a hub id; or an encoder
    layers     which layers, in the grammar of `elmokit.layers`
    pooling    from a text's tokens to one vector: "mean", "max", "first" or "last"
    weights    None, or "idf": rare words count more in the mean; `fit` learns from its texts how rare words are
    normalise  rows of length 1

    A text is one sentence to the model. An empty text gives a row of zeros.
    """

    def __init__(
        self,
        model: Model = None,
        *,
        layers: str | int = "average",
        pooling: Pooling = "mean",
        weights: Literal["idf"] | None = None,
        normalise: bool = False,
        device: str = "auto",
        batch_tokens: int | None = None,
    ) -> None:
        self.model, self.layers, self.pooling, self.weights = model, layers, pooling, weights
        self.normalise, self.device, self.batch_tokens = normalise, device, batch_tokens

    def fit(self, X: Any, y: Any = None) -> "ElmoVectorizer":
        """Checks the options; with weights="idf" counts in how many of the texts each word stands."""
        if self.pooling not in POOLINGS:
            raise InputError(f"pooling {self.pooling!r} not known; expected one of {', '.join(POOLINGS)}")
        if self.weights not in (None, "idf"):
            raise InputError(f"weights {self.weights!r} not known; expected None or 'idf'")
        if self.weights == "idf" and self.pooling != "mean":
            raise InputError(f"weights='idf' weigh the words of a mean, but pooling is {self.pooling!r}")
        self._learn()
        if self.weights == "idf":
            cut = self.encoder.tokenizer.tokenize
            counts: Counter[str] = Counter()
            n = 0
            for text in read_texts(X):
                tokens = cut(text).tokens if isinstance(text, str) else text
                counts.update({token.lower() for token in tokens})
                n += 1
            self.idf_ = {word: float(np.log((1 + n) / (1 + count)) + 1) for word, count in counts.items()}
            self.idf_unseen_ = float(np.log(1 + n) + 1)
        return self

    def transform(self, X: Any) -> Rows:
        """One row per text. (N, D)"""
        return self._finish([self._pool(found) for found in self._embed(X)])

    def _pool(self, found: Embedding) -> Rows:
        vectors = np.asarray(found.vectors, dtype=np.float32)  # (T, D)
        if not len(vectors):
            return np.zeros(self.n_features_out_, dtype=np.float32)
        match self.pooling:
            case "max":
                return np.asarray(vectors.max(axis=0))
            case "first":
                return np.asarray(vectors[0])
            case "last":
                return np.asarray(vectors[-1])
        if self.weights is None:
            return np.asarray(vectors.mean(axis=0))
        weights = np.array([self.idf_.get(word.lower(), self.idf_unseen_) for word in found.sentence.tokens])  # (T,)
        return np.asarray(weights @ vectors / weights.sum(), dtype=np.float32)


class ElmoTokenVectorizer(_Vectorizer):
    """Token lists, or texts, to a matrix (N, D) with one row per token, sentence after sentence.

    `lengths` says how many rows each sentence has, `split` cuts rows, or what a classifier said of them, by sentence:

        labels = vectorizer.split(classifier.predict(vectorizer.transform(sentences)), sentences)
    """

    def __init__(
        self,
        model: Model = None,
        *,
        layers: str | int = "average",
        normalise: bool = False,
        device: str = "auto",
        batch_tokens: int | None = None,
    ) -> None:
        self.model, self.layers = model, layers
        self.normalise, self.device, self.batch_tokens = normalise, device, batch_tokens

    def fit(self, X: Any, y: Any = None) -> "ElmoTokenVectorizer":
        """Checks the options; there is nothing to learn."""
        self._learn()
        return self

    def transform(self, X: Any) -> Any:
        """One row per token. (tokens of all sentences, D) As a pandas table, it has the index of the sentences."""
        found = [np.asarray(embedding.vectors, dtype=np.float32) for embedding in self._embed(X)]  # each (T, D)
        rows = self._finish([row for vectors in found for row in vectors])
        wanted = getattr(self, "_sklearn_output_config", {}).get("transform") or get_config()["transform_output"]
        if wanted == "pandas" and hasattr(X, "iloc"):  # scikit-learn would take one row per sentence for granted
            homes = np.repeat(np.arange(len(found)), [len(vectors) for vectors in found])
            frame = X.iloc[homes] if len(X.shape) > 1 else X.iloc[homes].to_frame()
            return type(frame)(rows, index=frame.index)
        return rows

    def lengths(self, X: Any) -> list[int]:
        """How many tokens each sentence has."""
        cut = self.encoder.tokenizer.tokenize
        return [len(cut(item) if isinstance(item, str) else item) for item in read_texts(X)]

    def split(self, rows: Any, X: Any) -> list[Any]:
        """The rows of each sentence."""
        lengths = self.lengths(X)
        if len(rows) != sum(lengths):
            raise InputError(f"{len(rows)} rows were given for sentences of {sum(lengths)} tokens; expected as many")
        ends = np.cumsum(lengths)
        return [rows[end - n : end] for n, end in zip(lengths, ends, strict=True)]


def read_texts(given: Any) -> list[Any]:
    """A column of texts or token lists, from a list, an array, a Series, or a table that has but one column."""
    if isinstance(given, str):
        raise InputError("one string was given, expected a list of texts")
    shape: Any = getattr(given, "shape", (0,))
    if len(shape) > 1:
        if shape[1] != 1:
            raise InputError(f"a table of {shape[1]} columns was given, expected one column of texts")
        given = given.to_numpy() if hasattr(given, "to_numpy") else given
        given = given[:, 0]
    texts = list(given)
    for k, text in enumerate(texts):
        if isinstance(text, Sentence):
            texts[k] = list(text.tokens)
        elif isinstance(text, np.ndarray):
            texts[k] = text.tolist()
        elif not isinstance(text, str | list | tuple):
            raise InputError(f"row {k} is {text!r}; expected a text or a list of tokens. Fill missing texts, say by ''")
    return texts
