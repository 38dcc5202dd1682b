"""The one trainer of all tasks: seeded, scored after every epoch, the best kept, stopped when nothing gets better.

Everything random in an epoch comes from (seed, epoch), and a checkpoint is written after each: a training that was
killed resumes after its last whole epoch and ends with the same weights.
"""

import copy
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from elmokit.errors import ConfigError, ElmokitError
from elmokit.formats.atomic import atomic_write
from elmokit.formats.resumable import disk_errors
from elmokit.tasks.feed import Feeder
from elmokit.tasks.layers import TunedLayers
from elmokit.tasks.setup import TrainingSettings
from elmokit.tasks.task import E, Network, P, Scores
from elmokit.weights.storage import read_state

State = dict[str, Tensor]


class Scored:
    """For a dataclass with `scores`."""

    __slots__ = ()
    scores: Scores

    def __post_init__(self) -> None:
        if not self.scores:
            raise ConfigError("scores is empty; expected one at least")

    @property
    def score(self) -> float:
        """The one that counts."""
        return next(iter(self.scores.values()))


@dataclass(frozen=True, slots=True)
class Epoch(Scored):
    """What happened in one pass over the training data."""

    number: int  # from 1
    loss: float  # mean over examples
    scores: Scores  # on the development data
    learning_rate: float
    seconds: float  # development data included


@dataclass(frozen=True, slots=True)
class Trained:
    """How a training went; its network is that of the best epoch."""

    epochs: tuple[Epoch, ...]

    @property
    def best(self) -> Epoch:
        return max(self.epochs, key=lambda epoch: (epoch.score, -epoch.number))

    @property
    def seconds(self) -> float:
        return sum(epoch.seconds for epoch in self.epochs)


class Trainer(Generic[E, P]):
    """Trains `network`, and the feeder's layers where these are tuned, in place."""

    def __init__(self, network: Network[E, P], feeder: Feeder[E, P], training: TrainingSettings) -> None:
        self.network, self.feeder, self.training = network, feeder, training
        self.module = nn.ModuleDict({"network": network})  # all that is trained and kept
        groups = [{"params": [p for p in network.parameters() if p.requires_grad]}]
        self.rates = [training.learning_rate]
        if isinstance(feeder.layers, TunedLayers):
            self.module["encoder"] = feeder.layers
            groups.append({"params": list(feeder.layers.parameters())})
            self.rates.append(training.fine_tune_rate)
        self.module.to(feeder.device)
        self.optimizer = torch.optim.AdamW(groups, lr=training.learning_rate, weight_decay=training.weight_decay)
        self.average = WeightAverage(self.module, training.average) if training.average else None
        self.epochs: list[Epoch] = []
        self.best: State = {}
        self.scale = 1.0  # of the learning rates

    @property
    def finished(self) -> bool:
        if not self.epochs:
            return False
        idle = self.epochs[-1].number - Trained(tuple(self.epochs)).best.number
        return len(self.epochs) >= self.training.epochs or idle >= self.training.patience

    def run(
        self,
        train: Sequence[E],
        dev: Sequence[E],
        *,
        checkpoint: "Checkpoint | None" = None,
        told: Callable[[Epoch], None] | None = None,
        stepped: Callable[[int, int], None] | None = None,
        resumed: Callable[[Trained], None] | None = None,
    ) -> Trained:
        """Until the last epoch or until it gets no better; goes on from the checkpoint, if there is one.

        `told` hears of each epoch, `stepped` how many examples of how many are done, `resumed` what was done before.
        The caller's random numbers are left as they were.
        """
        if checkpoint is not None and (content := checkpoint.read(self.feeder.device)) is not None:
            self.restore(content)
            if resumed is not None:
                resumed(Trained(tuple(self.epochs)))
        device = self.feeder.device
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            while not self.finished:
                epoch = self._epoch(train, dev, stepped)
                if checkpoint is not None:
                    checkpoint.write(self.state())
                if told is not None:
                    told(epoch)
        self.module.load_state_dict(self.best)
        self.module.eval()
        return Trained(tuple(self.epochs))

    def state(self) -> dict[str, Any]:
        """All that the epochs to come depend on."""
        return {
            "epochs": [asdict(epoch) for epoch in self.epochs],
            "scale": self.scale,
            "weights": self.module.state_dict(),
            "best": self.best,
            "optimizer": self.optimizer.state_dict(),
            "average": None if self.average is None else self.average.state,
        }

    def restore(self, content: dict[str, Any]) -> None:
        """As it was when `state` was taken."""
        self.epochs = [Epoch(**epoch) for epoch in content["epochs"]]
        self.scale, self.best = content["scale"], content["best"]
        self.module.load_state_dict(content["weights"])
        self.optimizer.load_state_dict(content["optimizer"])
        if self.average is not None:
            self.average.restore(content["average"])

    def _epoch(self, train: Sequence[E], dev: Sequence[E], stepped: Callable[[int, int], None] | None) -> Epoch:
        begun, number = time.monotonic(), len(self.epochs) + 1
        drawn = np.random.SeedSequence([self.training.seed, number])
        torch.manual_seed(int(drawn.generate_state(1)[0]))
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * self.scale
        loss = self._steps(train, np.random.default_rng(drawn), stepped)
        if self.average is not None:
            with self.average.in_place():
                scores, state = self._score(dev), _copied(self.module)
        else:
            scores, state = self._score(dev), None
        rate = self.rates[0] * self.scale
        epoch = Epoch(number, loss, scores, rate, time.monotonic() - begun)
        if not self.epochs or epoch.score > Trained(tuple(self.epochs)).best.score:
            self.best = _copied(self.module) if state is None else state
        else:
            self.scale *= self.training.decay
        self.epochs.append(epoch)
        return epoch

    def _steps(
        self, train: Sequence[E], order: np.random.Generator, stepped: Callable[[int, int], None] | None
    ) -> float:
        self.module.train()
        trained = [p for group in self.optimizer.param_groups for p in group["params"]]
        total, seen = torch.zeros((), device=self.feeder.device), 0
        for examples in self.feeder.shuffled(train, self.training.batch_size, order):
            loss = self.network.loss(self.feeder.batch(examples))
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(trained, self.training.clip_norm)
            self.optimizer.step()
            if self.average is not None:
                self.average.update()
            total += loss.detach() * len(examples)
            seen += len(examples)
            if stepped is not None:
                stepped(seen, len(train))
        mean = float(total) / max(seen, 1)
        if not math.isfinite(mean):
            raise ElmokitError(
                f"the loss became {mean} in epoch {len(self.epochs) + 1}; train with a lower learning_rate "
                f"(now {self.training.learning_rate}) or clip_norm (now {self.training.clip_norm})"
            )
        return mean

    def _score(self, dev: Sequence[E]) -> Scores:
        self.module.eval()
        return self.feeder.task.score(dev, self.feeder.predict(self.network, dev))


