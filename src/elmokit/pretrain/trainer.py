"""The training loop: steps, validations, checkpoints; stopped at any moment, it goes on from its last checkpoint.

Randomness in a step comes from generators seeded by (seed, step), so a run that was killed and started again computes
the very same numbers as one that never was (CPU, one process, same number of threads).
"""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.errors import ElmokitError, WeightsError
from elmokit.kernels import LstmState
from elmokit.pretrain.checkpoint import load_checkpoint, save_checkpoint, write_error
from elmokit.pretrain.config import PretrainConfig
from elmokit.pretrain.journal import Journal
from elmokit.pretrain.objective import Objective
from elmokit.pretrain.optimisation import rate_at
from elmokit.pretrain.processes import World
from elmokit.pretrain.step import Codes, GraphedStep, Step
from elmokit.pretrain.validation import Perplexity, Validation
from elmokit.pretrain.windows import Position, Prefetch, Sentences, Window, WindowPlan, windows

Ints = NDArray[np.int64]
AGREE_EVERY = 8  # steps between questions to the other processes, on GPUs


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
    """Trains an objective on sentences; `save_model(perplexity)` is called whenever a validation is the best so far.

    `fingerprint` tells the text from any other, so that a run does not go on with text that has changed meanwhile.
    """

    def __init__(
        self,
        config: PretrainConfig,
        objective: Objective,
        sentences: Sentences,
        validation: Validation,
        *,
        folder: Path,
        fingerprint: str,
        world: World,
        codes: Codes,
        save_model: Callable[[Perplexity], None],
        title: str = "pre-training",
        show: bool = True,
    ) -> None:
        self.config, self.objective, self.validation = config, objective, validation
        self.folder, self.fingerprint, self.world = folder, fingerprint, world
        self.save_model, self.title, self.show = save_model, title, show
        positions = sentences.n_tokens + len(sentences)
        batch_rows = fitting_rows(config, positions, world.size)
        self.plan = WindowPlan(
            batch_rows, config.window, objective.vocabulary, objective.bilm.config.directions,
            config.order, config.state, config.reset_probability, config.seed,
        )  # fmt: skip
        self.sentences = sentences
        self.tokens_per_step = batch_rows * config.window
        self.total = config.steps or max(1, round(config.epochs * positions / self.tokens_per_step))
        # What a graph cannot hold: talk with other processes, an optimizer that reads numbers back to the host, and an
        # adaptive softmax, whose shapes follow the targets.
        alone = world.device.type == "cuda" and world.size == 1 and config.accumulate == 1
        graph = alone and config.optimizer != "adagrad" and config.softmax != "adaptive"
        kind = GraphedStep if graph else Step
        self.step = kind(objective, config, codes, batch_rows=batch_rows // world.size, device=world.device)
        self.progress = Progress()
        self._signal: int | None = None

    def run(self) -> Progress:
        """Trains to the end, or until stopped. Returns where it ended."""
        self._resume()
        if self.progress.done:
            return self.progress
        ahead = Prefetch(self._batches())
        try:
            with self._noting_signals(), self._journal() as journal:
                self._loop(ahead, journal)
        except OSError as error:  # the log could not be written; models and checkpoints tell of themselves
            raise write_error(error, self.folder, self.folder / "checkpoints") from error
        finally:
            ahead.close()
        return self.progress

    def _journal(self) -> AbstractContextManager[Journal | None]:
        """The first process writes it, for all."""
        if not self.world.leads:
            return nullcontext()
        return Journal(self.folder, self.title, total=self.total, step=self.progress.step, show=self.show)

    def _loop(self, ahead: Prefetch[list[Window]], journal: Journal | None) -> None:
        config, progress = self.config, self.progress
        self.objective.train()
        started = time.monotonic() - progress.seconds
        logged, last_log = progress.step, time.monotonic()
        last_save = last_log
        sums = torch.zeros(2, device=self.world.device)  # loss and gradient norm since the last line
        while not progress.done:
            parts = next(ahead)
            share = self._share(time.monotonic() - started)
            sums += self.step(parts, self._noise(progress.step), rate_at(share, config))
            progress.step += 1
            progress.position = parts[-1].after
            ends = share >= 1.0 if config.minutes else progress.step >= self.total
            stop, due = self._agree(time.monotonic() - last_save > 60 * config.checkpoint_minutes)
            validates = progress.step % config.valid_every == 0 or ends
            saves = progress.step % config.checkpoint_every == 0 or ends or due or stop is not None
            if not (validates or saves or progress.step % config.log_every == 0):
                continue
            n = progress.step - logged
            loss, norm = (total / self.world.size for total in self.world.total((sums / n).tolist()))
            self._check(loss, norm)
            progress.seconds = time.monotonic() - started
            speed = n * self.tokens_per_step / max(1e-9, time.monotonic() - last_log)
            self._log(journal, loss, norm, speed, share)
            sums.zero_()
            if validates:
                self._validate(journal, ends)
            if saves or progress.done:
                self._save()
                last_save = time.monotonic()
            if stop is not None and not progress.done:
                raise Stopped(stop, progress.step)
            logged, last_log = progress.step, time.monotonic()

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
            # Only the generator in use: `torch.manual_seed` without a GPU keeps a note of every call for one to come.
            if self.world.device.type == "cuda":
                torch.cuda.manual_seed(seed + self.world.rank)
            else:
                torch.default_generator.manual_seed(seed + self.world.rank)
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

    def _log(self, journal: Journal | None, loss: float, norm: float, speed: float, share: float) -> None:
        if journal is None:
            return
        step, rate = self.progress.step, rate_at(share, self.config)
        epoch = step * self.tokens_per_step / max(1, self.sentences.n_tokens + len(self.sentences))
        journal.record(step, loss=loss, gradient_norm=norm, tokens_per_second=speed, learning_rate=rate, epoch=epoch)
        total = round(step / share) if self.config.minutes and share > 0 else self.total
        journal.show(step, f"{speed:,.0f} tokens/s  loss {loss:.3f}  epoch {epoch:.2f}", total=total)

    def _validate(self, journal: Journal | None, ends: bool) -> None:
        progress = self.progress
        perplexity = self.validation(self.objective, self.world)
        if journal is not None and self.validation.batches:
            journal.record(progress.step, **perplexity.facts())
            journal.say(f"step {progress.step}: held-out perplexity {perplexity}")
        if perplexity.mean < progress.best or not self.validation.batches:
            progress.best, progress.worse = perplexity.mean, 0
            if self.world.leads:
                self._save_model(perplexity)
        else:
            progress.worse += 1
        progress.done = ends or bool(self.config.patience and progress.worse >= self.config.patience)

    def _save_model(self, perplexity: Perplexity) -> None:
        try:
            self.save_model(perplexity)
        except (OSError, WeightsError) as error:
            raise write_error(error, self.folder / "model", self.folder / "checkpoints") from error

    def _save(self) -> None:
        states = [
            LstmState(*(torch.cat(side, dim=1) for side in zip(*parts, strict=True)))
            for parts in zip(*self.step.states, strict=True)
        ]
        rows = [[self.world.collect(side, dim=1) for side in state] for state in states]
        if self.world.leads:
            content = {
                "fingerprint": self.fingerprint,
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
        if content["fingerprint"] != self.fingerprint:
            raise ElmokitError(
                f"{self.folder}: holds a run on other text (its prepared form was {content['fingerprint']}, now it is "
                f"{self.fingerprint}); give the text of that run to go on with it, or another output folder"
            )
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

    @contextmanager
    def _noting_signals(self) -> Iterator[None]:
        """SIGTERM and Ctrl-C are noted while inside, and the loop stops at its next step."""
        if threading.current_thread() is not threading.main_thread():  # signals only ever reach the main thread
            yield
            return
        previous = {number: signal.signal(number, self._note_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _note_signal(self, number: int, frame: FrameType | None) -> None:
        if self._signal is not None:  # asked twice: whoever asks does not want to wait for the step to end
            raise KeyboardInterrupt
        self._signal = number

    def _agree(self, due: bool) -> tuple[int | None, bool]:
        """Whether a signal came, and whether it is time for a checkpoint: the same answer in every process.

        Asking the others makes the host wait for the GPU, so it is not done at every step there.
        """
        if self.world.size == 1:
            return self._signal, due
        if self.world.device.type == "cuda" and self.progress.step % AGREE_EVERY:
            return None, False
        signals, times = self.world.total([float(self._signal is not None), float(due and self.world.leads)])
        return signal.SIGTERM if signals else None, bool(times)


def fitting_rows(config: PretrainConfig, positions: int, processes: int) -> int:
    """As many rows as asked for, or as the text fills with a few windows each; the same for any number of processes."""
    most = positions // (4 * config.window)
    rows = config.rows
    while rows > most and rows % (2 * config.accumulate) == 0:
        rows //= 2
    if rows > max(1, positions // config.window):
        raise ElmokitError(
            f"the corpus has only {positions} tokens: too few for {rows} rows of {config.window} steps; give it more "
            "text, or fewer rows"
        )
    if rows % (config.accumulate * processes):
        fewer = "" if rows == config.rows else f" (of {config.rows} asked for; the text fills no more)"
        raise ElmokitError(
            f"{rows} rows{fewer} cannot be divided among {processes} processes x {config.accumulate} parts; choose "
            "rows as a multiple of both, or fewer processes"
        )
    return rows
