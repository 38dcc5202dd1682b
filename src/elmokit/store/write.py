"""Vectors to disk: a stream of any length in flat memory, through any number of kills, to a whole file or none."""

import os
import sqlite3
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import torch

from elmokit.encoders.encoder import Encoder, Layers
from elmokit.encoders.places import batch_budget, pick_device
from elmokit.encoders.results import Choice
from elmokit.errors import ElmokitWarning, FormatError, InputError
from elmokit.formats.atomic import atomic_path
from elmokit.formats.given import Given, read_request
from elmokit.formats.resumable import COUNT, SEVERAL, Chunk, Log, Summed, disk_errors, open_log, read_chunks
from elmokit.native.checksums import crc32
from elmokit.store._finish import Follower, Target, make_file
from elmokit.store._parquet import load_pyarrow
from elmokit.store._records import RecordBlock
from elmokit.store._seal import BLANK, is_sealed
from elmokit.store.provenance import Provenance, read_provenance, verify_vectors
from elmokit.text import Sentence

HDF5 = (".h5", ".hdf5")
SUFFIXES = (*HDF5, ".parquet", ".npz", ".safetensors")
TYPES = ("float32", "float16")
BLOCKS_AHEAD = 6  # blocks of vectors that wait for the disk at most
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

    The file appears when it is complete. Until then vectors go to `<path>.partial/`. The same call after a kill resumes
    after the last finished chunk and makes the same file, byte for byte.

    name       what the input is called; a finished file that was made from it with the same settings is kept
    restart    throw away what an unfinished run has left
    overwrite  write the file again, even if it is finished
    seen       is called with the number of sentences in each chunk that is done
    told       is called with the report when the work begins and after each chunk
    beside     a process of its own makes the file while vectors are computed: for devices quicker than a disk
    """
    target, options = Path(path), options or StoreOptions()
    check_target(target)
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
        made_of = Target(
            target.suffix.lower(),
            axes,
            made.to_json(),
            half=options.vectors == "float16",
            layers=str(options.layers),
            sentence_keys=options.use_sentence_keys and target.suffix.lower() in HDF5,
            forget=options.forget_sentences,
        )
        report.resumed_at = log.done.sentences
        told(report)
        draft = folder / "draft"
        followed = beside and made_of.can_follow
        with Follower(log.path, draft, made_of) if followed else nullcontext() as follower:
            _fill(log, encoder, request.sentences, options, report, seen=seen, told=told, follower=follower)
            record = replace(made, sentences=report.sentences, tokens=report.tokens).to_json()
            duplicates = None if follower is None else follower.finish(record)

        def blocks() -> Iterator[RecordBlock]:
            return map(RecordBlock.unpack, log.payloads())

        with disk_errors(target, RuntimeError, sqlite3.Error), atomic_path(target) as part:
            if duplicates is None:
                duplicates = make_file(part, made_of, folder / "sentences.sqlite", blocks, record)
            else:
                os.replace(draft, part)
            report.duplicates = duplicates
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
    *,
    seen: Callable[[int], None],
    told: Callable[[StoreReport], None],
    follower: Follower | None,
) -> None:
    """Embed what the log does not have yet. A thread writes to the log while the next vectors are computed.

    The word cache starts empty in each chunk, so a resumed run makes the same batches, and with them the same
    roundings, as one that was never killed.
    """
    device = encoder.device if options.device is None else pick_device(options.device)
    budget = batch_budget(options.batch_tokens, device)
    what = f"{log.folder} holds an unfinished run over other input"
    waiting: deque[Chunk] = deque()  # chunks whose vectors are not all there yet
    if follower is not None:
        follower.tell(log.end)

    def stretches() -> Iterator[list[Sentence]]:
        for chunk in read_chunks(sentences, tokens=budget * CHUNK_BATCHES, done=log.done, what=what):
            _count(report, chunk.sentences, encoder)
            if chunk.done:
                seen(len(chunk.sentences))
                told(report)
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

    def committed(chunk: Chunk) -> None:
        seen(len(chunk.sentences))
        told(report)

    with LogWriter(log, follower, committed) as writer:
        done = 0  # sentences of the first chunk that waits
        for block in blocks:
            texts, tokens = list(map(text_of, block.sentences)), [sentence.tokens for sentence in block.sentences]
            writer.append(RecordBlock(texts, tokens, block.vectors, block.layers))
            done += len(texts)
            if done == len(waiting[0].sentences):
                writer.commit(waiting.popleft())
                done = 0


class LogWriter:
    """Blocks and commits to a log, in order, by a thread of its own; a second one sums them up meanwhile.

    What was handed over is written, even if the block of code that hands it over ends with an error.
    """

    def __init__(self, log: Log, follower: Follower | None, committed: Callable[[Chunk], None]) -> None:
        self.log, self.follower, self.committed = log, follower, committed
        self._thread, self._summing = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        self._under_way: deque[tuple[Chunk | None, Future[None]]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._summing.shutdown()
        self._thread.shutdown()
        with suppress(Exception) if kind is not None else nullcontext():
            self._settle(0)

    def append(self, block: RecordBlock) -> None:
        self._settle(BLOCKS_AHEAD)
        packed = self._summing.submit(self._pack, block)
        self._under_way.append((None, self._thread.submit(self._append, packed)))

    def commit(self, chunk: Chunk) -> None:
        self._under_way.append((chunk, self._thread.submit(self._commit, chunk)))

    def _pack(self, block: RecordBlock) -> Summed:
        return self.log.summed(COUNT.pack(len(block)), *block.pack())

    def _append(self, packed: "Future[Summed]") -> None:
        self.log.append_summed(packed.result(), kind=SEVERAL)

    def _commit(self, chunk: Chunk) -> None:
        self.log.commit(chunk.end)
        if self.follower is not None:
            self.follower.tell(self.log.end)

    def _settle(self, most: int) -> None:
        """Waits until at most so much is under way, and says what was committed."""
        while self._under_way and (len(self._under_way) > most or self._under_way[0][1].done()):
            chunk, future = self._under_way.popleft()
            future.result()
            if chunk is not None:
                self.committed(chunk)


def text_of(sentence: Sentence) -> str:
    """The sentence as one line, stripped: what the older tools' index goes by."""
    return (" ".join(sentence.tokens) if sentence.text is None else sentence.text).strip()


def _count(report: StoreReport, sentences: Sequence[Sentence], encoder: Encoder) -> None:
    short = (encoder.longest_word or 0) // 4  # no word of so many characters is too long, whatever they are
    for sentence in sentences:
        size = len(sentence)
        report.tokens += size
        report.empty += size == 0
        report.longest = max(report.longest, size)
        report.overlong_words += sum(encoder.overlong(word) for word in sentence.tokens if len(word) > short)
        report.unknown_words += sum(map(encoder.unknown, sentence.tokens)) if encoder.has_unknown else 0
    report.sentences += len(sentences)


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