class WeightAverage:
    """A moving average of a module's trained weights: a_t = d a_t-1 + (1 - d) w_t.

    It is steadier than the weights of the last step. Call `update` after each step; `in_place` runs the module with the
    average.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self.decay = decay
        self.steps = 0
        self.values: dict[str, Tensor] = {}  # empty until the first step, from whose weights it begins

    @property
    def state(self) -> dict[str, Any]:
        return {"steps": self.steps, "values": self.values}

    def restore(self, state: dict[str, Any]) -> None:
        self.steps, self.values = state["steps"], state["values"]

    @torch.no_grad()
    def update(self) -> None:
        self.steps += 1
        if not self.values:
            self.values = {name: p.detach().clone() for name, p in self.parameters.items()}
            return
        decay = min(self.decay, self.steps / (9 + self.steps))  # short at first, so that the start is soon forgotten
        for name, p in self.parameters.items():
            self.values[name].lerp_(p.detach(), 1 - decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The module with the average for its weights, as long as the block runs."""
        if not self.values:
            yield
            return
        kept = {name: p.detach().clone() for name, p in self.parameters.items()}
        self._put(self.values)
        try:
            yield
        finally:
            self._put(kept)

    @torch.no_grad()
    def _put(self, values: dict[str, Tensor]) -> None:
        for name, p in self.parameters.items():
            p.copy_(values[name])


class Identity(NamedTuple):
    """What a training is of: a digest of settings, encoder and examples, and the settings and the encoder in words."""

    digest: str
    described: dict[str, Any]


class Checkpoint:
    """The state of an unfinished training: one file, written whole or not at all and checked when it is read."""

    PARTS: ClassVar[dict[str, type]] = {
        "identity": str, "described": dict, "epochs": list, "scale": float, "weights": dict, "best": dict,
        "optimizer": dict,
    }  # fmt: skip

    def __init__(self, path: Path, identity: Identity) -> None:
        self.path, self.identity = path, identity

    def write(self, content: dict[str, Any]) -> None:
        whole = {**content, "identity": self.identity.digest, "described": self.identity.described}
        with disk_errors(self.path, RuntimeError), atomic_write(self.path) as file:  # torch's word for a full disk
            torch.save(whole, file)

    def read(self, device: torch.device) -> dict[str, Any] | None:
        """What was written; None where there is nothing yet. That of another training is refused."""
        if not self.path.is_file():
            return None
        try:
            content = read_state(self.path, device, self.PARTS)
        except Exception as error:  # whatever a damaged archive leads to
            why = (str(error).splitlines() or [type(error).__name__])[0]
            raise ElmokitError(
                f"{self.path}: damaged ({why}); restore it from a copy, or start again with --restart"
            ) from error
        if content["identity"] != self.identity.digest:
            there, here = content["described"], self.identity.described
            changed = [
                f"{name}: {there.get(name)} there, {here.get(name)} here"
                for name in {**there, **here}
                if there.get(name) != here.get(name)
            ]
            raise ConfigError(
                f"{self.path}: an unfinished training with other settings or data ({'; '.join(changed) or 'data'}); "
                "give the same again, another folder, or --restart"
            )
        return content


def _copied(module: nn.Module) -> State:
    return {name: copy.deepcopy(values.detach()) for name, values in module.state_dict().items()}
