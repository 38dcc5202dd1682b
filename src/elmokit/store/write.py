"""Vectors to disk: a stream of any length in flat memory, through any number of kills, to a whole file or none."""

import sqlite3
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from elmokit.encoders.encoder import Encoder, Layers
from elmokit.encoders.places import batch_budget, pick_device
from elmokit.encoders.results import Block, Choice
from elmokit.errors import ElmokitWarning, FormatError, InputError
from elmokit.formats.atomic import atomic_move, atomic_path
from elmokit.formats.given import Given, read_request
from elmokit.formats.resumable import COUNT, SEVERAL, Chunk, Log, Summed, disk_errors, open_log, read_chunks
from elmokit.native.checksums import crc32
from elmokit.store._finish import Follower, Target, make_file
from elmokit.store._growing import BLOCKS_AHEAD, GrowingFile, GrowingWriter, can_grow, front_of, recover
from elmokit.store._handed import InOrder
from elmokit.store._parquet import load_pyarrow
from elmokit.store._records import RecordBlock
from elmokit.store._seal import BLANK, is_sealed
from elmokit.store.provenance import Provenance, read_provenance, verify_vectors
from elmokit.text import Sentence
from elmokit.text.packed import Packed, line_of

HDF5 = (".h5", ".hdf5")
SUFFIXES = (*HDF5, ".parquet", ".npz", ".safetensors")
TYPES = ("float32", "float16")
CHUNK_BATCHES = 16  # batches between two commits: what a kill can cost


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """What is embedded and how; the same as `Encoder.encode_tokens` has, and two of the older tools for HDF5."""

    layers: Layers = "average"
    batch_tokens: int | None = None
    device: str | torch.device | None = None
    dtype: str | None = None
    normalise: bool = False
    vectors: Literal["float32", "float16"] = "float32"  # in the file
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
    beside: bool = False,
) -> StoreReport:
    """Embed the sentences into a .h5, .hdf5, .parquet, .npz or .safetensors file.

    The file appears when it is complete. Until then vectors go to `<path>.partial/`: Parquet and HDF5 grow there as
    they will be (but for sentences as keys), the others are made of a log. The same call after a kill resumes after the
    last finished chunk and makes the same file, byte for byte.

    name       what the input is called; a finished file that was made from it with the same settings is kept
    restart    throw away what an unfinished run has left
    overwrite  write the file again, even if it is finished
    seen       is called with the number of sentences in each chunk that is done
    told       is called with the report when the work begins and after each chunk
    beside     a process of its own makes a file that is made of a log while vectors are computed
    """
    target, options = Path(path), options or StoreOptions()
    check_target(target, [sentences] if isinstance(sentences, Path) else [])
    request = read_request(sentences, tokenizer=encoder.tokenizer)
    if request.single:
        raise InputError("one string was given, expected a list of sentences, a generator or a Path")
    if options.vectors not in TYPES:
        raise InputError(f"vectors is {options.vectors!r}; expected one of {', '.join(TYPES)}")
    axes = Choice.of(options.layers, None, default="average").axes(encoder.depth, encoder.width)
    report = StoreReport()
    made = _provenance(encoder, options, name)
    folder = target.with_name(target.name + ".partial")
    with open_log(folder, run=_run_of(encoder, options), restart=restart, later=("arithmetic",), crc=crc32) as log:
        made_of = Target(
            target.suffix.lower(),
            axes,
            made.to_json(),
            half=options.vectors == "float16",
            layers=str(options.layers),
            sentence_keys=options.use_sentence_keys and target.suffix.lower() in HDF5,
            forget=options.forget_sentences,
        )
        entries = recover(log, front_of(made_of.suffix)) if (grows := can_grow(made_of, log)) else []
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
            made_of = replace(made_of, record=made.to_json())
        report.resumed_at = log.done.sentences
        told(report)

        def committed(chunk: Chunk) -> None:
            seen(len(chunk.sentences))
            told(report)

        def fill(writer: "LogWriter | GrowingWriter") -> str:
            with writer:
                _fill(log, encoder, request.sentences, options, report, writer)
            return replace(made, sentences=report.sentences, tokens=report.tokens).to_json()

        if grows:
            with closing(GrowingFile(log, made_of, entries)) as file:
                record = fill(GrowingWriter(file, committed))
                with disk_errors(target, RuntimeError):
                    report.duplicates = file.finish(record)
            with disk_errors(target):
                atomic_move(file.path, target)
        else:
            report.duplicates = _from_log(log, made_of, target, fill, committed, beside=beside)
        log.discard()
    return report


def _from_log(
    log: Log,
    made_of: Target,
    target: Path,
    fill: "Callable[[LogWriter], str]",
    committed: Callable[[Chunk], None],
    *,
    beside: bool,
) -> int:
    """Vectors to the log and from there to the file; how many sentences also stand on an earlier line."""
    draft = log.folder / "draft"
    with Follower(log.path, draft, made_of) if beside and made_of.can_follow else nullcontext() as follower:
        if follower is not None:
            follower.tell(log.end)
        record = fill(LogWriter(log, follower, committed))
        duplicates = None if follower is None else follower.finish(record)
    if duplicates is not None:
        with disk_errors(target):
            atomic_move(draft, target)
        return duplicates

    def blocks() -> Iterator[RecordBlock]:
        return map(RecordBlock.unpack, log.payloads())

    with disk_errors(target, RuntimeError, sqlite3.Error), atomic_path(target) as part:
        return make_file(part, made_of, log.folder / "sentences.sqlite", blocks, record)


