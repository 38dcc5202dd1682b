"""Vectors to disk: a stream of any length in flat memory, through any number of kills, to a whole file or none."""

import contextlib
import sqlite3
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elmokit.encoders.encoder import Encoder, Layers
from elmokit.encoders.places import batch_budget, pick_device
from elmokit.encoders.results import Choice
from elmokit.errors import ElmokitWarning, FormatError, InputError
from elmokit.formats.atomic import atomic_path
from elmokit.formats.given import Given, read_request
from elmokit.formats.resumable import Log, disk_errors, open_log, read_chunks
from elmokit.store._arrays import write_npz, write_safetensors
from elmokit.store._parquet import load_pyarrow, write_parquet
from elmokit.store._records import Record, SentenceIndex
from elmokit.store._seal import BLANK, seal
from elmokit.store.hdf5 import write_hdf5
from elmokit.store.provenance import KEY, Provenance, read_provenance, verify_vectors
from elmokit.text import Sentence

SUFFIXES = (".h5", ".hdf5", ".parquet", ".npz", ".safetensors")
CHUNK_BATCHES = 16  # batches between two commits: what a kill can cost


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """What is embedded and how; the same as `Encoder.encode_tokens` has, and two of the older tools for HDF5."""

    layers: Layers = "average"
    batch_tokens: int | None = None
    device: str | torch.device | None = None
    dtype: str | None = None
    normalise: bool = False
    use_sentence_keys: bool = False  # HDF5: key by sentence instead of line number
    forget_sentences: bool = False  # HDF5: leave `sentence_to_index` out


@dataclass(slots=True)
class StoreReport:
    """What was met on the way."""

    sentences: int = 0
    tokens: int = 0
    empty: int = 0
    overlong_words: int = 0
    unknown_words: int = 0
    longest: int = 0
    duplicates: int = 0
    resumed_at: int = 0
    known: bool = False  # the file was finished already, and nothing was done


def write_vectors(
    encoder: Encoder,
    sentences: Given,
    path: str | Path,
    *,
    options: StoreOptions | None = None,
    name: str = "",
    restart: bool = False,
    overwrite: bool = False,
    seen: Callable[[int], None] = lambda n: None,
    told: Callable[[StoreReport], None] = lambda report: None,
) -> StoreReport:
    """Embed the sentences into a .h5, .hdf5, .parquet, .npz or .safetensors file.

    The file appears when it is complete. Until then vectors go to `<path>.partial/`. The same call after a kill resumes
    after the last finished chunk and makes the same file, byte for byte.

    name       what the input is called; a finished file that was made from it with the same settings is kept
    restart    throw away what an unfinished run has left
    overwrite  write the file again, even if it is finished
    seen       is called with the number of sentences in each chunk that is done
    told       is called with the report when the work begins and after each chunk
    """
    target, options = Path(path), options or StoreOptions()
    check_target(target)
    request = read_request(sentences, tokenizer=encoder.tokenizer)
    if request.single:
        raise InputError("one string was given, expected a list of sentences, a generator or a Path")
    choice = Choice.of(options.layers, None, default="average")
    axes = choice.axes(encoder.depth, encoder.width)
    report = StoreReport()
    made = _provenance(encoder, options, name)
    folder = target.with_name(target.name + ".partial")
    with open_log(folder, run=_run_of(encoder, options), restart=restart, later=("arithmetic",)) as log:
        if not (log.done.sentences or restart or overwrite):
            stored = _finished(target, made)
            if stored is not None:
                log.discard()
                return StoreReport(stored.sentences, stored.tokens, known=True)
        if log.unrecorded and log.done.sentences:
            then = f"the {log.done.sentences:,} sentences that an earlier version of elmokit has embedded"
            warnings.warn(
                f"{folder} does not say with which arithmetic {then} were made; now it is {made.arithmetic}, and their "
                "numbers may differ; --restart (restart=True) embeds them again",
                ElmokitWarning,
                stacklevel=2,
            )
            made = replace(made, arithmetic=f"not recorded, then {made.arithmetic}")
        report.resumed_at = log.done.sentences
        told(report)
        _fill(log, encoder, request.sentences, options, report, seen=seen, told=told)
        made = replace(made, sentences=report.sentences, tokens=report.tokens)
        kept = {KEY: made.to_json()}

        def records() -> Iterator[Record]:
            return map(Record.unpack, log.payloads())

        with (
            disk_errors(target, RuntimeError, sqlite3.Error),
            contextlib.closing(SentenceIndex(folder / "sentences.sqlite")) as index,
        ):
            for line, record in enumerate(records()):
                index.add(record.text, line)
            report.duplicates = index.duplicates
            with atomic_path(target) as draft:
                match target.suffix.lower():
                    case ".parquet":
                        write_parquet(draft, records(), axes=axes, metadata=kept)
                    case ".npz":
                        write_npz(draft, records(), comment=kept[KEY])
                    case ".safetensors":
                        write_safetensors(draft, records, axes=axes, metadata={"layers": made.layers, **kept})
                    case _:
                        keys, forget = options.use_sentence_keys, options.forget_sentences
                        write_hdf5(draft, records(), index, attributes=kept, sentence_keys=keys, forget=forget)
                seal(draft)
        log.discard()
    return report


