"""TensorFlow Hub's module `google/elmo` over any model: its two signatures and its five outputs, as NumPy arrays.

    elmo = hub.Module("https://tfhub.dev/google/elmo/3")     elmo = Module("allennlp:original")
    elmo(texts, signature="default", as_dict=True)["elmo"]   the same

There is no graph and no session: a call returns arrays. The mix is as an untrained module has it, the mean of the
layers; a trained one gives its `weights` (before the softmax) and `gamma`.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.encoders import Elmo
from elmokit.errors import InputError
from elmokit.text import Sentence

__all__ = ["Module", "load"]

Floats = NDArray[np.float32]
SIGNATURES = ("default", "tokens")


class Module:
    """The callable. `spec` is an `Elmo`, or anything that `Elmo.from_pretrained` takes; nothing is the bundled model.

    | output | shape | what it is |
    | --- | --- | --- |
    | `word_emb` | (B, T, P) | the words without context |
    | `lstm_outputs1`, `lstm_outputs2` | (B, T, D) | the LSTM layers; as many as the model has |
    | `elmo` | (B, T, D) | the mix of all layers |
    | `default` | (B, D) | the mean of `elmo` over each text's words |

    T is the longest text. Padding is zero (there it was the vector of an empty word).
    """

    def __init__(
        self,
        spec: Elmo | str | Path | None = None,
        trainable: bool = False,
        *,
        weights: Sequence[float] | None = None,
        gamma: float = 1.0,
    ) -> None:
        if str(spec).startswith(("http://tfhub.dev", "https://tfhub.dev")):
            raise InputError(f"{spec}: TensorFlow's files are not read here; give a model, as allennlp:original")
        if trainable:
            raise InputError(
                "trainable=True: this module is not trained; elmokit.ElmoEmbedding is a module that can be"
            )
        self.elmo = spec if isinstance(spec, Elmo) else Elmo.from_pretrained(spec)
        depth = len(self.elmo.layer_names)
        raw = np.zeros(depth) if weights is None else np.asarray(weights, dtype=np.float64)
        if raw.shape != (depth,):
            raise InputError(f"{raw.size} weights for the {depth} layers of the model")
        shares = np.exp(raw - raw.max())
        self._shares = (gamma * shares / shares.sum()).astype(np.float32)

    @property
    def signatures(self) -> dict[str, Callable[..., dict[str, Floats]]]:
        """As `hub.load(...).signatures`: "default" takes texts, "tokens" takes `tokens` and `sequence_len`."""
        return {
            "default": lambda text: self(text, as_dict=True),
            "tokens": lambda tokens, sequence_len: self(
                {"tokens": tokens, "sequence_len": sequence_len}, signature="tokens", as_dict=True
            ),
        }

    def __call__(self, inputs: Any, signature: str = "default", as_dict: bool = False) -> Any:
        """All outputs by name with `as_dict`, else the one called `default`.

        "default" takes texts, cut at spaces; "tokens" takes {"tokens": (B, T) words, "sequence_len": (B,)}.
        """
        if signature not in SIGNATURES:
            raise InputError(f"no signature {signature!r}; the module has {' and '.join(SIGNATURES)}")
        sentences = _texts(inputs) if signature == "default" else _tokens(inputs)
        found = self._outputs(sentences)
        return found if as_dict else found["default"]

    def get_signature_names(self) -> list[str]:
        return list(SIGNATURES)

    def _outputs(self, sentences: list[Sentence]) -> dict[str, Floats]:
        depth, width = len(self.elmo.layer_names), self.elmo.width
        longest = max(map(len, sentences), default=0)
        layers = np.zeros((depth, len(sentences), longest, width), dtype=np.float32)  # (L, B, T, D)
        for row, values in enumerate(self.elmo.encode_layers(sentences)):
            layers[:, row, : values.shape[1]] = values
        mixed = np.einsum("l,lbtd->btd", self._shares, layers)
        lengths = np.array([max(len(sentence), 1) for sentence in sentences], dtype=np.float32)
        half = width // len(self.elmo.pretrained.config.directions)
        return {
            "word_emb": layers[0, :, :, :half],
            **{f"lstm_outputs{k}": layers[k] for k in range(1, depth)},
            "elmo": mixed,
            "default": mixed.sum(axis=1) / lengths[:, None],
        }


def load(spec: Elmo | str | Path | None = None) -> Module:
    """As `hub.load`: the module, with its `signatures`."""
    return Module(spec)


def _texts(inputs: Any) -> list[Sentence]:
    if isinstance(inputs, Mapping):
        inputs = inputs.get("text", inputs.get("strings", inputs))
    texts = [_word(text) for text in np.asarray(inputs, dtype=object).reshape(-1)] if _listed(inputs) else None
    if texts is None:
        raise InputError(f"the signature default takes a list of texts, got a {type(inputs).__name__}")
    return [Sentence.of(text.split(" ") if text else ()) for text in (" ".join(text.split()) for text in texts)]


def _tokens(inputs: Any) -> list[Sentence]:
    if not isinstance(inputs, Mapping) or {"tokens", "sequence_len"} - set(inputs):
        raise InputError('the signature tokens takes {"tokens": lists of words, "sequence_len": their lengths}')
    rows, lengths = list(inputs["tokens"]), [int(n) for n in inputs["sequence_len"]]
    if len(rows) != len(lengths) or any(not 0 <= n <= len(row) for n, row in zip(lengths, rows, strict=False)):
        raise InputError(f"{len(rows)} lists of tokens of {[len(row) for row in rows]} words, but lengths {lengths}")
    return [Sentence.of(map(_word, row[:n])) for row, n in zip(rows, lengths, strict=True)]


def _listed(inputs: Any) -> bool:
    return isinstance(inputs, (Sequence, np.ndarray)) and not isinstance(inputs, (str, bytes))


def _word(word: Any) -> str:
    if isinstance(word, bytes):  # TensorFlow's strings
        return word.decode("utf-8", "replace")
    if not isinstance(word, str):
        raise InputError(f"{word!r} is a {type(word).__name__}, expected text")
    return word
