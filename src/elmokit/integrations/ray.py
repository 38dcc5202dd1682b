"""Embedding on many cores, GPUs and machines with Ray Data: actors that load the model once, parts written as Parquet.

    embed(["corpus.jsonl"], "vectors", model="en", workers=8)

Each row is embedded exactly once: `elmokit.store.parts` says how. All machines of the cluster must see the folder.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from elmokit.encoders import load_encoder
from elmokit.errors import InputError, MissingExtraError
from elmokit.formats.resumable import locked
from elmokit.layers import LayerChoice
from elmokit.store.parts import (
    PART_ROWS,
    Part,
    PartEmbedder,
    PartOptions,
    PartReport,
    begin,
    finish,
    plan_parts,
    read_part,
)

try:
    import ray
    import ray.data
except ImportError as error:
    raise MissingExtraError(f"Ray is needed ({error})", extra="ray") from error

__all__ = ["RunReport", "embed"]

INPUT = "input"  # where the rows of a dataset are kept, so that a second run sees them in the same order


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

    def add(self, made: PartReport) -> None:
        self.done += 1
        self.rows_done += made.rows
        self.tokens += made.tokens
        self.empty += made.empty
        self.bad += made.bad


class Worker:
    """The actor: parts in, reports out, in the batches of Ray Data."""

    def __init__(self, folder: str, options: dict[str, Any], threads: int) -> None:
        torch.set_num_threads(threads)
        self.embedder = PartEmbedder(folder, PartOptions(**options))

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        rows = [dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True)]
        plain = [{key: value.item() if hasattr(value, "item") else value for key, value in row.items()} for row in rows]
        made = [asdict(self.embedder(Part(**row))) for row in plain]
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
    part_rows: int = PART_ROWS,
    restart: bool = False,
    told: Callable[[RunReport], None] = lambda report: None,
) -> RunReport:
    """Embed files of text, JSONL or Parquet, or a Ray dataset, into a folder of Parquet parts.

    dataset    paths, addresses such as s3://bucket/key, or a Ray dataset with a column `field`
    workers    actors; default: one per GPU, or one per `cpus` cores of the cluster
    gpus       GPUs of an actor, or a share of one; default: one where the cluster has any
    address    of a cluster that runs ("auto": the one here); default: a cluster of this machine's own, for this run
    part_rows  rows of a part: what a kill costs a worker, and what it holds in memory
    restart    throw away what an earlier run has left
    told       hears the report after each part

    The same call after a kill of the driver, a worker or a machine makes what is missing. Rows that cannot be read are
    set aside in `part-*.bad.jsonl` and counted. For the other options see `Encoder`.
    """
    folder = Path(folder).expanduser().absolute()
    if LayerChoice.parse(layers).kind == "mix":
        layers = layers.replace("mix", "average", 1)  # untrained, it is the average
    options = PartOptions(model, layers, field, tokenized, normalise, batch_tokens, device, dtype)
    encoder = load_encoder(model, device="cpu")  # to compare it with that of an earlier run
    folder.parent.mkdir(parents=True, exist_ok=True)
    busy = f"{folder} is in use by another run; wait for it to end, or write to another folder"
    with locked(folder.with_name(folder.name + ".lock"), busy=busy), _cluster(address):
        files = _files(dataset, folder, restart=restart)
        parts = plan_parts(files, part_rows=part_rows)
        known = begin(folder, parts, options, encoder, restart=restart)
        report = RunReport(parts=len(parts), rows=sum(part.rows for part in parts), known=known)
        made = {part.number: found for part in parts if (found := read_part(folder / part.name)) is not None}
        report.resumed = len(made)
        for found in made.values():
            report.add(found)
        told(report)
        missing = [part for part in parts if part.number not in made]
        if missing:
            share = float(ray.cluster_resources().get("GPU", 0) > 0) if gpus is None else gpus
            settings = {"folder": str(folder), "options": asdict(options), "threads": cpus}
            work = ray.data.from_items([asdict(part) for part in missing], override_num_blocks=len(missing))
            done = work.map_batches(
                Worker,
                fn_constructor_kwargs=settings,
                batch_size=1,
                concurrency=min(workers or _workers(cpus, share), len(missing)),
                num_cpus=cpus,
                num_gpus=share or None,
            )
            for row in done.iter_rows():
                found = PartReport(**{key: int(value) for key, value in row.items()})
                made[found.number] = found
                report.add(found)
                told(report)
        if not known:
            finish(folder, [made[part.number] for part in parts])
    return report


def _workers(cpus: int, gpus: float) -> int:
    there = ray.cluster_resources()
    return max(int(there.get("GPU", 0) / gpus) if gpus else int(there.get("CPU", 1)) // cpus, 1)


@contextmanager
def _cluster(address: str | None) -> Any:
    """A cluster: the one at the address, the one that this process has joined already, or one for this run alone."""
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.max_errored_blocks = 0
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    own: dict[str, Any] = {"include_dashboard": False} if address is None else {"address": address}
    ray.init(log_to_driver=False, logging_level="warning", **own)
    try:
        yield
    finally:
        ray.shutdown()


def _files(dataset: Any, folder: Path, *, restart: bool) -> list[str]:
    """The files to read; a dataset is written to files first, once."""
    if isinstance(dataset, str | Path):
        dataset = [dataset]
    if not isinstance(dataset, ray.data.Dataset):
        files = [str(name) for name in dataset]
        if not files:
            raise InputError("no files were given to embed")
        return files
    kept = folder.with_name(f"{folder.name}.{INPUT}")
    if restart:
        shutil.rmtree(kept, ignore_errors=True)
    if not kept.is_dir():
        draft = kept.with_name(kept.name + ".tmp")
        shutil.rmtree(draft, ignore_errors=True)
        dataset.write_parquet(str(draft))
        draft.rename(kept)
    return sorted(str(path) for path in kept.rglob("*.parquet"))
