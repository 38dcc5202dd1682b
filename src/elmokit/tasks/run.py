"""A whole training: examples in, `TaskModel` out. The commands, the ablation and Python all come through here."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from elmokit.encoders import Encoder
from elmokit.encoders.places import pick_device
from elmokit.encoders.static.load import load_table
from elmokit.encoders.static.table import WordTable
from elmokit.errors import ConfigError, InputError
from elmokit.formats.locks import locked
from elmokit.layers import Vectors
from elmokit.tasks.feed import Feeder
from elmokit.tasks.layers import CachedLayers, LayerSource, Told, TunedLayers
from elmokit.tasks.saved import TaskModel
from elmokit.tasks.setup import Setup
from elmokit.tasks.start import Start
from elmokit.tasks.task import E, Network, P, Task
from elmokit.tasks.train import Checkpoint, Epoch, Identity, Trained, Trainer
from elmokit.tasks.words import WordReader, WordVocabulary

CHECKPOINT = "checkpoint.pt"
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Who hears how it goes."""

    epoch: Callable[[Epoch], None] | None = None
    step: Callable[[int, int], None] | None = None  # examples done, of how many
    embedding: Told | None = None  # tokens done, of how many
    resumed: Callable[[Trained], None] | None = None  # what an earlier run had done


def train_task(
    task: Task[E, P],
    setup: Setup,
    train: Sequence[E],
    dev: Sequence[E],
    *,
    encoder: Encoder | None = None,
    layers: LayerSource | None = None,
    start: Start | None = None,
    cache: Path | None = None,
    folder: Path | Checkpoint | None = None,
    device: str | torch.device = "auto",
    listener: Listener | None = None,
) -> TaskModel[Any, Any]:
    """Trains a network as `setup` says; `.trained` of what it returns says how it went.

    The layers of `encoder` are computed here and kept in files of the folder `cache` (without one, in memory), unless
    `layers` holds them already. With `folder`, a checkpoint is written there after every epoch, and a training that
    was stopped resumes from it. A caller who has locked the folder already gives the `Checkpoint` in it. `start`, what
    `load_start` read, is a network to begin with; `load_setup` takes its settings.
    """
    train, listener = spaced(train, setup.training.max_train), listener or Listener()
    place = pick_device(device)
    if not train or not dev:
        raise InputError(f"{len(train)} examples to train on and {len(dev)} to score on; expected at least one of each")
    if setup.features.elmo_at == "none":
        encoder = layers = None
    elif encoder is None:
        raise InputError(f"elmo_at is {setup.features.elmo_at!r}, but there is no encoder; give one, or elmo_at='none'")
    if setup.training.fine_tune:
        if encoder is None:
            raise ConfigError("fine_tune trains the encoder, but elmo_at is 'none'; give one of the two up")
        layers = TunedLayers(encoder)
    elif encoder is not None and layers is None:
        sentences = (sentence for part in (train, dev) for example in part for sentence in example.sentences)
        layers = CachedLayers.of(encoder, sentences, folder=cache, told=listener.embedding)
    network, reader = new_network(task, setup, train, encoder, start)
    trainer = Trainer(network, Feeder(task, reader, layers, device=place), setup.training)
    with ExitStack() as stack:
        if isinstance(folder, Path):
            stack.enter_context(taken(folder))
            folder = Checkpoint(folder / CHECKPOINT, identify_training(task, setup, train, dev, encoder, start))
        trained = trainer.run(
            train,
            dev,
            checkpoint=folder,
            told=listener.epoch,
            stepped=listener.step,
            resumed=listener.resumed,
        )
    if isinstance(layers, TunedLayers):
        encoder = layers.as_encoder()
    return TaskModel(task, network, reader, setup, encoder=encoder, device=place, trained=trained)


def new_network(
    task: Task[E, P], setup: Setup, train: Sequence[E], encoder: Encoder | None, start: Start | None
) -> tuple[Network[E, P], WordReader]:
    """A network that has not been trained, or what `start` makes of it, and what reads its words."""
    if start is not None:
        start.check(setup)
    vocabulary, rows = words_of(setup, train) if start is None else (start.vocabulary, None)
    word_dim = setup.features.word_dim if start is None else start.network.features.config.word_dim
    features = setup.features_config(
        n_words=len(vocabulary),
        word_dim=word_dim if rows is None else rows.shape[1],
        depth=0 if encoder is None else encoder.depth,
        width=0 if encoder is None else encoder.width,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(setup.training.seed)
        network = task.new_network(train, features, setup.settings)
        if start is not None:
            network = start.begin(network)
    if rows is not None:
        network.features.load_vectors(rows)
    return network, WordReader(vocabulary, features)


def words_of(setup: Setup, train: Sequence[E]) -> tuple[WordVocabulary, Vectors | None]:
    """The words that have vectors of their own, and these vectors where a file has them."""
    own = setup.features
    if not own.vectors:
        if not own.word_dim:
            return WordVocabulary(()), None
        sentences = (sentence for example in train for sentence in example.sentences)
        return WordVocabulary.of(sentences, min_count=own.min_count), None
    table = load_table(own.vectors)
    if not isinstance(table, WordTable):
        raise InputError(f"{own.vectors}: a fastText .bin makes up vectors of any word; give its .vec file instead")
    most = own.max_vectors or len(table)
    return WordVocabulary(table.words[:most]), np.array(table.vectors[:most])


@contextmanager
def taken(folder: Path) -> Iterator[None]:
    """The folder for this process alone; where another trains into it, a BusyError says so."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = folder / "lock"
    with locked(lock, busy=f"{folder}: another process is training into it; wait for it, or choose another folder"):
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def identify_training(
    task: Task[E, P],
    setup: Setup,
    train: Sequence[E],
    dev: Sequence[E],
    encoder: Encoder | None,
    start: Start | None = None,
) -> Identity:
    """What a training is of; two that are alike in it end alike."""
    described = {**setup.flat(former=True), "task": task.name, "encoder": encoder.fingerprint if encoder else "none"}
    if start is not None:
        described["from"] = start.digest
    digest = hashlib.blake2b(json.dumps(described, sort_keys=True).encode(), digest_size=16)
    for part in (train, dev):
        for example in part:
            digest.update(repr(example).encode("utf-8", "surrogatepass"))
        digest.update(b"\0")
    return Identity(digest.hexdigest(), described)


def spaced(items: Sequence[Item], most: int) -> Sequence[Item]:
    """Evenly spaced ones, at most so many; all for 0."""
    return items if not 0 < most < len(items) else [items[k * len(items) // most] for k in range(most)]
