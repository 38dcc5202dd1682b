"""Embedding and indexing on many cores, GPUs and machines with Ray Data: actors that load the model once.

    embed(["corpus.jsonl"], "vectors", model="en", workers=8)
    index(["corpus.jsonl"], "neighbours", model="en", workers=8)

Each row is embedded exactly once: `elmokit.store.parts` and `elmokit.index.parts` say how. All machines of the cluster
must see the folder.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields
from dataclasses import field as attribute
from pathlib import Path
from typing import Any, Literal

import torch

from elmokit.encoders import load_encoder
from elmokit.errors import ElmokitError, InputError, MissingExtraError
from elmokit.formats.locks import locked
from elmokit.formats.parts import Part, PartReport, Spent, WorkerReport, digest_parts, make_part, plan_parts
from elmokit.index import Index, IndexSettings
from elmokit.index.parts import SegmentMaker, SegmentOptions, SegmentReport, adding_parts
from elmokit.layers import LayerChoice
from elmokit.store.parts import PartEmbedder, PartOptions, begin_parts, finish_parts, part_file, read_part

try:
    import ray
    import ray.data
except ImportError as error:
    raise MissingExtraError(f"Ray is needed ({error})", extra="ray") from error

__all__ = ["RunReport", "WorkerReport", "embed", "index"]

TRIES = 3
MANY = 16  # parts for each worker
INPUT = "elmokit-input"  # where the rows of a dataset are kept, so that a run that resumes sees them in the same order
WRONG = "wrong"  # what a worker answers where a part cannot be made


@dataclass(slots=True)
class RunReport:
    """How far a run is."""

    parts: int = 0  # of all
    done: int = 0
    rows: int = 0  # of all
    rows_done: int = 0
    tokens: int = 0
    empty: int = 0
    bad: int = 0
    resumed: int = 0  # parts that an earlier run has made
    known: bool = False  # all was finished before
    sentences: int = 0  # of an index
    occurrences: int = 0
    workers: dict[str, WorkerReport] = attribute(default_factory=dict)  # by machine and process; of this run

    def add(self, made: PartReport) -> None:
        self.done += 1
        self.rows_done += made.rows
        self.tokens += made.tokens
        self.empty += made.empty
        self.bad += made.bad
        if isinstance(made, SegmentReport):
            self.sentences += made.sentences
            self.occurrences += made.occurrences


class Worker:
    """The actor: parts in, reports out, in the batches of Ray Data."""

    def __init__(self, maker: PartEmbedder | SegmentMaker, threads: int, arithmetic: str) -> None:
        torch.set_num_threads(threads)
        self.maker, self.arithmetic = maker, arithmetic

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        try:
            return self._make(batch)
        except ElmokitError as error:  # Ray would wrap it in tracebacks
            return {WRONG: [str(error)]}

    def _make(self, batch: dict[str, Any]) -> dict[str, Any]:
        if self.arithmetic and self.maker.encoder.arithmetic != self.arithmetic:
            raise InputError(
                f"a worker computes with {self.maker.encoder.arithmetic}, another one with {self.arithmetic}: their "
                "vectors differ slightly; use machines of one kind, or name a device and a number type that all have"
            )
        rows = [dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True)]
        plain = [{key: value.item() if hasattr(value, "item") else value for key, value in row.items()} for row in rows]
        made = [
            asdict(report) | asdict(spent) for report, spent in (make_part(self.maker, Part(**row)) for row in plain)
        ]
        return {key: [report[key] for report in made] for key in made[0]}


def embed(
    dataset: "Sequence[str | Path] | str | Path | ray.data.Dataset",
    folder: str | Path,
    *,
    model: str | None = None,
    layers: str = "average",
    field: str = "text",
    tokenized: bool = False,
    normalise: bool = False,
    batch_tokens: int | None = None,
    device: str = "auto",
    dtype: str = "default",
    workers: int | None = None,
    cpus: int = 1,
    gpus: float | None = None,
    address: str | None = None,
    part_rows: int | None = None,
    restart: bool = False,
    told: Callable[[RunReport], None] = lambda report: None,
) -> RunReport:
    """Embed files of text, JSONL or Parquet, or a Ray dataset, into a folder of Parquet parts.

    dataset    paths, addresses such as s3://bucket/key, or a Ray dataset with a column `field`, whose rows are kept in
               `folder`.elmokit-input until the run has finished: a run that resumes reads them there
    workers    actors; default: one per GPU, or one per `cpus` cores of the cluster
    gpus       GPUs of an actor, or a share of one; default: one where the cluster has any
    address    of a cluster that runs ("auto": the one here); default: a cluster of this machine's own, for this run
    part_rows  rows of a part: what a kill costs a worker, and what it holds in memory; default: `plan_parts` says
    restart    throw away what an earlier run has left
    told       hears the report after each part

    The same call after a kill of the driver, a worker or a machine makes what is missing. Rows that cannot be read are
    set aside in `part-*.bad.jsonl` and counted. For the other options see `Encoder`.
    """
    folder = Path(folder).expanduser().absolute()
    if LayerChoice.parse(layers).kind == "mix":
        layers = layers.replace("mix", "average", 1)  # untrained, it is the average
    options = PartOptions(_placed(model), layers, field, tokenized, normalise, batch_tokens, device, dtype)
    encoder = load_encoder(model, device="cpu", dtype=dtype)  # to compare it with that of an earlier run
    folder.parent.mkdir(parents=True, exist_ok=True)
    busy = f"{folder} is in use by another run; wait for it to end, or write to another folder"
    with locked(folder.with_name(folder.name + ".lock"), busy=busy), _cluster(address):
        team = _Team.of(workers, cpus, gpus, options.model, device, dtype)
        with _reading(dataset, folder, restart=restart) as files:
            parts = plan_parts(files, part_rows=part_rows)
            known = begin_parts(folder, parts, options, encoder.fingerprint, team.arithmetic, restart=restart)
        made = {part.number: found for part in parts if (found := read_part(part_file(folder, part))) is not None}
        report = team.make(parts, made, PartEmbedder(folder, options), PartReport, told)
        report.known = known
        if not known:
            finish_parts(folder, [made[part.number] for part in parts])
        _forget(dataset, folder)
    return report


def index(
    dataset: "Sequence[str | Path] | str | Path | ray.data.Dataset",
    folder: str | Path,
    *,
    model: str | None = None,
    settings: IndexSettings | None = None,
    name: str = "",
    field: str = "text",
    tokenized: bool = False,
    lines: Literal["sentences", "paragraphs"] = "paragraphs",
    batch_tokens: int | None = None,
    device: str = "auto",
    workers: int | None = None,
    cpus: int = 1,
    gpus: float | None = None,
    address: str | None = None,
    part_rows: int | None = None,
    restart: bool = False,
    mix_arithmetic: bool = False,
    told: Callable[[RunReport], None] = lambda report: None,
) -> RunReport:
    """Add the words of files, or of a Ray dataset, to an index; a new one if there is none in the folder.

    Workers make segments of parts, which join the index in the order of the text when all are there. The options are
    those of `embed` and of `Index.build`; settings.per_word cannot be had.

    name   what the text is called; a text that was added under the same name is not added again. Default: made from
           what is in them
    lines  what a row of text holds: a sentence, or a paragraph that is split into sentences
    """
    folder = Path(folder).expanduser().absolute()
    options = SegmentOptions(_placed(model), field, tokenized, lines, batch_tokens, device)
    encoder = load_encoder(model, device="cpu")
    Index.begin(encoder, folder, settings=settings)
    with _cluster(address), ExitStack() as stack:
        team = _Team.of(workers, cpus, gpus, options.model, device, "default")
        with _reading(dataset, folder, restart=restart) as files:
            parts = plan_parts(files, part_rows=part_rows)
            name = name or f"parts ({digest_parts(parts)})"
            given: dict[str, Any] = {"name": name, "restart": restart, "mix_arithmetic": mix_arithmetic}
            adding = adding_parts(folder, encoder, parts, options, arithmetic=team.arithmetic, **given)
            run = stack.enter_context(adding)
        if run is None:
            report = RunReport(known=True)
        else:
            maker = SegmentMaker(run.staged, run.run.number, run.run.manifest, options)
            report = team.make(parts, run.read(), maker, SegmentReport, told)
            run.join(name)
        _forget(dataset, folder)
    return report


@dataclass(frozen=True, slots=True)
class _Team:
    """The workers of a run, and what they have."""

    workers: int
    cpus: int
    gpus: float
    arithmetic: str  # of the first; the others must have the same

    @classmethod
    def of(
        cls, workers: int | None, cpus: int, gpus: float | None, model: str | None, device: str, dtype: str
    ) -> "_Team":
        there = ray.cluster_resources()
        share = float(there.get("GPU", 0) > 0) if gpus is None else gpus
        most = int(there.get("GPU", 0) / share) if share else int(there.get("CPU", 1)) // cpus
        first = ray.remote(num_cpus=cpus, num_gpus=share or None)(_arithmetic).remote(model, device, dtype)
        try:
            arithmetic = ray.get(first)
        except ray.exceptions.RayTaskError as error:
            raise (error.cause if isinstance(error.cause, ElmokitError) else error) from None
        return cls(workers or max(most, 1), cpus, share, arithmetic)

    def make(
        self,
        parts: Sequence[Part],
        made: dict[int, Any],
        maker: PartEmbedder | SegmentMaker,
        kind: type[PartReport],
        told: Callable[[RunReport], None],
    ) -> RunReport:
        """Makes the parts that `made` does not have, and puts their reports there."""
        report = RunReport(parts=len(parts), rows=sum(part.rows for part in parts), resumed=len(made))
        for found in made.values():
            report.add(found)
        told(report)
        missing = [part for part in parts if part.number not in made]
        if not missing:
            return report
        workers = min(self.workers, len(missing))
        # With many parts the next one waits at each worker, which saves the way to the driver. With few this would give
        # two to a worker that is ready early, and none to one that is ready late.
        ahead = 2 if len(missing) >= MANY * workers else 1
        work = ray.data.from_items([asdict(part) for part in missing], override_num_blocks=len(missing))
        done = work.map_batches(
            Worker,
            fn_constructor_kwargs={"maker": maker, "threads": self.cpus, "arithmetic": self.arithmetic},
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=workers, max_tasks_in_flight_per_actor=ahead),
            num_cpus=self.cpus,
            num_gpus=self.gpus or None,
        )
        for row in done.iter_rows():
            if WRONG in row:
                raise InputError(row[WRONG])
            spent = Spent(**{each.name: row.pop(each.name) for each in fields(Spent)})
            found = kind(**{key: int(value) for key, value in row.items()})
            made[found.number] = found
            report.add(found)
            report.workers.setdefault(spent.worker, WorkerReport()).add(found, spent)
            told(report)
        return report


def _arithmetic(model: str | None, device: str, dtype: str) -> str:
    return load_encoder(model, device=device, dtype=dtype).arithmetic


def _placed(model: str | None) -> str | None:
    """A model's folder as the workers find it, wherever they run."""
    return str(Path(model).expanduser().absolute()) if model and Path(model).expanduser().exists() else model


