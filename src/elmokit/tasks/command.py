"""What the command `train` does once its settings are known: files, an earlier run in the folder, progress, summary."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from elmokit._bars import Bar
from elmokit._terminal import Console
from elmokit.encoders import Encoder, load_encoder
from elmokit.errors import InputError
from elmokit.formats.cache import open_cache
from elmokit.formats.resumable import disk_errors
from elmokit.tasks.layers import CachedLayers
from elmokit.tasks.run import CHECKPOINT, Listener, identify_training, new_network, spaced, taken, train_task
from elmokit.tasks.saved import CONFIG, TaskModel, is_task_model, read_description
from elmokit.tasks.setup import Setup
from elmokit.tasks.start import Start
from elmokit.tasks.task import Task
from elmokit.tasks.train import Checkpoint, Epoch, Trained


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingFiles:
    """Where everything is."""

    train: str
    dev: str
    output: Path
    encoder: str | None = None  # None: the bundled one
    cache: Path | None = None  # None: elmokit's folder among the user's caches


def run_training(
    task: Task[Any, Any],
    setup: Setup,
    files: TrainingFiles,
    *,
    start: Start | None = None,
    device: str = "auto",
    with_encoder: bool = False,
    restart: bool = False,
    show: bool = True,
) -> None:
    """Trains, or resumes a training that was stopped; one that is finished stays as it is."""
    console = Console(stderr=True, quiet=not show, highlight=False, soft_wrap=True)
    train, dev = read_examples(task, setup, files, console)
    encoder = None if setup.features.elmo_at == "none" else load_encoder(files.encoder, device=device)
    identity = identify_training(task, setup, train, dev, encoder, start)
    if start is not None and start.folder.resolve() == files.output.resolve():
        raise InputError(f"{files.output}: is the model to begin with; choose another folder for the new one")
    with taken(files.output):
        if (files.output / CONFIG).exists() and not is_task_model(files.output):
            raise InputError(f"{files.output}: holds something else; choose another folder for the task model")
        if restart:
            for name in (CONFIG, CHECKPOINT):
                (files.output / name).unlink(missing_ok=True)
        if finished(files.output, identity.digest):
            console.print(f"{files.output}: already trained with these settings and data; --restart trains it again")
            return
        if start is not None:
            new_network(task, setup, train, encoder, start)  # what does not fit is told before the layers are computed
        display = Display(console)
        layers = None
        if encoder is not None and not setup.training.fine_tune:
            layers = cached_layers(encoder, [*train, *dev], files.cache, console=console, display=display)
        with display.shown():
            model = train_task(
                task,
                setup,
                train,
                dev,
                encoder=encoder,
                layers=layers,
                start=start,
                folder=Checkpoint(files.output / CHECKPOINT, identity),
                device=device,
                listener=Listener(epoch=display.epoch, step=display.step, resumed=display.resumed),
            )
        with disk_errors(files.output):
            model.save(files.output, with_encoder=with_encoder, encoder_source=files.encoder, identity=identity.digest)
        (files.output / CHECKPOINT).unlink(missing_ok=True)
    for line in summary(model):
        console.print(line)
    console.print(f"the model is in {files.output}")


def read_examples(
    task: Task[Any, Any], setup: Setup, files: TrainingFiles, console: Console
) -> tuple[list[Any], list[Any]]:
    """What is trained on and what is scored on; prints how much, and the reader's remarks."""
    train = spaced(task.training_examples(files.train, setup.settings), setup.training.max_train)
    dev = task.read(files.dev, setup.settings)
    for file, part in ((files.train, train), (files.dev, dev)):
        if not part:
            raise InputError(f"{file}: holds no examples; expected at least one to train on and one to score on")
    console.print(f"{task.name}: {len(train):,} examples to train on, {len(dev):,} to score on")
    for name, part in (("train", train), ("dev", dev)):
        for remark in task.remarks(part, setup.settings):
            console.print(f"{name}: {remark}", markup=False)
    return list(train), dev


def cached_layers(
    encoder: Encoder, examples: list[Any], cache: Path | None, *, console: Console, display: "Display"
) -> CachedLayers:
    """The layers of all sentences, from a file, which is made if it is not there yet."""
    sentences = (sentence for example in examples for sentence in example.sentences)
    with open_cache("layers", cache) as folder, display.shown():
        layers = CachedLayers.of(encoder, sentences, folder=folder, told=display.embedding)
    console.print(f"layers of {encoder.source}: {layers.nbytes / 2**20:,.0f} MiB in {folder}")
    return layers


def finished(folder: Path, identity: str) -> bool:
    """Whether this training has ended in this folder; a model of another training there is an error."""
    if (folder / CHECKPOINT).exists() or not (folder / CONFIG).exists():
        return False
    if read_description(folder).identity != identity:
        raise InputError(
            f"{folder}: holds a model that was trained with other settings, data, encoder or start; choose another "
            "folder, or --restart to train over it"
        )
    return True


def summary(model: TaskModel[Any, Any]) -> Iterator[str]:
    """How a training ended, in a few lines."""
    if model.trained is not None:
        best = model.trained.best
        shown = ", ".join(f"{name} {100 * value:.2f}" for name, value in best.scores.items())
        yield f"best epoch {best.number} of {len(model.trained.epochs)}: dev {shown}"
    for place, mix in model.mixes.items():
        shares = " ".join(f"{share:.3f}" for share in mix["shares"])
        yield f"mix at the {place}: layer weights {shares}, gamma {mix['gamma']:.3f}"


class Display:
    """Progress on a terminal, and a line for every epoch anywhere."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.progress: Bar | None = None
        self.best = -1.0

    @contextmanager
    def shown(self) -> Iterator[None]:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        usable = self.console.is_terminal and not self.console.quiet
        with Bar(*columns, TimeRemainingColumn(), console=self.console, transient=True, disable=not usable) as bar:
            self.progress, self.bar = bar, bar.add_task("", total=None, visible=False)
            yield
        self.progress = None

    def embedding(self, done: int, total: int) -> None:
        self._move("embedding, tokens", done, total)

    def step(self, done: int, total: int) -> None:
        self._move("training, examples", done, total)

    def resumed(self, before: Trained) -> None:
        self.best = before.best.score
        self.console.print(
            f"resuming after epoch {before.epochs[-1].number} of an earlier run, best {before.best.number}"
        )

    def epoch(self, epoch: Epoch) -> None:
        name, value = next(iter(epoch.scores.items()))
        mark = "  best" if value > self.best else ""
        self.best = max(self.best, value)
        when = time.strftime("%H:%M:%S")
        self.console.print(
            f"{when}  epoch {epoch.number:3}  loss {epoch.loss:8.4f}  dev {name} {100 * value:6.2f}  "
            f"rate {epoch.learning_rate:.1e}  {epoch.seconds:5.1f} s{mark}"
        )

    def _move(self, what: str, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress.update(self.bar, description=what, completed=done, total=total, visible=True)
