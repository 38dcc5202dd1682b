"""What an index holds, and `index.json`, which says so: the model, the layers, which words, which texts."""

import json
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from elmokit.config import Count, Positive, Size, check, plain, read_json
from elmokit.encoders.changed import check_same_encoder
from elmokit.encoders.encoder import Encoder
from elmokit.errors import ElmokitWarning, InputError
from elmokit.formats.atomic import write_text
from elmokit.layers import LayerChoice
from elmokit.weights import bundled_models

Precision = Literal["int8", "float16"]
MANIFEST = "index.json"
MARK = "elmokit index"
DIGEST = re.compile(r"\([0-9a-f]{16}\)$")  # behind the files' names, as they were given on the command line


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """Which vectors of which words are kept; settled when an index is begun.

    precision   "int8" (each vector with a scale of its own; a byte a number) or "float16" (two bytes)
    words       only these, whatever their case; empty: all
    stop_words  all but these, whatever their case
    per_word    at most so many occurrences of each word as it is spelled, the first ones; None: all
    keep        fields of the texts whose values stay with the occurrences, such as a year; "file": the file's name
    """

    layers: str = "top"
    precision: Precision = "int8"
    punctuation: bool = False  # tokens without a letter or digit too
    min_length: Count = 1  # characters
    words: tuple[str, ...] = ()
    stop_words: tuple[str, ...] = ()
    per_word: Positive | None = None
    keep: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check(self, error=InputError)
        if len(set(self.keep)) < len(self.keep) or not all(self.keep):
            raise InputError(f"fields to keep are {', '.join(map(repr, self.keep))}; expected different names")
        if LayerChoice.parse(self.layers).kind == "all":
            raise InputError(
                "an index holds one vector per word, layers 'all' are several; choose 'top', 'average', 'concat:1,2'"
            )


@dataclass(frozen=True, slots=True)
class TextRun:
    """A text that was added, or is being added. What is empty or None was not recorded (elmokit 0.1.0)."""

    name: str
    complete: bool = False
    sentences: Count = 0
    arithmetic: str = ""  # that made its vectors
    occurrences: Count | None = None

    def is_of(self, name: str) -> bool:
        """Whether it is the text of this name; names that end in a digest of the text are told by that alone."""
        one, other = (DIGEST.search(text) for text in (self.name, name))
        return one[0] == other[0] if one and other else bool(name) and self.name == name


@dataclass(frozen=True, slots=True)
class Manifest:
    """`index.json`."""

    model: str  # the encoder's fingerprint
    source: str  # where it was read from
    tokenizer: str
    width: Size
    settings: IndexSettings
    runs: tuple[TextRun, ...] = field(default=())
    version: Literal[1, 2] = 2  # 1: of elmokit 0.1.0, with neither `arithmetic` nor `occurrences`

    @classmethod
    def of(cls, encoder: Encoder, settings: IndexSettings) -> "Manifest":
        return cls(
            encoder.fingerprint,
            encoder.source,
            f"{encoder.tokenizer.name} {encoder.tokenizer.version}",
            LayerChoice.parse(settings.layers).width(encoder.depth, encoder.width),
            settings,
        )

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        path = folder / MANIFEST
        if not path.is_file():
            raise InputError(f"{folder}: holds no index (no {MANIFEST}); make one with  elmokit index TEXT -o {folder}")
        return read_json(path, cls, marks={"format": MARK}, advice="restore it, or make the index again")

    def write(self, folder: Path) -> None:
        fields = {"format": MARK, **plain(replace(self, version=2))}
        write_text(folder / MANIFEST, json.dumps(fields, indent=2))

    def with_run(self, number: int, run: TextRun) -> "Manifest":
        """With this run in the place of run `number`, or behind the last."""
        return replace(self, runs=(*self.runs[:number], run, *self.runs[number + 1 :]))

    @property
    def model_place(self) -> str:
        """Where to load the model from. One that came with elmokit has a name, wherever that is installed."""
        there = Path(self.source)
        bundled = there.parts[-3:-1] == ("elmokit", "models") and there.name in bundled_models()
        return there.name if bundled and not there.exists() else self.source

    def check_encoder(self, encoder: Encoder, folder: Path, *, allow_other: bool | None = None) -> None:
        """Vectors of two models say nothing of each other: refused, or with `allow_other` a warning.

        See `check_same_encoder`.
        """
        check_same_encoder(
            encoder,
            fingerprint=self.model,
            source=self.source,
            holder=str(folder),
            allow_other=allow_other,
            fits=self._width_of(encoder) == self.width,
        )
        tokenizer = f"{encoder.tokenizer.name} {encoder.tokenizer.version}"
        if tokenizer != self.tokenizer:
            warnings.warn(
                f"the text of {folder} was cut into words by the tokenizer {self.tokenizer}, text given now by "
                f"{tokenizer}; words may be cut in other places",
                ElmokitWarning,
                stacklevel=1,
            )

    def _width_of(self, encoder: Encoder) -> int | None:
        """Of the vectors that an encoder would give here; None where it lacks the layers."""
        try:
            return LayerChoice.parse(self.settings.layers).width(encoder.depth, encoder.width)
        except InputError:
            return None

    @property
    def arithmetic(self) -> tuple[str, ...]:
        """What is known of the arithmetic that made the vectors; more than one where several were mixed."""
        return tuple(sorted({run.arithmetic for run in self.runs} - {""}))

    def check_arithmetic(self, arithmetic: str, folder: Path, *, mix: bool) -> None:
        """The same model gives slightly other vectors on another machine: two of them are not mixed in silence."""
        other = [known for known in self.arithmetic if known != arithmetic]
        if other and not mix:
            raise InputError(
                f"{folder} holds vectors that were made with other arithmetic ({', '.join(other)}) than would be made "
                f"here ({arithmetic}); add the text where that one runs, or mix both with --mix-arithmetic "
                "(mix_arithmetic=True)"
            )
        if any(not run.arithmetic for run in self.runs):
            warnings.warn(
                f"{folder} does not say with which arithmetic its vectors were made (by elmokit 0.1.0); those that are "
                f"added now are made with {arithmetic}, and may differ slightly for the same sentence",
                ElmokitWarning,
                stacklevel=1,
            )

    def check_settings(self, settings: IndexSettings, folder: Path) -> None:
        then, now = plain(self.settings), plain(settings)
        changed = [f"{k}: {_shown(k, then[k])} there, {_shown(k, now[k])} now" for k in now if then[k] != now[k]]
        if changed:
            raise InputError(
                f"{folder} was begun with other settings ({'; '.join(changed)}); leave them out to take those of the "
                "index, or make another index"
            )


def _shown(name: str, value: object) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return (", ".join(value) or "nothing") if name == "keep" else f"{len(value)} words"
    return repr(value)