@contextmanager
def _cluster(address: str | None) -> Iterator[None]:
    """A cluster: the one at the address, the one that this process has joined already, or one for this run alone."""
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.max_errored_blocks = 0
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    _start({"include_dashboard": False} if address is None else {"address": address})
    try:
        yield
    finally:
        ray.shutdown()


def _start(how: dict[str, Any]) -> None:
    """Ray gives its processes 30 seconds to start, too little on a busy machine: they get more than one try."""
    for left in reversed(range(TRIES)):
        try:
            ray.init(log_to_driver=False, logging_level="warning", **how)
            return
        except Exception as error:  # Ray raises plain ones
            ray.shutdown()
            if not left or "address" in how:
                where = how.get("address", "on this machine")
                raise InputError(f"Ray cannot be started ({where}): {error}") from error


def _kept(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.{INPUT}")


@contextmanager
def _reading(dataset: Any, folder: Path, *, restart: bool) -> Iterator[list[str]]:
    """The files to read; those of a dataset that is refused before anything is made of it go again."""
    there = _kept(folder).is_dir()
    try:
        yield _files(dataset, folder, restart=restart)
    except ElmokitError:
        if not there:
            _forget(dataset, folder)
        raise


def _forget(dataset: Any, folder: Path) -> None:
    """Removes the rows that were kept of a dataset; what else has such a name is not ours."""
    if isinstance(dataset, ray.data.Dataset):
        shutil.rmtree(_kept(folder), ignore_errors=True)


def _files(dataset: Any, folder: Path, *, restart: bool) -> list[str]:
    """The files to read; a dataset is written to files first, which stay until the run has finished."""
    if isinstance(dataset, str | Path):
        dataset = [dataset]
    if not isinstance(dataset, ray.data.Dataset):
        files = [str(name) if "://" in str(name) else str(Path(name).expanduser().absolute()) for name in dataset]
        if not files:
            raise InputError("no files were given")
        return files
    kept = _kept(folder)
    if restart:
        shutil.rmtree(kept, ignore_errors=True)
    if not kept.is_dir():
        draft = kept.with_name(kept.name + ".tmp")
        shutil.rmtree(draft, ignore_errors=True)
        dataset.write_parquet(str(draft))
        draft.rename(kept)
    return sorted(str(path) for path in kept.rglob("*.parquet"))
