"""Everything that defines a pre-training or fine-tuning run. Field = attribute = TOML key = command-line flag.

Precedence: preset, then the TOML file, then flags. Help texts live with the fields.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from elmokit.errors import ConfigError

if TYPE_CHECKING:  # the command line reads the fields of this file without loading torch
    from elmokit.nn.bilm import BiLMConfig, Direction
    from elmokit.nn.softmax import SoftmaxConfig

Filters = tuple[tuple[int, int], ...]
OFFICIAL_FILTERS: Filters = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))


def _f(default: Any, help: str, *, part: Literal["model", "training", "run"] = "training") -> Any:
    """A field with its help text and what it belongs to: `run` fields do not change what is computed."""
    return field(default=default, metadata={"help": help, "part": part})


@dataclass(frozen=True, slots=True)
class PretrainConfig:
    # The model
    cell_dim: int = _f(2048, "LSTM cell size", part="model")
    projection_dim: int = _f(
        256, "width of a direction's output; vectors are twice as wide with both directions", part="model"
    )
    n_layers: int = _f(2, "LSTM layers", part="model")
    skip_connections: bool = _f(True, "add a layer's input to its output from the second layer on", part="model")
    cell_clip: float = _f(3.0, "clip the cell to +- this; 0: no clip", part="model")
    proj_clip: float = _f(3.0, "clip the projected output to +- this; 0: no clip", part="model")
    directions: Literal["both", "forward", "backward"] = _f("both", "which language models to train", part="model")
    input: Literal["characters", "words"] = _f(
        "characters", "what the model reads: a word's characters, or its vocabulary id", part="model"
    )
    char_dim: int = _f(16, "character embedding size", part="model")
    filters: Filters = _f(OFFICIAL_FILTERS, "convolutions as width:number,width:number,...", part="model")
    n_highway: int = _f(1, "highway layers", part="model")
    activation: Literal["relu", "tanh"] = _f("relu", "activation after the convolutions", part="model")
    max_characters: int = _f(50, "characters of a word that are read, its two boundary marks included", part="model")
    # The text
    vocab_size: int = _f(131072, "most frequent words that can be predicted; the others are <UNK> as targets only")
    min_count: int = _f(1, "least count of a word in the vocabulary")
    lines: Literal["sentences", "paragraphs"] = _f(
        "paragraphs", "what one line of the corpus holds; paragraphs are split"
    )
    tokenizer: str = _f("english", "english, unicode, or whitespace for tokenised text")
    text_field: str = _f("text", "JSONL field or Parquet column that holds the text")
    heldout: float = _f(0.01, "share of the corpus set aside for validation")
    order: Literal["shuffled", "corpus"] = _f("shuffled", "sentences shuffled anew every epoch, or in corpus order")
    state: Literal["reset", "carry", "random"] = _f(
        "reset", "LSTM state at a sentence's start: from zero, carried, or random"
    )
    reset_probability: float = _f(0.5, "state = random: how often a sentence starts from zero")
    # The objective
    softmax: Literal["sampled", "full", "adaptive"] = _f("sampled", "how targets are scored in training")
    samples: int = _f(8192, "sampled softmax: negatives per step")
    sampling: Literal["distinct", "repeated", "published"] = _f(
        "distinct", "sampled softmax: distinct, repeated or published; see elmokit.nn.sampling"
    )
    dropout: float = _f(0.1, "on each layer's input and on the top output")
    # The optimisation
    epochs: float = _f(10.0, "passes over the text")
    steps: int = _f(0, "steps in all; 0: from epochs")
    minutes: float = _f(0.0, "wall-time budget instead of epochs; the schedule follows the clock (not bit-repeatable)")
    rows: int = _f(1024, "parallel streams in a batch, over all processes")
    window: int = _f(20, "steps of truncated backpropagation")
    accumulate: int = _f(1, "split a batch in this many parts, for less memory")
    optimizer: Literal["adamw", "muon", "adagrad"] = _f(
        "adamw", "AdamW; Muon for the matrices inside, AdamW for the rest; Adagrad as published"
    )
    schedule: Literal["cosine", "constant"] = _f(
        "cosine", "learning rate after the warm-up: falling in a cosine, or constant until the last part"
    )
    decay: float = _f(0.2, "schedule = constant: share of the steps at the end in which the rate falls in a line")
    learning_rate: float = _f(2e-3, "peak learning rate (published, for Adagrad: 0.2)")
    warmup: float = _f(0.02, "share of the steps with rising learning rate")
    final_rate: float = _f(0.02, "learning rate at the end, as a share of the peak")
    weight_decay: float = _f(0.01, "AdamW: on matrices")
    clip_norm: float = _f(1.0, "global gradient norm is clipped here (published, for Adagrad: 10)")
    seed: int = _f(1, "for initial weights, shuffling, dropout and negatives")
    precision: Literal["auto", "float32", "bfloat16"] = _f("auto", "bfloat16 on a GPU, float32 on a CPU")
    # The run
    valid_every: int = _f(1000, "steps between validations", part="run")
    valid_tokens: int = _f(200_000, "held-out words read at a validation", part="run")
    patience: int = _f(0, "stop after this many validations without a better one; 0: never", part="run")
    checkpoint_every: int = _f(1000, "steps between checkpoints", part="run")
    checkpoint_minutes: float = _f(5.0, "and at least every so many minutes", part="run")
    keep_checkpoints: int = _f(2, "checkpoints kept", part="run")
    log_every: int = _f(50, "steps between log lines", part="run")
    workers: int = _f(0, "processes that read the corpus; 0: one per core", part="run")

    def __post_init__(self) -> None:
        positive = ["cell_dim", "projection_dim", "n_layers", "vocab_size", "rows", "window", "accumulate", "samples"]
        positive += ["learning_rate", "clip_norm", "valid_every", "checkpoint_every", "log_every", "keep_checkpoints"]
        for name in positive:
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; expected more than 0")
        if self.rows % self.accumulate:
            raise ConfigError(f"rows ({self.rows}) cannot be split in {self.accumulate} equal parts (accumulate)")
        shares = {"heldout": 0.5, "dropout": 0.99, "reset_probability": 1.0, "warmup": 1.0, "final_rate": 1.0}
        shares["decay"] = 1.0
        for name, most in shares.items():
            if not 0 <= getattr(self, name) <= most:
                raise ConfigError(f"{name} is {getattr(self, name)}; expected a share from 0 to {most}")
        for name in ("steps", "epochs", "minutes", "min_count", "weight_decay", "patience", "workers", "valid_tokens"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; expected at least 0")
        for name, hint in get_type_hints(type(self)).items():
            if get_origin(hint) is Literal and getattr(self, name) not in get_args(hint):
                raise ConfigError(f"{name} is {getattr(self, name)!r}; expected one of {', '.join(get_args(hint))}")

    def model(self, *, n_words: int = 0) -> "BiLMConfig":
        """The network's shape; a word-level one needs the vocabulary's size."""
        from elmokit.nn.bilm import BiLMConfig
        from elmokit.nn.char_cnn import TokenEncoderConfig
        from elmokit.nn.lstm import LstmConfig

        both: tuple[Direction, ...] = ("forward", "backward")
        words = self.input == "words"
        tokens = TokenEncoderConfig(
            char_dim=0 if words else self.char_dim,
            max_characters=self.max_characters,
            filters=() if words else self.filters,
            activation=self.activation,
            n_highway=0 if words else self.n_highway,
            word_dim=self.projection_dim if words else 0,
            n_words=n_words if words else 0,
            projection_dim=self.projection_dim,
            project=not words,
        )
        lstm = LstmConfig(
            cell_dim=self.cell_dim,
            projection_dim=self.projection_dim,
            project=self.projection_dim < self.cell_dim,
            cell_clip=self.cell_clip or None,
            proj_clip=self.proj_clip or None,
        )
        used: tuple[Direction, ...] = both if self.directions == "both" else (self.directions,)
        return BiLMConfig(tokens, lstm, self.n_layers, self.skip_connections, used)

    def output(self) -> "SoftmaxConfig":
        from elmokit.nn.softmax import SoftmaxConfig

        return SoftmaxConfig(self.softmax, self.samples, self.sampling)

    def differences(self, other: "PretrainConfig") -> list[str]:
        """What another run would compute differently, as readable `field: mine, theirs`."""
        pairs = [
            (f.name, getattr(self, f.name), getattr(other, f.name)) for f in fields(self) if f.metadata["part"] != "run"
        ]
        return [f"{name}: {mine} there, {theirs} here" for name, mine, theirs in pairs if mine != theirs]


@dataclass(frozen=True, slots=True)
class FinetuneConfig(PretrainConfig):
    """The same for fine-tuning, with defaults for it; the fields of the model come from the model."""

    tokenizer: str = _f("auto", "auto: the model's own; or english, unicode, whitespace (for tokenised text)")
    heldout: float = _f(0.05, "share of the corpus set aside for validation")
    epochs: float = _f(3.0, "passes over the text")
    rows: int = _f(64, "parallel streams in a batch, over all processes")
    learning_rate: float = _f(3e-4, "peak learning rate")
    warmup: float = _f(0.1, "share of the steps with rising learning rate")
    weight_decay: float = _f(0.0, "AdamW: on matrices; above 0 it also shrinks the vectors of words never met")
    valid_every: int = _f(200, "steps between validations", part="run")
    checkpoint_every: int = _f(200, "steps between checkpoints", part="run")
    log_every: int = _f(10, "steps between log lines", part="run")
    softmax_epochs: float = _f(1.0, "a model without softmax: passes over the text that learn one, the rest frozen")
    softmax_rate: float = _f(2e-3, "a model without softmax: peak learning rate for these passes")

    def first_stage(self) -> "FinetuneConfig":
        """What trains a new softmax while the rest is frozen."""
        return replace(self, epochs=self.softmax_epochs, steps=0, minutes=0.0, learning_rate=self.softmax_rate)


_TINY: Filters = ((1, 16), (2, 16), (3, 32), (4, 64), (5, 64))
_OFFICIAL = {"valid_every": 2000}
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "tiny": {"cell_dim": 256, "projection_dim": 64, "filters": _TINY, "vocab_size": 20_000, "samples": 2048, "rows": 64,
             "valid_every": 200, "valid_tokens": 20_000, "checkpoint_every": 200, "log_every": 10},
    "small": {"cell_dim": 1024, "projection_dim": 128, **_OFFICIAL},
    "medium": {"cell_dim": 2048, "projection_dim": 256, "learning_rate": 4e-3, **_OFFICIAL},
    "original": {"cell_dim": 4096, "projection_dim": 512, "n_highway": 2, **_OFFICIAL},
}  # fmt: skip


Config = TypeVar("Config", bound=PretrainConfig)


def load_config(preset: str, *, file: Path | None = None, flags: Mapping[str, Any] | None = None) -> PretrainConfig:
    """A preset, changed by a TOML file, changed by flags (those that are not None)."""
    if preset not in PRESETS:
        raise ConfigError(f"preset {preset!r} is not known; expected one of {', '.join(PRESETS)}")
    values = {**PRESETS[preset], **_read_toml(file), **_given(flags)}
    return from_dict(values, source=str(file or "the configuration"), kind=PretrainConfig)


def load_finetune_config(*, file: Path | None = None, flags: Mapping[str, Any] | None = None) -> FinetuneConfig:
    """The defaults for fine-tuning, changed by a TOML file, changed by flags (those that are not None)."""
    values, source = {**_read_toml(file), **_given(flags)}, str(file or "the configuration")
    for f in fields(FinetuneConfig):
        if f.metadata["part"] == "model" and f.name in values:
            raise ConfigError(
                f"{source}: {f.name} belongs to the model and cannot be changed by fine-tuning; leave it out"
            )
    return from_dict(values, source=source, kind=FinetuneConfig)


def _read_toml(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: not a TOML file ({error})") from None


def _given(flags: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (flags or {}).items() if value is not None}


def from_dict(values: Mapping[str, Any], *, source: str, kind: type[Config]) -> Config:
    """A configuration from plain values, as JSON or TOML hold them; unknown names and wrong types are errors."""
    known = {f.name: f for f in fields(kind)}
    if unknown := sorted(set(values) - set(known)):
        raise ConfigError(f"{source}: unknown field {unknown[0]!r}; the fields are {', '.join(sorted(known))}")
    default = kind()
    return replace(
        default, **{name: _fit(name, value, getattr(default, name), source) for name, value in values.items()}
    )


def to_dict(config: PretrainConfig) -> dict[str, Any]:
    return asdict(config)


def _fit(name: str, value: Any, like: Any, source: str) -> Any:
    """The value in its field's own type: TOML's 10 for a float, JSON's lists for filters, `1:32,2:32` from a flag."""
    if name == "filters":
        pairs = [part.split(":") for part in value.split(",")] if isinstance(value, str) else value
        try:
            return tuple((int(width), int(n)) for width, n in pairs)
        except (TypeError, ValueError):
            raise ConfigError(f"{source}: filters is {value!r}; expected width:number,width:number,...") from None
    if isinstance(like, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not type(like):
        raise ConfigError(f"{source}: {name} is {value!r}; expected a {type(like).__name__}")
    return value
