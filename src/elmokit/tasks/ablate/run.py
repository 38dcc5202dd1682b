"""One network trained without ELMo, with single layers, with their average and with learnt mixes.

Every cell of the table is a training of its own, and its result is a file. An ablation that was stopped resumes in the
cell it was in, after that cell's last whole epoch. Processes that share a folder share its cells.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from elmokit.config import read_json
from elmokit.encoders import Encoder
from elmokit.errors import ConfigError, InputError
from elmokit.formats.atomic import write_text
from elmokit.formats.locks import LOCK, BusyError, locked
from elmokit.formats.resumable import disk_errors
from elmokit.tasks.layers import LayerSource
from elmokit.tasks.run import CHECKPOINT, Listener, identify_training, spaced, taken, train_task
from elmokit.tasks.saved import LearnedMix, TaskModel
from elmokit.tasks.setup import Setup
from elmokit.tasks.task import E, P, Scores, Task
from elmokit.tasks.train import Checkpoint, Identity, Scored
from elmokit.tasks.words import ElmoAt

CELLS, RUNNING = "cells", "running"  # folders of results, and of the checkpoints of cells that are being trained
KIND = "kind"  # file that says which ablations belong in the folder
FREE: dict[str, Any] = {"elmo_at": "none", "elmo_layers": "mix", "seed": 0}  # what its cells may differ in
LOOK_AGAIN = 1.0  # seconds between looks at cells that other processes train


@dataclass(frozen=True, slots=True)
class Variant:
    """Where the encoder's layers enter the network, and as what."""

    name: str
    elmo_at: ElmoAt
    elmo_layers: str = "mix"


