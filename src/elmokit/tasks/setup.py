"""Everything that defines the training of a task network, from defaults, a TOML file and flags.

Each wins over those before it: general defaults, the task's own, `--quick`, the TOML file, flags. Names are flat: a
field of the task, of its features and of its training never share one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

from elmokit.config import (
    Amount,
    Count,
    Pairs,
    Positive,
    Range,
    Rate,
    Share,
    SizeOrNone,
    check,
    plain,
    read_toml,
    revive,
    setting,
)
from elmokit.errors import ConfigError, ElmokitError
from elmokit.tasks.task import Task
from elmokit.tasks.words import ElmoAt, WordFeaturesConfig, WordLength


@dataclass(frozen=True, slots=True)
class FeatureSettings:
    """What a network reads of its words."""

    elmo_at: ElmoAt = setting("input", "where the encoder's layers enter the network")
    elmo_layers: str = setting("mix", "layers to use: mix (learned), 0, top, average, mix:1,2, concat:1,2 ...")
    elmo_dropout: Share = setting(0.5, "dropout on the encoder's vectors")
    elmo_l2: Amount = setting(0.001, "L2 penalty on the weights of the mix")
    vectors: str = setting("", "file of word vectors (GloVe, word2vec, fastText .vec); without one they are trained")
    max_vectors: Count = setting(100_000, "words to read from the file of vectors, from its beginning; 0: all")
    train_vectors: bool = setting(False, "train the vectors of the file further")
    word_dim: SizeOrNone = setting(100, "width of trained word vectors; 0: none")
    min_count: Count = setting(1, "a word needs this many occurrences to have a trained vector of its own")
    word_dropout: Share = setting(0.05, "how often a word is replaced by an unknown one in training")
    char_dim: SizeOrNone = setting(16, "width of a character in the character CNN; 0: no characters")
    char_filters: Pairs = setting(((3, 128),), "convolutions of the character CNN, as width:number,width:number")
    max_characters: WordLength = setting(
        50, "longest word in bytes that the character CNN reads, two boundary marks included"
    )
    feature_dropout: Share = setting(0.0, "dropout on word and character vectors")


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """How a network is trained."""

    epochs: Positive = setting(50, "passes over the training data, at most")
    batch_size: Positive = setting(32, "examples in a batch")
    learning_rate: Rate = setting(1e-3, "learning rate of Adam")
    weight_decay: Amount = setting(0.0, "weight decay of Adam, decoupled")
    decay: Annotated[float, Range(high=1, above=0)] = setting(
        0.5, "factor of the learning rate after an epoch without a better dev score"
    )
    patience: Positive = setting(5, "epochs without a better dev score before training stops")
    clip_norm: Rate = setting(5.0, "limit of the gradient's norm")
    average: Annotated[float, Range(0, below=1)] = setting(
        0.0, "keep a moving average of the weights with this decay; 0: no average"
    )
    max_train: Count = setting(0, "train on this many examples, evenly spaced; 0: all")
    fine_tune: bool = setting(False, "train the encoder, too; its weights are saved with the model")
    fine_tune_rate: Rate = setting(1e-4, "learning rate of the encoder when it is fine-tuned")
    seed: Count = setting(1, "seed of initial weights, order and dropout")

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True)
class Setup:
    """One training, but for its data and its encoder."""

    task: str
    settings: Any  # the task's own dataclass
    features: FeatureSettings
    training: TrainingSettings

    def plain(self) -> dict[str, Any]:
        """By section, as a saved model holds it."""
        return {
            "task": self.task,
            "settings": plain(self.settings),
            "features": plain(self.features),
            "training": plain(self.training),
        }

    def changed(self, **changes: Any) -> "Setup":
        """The same with other values, by field name, whichever section they belong to."""
        return self.changed_by(changes, source="the settings")

    def changed_by(self, changes: Mapping[str, Any], *, source: str) -> "Setup":
        """The same, with where the values come from, for errors."""
        parts = {part: getattr(self, part) for part in ("settings", "features", "training")}
        renamed = {f.metadata["was"]: f.name for part in parts.values() for f in fields(part) if f.metadata.get("was")}
        changes = {renamed.get(name, name): value for name, value in changes.items()}
        known = {f.name for part in parts.values() for f in fields(part)}
        if unknown := sorted(set(changes) - known):
            raise ConfigError(f"{source}: unknown field {unknown[0]!r}; the fields are {', '.join(sorted(known))}")
        for name, old in parts.items():
            own = {f.name: changes[f.name] for f in fields(old) if f.name in changes}
            parts[name] = revive(type(old), {**plain(old), **own}, source=source) if own else old
        return replace(self, **parts)

    def flat(self, *, former: bool = False) -> dict[str, Any]:
        """All fields of all sections; `former` as in `plain`."""
        parts = (self.settings, self.features, self.training)
        return {name: value for part in parts for name, value in plain(part, former=former).items()}

    def features_config(self, *, n_words: int, word_dim: int, depth: int, width: int) -> WordFeaturesConfig:
        """The features of a vocabulary of `n_words` and an encoder of this depth and width."""
        own = self.features
        return WordFeaturesConfig(
            n_words=n_words,
            word_dim=word_dim,
            train_words=not own.vectors or own.train_vectors,
            word_dropout=own.word_dropout,
            char_dim=own.char_dim,
            char_filters=own.char_filters,
            max_characters=own.max_characters,
            dropout=own.feature_dropout,
            elmo_depth=depth,
            elmo_width=width,
            elmo_at=own.elmo_at,
            elmo_layers=own.elmo_layers,
            elmo_dropout=own.elmo_dropout,
            elmo_l2=own.elmo_l2,
        )


def default_setup(task: Task[Any, Any], *, quick: bool = False) -> Setup:
    """The task's defaults, or its quick ones."""
    usual = Setup(task.name, task.settings, FeatureSettings(), TrainingSettings())
    names = [f.name for part in (usual.settings, usual.features, usual.training) for f in fields(part)]
    assert len(names) == len(set(names)), f"{task.name}: a setting shares its name with a general one"
    return usual.changed(**task.features, **task.training).changed(**(task.quick if quick else {}))


def load_setup(
    task: Task[Any, Any],
    *,
    quick: bool = False,
    file: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    start: Setup | None = None,
) -> Setup:
    """The task's defaults, changed by a TOML file, changed by flags (those that are not None).

    `start` is the setup of a model to begin with: what its network is and reads stands in place of those defaults, but
    not what its training added to its data.
    """
    stated: dict[str, Any] = {}
    for name, value in read_toml(file).items():  # the file may put fields under headings
        stated.update(value if isinstance(value, dict) else {name: value})
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    setup = default_setup(task, quick=quick)
    if start is not None:
        added = {f.name: f.default for f in fields(start.settings) if f.metadata.get("part") == "examples"}
        setup = replace(setup, settings=replace(start.settings, **added), features=start.features)
    setup = setup.changed_by(stated, source=str(file))
    return setup.changed_by(given, source="the command line")


def read_setup(
    task: Task[Any, Any],
    saved: Mapping[str, Any],
    *,
    source: str = "the saved setup",
    error: type[ElmokitError] = ConfigError,
) -> Setup:
    """What `Setup.plain` made."""
    kinds: dict[str, type[Any]] = {
        "settings": type(task.settings),
        "features": FeatureSettings,
        "training": TrainingSettings,
    }
    parts: dict[str, Any] = {
        name: revive(kind, saved.get(name), source=f"{source}: {name}", error=error) for name, kind in kinds.items()
    }
    return Setup(task.name, **parts)
