"""Adding text to an index: segments that are whole or not there, and a killed run that goes on where it was."""

import contextlib
import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from elmokit.batch import cut_stream
from elmokit.encoders.encoder import Encoder
from elmokit.errors import InputError
from elmokit.index.segment import PATTERN, Progress, Segment, SegmentWriter
from elmokit.index.selection import WordFilter
from elmokit.index.settings import Manifest
from elmokit.text import Sentence

CHUNK_TOKENS = 32_768  # tokens embedded together
SEGMENT_ROWS = 65_536  # occurrences after which a segment is closed
SEGMENT_TOKENS = 1 << 18  # or tokens read, where few of them are kept: what a kill can cost


@dataclass(slots=True)
class GrowthReport:
    """What was met on the way; of a resumed run, `occurrences` counts what was added this time."""

    sentences: int = 0
    tokens: int = 0
    empty: int = 0
    occurrences: int = 0
    resumed_at: int = 0
    known: bool = False  # the text was in the index already, and nothing was done


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One writer at a time; the lock goes with the process, however that ends. Drafts of a killed one are removed."""
    with (folder / "lock").open("a+b") as file:
        if sys.platform != "win32":
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(f"{folder} is being written by another run; wait for it to end") from None
        for draft in folder.glob(".*.tmp"):
            draft.unlink()
        yield


def read_segments(folder: Path) -> list[Segment]:
    return [Segment(path) for path in sorted(folder.glob(PATTERN))]


def drop_run(folder: Path, run: int) -> None:
    """Remove what an unfinished run has written, the last first, so that a kill leaves a beginning of it."""
    for segment in reversed(read_segments(folder)):
        if segment.progress.run == run:
            segment.path.unlink()


def add_text(
    folder: Path,
    manifest: Manifest,
    run: int,
    encoder: Encoder,
    sentences: Iterable[Sentence],
    *,
    counts: Mapping[str, int],
    batch_tokens: int | None,
    told: Callable[[GrowthReport], None],
) -> GrowthReport:
    """Embed what run number `run` does not have yet.

    Chunks and segments are cut by the input alone and the word cache starts empty in each segment, so a resumed run
    makes the same files as one that was never killed.
    """
    segments = read_segments(folder)
    last = max((s.progress for s in segments if s.progress.run == run), key=lambda p: p.sentences, default=None)
    done = last or Progress(run)
    report = GrowthReport(resumed_at=done.sentences)
    kept = WordFilter(manifest.settings, counts)
    writer = SegmentWriter(manifest.width, manifest.settings.precision)
    digest, number, held = hashlib.blake2b(digest_size=16), len(segments), 0
    for chunk in cut_stream(sentences, tokens=CHUNK_TOKENS):
        for sentence in chunk:
            digest.update(json.dumps([sentence.text, sentence.tokens]).encode())
        report.sentences += len(chunk)
        report.tokens += sum(map(len, chunk))
        report.empty += sum(not len(sentence) for sentence in chunk)
        if report.sentences <= done.sentences:
            if report.sentences == done.sentences and digest.hexdigest() != done.digest:
                raise _other_text(folder, manifest, run)
            continue
        if report.sentences - len(chunk) < done.sentences:
            raise _other_text(folder, manifest, run)
        if not held:
            encoder.forget_words()
        _embed(writer, encoder, chunk, kept, layers=manifest.settings.layers, batch_tokens=batch_tokens)
        held += sum(map(len, chunk))
        if writer.rows >= SEGMENT_ROWS or (writer.rows and held >= SEGMENT_TOKENS):
            writer.write(_path(folder, number), Progress(run, report.sentences, digest.hexdigest()))
            report.occurrences += writer.rows
            writer = SegmentWriter(manifest.width, manifest.settings.precision)
            number, held = number + 1, 0
        told(report)
    if report.sentences < done.sentences:
        raise _other_text(folder, manifest, run)
    if writer.rows:
        writer.write(_path(folder, number), Progress(run, report.sentences, digest.hexdigest()))
        report.occurrences += writer.rows
    return report


def _embed(
    writer: SegmentWriter,
    encoder: Encoder,
    chunk: list[Sentence],
    kept: WordFilter,
    *,
    layers: str,
    batch_tokens: int | None,
) -> None:
    """Only sentences that have a word to keep are run."""
    chosen = [(sentence, positions) for sentence in chunk if (positions := kept.positions(sentence))]
    stream = encoder.stream([sentence for sentence, _ in chosen], layers=layers, batch_tokens=batch_tokens)
    for (sentence, positions), (_, vectors) in zip(chosen, stream, strict=True):
        writer.add(sentence, positions, np.asarray(vectors[positions], dtype=np.float32))


def _path(folder: Path, number: int) -> Path:
    return folder / f"segment-{number:06d}.safetensors"


def _other_text(folder: Path, manifest: Manifest, run: int) -> InputError:
    name = manifest.runs[run].name
    return InputError(
        f"{folder}: adding {name or 'a text'} was not finished, and the text given now is another one; repeat that run "
        "to finish it, or drop what it has added with --restart (restart=True)"
    )
