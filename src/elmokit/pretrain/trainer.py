"""The training loop: steps, validations, checkpoints; stopped at any moment, it goes on from its last checkpoint.

Randomness in a step comes from generators seeded by (seed, step), so a run that was killed and started again computes
the very same numbers as one that never was (CPU, one process, same number of threads).
"""

import math
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.errors import ElmokitError
from elmokit.kernels import LstmState
from elmokit.pretrain.checkpoint import load_checkpoint, save_checkpoint
from elmokit.pretrain.config import PretrainConfig
from elmokit.pretrain.journal import Journal
from elmokit.pretrain.objective import Objective
from elmokit.pretrain.optimisation import rate_at
from elmokit.pretrain.prefetch import Prefetch
from elmokit.pretrain.processes import World
from elmokit.pretrain.step import GraphedStep, Step
from elmokit.pretrain.validation import Perplexity, Validation
from elmokit.pretrain.windows import Position, Sentences, Window, WindowPlan, windows

Ints = NDArray[np.int64]


class Stopped(Exception):  # noqa: N818  not an error: the run was asked to stop, saved, and can go on
    """SIGTERM or Ctrl-C: the checkpoint is saved."""

    def __init__(self, signal_number: int, step: int) -> None:
        super().__init__(f"stopped at step {step}; the same command goes on from there")
        self.signal_number = signal_number


@dataclass(slots=True)
class Progress:
    """Where a run stands; saved in every checkpoint."""

    step: int = 0
    position: Position = Position()
    seconds: float = 0.0  # of training, over all starts
    best: float = math.inf
    worse: int = 0  # validations since the best one
    done: bool = False