WITHOUT = Variant("none", "none")
VARIANTS = (
    WITHOUT,
    Variant("layer-0", "input", "0"),
    Variant("top", "input", "top"),
    Variant("average", "input", "average"),
    Variant("mix-input", "input"),
    Variant("mix-output", "output"),
    Variant("mix-both", "both"),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One training of the many; `share` is that of the training examples."""

    variant: Variant
    seed: int
    share: float = 1.0

    @property
    def name(self) -> str:
        return f"{self.variant.name}, {100 * self.share:g}% of the data, seed {self.seed}"

    @property
    def key(self) -> str:
        """A file name."""
        return f"{self.variant.name}-{100 * self.share:g}pct-seed{self.seed}"


@dataclass(frozen=True, slots=True)
class CellResult(Scored):
    """What became of a cell. `identity` digests its settings, data and encoder."""

    variant: str
    seed: int
    share: float
    examples: int  # distinct ones that were trained on
    scores: Scores
    mixes: dict[str, LearnedMix]  # by place
    epochs: int
    best_epoch: int
    seconds: float
    identity: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is trained: every variant with every seed on all data; and `curve` variants on the smaller `shares`."""

    variants: tuple[Variant, ...] = VARIANTS
    seeds: tuple[int, ...] = (1, 2, 3)
    shares: tuple[float, ...] = ()
    curve: tuple[Variant, ...] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        if not self.seeds or not (self.variants or self.curve):
            raise ConfigError("there is nothing to train; give one seed and one variant at least")
        if wrong := [share for share in self.shares if not 0 < share <= 1]:
            raise ConfigError(f"{wrong[0]} is no share of the training data; expected more than 0 and at most 1")

    def cells(self) -> Iterator[Cell]:
        """Each once, seed by seed, so that a first table stands early."""
        seen = set()
        for seed in self.seeds:
            table = [Cell(variant, seed) for variant in self.variants]
            curve = [Cell(variant, seed, share) for share in sorted(self.shares) for variant in self.curve]
            for cell in (*table, *curve):
                if cell not in seen:
                    seen.add(cell)
                    yield cell


def pick_variants(names: Sequence[str], *, as_set: Variant | None = None) -> tuple[Variant, ...]:
    """Variants by name, in the order of `VARIANTS`; "as-set" is what the settings say, if that is known."""
    known = {variant.name: variant for variant in VARIANTS} | ({} if as_set is None else {"as-set": as_set})
    if unknown := [name for name in names if name not in known]:
        raise InputError(f"no variant {unknown[0]!r}; available are {', '.join(known)}")
    return tuple(dict.fromkeys(variant for name, variant in known.items() if name in names))


def curve_variants(setup: Setup) -> tuple[Variant, ...]:
    """Without ELMo, and with it as the settings have it."""
    at, layers = setup.features.elmo_at, setup.features.elmo_layers
    if at == "none":
        raise InputError("elmo_at is 'none', but the curve compares with ELMo; say where it enters")
    same = (variant for variant in VARIANTS if (variant.elmo_at, variant.elmo_layers) == (at, layers))
    return WITHOUT, next(same, Variant("as-set", at, layers))


class _Job(NamedTuple):
    """What a cell trains with."""

    setup: Setup
    train: Sequence[Any]  # with repetitions
    examples: int  # distinct ones
    encoder: Encoder | None
    identity: Identity


def run_ablation(
    task: Task[E, P],
    setup: Setup,
    train: Sequence[E],
    dev: Sequence[E],
    *,
    plan: Plan,
    folder: Path,
    encoder: Encoder,
    layers: LayerSource | None = None,
    device: str | torch.device = "auto",
    listener: Listener | None = None,
    begun: Callable[[Cell], None] | None = None,
    told: Callable[[list[CellResult]], None] | None = None,
    waits: Callable[[int], None] | None = None,
) -> list[CellResult]:
    """Trains the cells that are not yet in `folder`; calls `told` with the results so far after each of them.

    Other processes may do the same in that folder: each trains cells that no other is at, and all return all results.
    `waits` hears how many cells are left to the others; one whose process ends before it is done is taken over.
    `layers` holds those of all examples; without it, each cell that reads the encoder computes its own.
    """
    if setup.training.fine_tune:
        raise ConfigError("fine_tune changes the encoder, but an ablation compares uses of one; leave it out")
    train = spaced(train, setup.training.max_train)

    @cache
    def job(cell: Cell) -> _Job:
        some, repeated = take_share(train, cell.share, seed=cell.seed)
        own = setup.changed(
            elmo_at=cell.variant.elmo_at, elmo_layers=cell.variant.elmo_layers, seed=cell.seed, max_train=0
        )
        used = None if cell.variant.elmo_at == "none" else encoder
        return _Job(own, repeated, len(some), used, identify_training(task, own, repeated, dev, used))

    def result_of(cell: Cell) -> CellResult | None:
        """What was kept of it, or trains it; None where another process does."""
        own, running = job(cell), folder / RUNNING / cell.key
        if (kept := read_result(folder, cell, own.identity.digest)) is not None:
            return kept
        with ExitStack() as stack:
            try:
                stack.enter_context(taken(running))
            except BusyError:
                return None
            if (kept := read_result(folder, cell, own.identity.digest)) is not None:  # meanwhile
                shutil.rmtree(running, ignore_errors=True)
                return kept
            if begun is not None:
                begun(cell)
            model = train_task(
                task,
                own.setup,
                own.train,
                dev,
                encoder=own.encoder,
                layers=layers,
                folder=Checkpoint(running / CHECKPOINT, own.identity),
                device=device,
                listener=listener,
            )
            result = _result(cell, model, examples=own.examples, identity=own.identity.digest)
            (folder / CELLS).mkdir(exist_ok=True)
            with disk_errors(folder):
                write_text(_kept(folder, cell), json.dumps(asdict(result), indent=1) + "\n")
            shutil.rmtree(running, ignore_errors=True)
            return result

    cells = list(plan.cells())
    # What was trained otherwise is told before anything is trained.
    alike = [cell for cell in cells if read_result(folder, cell, job(cell).identity.digest) is not None]
    _claim(folder, identify_training(task, setup.changed(**FREE), train, dev, encoder).digest, known=bool(alike))
    found: dict[Cell, CellResult] = {}
    waited = False
    while left := [cell for cell in cells if cell not in found]:
        before = len(found)
        for cell in left:
            if (result := result_of(cell)) is not None:
                found[cell] = result
                if told is not None:
                    told([found[cell] for cell in cells if cell in found])
        if len(found) == before:
            if waits is not None and not waited:
                waits(len(left))
            waited = True
            time.sleep(LOOK_AGAIN)
    return [found[cell] for cell in cells]


def _claim(folder: Path, identity: str, *, known: bool) -> None:
    """The folder for ablations of one kind: of the same data, encoder and settings, but for what variants change.

    `known`: it holds results of this kind already, perhaps from before kinds were written down.
    """
    path = folder / KIND
    folder.mkdir(parents=True, exist_ok=True)
    lock = folder / LOCK
    with disk_errors(folder), locked(lock, busy=None):
        begun = any(place.is_dir() and any(place.iterdir()) for place in (folder / CELLS, folder / RUNNING))
        if not begun or (known and not path.is_file()):
            write_text(path, identity + "\n")
        lock.unlink(missing_ok=True)
    if path.is_file() and path.read_text(encoding="utf-8").strip() != identity:
        raise ConfigError(
            f"{folder}: holds an ablation with other settings, data or encoder; give the same again, or another folder"
        )


def take_share(train: Sequence[E], share: float, *, seed: int) -> tuple[Sequence[E], Sequence[E]]:
    """A random part of the examples, in their order; and the same repeated 1/sqrt(share) times, which makes an epoch.

    With one seed every smaller part is within the greater ones. An epoch of a hundredth of the data would be a few
    steps, too few to judge by: training would stop at once.
    """
    if share == 1:
        return train, train
    chosen = np.random.default_rng(seed).permutation(len(train))[: max(round(share * len(train)), 1)]
    some = [train[k] for k in sorted(chosen.tolist())]
    return some, some * max(round(share**-0.5), 1)


def is_trained(folder: Path, cell: Cell) -> bool:
    """Whether something was kept of a cell."""
    return _kept(folder, cell).is_file()


def read_result(folder: Path, cell: Cell, identity: str) -> CellResult | None:
    """What was kept of a cell; None where it has not been trained. That of other settings or data is refused."""
    path = _kept(folder, cell)
    if not path.is_file():
        return None
    result = read_json(path, CellResult, what="the result of a cell", advice="remove it to train that cell again")
    if result.identity != identity:
        raise ConfigError(
            f"{path}: was trained with other settings, data or encoder; give the same again, or another folder"
        )
    return result


def _result(cell: Cell, model: TaskModel[Any, Any], *, examples: int, identity: str) -> CellResult:
    trained = model.trained
    assert trained is not None
    return CellResult(
        variant=cell.variant.name,
        seed=cell.seed,
        share=cell.share,
        examples=examples,
        scores=trained.best.scores,
        mixes={place: LearnedMix(tuple(mix["shares"]), mix["gamma"]) for place, mix in model.mixes.items()},
        epochs=len(trained.epochs),
        best_epoch=trained.best.number,
        seconds=trained.seconds,
        identity=identity,
    )


def _kept(folder: Path, cell: Cell) -> Path:
    return folder / CELLS / f"{cell.key}.json"
