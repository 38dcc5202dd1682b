"""Training a tagger on a table of layers: seeded, stopped when the development score stands still, the best kept."""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from elmokit.encoders.places import pick_device
from elmokit.errors import InputError
from elmokit.tasks.metrics import label_accuracy, score_spans
from elmokit.tasks.table import LayerTable
from elmokit.tasks.tagger import TaggerConfig, TaggerNetwork

POOL = 50  # batches whose sentences are sorted by length together: little padding, still a random order


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """The learning rate is multiplied by `decay` after each epoch that did not beat the best one."""

    epochs: int = 30
    batch_size: int = 32
    learning_rate: float = 1e-3
    decay: float = 0.5
    patience: int = 4  # epochs without a better score before it stops
    clip_norm: float = 5.0
    seed: int = 1
    device: str = "auto"


@dataclass(frozen=True, slots=True)
class TaggedTable:
    """Sentences as layers, and their labels word by word, in the tagger's scheme."""

    layers: LayerTable
    tags: Sequence[Sequence[str]]

    def __post_init__(self) -> None:
        lengths = np.diff(self.layers.starts).tolist()
        if [len(tags) for tags in self.tags] != lengths:
            raise InputError("the labels do not fit the sentences; expected one label for each word of each sentence")


@dataclass(frozen=True, slots=True)
class Epoch:
    """What happened in one pass over the training data."""

    number: int  # from 1
    loss: float  # mean over sentences
    score: float  # on the development data
    learning_rate: float


@dataclass(frozen=True, slots=True)
class Trained:
    """The network of the best epoch, and how it went."""

    network: TaggerNetwork
    epochs: tuple[Epoch, ...]

    @property
    def best(self) -> Epoch:
        return max(self.epochs, key=lambda epoch: (epoch.score, -epoch.number))


def train_tagger(
    config: TaggerConfig,
    train: TaggedTable,
    dev: TaggedTable,
    *,
    training: TrainingConfig | None = None,
    told: Callable[[Epoch], None] | None = None,
) -> Trained:
    """Adam on the CRF's likelihood. The caller's random numbers are left as they were."""
    training = training or TrainingConfig()
    device = pick_device(training.device)
    labels = [config.ids(tags) for tags in train.tags]
    order = np.random.default_rng(training.seed)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(training.seed)
        network = TaggerNetwork(config).to(device)
        optimizer = torch.optim.Adam(network.parameters(), lr=training.learning_rate)
        epochs: list[Epoch] = []
        best_state = network.state_dict()
        best, rate = -1.0, training.learning_rate
        for number in range(1, training.epochs + 1):
            for group in optimizer.param_groups:
                group["lr"] = rate
            loss = _run_epoch(network, optimizer, train.layers, labels, order, training)
            score = score_tagger(network, dev)
            epochs.append(Epoch(number, loss, score, rate))
            if told is not None:
                told(epochs[-1])
            if score > best:
                best, best_state = score, copy.deepcopy(network.state_dict())
                continue
            rate *= training.decay
            if number - max(epochs, key=lambda epoch: (epoch.score, -epoch.number)).number >= training.patience:
                break
    network.load_state_dict(best_state)
    return Trained(network.eval(), tuple(epochs))


def predict_tags(network: TaggerNetwork, layers: LayerTable, *, batch_size: int = 128) -> list[list[str]]:
    """The labels of every sentence, in order; none for an empty one."""
    device = next(network.parameters()).device
    lengths = np.diff(layers.starts)
    by_length = [int(k) for k in np.argsort(lengths, kind="stable") if lengths[k]]
    found: list[list[str]] = [[] for _ in lengths]
    training = network.training
    network.eval()
    for start in range(0, len(by_length), batch_size):
        picked = by_length[start : start + batch_size]
        for k, tags in zip(picked, network.tags(layers.stack(picked, device=device)), strict=True):
            found[k] = tags
    network.train(training)
    return found


def score_tagger(network: TaggerNetwork, data: TaggedTable) -> float:
    """Span F1, or the share of right labels for a tagger without a scheme."""
    predicted = predict_tags(network, data.layers)
    if network.config.scheme is None:
        return label_accuracy(data.tags, predicted)
    return score_spans(data.tags, predicted).f1


def _run_epoch(
    network: TaggerNetwork,
    optimizer: torch.optim.Optimizer,
    layers: LayerTable,
    labels: Sequence[Sequence[int]],
    order: np.random.Generator,
    training: TrainingConfig,
) -> float:
    device = next(network.parameters()).device
    network.train()
    total, seen = torch.zeros((), device=device), 0
    for picked in shuffled_batches(np.diff(layers.starts).tolist(), training.batch_size, order):
        stack = layers.stack(picked, device=device)
        loss = network.loss(stack, _padded([labels[k] for k in picked]).to(device))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(network.parameters(), training.clip_norm)
        optimizer.step()
        total += loss.detach() * len(picked)
        seen += len(picked)
    return float(total) / max(seen, 1)


def shuffled_batches(lengths: Sequence[int], batch_size: int, order: np.random.Generator) -> Iterator[list[int]]:
    """Every sentence that has words, once, in random batches of like length."""
    shuffled = order.permutation([k for k, length in enumerate(lengths) if length])
    batches: list[list[int]] = []
    for start in range(0, len(shuffled), batch_size * POOL):
        pool = sorted(shuffled[start : start + batch_size * POOL].tolist(), key=lambda k: lengths[k])
        batches += [pool[k : k + batch_size] for k in range(0, len(pool), batch_size)]
    for k in order.permutation(len(batches)):
        yield batches[k]


def _padded(rows: Sequence[Sequence[int]]) -> Tensor:
    padded = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)  # (B, T)
    for row, ids in zip(padded, rows, strict=True):
        row[: len(ids)] = torch.tensor(ids)
    return padded
