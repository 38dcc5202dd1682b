"""The trainer's steps against AdamW written out, and which weights it ends with."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from small_tasks import small_data, small_setup, tiny_elmo
from torch import Tensor, nn

from elmokit.tasks.feed import Feeder
from elmokit.tasks.layers import TunedLayers
from elmokit.tasks.run import words_of
from elmokit.tasks.setup import TrainingSettings
from elmokit.tasks.tagging.task import NER
from elmokit.tasks.task import Batch, Network, Scores, Task
from elmokit.tasks.train import Epoch, Trainer
from elmokit.tasks.words import WordFeatures, WordFeaturesConfig, WordReader, WordVocabulary
from elmokit.text import Sentence, Tokenizer

CPU = torch.device("cpu")
FEATURES = WordFeaturesConfig(n_words=3, word_dim=1, char_dim=0)
START = np.array([1.0, -2.0, 0.5])  # two weights and a bias
GOAL, STEEPNESS = np.array([3.0, 4.0, -1.0]), np.array([1.0, 20.0, 0.1])


@dataclass(frozen=True)
class Place:
    """An example whose words do not matter."""

    sentence: Sentence = Sentence.of(["a"])

    @property
    def sentences(self) -> tuple[Sentence, ...]:
        return (self.sentence,)


class Bowl(Network[Place, float]):
    """loss = sum_k s_k (w_k - goal_k)^2 / 2, so the gradient is s (w - goal)."""

    def __init__(self) -> None:
        super().__init__()
        self.features = WordFeatures(FEATURES)
        self.weight = nn.Parameter(torch.tensor(START[:2]))
        self.bias = nn.Parameter(torch.tensor(START[2:]))

    @property
    def point(self) -> Tensor:
        return torch.cat([self.weight, self.bias])

    def loss(self, batch: Batch[Place]) -> Tensor:
        return 0.5 * (torch.tensor(STEEPNESS) * (self.point - torch.tensor(GOAL)) ** 2).sum()

    def predict(self, batch: Batch[Place]) -> list[float]:
        return [0.0 for _ in batch.examples]


class Scripted(Task[Place, float]):
    """A task whose scores are known before."""

    name, help, network, settings = "scripted", "", Bowl, None

    def __init__(self, *scores: float) -> None:
        self.scores = iter(scores)

    def score(self, examples: Sequence[Place], predictions: Sequence[float]) -> Scores:
        return {"score": next(self.scores)}

    def read(self, path: Any, settings: Any) -> list[Place]:
        return [Place()]

    def new_network(self, train: Sequence[Place], features: WordFeaturesConfig, settings: Any) -> Bowl:
        return Bowl()

    def from_text(self, text: str, tokenizer: Tokenizer) -> list[Place]:
        return [Place()]

    def show(self, example: Place, prediction: float) -> str:
        return ""

    def record(self, example: Place, prediction: float) -> dict[str, Any]:
        return {}


def run(scores: Sequence[float], **settings: Any) -> tuple[list[Epoch], list[NDArray[np.float64]], NDArray[np.float64]]:
    """One step an epoch: the epochs, the weights after each, and the weights at the end."""
    network, task = Bowl(), Scripted(*scores)
    feeder = Feeder(task, WordReader(WordVocabulary(["a"]), FEATURES), None, device=CPU)
    trainer = Trainer(network, feeder, TrainingSettings(**settings))
    after: list[NDArray[np.float64]] = []
    trained = trainer.run([Place()], [Place()], told=lambda _: after.append(network.point.detach().numpy().copy()))
    return list(trained.epochs), after, network.point.detach().numpy()


def adamw(rates: Sequence[float], *, clip_norm: float, weight_decay: float) -> Iterator[NDArray[np.float64]]:
    """The weights after each step (Loshchilov and Hutter 2019, algorithm 2); every weight decays, the bias too."""
    w, m, v = START.copy(), np.zeros(3), np.zeros(3)
    for t, rate in enumerate(rates, 1):
        g = STEEPNESS * (w - GOAL)
        g *= min(1.0, clip_norm / np.linalg.norm(g))
        w = w * (1 - rate * weight_decay)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        w = w - rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        yield w


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("clip_norm", [1e6, 100.0, 1e-8])
def test_steps_are_those_of_adamw(clip_norm: float, weight_decay: float) -> None:
    """The gradient's norm falls from 120 on: a clip at 100 meets the first steps, and one near Adam's epsilon all."""
    scores = [0.1, 0.2, 0.1, 0.3, 0.3, 0.4]
    training = {"epochs": 6, "patience": 6, "learning_rate": 0.3, "decay": 0.5}
    epochs, after, _ = run(scores, clip_norm=clip_norm, weight_decay=weight_decay, **training)
    rates = [0.3, 0.3, 0.3, 0.15, 0.15, 0.075]  # lower after each epoch that was no better than the best before it
    assert [epoch.learning_rate for epoch in epochs] == pytest.approx(rates)
    expected = list(adamw(rates, clip_norm=clip_norm, weight_decay=weight_decay))
    np.testing.assert_allclose(after, expected, rtol=1e-5)
    for other in ({"clip_norm": 3.0, "weight_decay": weight_decay}, {"clip_norm": clip_norm, "weight_decay": 0.02}):
        assert not np.allclose(after, list(adamw(rates, **other)), rtol=1e-4)  # the numbers would show it


@pytest.mark.parametrize("average", [0.0, 0.5])
@pytest.mark.parametrize("patience", [1, 2, 3])
def test_it_ends_with_the_weights_of_the_best_epoch(patience: int, average: float) -> None:
    scores = [0.2, 0.9, 0.1, 0.9, 0.3, 0.95]  # the second 0.9 is no better than the first
    epochs, after, last = run(scores, epochs=50, patience=patience, average=average, learning_rate=0.3)
    assert len(epochs) == 2 + patience
    best = after[1]
    if average:
        decay = min(average, 2 / 11)  # short at first
        best = decay * after[0] + (1 - decay) * after[1]
    np.testing.assert_allclose(last, best, rtol=1e-6)
    assert not np.allclose(after[1], after[-1], rtol=1e-3)


def test_the_last_of_the_epochs_ends_it() -> None:
    epochs, after, last = run([0.1, 0.2, 0.3, 0.4], epochs=3, patience=9)
    assert len(epochs) == 3
    np.testing.assert_array_equal(last, after[2])


def test_a_fine_tuned_encoder_has_its_own_rate(tmp_path: Any) -> None:
    """Adam's first step moves a weight by its learning rate, whatever the gradient."""
    train, dev = small_data(tmp_path)
    setup = small_setup(fine_tune=True, fine_tune_rate=0.003, learning_rate=0.02, epochs=1, batch_size=1000)
    layers = TunedLayers(tiny_elmo())
    vocabulary, _ = words_of(setup, train)
    features = setup.features_config(n_words=len(vocabulary), word_dim=8, depth=3, width=layers.origin.width)
    network = NER.new_network(train, features, setup.settings)
    trainer = Trainer(network, Feeder(NER, WordReader(vocabulary, features), layers, device=CPU), setup.training)
    before = {name: values.clone() for name, values in trainer.module.state_dict().items()}
    trainer.run(train, dev)
    moved = {name: float((values - before[name]).abs().max()) for name, values in trainer.module.state_dict().items()}
    assert max(by for name, by in moved.items() if name.startswith("encoder.")) == pytest.approx(0.003, rel=1e-2)
    assert max(by for name, by in moved.items() if name.startswith("network.")) == pytest.approx(0.02, rel=1e-2)
