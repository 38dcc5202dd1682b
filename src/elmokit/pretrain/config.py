"""Everything that defines a pre-training or fine-tuning run. Field = attribute = TOML key = command-line flag.

Flags win over the TOML file, and the file over the preset. Help texts stand with the fields.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from elmokit.config import Amount, Count, Positive, Range, Rate, Share, check, combine, read_toml, setting
from elmokit.errors import ConfigError

if TYPE_CHECKING:  # the command line reads the fields of this file without loading torch
    from elmokit.nn.bilm import BiLMConfig, Direction
    from elmokit.nn.softmax import SoftmaxConfig

Filters = tuple[tuple[int, int], ...]
OFFICIAL_FILTERS: Filters = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))


def _model(default: Any, help: str) -> Any:
    """A field that shapes the network."""
    return setting(default, help, part="model")


def _run(default: Any, help: str) -> Any:
    """A field that does not change what is computed."""
    return setting(default, help, part="run")


def _instead(name: str, default: Any) -> Any:
    """A field of `PretrainConfig` with another default."""
    metadata = next(f.metadata for f in fields(PretrainConfig) if f.name == name)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class PretrainConfig:
    # The model
    cell_dim: Positive = _model(2048, "size of the LSTM cell")
    projection_dim: Positive = _model(
        256, "width of a direction's output; vectors are twice as wide with both directions"
    )
    n_layers: Positive = _model(2, "number of LSTM layers")
    skip_connections: bool = _model(True, "add a layer's input to its output from the second layer on")
    cell_clip: float = _model(3.0, "clip the cell to +- this; 0: no clip")
    proj_clip: float = _model(3.0, "clip the projected output to +- this; 0: no clip")
    directions: Literal["both", "forward", "backward"] = _model("both", "which language models to train")
    input: Literal["characters", "words"] = _model(
        "characters", "what the model reads: a word's characters, or its vocabulary id"
    )
    char_dim: int = _model(16, "size of a character's embedding")
    filters: Filters = _model(OFFICIAL_FILTERS, "widths and numbers of the convolutions, as width:number,width:number")
    n_highway: int = _model(1, "number of highway layers")
    activation: Literal["relu", "tanh"] = _model("relu", "activation after the convolutions")
    max_characters: int = _model(50, "longest word in characters, its two boundary marks included; the rest is cut")
    # The text
    vocab_size: Positive = setting(
        131072, "size of the vocabulary: the most frequent words; all others are <UNK> as targets"
    )
    min_count: Count = setting(1, "a word needs this many occurrences to be in the vocabulary")
    lines: Literal["sentences", "paragraphs"] = setting(
        "paragraphs", "what a line holds; paragraphs are split into sentences"
    )
    tokenizer: str = setting(
        "english", "tokenizer: english, unicode, unicode@2, whitespace (for tokenised text), python:... or command:..."
    )
    dedupe: bool = setting(False, "leave out paragraphs that repeat, or nearly repeat, earlier ones")
    text_field: str = setting("text", "JSONL field or Parquet column with the text")
    heldout: Annotated[float, Range(0, 0.5)] = setting(0.01, "share of the corpus set aside for validation")
    order: Literal["shuffled", "corpus"] = setting(
        "shuffled", "shuffle the sentences in every epoch, or keep the order of the corpus"
    )
    state: Literal["reset", "carry", "random"] = setting(
        "reset", "LSTM state at a sentence's start: from zero, carried, or random"
    )
    reset_probability: Share = setting(0.5, "with state random: how often a sentence starts from zero")
    # The objective
    softmax: Literal["sampled", "full", "adaptive"] = setting("sampled", "how targets are scored in training")
    samples: Positive = setting(8192, "sampled softmax: negatives per step")
    sampling: Literal["distinct", "repeated", "published"] = setting(
        "distinct", "sampled softmax: negatives are all different, drawn with replacement, or as in bilm-tf"
    )
    recase: Share = setting(
        0.0, "share of the sentences that are read in lower case or in capitals, half each; what they predict stays"
    )
    dropout: Annotated[float, Range(0, 0.99)] = setting(0.1, "dropout on each layer's input and on the top output")
    stored_as: Literal["float", "int4"] = setting(
        "float", "train for a model that will be stored so: int4 rounds the matrices in every step to four bits"
    )
    distil: Amount = setting(10.0, "with a teacher: weight of the distance to its layers, beside the loss")
    # The optimisation
    epochs: Amount = setting(10.0, "passes over the text")
    steps: Count = setting(0, "number of steps; 0: as many as the epochs have")
    minutes: Amount = setting(
        0.0, "train for this time instead of epochs; the result then depends on the machine's speed"
    )
    rows: Positive = setting(1024, "parallel streams in a batch, of all processes together")
    window: Positive = setting(20, "steps of truncated backpropagation")
    accumulate: Positive = setting(1, "split a batch into this many parts, to save memory")
    optimizer: Literal["adamw", "muon", "adagrad"] = setting(
        "adamw", "AdamW, Muon (for the matrices inside, AdamW for the rest), or Adagrad as published"
    )
    schedule: Literal["cosine", "constant"] = setting(
        "cosine", "learning rate after the warm-up: falling in a cosine, or constant until the last part"
    )
    decay: Share = setting(
        0.2, "with schedule constant: share of the steps at the end in which the rate falls linearly"
    )
    learning_rate: Rate = setting(2e-3, "peak learning rate (published, for Adagrad: 0.2)")
    warmup: Share = setting(0.02, "share of the steps in which the learning rate rises")
    warmup_steps: Count = setting(
        500, "with minutes: at least this many steps of warm-up, but at most a tenth of the time"
    )
    final_rate: Share = setting(0.02, "learning rate at the end, as a share of the peak")
    weight_decay: Amount = setting(0.01, "weight decay of AdamW, on matrices")
    clip_norm: Rate = setting(1.0, "limit of the gradient's norm (published, for Adagrad: 10)")
    seed: Count = setting(1, "seed of initial weights, shuffling, dropout and negatives")
    precision: Literal["auto", "float32", "bfloat16"] = setting(
        "auto", "type of the numbers in training; auto: bfloat16 on a GPU, float32 on a CPU"
    )
    # The run
    on_divergence: Literal["stop", "rewind"] = _run(
        "stop", "what to do if training diverges: stop, or continue from the last good checkpoint at half the rate"
    )
    valid_every: Positive = _run(1000, "steps between validations")
    valid_tokens: Count = _run(200_000, "held-out words in a validation")
    patience: Count = _run(0, "stop after this many validations without a better one; 0: never")
    checkpoint_every: Positive = _run(1000, "steps between checkpoints")
    checkpoint_minutes: Amount = _run(5.0, "longest time between checkpoints, in minutes")
    keep_checkpoints: Positive = _run(2, "number of checkpoints to keep")
    log_every: Positive = _run(50, "steps between log lines")
    workers: Count = _run(0, "processes that read the corpus; 0: one per core")

    def __post_init__(self) -> None:
        check(self)
        if self.rows % self.accumulate:
            raise ConfigError(f"rows ({self.rows}) cannot be split in {self.accumulate} equal parts (accumulate)")

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

    tokenizer: str = setting(
        "auto", "tokenizer: auto (the model's own), english, unicode@2, unicode, whitespace (for tokenised text) ..."
    )
    heldout: Annotated[float, Range(0, 0.5)] = _instead("heldout", 0.05)
    epochs: Amount = _instead("epochs", 3.0)
    rows: Positive = _instead("rows", 64)
    learning_rate: Rate = setting(3e-4, "peak learning rate")
    warmup: Share = _instead("warmup", 0.1)
    weight_decay: Amount = setting(
        0.0, "weight decay of AdamW, on matrices; above 0 it also shrinks the vectors of words never met"
    )
    valid_every: Positive = _instead("valid_every", 200)
    checkpoint_every: Positive = _instead("checkpoint_every", 200)
    log_every: Positive = _instead("log_every", 10)
    softmax_words: Count = setting(
        0, "a model with a softmax: words that it predicts, its own and the most frequent others; 0: its own"
    )
    softmax_epochs: Amount = setting(
        1.0, "a model without softmax: passes over the text that learn one, the rest frozen"
    )
    softmax_rate: Rate = setting(2e-3, "a model without softmax: peak learning rate for these passes")

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
    "original": {"cell_dim": 4096, "projection_dim": 512, "n_highway": 2, "learning_rate": 1e-3, **_OFFICIAL},
}  # fmt: skip


def load_config(preset: str, *, file: Path | None = None, flags: Mapping[str, Any] | None = None) -> PretrainConfig:
    """A preset, changed by a TOML file, changed by flags (those that are not None)."""
    if preset not in PRESETS:
        raise ConfigError(f"preset {preset!r} is not known; expected one of {', '.join(PRESETS)}")
    layers = ("the preset", PRESETS[preset]), (str(file), read_toml(file)), ("the command line", flags or {})
    return combine(PretrainConfig, *layers)


def load_finetune_config(*, file: Path | None = None, flags: Mapping[str, Any] | None = None) -> FinetuneConfig:
    """The defaults for fine-tuning, changed by a TOML file, changed by flags (those that are not None)."""
    layers = (str(file), read_toml(file)), ("the command line", flags or {})
    shape = {f.name for f in fields(FinetuneConfig) if f.metadata["part"] == "model"}
    for source, values in layers:
        for name in values:
            if name in shape:
                raise ConfigError(
                    f"{source}: {name} belongs to the model and cannot be changed by fine-tuning; leave it out"
                )
    return combine(FinetuneConfig, *layers)
