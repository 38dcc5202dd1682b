"""The training loop: steps, validations, checkpoints. A run may be stopped at any time, and resumes from what it saved.

Randomness in a step comes from generators seeded by (seed, step), so a run that was killed and resumed computes the
same numbers as one that never was (CPU, one process, same number of threads).
"""

import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from elmokit.config import Amount, Count, Measured, Share, revive
from elmokit.errors import ElmokitError, InputError, WeightsError
from elmokit.kernels import LstmState
from elmokit.pretrain.checkpoint import check_text, load_checkpoint, save_checkpoint, write_error
from elmokit.pretrain.config import PretrainConfig
from elmokit.pretrain.journal import Journal, Pace, duration, say
from elmokit.pretrain.objective import Objective
from elmokit.pretrain.optimisation import DivergedError, Watch, rate_at
from elmokit.pretrain.processes import StopSignals, World
from elmokit.pretrain.rounding import EVERY
from elmokit.pretrain.step import CudaGraphStep, Step, TypeCodes
from elmokit.pretrain.validation import Perplexity, Validation
from elmokit.pretrain.windows import Position, Prefetch, Sentences, Window, WindowPlan, windows

AGREE_EVERY = 8  # steps between questions to the other processes, on GPUs
UNREAD = 100  # steps whose losses may wait on the device
LONGEST_WARMUP = 0.1  # share of a run by the clock that `warmup_steps` may take
MOST_REWINDS = 6


class Stopped(Exception):  # noqa: N818  not an error: a signal came, and the run can be resumed
    """SIGINT, SIGTERM or SIGHUP. `saved` is the step of the last checkpoint, if there is one."""

    def __init__(self, signal_number: int, step: int, saved: int | None) -> None:
        where = "there" if saved == step else "from the start" if saved is None else f"from step {saved:,}"
        super().__init__(f"stopped at step {step:,}; the same command resumes {where}")
        self.signal_number = signal_number


@dataclass(slots=True)
class Progress:
    """Where a run stands; saved in every checkpoint."""

    step: Count = 0
    position: Position = Position()
    seconds: Amount = 0.0  # of training, over all starts
    best: Measured = math.inf
    worse: Count = 0  # validations since the best one
    done: bool = False
    rate_scale: Share = 1.0  # halved by every rewind
    rewound: Count | None = None  # where the last rewind went
    watch: Watch = field(default_factory=Watch)
    early: bool = False  # patience ended it
    total: Count = 0  # steps of the whole run; 0: the clock ends it