def check_target(target: Path, read: Iterable[str | Path] = ()) -> None:
    """Whether a file of that name can be written, before any work is done; not over one that is read."""
    if target.suffix.lower() not in SUFFIXES:
        raise InputError(f"{target}: cannot tell the format from the name; expected one of {', '.join(SUFFIXES)}")
    if target.suffix.lower() == ".parquet":
        load_pyarrow()
    if target.exists() and any(Path(source).exists() and target.samefile(source) for source in read):
        raise InputError(f"{target}: is among the files to read; write to another")


def _finished(target: Path, made: Provenance) -> Provenance | None:
    """The record of a file that was made in just this way; None where there is no such file, or it is damaged."""
    if not (made.input and target.is_file()):
        return None
    try:
        # HDF5 may go round in a damaged file for ever, so it sees none before the checksum was compared.
        if target.suffix.lower() in HDF5 and not is_sealed(target):
            return None
        stored = read_provenance(target)
        if stored is None or not stored.same_run(made):
            return None
        if target.suffix.lower() not in HDF5:
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
    writer: "LogWriter | GrowingWriter",
) -> None:
    """Embed what the log does not have yet. A thread writes while the next vectors are computed.

    The word cache starts empty in each chunk, so a resumed run makes the same batches, and with them the same
    roundings, as one that was never killed.
    """
    device = encoder.device if options.device is None else pick_device(options.device)
    budget = batch_budget(options.batch_tokens, device)
    what = f"{log.folder} holds an unfinished run over other input"
    waiting: deque[Chunk] = deque()  # chunks whose vectors are not all there yet

    def stretches() -> Iterator[Sequence[Sentence]]:
        for chunk in read_chunks(sentences, tokens=budget * CHUNK_BATCHES, done=log.done, what=what):
            _count(report, Packed.of(chunk.sentences), encoder)
            if chunk.done:
                writer.passed(chunk)
                writer.committed(chunk)
            else:
                waiting.append(chunk)
                yield chunk.sentences

    blocks = encoder.blocks(
        stretches(),
        stored=torch.float16 if options.vectors == "float16" else torch.float32,
        layers=options.layers,
        batch_tokens=budget,
        device=options.device,
        dtype=options.dtype,
        normalise=options.normalise,
    )
    done = 0  # sentences of the first chunk that waits
    for block in blocks:
        writer.append(block)
        done += len(block.sentences)
        if done == len(waiting[0].sentences):
            writer.commit(waiting.popleft())
            done = 0


class LogWriter(InOrder):
    """Blocks and commits to a log, by a thread of its own; a second one sums them up meanwhile."""

    def __init__(self, log: Log, follower: Follower | None, committed: Callable[[Chunk], None]) -> None:
        self._thread, self._summing = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        super().__init__(committed, self._summing, self._thread)
        self.log, self.follower = log, follower

    def passed(self, chunk: Chunk) -> None:
        """A chunk that the log has already."""

    def append(self, block: Block) -> None:
        self._settle(BLOCKS_AHEAD)
        packed = self._summing.submit(self._pack, block)
        self._hand(self._thread.submit(self._append, packed))

    def commit(self, chunk: Chunk) -> None:
        self._hand(self._thread.submit(self._commit, chunk), chunk)

    def _pack(self, block: Block) -> Summed:
        texts, tokens = list(map(line_of, block.sentences)), [sentence.tokens for sentence in block.sentences]
        record = RecordBlock(texts, tokens, block.vectors, block.layers)
        return self.log.summed(COUNT.pack(len(record)), *record.pack())

    def _append(self, packed: "Future[Summed]") -> None:
        self.log.append_summed(packed.result(), kind=SEVERAL)

    def _commit(self, chunk: Chunk) -> None:
        self.log.commit(chunk.end)
        if self.follower is not None:
            self.follower.tell(self.log.end)


def _count(report: StoreReport, sentences: Packed, encoder: Encoder) -> None:
    lengths = sentences.lengths
    short = (encoder.longest_word or 0) // 4  # no word of so many characters is too long, whatever they are
    words = sentences.words
    odd = [k for k, word in enumerate(words) if len(word) > short and encoder.overlong(word)]
    unknown = [k for k, word in enumerate(words) if encoder.unknown(word)] if encoder.has_unknown else []
    report.sentences += len(sentences)
    report.tokens += len(sentences.ids)
    report.empty += int(np.count_nonzero(lengths == 0))
    report.longest = max(report.longest, int(lengths.max(initial=0)))
    if odd or unknown:
        times = np.bincount(sentences.ids, minlength=len(words))
        report.overlong_words += int(times[odd].sum())
        report.unknown_words += int(times[unknown].sum())


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
        **({} if options.vectors == "float32" else {"vectors": options.vectors}),
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
        vectors=options.vectors,
        keys=", ".join(keys),
        input=name,
        checksum=BLANK,
    )