class Trainer:
    """Trains an objective on sentences; `save_model(perplexity)` is called whenever a validation is the best so far."""

    def __init__(
        self,
        config: PretrainConfig,
        objective: Objective,
        sentences: Sentences,
        validation: Validation,
        *,
        folder: Path,
        world: World,
        rows: Callable[[Ints], Tensor],
        save_model: Callable[[Perplexity], None],
        show: bool = True,
    ) -> None:
        self.config, self.objective, self.validation = config, objective, validation
        self.folder, self.world, self.save_model, self.show = folder, world, save_model, show
        positions = sentences.n_tokens + len(sentences)
        batch_rows = fitting_rows(config, positions, world.size)
        self.plan = WindowPlan(
            batch_rows, config.window, objective.vocabulary, objective.bilm.config.directions,
            config.order, config.state, config.reset_probability, config.seed,
        )  # fmt: skip
        self.sentences = sentences
        self.tokens_per_step = batch_rows * config.window
        self.total = config.steps or max(1, round(config.epochs * positions / self.tokens_per_step))
        graph = (
            world.device.type == "cuda" and world.size == 1 and config.accumulate == 1 and config.optimizer == "adamw"
        )
        kind = GraphedStep if graph else Step
        self.step = kind(objective, config, rows, batch_rows=batch_rows // world.size, device=world.device)
        self.progress = Progress()
        self._signal: int | None = None

    def run(self) -> Progress:
        """Trains to the end, or until stopped. Returns where it ended."""
        self._resume()
        if self.progress.done:
            return self.progress
        previous = {number: signal.signal(number, self._note_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        ahead = Prefetch(self._batches())
        try:
            with Journal(
                self.folder, total=self.total, step=self.progress.step, show=self.show and self.world.leads
            ) as journal:
                self._loop(ahead, journal)
        finally:
            ahead.close()
            for number, handler in previous.items():
                signal.signal(number, handler)
        return self.progress

    def _loop(self, ahead: Prefetch[list[Window]], journal: Journal) -> None:
        config, progress = self.config, self.progress
        self.objective.train()
        started = time.monotonic() - progress.seconds
        last_log, last_save = (progress.step, time.monotonic()), time.monotonic()
        sums = torch.zeros(2, device=self.world.device)  # loss and gradient norm since the last line
        while not progress.done:
            parts = next(ahead)
            share = self._share(time.monotonic() - started)
            sums += self.step(parts, self._noise(progress.step), rate_at(share, config))
            progress.step += 1
            progress.position = parts[-1].after
            ends = share >= 1.0 if config.minutes else progress.step >= self.total
            stop = self._agreed_signal()
            validates = progress.step % config.valid_every == 0 or ends
            saves = progress.step % config.checkpoint_every == 0 or ends or stop is not None
            saves = saves or self._agreed(time.monotonic() - last_save > 60 * config.checkpoint_minutes)
            if progress.step % config.log_every == 0 or validates or saves:
                n = progress.step - last_log[0]
                loss, norm = (sums / max(n, 1)).tolist()
                self._check(loss, norm)
                progress.seconds = time.monotonic() - started
                speed = n * self.tokens_per_step / max(1e-9, time.monotonic() - last_log[1])
                self._log(journal, loss, norm, speed, share)
                sums.zero_()
                last_log = progress.step, time.monotonic()
            if validates:
                self._validate(journal, ends)
            if saves:
                self._save()
                last_save = time.monotonic()
            if stop is not None and not progress.done:
                raise Stopped(stop, progress.step)

    def _share(self, seconds: float) -> float:
        """How much of the run is behind us, from 0 to 1: by steps, or by the clock where a time budget is set."""
        if not self.config.minutes:
            return self.progress.step / self.total
        (shared,) = self.world.total([seconds if self.world.leads else 0.0])
        return min(1.0, shared / (60 * self.config.minutes))

    def _noise(self, step: int) -> Tensor:
        """The step's uniform numbers for the negatives, the same in every process; dropout differs by process."""
        seed = int(np.random.SeedSequence([self.config.seed, step]).generate_state(1, np.uint64)[0] >> 1)
        if self.config.dropout:
            torch.manual_seed(seed + self.world.rank)
        return torch.rand(self.objective.noise_shape(), generator=torch.Generator().manual_seed(seed))

    def _batches(self) -> Iterator[list[Window]]:
        """This process's rows of each batch, in `accumulate` parts."""
        parts = self.config.accumulate
        size = self.plan.rows // (self.world.size * parts)
        first = self.world.rank * parts
        slices = [slice((first + k) * size, (first + k + 1) * size) for k in range(parts)]
        return windows(self.sentences, self.plan, start=self.progress.position, parts=slices)

    def _check(self, loss: float, norm: float) -> None:
        if math.isfinite(loss) and math.isfinite(norm):
            return
        raise ElmokitError(
            f"the loss is {loss} and the gradient norm {norm} near step {self.progress.step}: training has diverged. "
            f"The last checkpoint in {self.folder / 'checkpoints'} is intact; try a lower learning_rate or a longer "
            "warmup, in a new folder"
        )

    def _log(self, journal: Journal, loss: float, norm: float, speed: float, share: float) -> None:
        if not self.world.leads:
            return
        step, rate = self.progress.step, rate_at(share, self.config)
        epoch = step * self.tokens_per_step / max(1, self.sentences.n_tokens + len(self.sentences))
        journal.record(step, loss=loss, gradient_norm=norm, tokens_per_second=speed, learning_rate=rate, epoch=epoch)
        total = round(step / share) if self.config.minutes and share > 0 else self.total
        journal.show(step, f"{speed:,.0f} tokens/s  loss {loss:.3f}  epoch {epoch:.2f}", total=total)

    def _validate(self, journal: Journal, ends: bool) -> None:
        progress = self.progress
        perplexity = self.validation(self.objective, self.world)
        if self.world.leads:
            sides = {"forward": perplexity.forward, "backward": perplexity.backward}
            known = {name: value for name, value in sides.items() if value is not None}
            facts = {f"perplexity_{name}": value for name, value in known.items()}
            journal.record(progress.step, perplexity=perplexity.mean, **facts)
            detail = ", ".join(f"{name} {value:.1f}" for name, value in known.items())
            journal.say(f"step {progress.step}: held-out perplexity {perplexity.mean:.2f} ({detail})")
        if perplexity.mean < progress.best or not self.validation.batches:
            progress.best, progress.worse = perplexity.mean, 0
            if self.world.leads:
                self.save_model(perplexity)
        else:
            progress.worse += 1
        progress.done = ends or bool(self.config.patience and progress.worse >= self.config.patience)

    def _save(self) -> None:
        states = [
            LstmState(*(torch.cat(side, dim=1) for side in zip(*parts, strict=True)))
            for parts in zip(*self.step.states, strict=True)
        ]
        rows = [[self.world.collect(side, dim=1) for side in state] for state in states]
        if self.world.leads:
            content = {
                "progress": {**asdict(self.progress), "position": tuple(self.progress.position)},
                "objective": self.objective.state_dict(),
                "optimizer": self.step.optimizer.state_dict(),
                "state": rows,
            }
            save_checkpoint(self.folder / "checkpoints", self.progress.step, content, keep=self.config.keep_checkpoints)
        self.world.wait()

    def _resume(self) -> None:
        content = load_checkpoint(self.folder / "checkpoints", self.world.device)
        if content is None:
            return
        saved: dict[str, Any] = dict(content["progress"])
        self.progress = Progress(**{**saved, "position": Position(*saved["position"])})
        self.objective.load_state_dict(content["objective"])
        self.step.optimizer.load_state_dict(content["optimizer"])
        parts = self.config.accumulate
        size = self.plan.rows // (self.world.size * parts)
        for k in range(parts):
            at = slice((self.world.rank * parts + k) * size, (self.world.rank * parts + k + 1) * size)
            self.step.states[k] = tuple(
                LstmState(h[:, at].contiguous(), c[:, at].contiguous()) for h, c in content["state"]
            )

    def _note_signal(self, number: int, frame: FrameType | None) -> None:
        self._signal = number

    def _agreed_signal(self) -> int | None:
        """A signal that reached any process stops all of them at the same step."""
        if self.world.size == 1:
            return self._signal
        numbers = self.world.total([float(self._signal or 0)])
        return signal.SIGTERM if numbers[0] else None

    def _agreed(self, mine: bool) -> bool:
        return mine if self.world.size == 1 else bool(self.world.total([float(mine and self.world.leads)])[0])


def fitting_rows(config: PretrainConfig, positions: int, processes: int) -> int:
    """As many rows as asked for, or as the text fills with a few windows each; divisible among the processes."""
    parts = config.accumulate * processes
    if config.rows % parts:
        raise ElmokitError(
            f"rows ({config.rows}) cannot be divided among {processes} processes x {config.accumulate} parts"
        )
    most = positions // (4 * config.window)
    rows = config.rows
    while rows > most and rows % (2 * parts) == 0:
        rows //= 2
    if rows > max(1, positions // config.window):
        raise ElmokitError(f"the corpus has only {positions} tokens: too few for {rows} rows of {config.window} steps")
    return rows