class Trainer:
    """Trains an objective on sentences; `save_model(perplexity)` is called whenever a validation is the best so far.

    `fingerprint` identifies the text: a run is not resumed on other text.
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
        codes: TypeCodes,
        save_model: Callable[[Perplexity], None],
        title: str = "pre-training",
        rate_name: str = "learning_rate",
        show: bool = True,
    ) -> None:
        self.config, self.objective, self.validation = config, objective, validation
        self.folder, self.fingerprint, self.world = folder, fingerprint, world
        self.save_model, self.title, self.rate_name, self.show = save_model, title, rate_name, show
        self.positions = sentences.n_tokens + len(sentences)
        batch_rows = fitting_rows(config, self.positions, world.size)
        self.plan = WindowPlan(
            batch_rows, config.window, objective.vocabulary, objective.bilm.config.directions,
            config.order, config.state, config.reset_probability, config.seed, config.recase, codes.words,
        )  # fmt: skip
        self.sentences = sentences
        self.tokens_per_step = batch_rows * config.window
        self.total = config.steps or max(1, round(config.epochs * self.positions / self.tokens_per_step))
        # What a graph cannot hold: talk with other processes, an optimizer that reads numbers back to the host, and an
        # adaptive softmax, whose shapes follow the targets.
        alone = world.device.type == "cuda" and world.size == 1 and config.accumulate == 1
        graph = alone and config.optimizer != "adagrad" and config.softmax != "adaptive"
        kind = CudaGraphStep if graph else Step
        self.step = kind(objective, config, codes, batch_rows=batch_rows // world.size, device=world.device)
        self.progress = Progress(watch=Watch(shuffled=config.order == "shuffled"))
        self._saved: int | None = None  # the step of the last checkpoint

    def run(self) -> Progress:
        """Trains to the end, or until stopped. Returns where it ended."""
        self._resume()
        if self._saved is None and self.config.on_divergence == "rewind":
            self._save()  # so that there is something to go back to
        while not self.progress.done:
            try:
                self._train()
            except DivergedError as error:
                if self.config.on_divergence == "stop":
                    raise
                self._rewind(error)
        return self.progress

    def _train(self) -> None:
        ahead = Prefetch(self._batches())
        try:
            with self._journal() as journal, StopSignals() as signals:
                self._loop(ahead, journal, signals)
        except OSError as error:  # the log could not be written; models and checkpoints have errors of their own
            raise write_error(error, self.folder, self.folder / "checkpoints") from error
        finally:
            ahead.close()

    def _journal(self) -> AbstractContextManager[Journal | None]:
        """The first process writes it, for all."""
        if not self.world.leads:
            return nullcontext()
        try:
            return Journal(self.folder, self.title, step=self.progress.step, show=self.show)
        except (OSError, InputError) as error:
            raise write_error(error, self.folder / "log.jsonl", self.folder / "checkpoints") from error

    def _loop(self, ahead: Prefetch[list[Window]], journal: Journal | None, signals: StopSignals) -> None:
        config, progress = self.config, self.progress
        self.objective.train()
        if journal is not None and progress.step:
            journal.say(f"resuming at step {progress.step:,}" + ("" if config.minutes else f" of {self.total:,}"))
        started = time.monotonic() - progress.seconds
        last_log = last_save = time.monotonic()
        logged, pace = progress.step, Pace(progress.step)
        unread: list[Tensor] = []  # loss and gradient norm of each step (2,)
        read: list[list[float]] = []  # the same, since the last line of the log
        while not progress.done:
            parts = next(ahead)
            share = self._share(time.monotonic() - started)
            rate = progress.rate_scale * step_rate(config, progress.step, share)
            if progress.step % EVERY == 0:
                self.objective.choose_scales()
            unread.append(self.step(parts, self._noise(progress.step), rate))
            progress.step += 1
            progress.position = parts[-1].after
            ends = share >= 1.0 if config.minutes else progress.step >= self.total
            stop, due = self._agree(signals.number, time.monotonic() - last_save > 60 * config.checkpoint_minutes)
            validates = progress.step % config.valid_every == 0 or ends
            saves = progress.step % config.checkpoint_every == 0 or ends or due or stop is not None
            logs = validates or saves or progress.step % config.log_every == 0
            if journal is not None:
                journal.tick(progress.step, 1.0 if ends else share, self._time_left(pace, share))
            if not (logs or pace.due(progress.step) or len(unread) >= UNREAD):
                continue
            read += self._read(unread)
            if pace.measure(progress.step) and journal is not None:
                journal.say(self._estimate(pace, share))
            if not logs:
                continue
            progress.seconds = time.monotonic() - started
            loss, norm, suspect = self._check(read, ends)
            speed = (progress.step - logged) * self.tokens_per_step / max(1e-9, time.monotonic() - last_log)
            self._log(journal, loss, norm, speed, rate)
            read.clear()
            if validates:
                self._validate(journal, ends)
            if progress.done or (saves and not suspect):
                self._save()
                last_save = time.monotonic()
            if stop is not None and not progress.done:
                raise Stopped(stop, progress.step, self._saved)
            logged, last_log = progress.step, time.monotonic()

    def _share(self, seconds: float) -> float:
        """How much of the run is done, from 0 to 1: by steps, or by the clock where a time budget is set."""
        if not self.config.minutes:
            return self.progress.step / self.total
        (shared,) = self.world.total([seconds if self.world.leads else 0.0])
        return min(1.0, shared / (60 * self.config.minutes))

    def _noise(self, step: int) -> Tensor:
        """The step's uniform numbers for the negatives, the same in every process; dropout differs by process."""
        seed = int(np.random.SeedSequence([self.config.seed, step]).generate_state(1, np.uint64)[0]) >> 1
        if self.config.dropout:
            # Only the generator in use: `torch.manual_seed` without a GPU keeps a note of every call for one to come.
            if self.world.device.type == "cuda":
                torch.cuda.manual_seed(seed + self.world.rank)
            else:
                torch.default_generator.manual_seed(seed + self.world.rank)
        return torch.rand(self.objective.noise_shape(), generator=torch.Generator().manual_seed(seed))

    def _batches(self) -> Iterator[list[Window]]:
        """This process's rows of each batch, in `accumulate` parts."""
        return windows(self.sentences, self.plan, start=self.progress.position, parts=self._slices())

    def _slices(self) -> list[slice]:
        parts = self.config.accumulate
        size = self.plan.rows // (self.world.size * parts)
        first = self.world.rank * parts
        return [slice((first + k) * size, (first + k + 1) * size) for k in range(parts)]

    def _read(self, unread: list[Tensor]) -> list[list[float]]:
        """Losses and gradient norms of the steps since the last call; waits for the device."""
        numbers: list[list[float]] = torch.stack(unread).tolist()
        unread.clear()
        for loss, _ in numbers:
            self.progress.watch.see(loss)
        return numbers

    def _check(self, read: list[list[float]], ends: bool) -> tuple[float, float, bool]:
        """Mean loss and gradient norm over all processes, and whether the loss is rising; raises where it diverged.

        At the end of the run there is nothing to wait for: a loss that is too high then has diverged.
        """
        watch, n = self.progress.watch, len(read) * self.world.size
        losses, norms = (sum(numbers) for numbers in zip(*read, strict=True))
        flags = [float(watch.diverged or (ends and watch.high > 0)), float(watch.suspect)]
        losses, norms, diverged, suspect = self.world.total([losses, norms, *flags])
        loss, norm = losses / n, norms / n
        if diverged or not (math.isfinite(loss) and math.isfinite(norm)):
            step, rate = self.progress.step, self.config.learning_rate * self.progress.rate_scale
            raise DivergedError(
                f"training has diverged near step {step:,} with {self.rate_name} {rate:g}: the loss is {loss:.2f} and "
                f"the gradient norm {norm:.2f}, the best loss was {watch.lowest:.2f}. {self._way_out()}"
            )
        return loss, norm, bool(suspect)

    def _way_out(self) -> str:
        again = f"start in a new folder with a lower {self.rate_name} or a longer warmup"
        if self._saved is None:
            return f"There is no checkpoint yet: {again}, or let --on-divergence rewind lower the rate"
        path = self.folder / "checkpoints" / f"step-{self._saved:09d}.pt"
        spent = self.progress.rate_scale <= 2**-MOST_REWINDS  # no rewind is left
        rewind = "" if spent else "--on-divergence rewind resumes there at half the rate; or "
        return f"The last good checkpoint is {path}: {rewind}{again}"

    def _rewind(self, error: DivergedError) -> None:
        """Back to the last good checkpoint, at half the learning rate."""
        scale, seconds = self.progress.rate_scale / 2, self.progress.seconds
        if scale < 2**-MOST_REWINDS:
            raise ElmokitError(f"after {MOST_REWINDS} rewinds, {error}") from error
        again = self._saved == self.progress.rewound  # no better the second time: an older checkpoint may be
        at, best = self.progress.step, self.progress.best
        self._resume(before=self._saved if again else None)
        self.progress.rate_scale, self.progress.seconds, self.progress.rewound = scale, seconds, self._saved
        self.progress.best = min(best, self.progress.best)  # the model on disk may be of a later step than this
        self.world.wait()  # until all have read: saving removes the checkpoints after this one
        self._save()
        if self.show and self.world.leads:
            rate = self.config.learning_rate * scale
            back = f"back to step {self.progress.step:,} with {self.rate_name} {rate:g}"
            say(f"step {at:,}: training has diverged; {back}")

    def _time_left(self, pace: Pace, share: float) -> float | None:
        """Seconds, or None where that is not known yet."""
        if self.config.minutes:
            return 60 * self.config.minutes * (1 - share)
        return pace.seconds and pace.seconds * (self.total - self.progress.step)

    def _estimate(self, pace: Pace, share: float) -> str:
        assert pace.seconds is not None
        speed = self.tokens_per_step / pace.seconds
        left = self._time_left(pace, share) or 0.0
        steps = round(left / pace.seconds)
        epochs = steps * self.tokens_per_step / self.positions
        return f"{speed:,.0f} tokens/s: {duration(left)} for {steps:,} steps ({epochs:.1f} epochs), validation aside"

    def _log(self, journal: Journal | None, loss: float, norm: float, speed: float, rate: float) -> None:
        if journal is None:
            return
        step = self.progress.step
        epoch = step * self.tokens_per_step / max(1, self.positions)
        journal.record(step, loss=loss, gradient_norm=norm, tokens_per_second=speed, learning_rate=rate, epoch=epoch)
        journal.show(f"{speed:,.0f} tokens/s  loss {loss:.2f}")

    def _validate(self, journal: Journal | None, ends: bool) -> None:
        progress = self.progress
        perplexity = self.validation(self.objective, self.world, tell=None if journal is None else journal.validating)
        if journal is not None and self.validation.batches:
            journal.record(progress.step, **perplexity.facts())
            journal.say(f"step {progress.step:,}: held-out perplexity {perplexity}")
        if perplexity.mean < progress.best or not self.validation.batches:
            progress.best, progress.worse = perplexity.mean, 0
            if self.world.leads:
                self._save_model(perplexity)
        else:
            progress.worse += 1
        self._settle(ends)

    def _settle(self, whole: bool) -> None:
        """Whether the run has ended: it is whole, or the patience of this start is at its end."""
        p = self.progress
        p.total = 0 if self.config.minutes else self.total
        p.early = not whole and 0 < self.config.patience <= p.worse
        p.done = whole or p.early

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
        self._saved = self.progress.step
        self.world.wait()

    def _resume(self, *, before: int | None = None) -> None:
        """Takes up the newest checkpoint; with `before`, one of an earlier step, if there is one."""
        folder, device = self.folder / "checkpoints", self.world.device
        earlier = None if before is None else load_checkpoint(folder, device, before=before)
        found = earlier or load_checkpoint(folder, device)
        if found is None:
            return
        path, content = found
        check_text(found, self.fingerprint, self.folder)
        saved = {**content["progress"], "position": list(content["progress"].get("position", ()))}
        self.progress = revive(Progress, saved, source=str(path), error=ElmokitError)
        self.progress.watch.shuffled = self.config.order == "shuffled"
        self._settle(self.progress.done and self._share(self.progress.seconds) >= 1.0)
        try:
            self.objective.load_state_dict(content["objective"])
            rows = [[LstmState(h[:, at], c[:, at]) for h, c in content["state"]] for at in self._slices()]
            self.step.load(content["optimizer"], rows)
        except (RuntimeError, ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
            why = str(error).splitlines()[0]
            raise ElmokitError(f"{path}: is of another model ({why}); choose another output folder") from error
        self._saved = self.progress.step

    def _agree(self, signal_number: int | None, due: bool) -> tuple[int | None, bool]:
        """Whether a signal came, and whether it is time for a checkpoint: the same answer in every process.

        Asking the others makes the host wait for the GPU, so it is not done at every step there.
        """
        if self.world.size == 1:
            return signal_number, due
        if self.world.device.type == "cuda" and self.progress.step % AGREE_EVERY:
            return None, False
        signals, times = self.world.total([float(signal_number or 0), float(due and self.world.leads)])
        return signal.SIGTERM if signals else None, bool(times)


def step_rate(config: PretrainConfig, step: int, share: float) -> float:
    """The learning rate of a step after a share of the run. By the clock, the warm-up takes some steps at least."""
    rate = rate_at(share, config)
    if not (config.minutes and config.warmup and config.warmup_steps) or config.optimizer == "adagrad":
        return rate
    warm = max((step + 1) / config.warmup_steps, share / max(LONGEST_WARMUP, config.warmup))
    return min(rate, warm * config.learning_rate)


def fitting_rows(config: PretrainConfig, positions: int, processes: int) -> int:
    """`config.rows`, or as many as the text fills with a few windows each; the same for any number of processes."""
    most = positions // (4 * config.window)
    rows = config.rows
    while rows > most and rows % (2 * config.accumulate) == 0:
        rows //= 2
    if rows * config.window > positions:
        raise ElmokitError(
            f"the corpus has only {positions} tokens: too few for {rows} rows of {config.window} steps; give it more "
            "text, fewer rows or a shorter window"
        )
    if rows % (config.accumulate * processes):
        fewer = "" if rows == config.rows else f" (instead of {config.rows}: the text fills no more)"
        raise ElmokitError(
            f"{rows} rows{fewer} cannot be divided among {processes} processes x {config.accumulate} parts; choose "
            "rows as a multiple of both, or fewer processes"
        )
    return rows