def check_target(target: Path) -> None:
    """Whether a file of that name can be written, before any work is done."""
    if target.suffix.lower() not in SUFFIXES:
        raise InputError(f"{target}: cannot tell the format from the name; expected one of {', '.join(SUFFIXES)}")
    if target.suffix.lower() == ".parquet":
        load_pyarrow()


def _finished(target: Path, made: Provenance) -> Provenance | None:
    """The record of a file that was made in just this way; None where there is no such file, or it is damaged."""
    try:
        stored = read_provenance(target)
        if stored is None or not stored.same_run(made):
            return None
        verify_vectors(target)
    except FormatError:
        return None
    return stored


def _fill(
    log: Log,
    encoder: Encoder,
    sentences: Iterator[Sentence],
    options: StoreOptions,
    report: StoreReport,
    *,
    seen: Callable[[int], None],
    told: Callable[[StoreReport], None],
) -> None:
    """Embed what the log does not have yet.

    The word cache starts empty in each chunk, so a resumed run makes the same batches, and with them the same
    roundings, as one that was never killed.
    """
    device = encoder.device if options.device is None else pick_device(options.device)
    budget = batch_budget(options.batch_tokens, device)
    what = f"{log.folder} holds an unfinished run over other input"
    for chunk in read_chunks(sentences, tokens=budget * CHUNK_BATCHES, done=log.done, what=what):
        for sentence in chunk.sentences:
            _count(report, sentence, encoder)
        if not chunk.done:
            encoder.forget_words()
            stream = encoder.stream(
                chunk.sentences,
                layers=options.layers,
                batch_tokens=budget,
                device=options.device,
                dtype=options.dtype,
                normalise=options.normalise,
            )
            for sentence, vectors in stream:
                vectors = np.asarray(vectors, dtype=np.float32)
                log.append(Record(text_of(sentence), sentence.tokens, vectors).pack())
            log.commit(chunk.end)
        seen(len(chunk.sentences))
        told(report)


def text_of(sentence: Sentence) -> str:
    """The sentence as one line, stripped: what the older tools' index goes by."""
    return (" ".join(sentence.tokens) if sentence.text is None else sentence.text).strip()


def _count(report: StoreReport, sentence: Sentence, encoder: Encoder) -> None:
    report.sentences += 1
    report.tokens += len(sentence)
    report.empty += len(sentence) == 0
    report.longest = max(report.longest, len(sentence))
    report.overlong_words += sum(map(encoder.overlong, sentence.tokens))
    report.unknown_words += sum(map(encoder.unknown, sentence.tokens))


def _run_of(encoder: Encoder, options: StoreOptions) -> dict[str, Any]:
    """What must be the same for a run to be resumed; the input is compared by its contents."""
    return {
        "model": encoder.fingerprint,
        "tokenizer": f"{encoder.tokenizer.name} {encoder.tokenizer.version}",
        "layers": str(options.layers),
        "batch_tokens": options.batch_tokens,
        "device": str(options.device or encoder.device),
        "dtype": str(options.dtype or encoder.dtype),
        "normalise": options.normalise,
        "arithmetic": _arithmetic(encoder, options),
    }


def _arithmetic(encoder: Encoder, options: StoreOptions) -> str:
    if options.device is None and options.dtype is None:
        return encoder.arithmetic
    runner = encoder.placed(options.device, options.dtype)
    return encoder.arithmetic_in(runner.device, runner.dtype)


def _provenance(encoder: Encoder, options: StoreOptions, name: str) -> Provenance:
    keys = ["sentences"] * options.use_sentence_keys + ["no index"] * options.forget_sentences
    return Provenance(
        model=encoder.source,
        fingerprint=encoder.fingerprint,
        tokenizer=f"{encoder.tokenizer.name} {encoder.tokenizer.version}",
        layers=str(options.layers),
        arithmetic=_arithmetic(encoder, options),
        normalise=options.normalise,
        batch_tokens=options.batch_tokens,
        keys=", ".join(keys),
        input=name,
        checksum=BLANK,
    )
