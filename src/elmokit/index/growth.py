"""Adding text to an index: segments that are whole or not there, and a killed run that resumes."""

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from elmokit.encoders.encoder import Encoder
from elmokit.errors import FormatError
from elmokit.formats import sweep_drafts
from elmokit.formats.resumable import Position, disk_errors, read_chunks
from elmokit.formats.resumable import locked as locked_file
from elmokit.index._hnsw import DESCRIPTION
from elmokit.index._selection import WordFilter
from elmokit.index.segment import PATTERN, Progress, Segment, SegmentWriter
from elmokit.index.settings import Manifest
from elmokit.text import Sentence

NAME = "segment-{:06d}.safetensors"
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
    """One writer at a time. Drafts of a killed one are removed."""
    with locked_file(folder / "lock", busy=f"{folder} is being written by another run; wait for it to end"):
        sweep_drafts(folder)
        yield


def read_segments(folder: Path) -> list[Segment]:
    """All segments in order."""
    paths = sorted(folder.glob(PATTERN))
    for number, path in enumerate(paths):
        if path.name != NAME.format(number):
            raise FormatError(
                f"{folder}: {NAME.format(number)} is missing; restore it from a copy, or make the index again"
            )
    return [Segment(path) for path in paths]


def drop_run(folder: Path, run: int) -> None:
    """Remove what an unfinished run has written, the last first, so that a kill leaves a beginning of it.

    What was made of its rows goes first: a graph and means of words, whose names say how many rows they cover.
    """
    segments = read_segments(folder)
    kept = sum(len(segment) for segment in segments if segment.progress.run != run)
    made = [*folder.glob("graph-*.usearch"), *folder.glob("types-*.safetensors")]
    for path in made:
        if int(re.sub(r"\D", "", path.stem) or 0) > kept:
            if path.suffix == ".usearch":
                (folder / DESCRIPTION).unlink(missing_ok=True)
            path.unlink()
    for segment in reversed(segments):
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

    The word cache starts empty in each segment, so a resumed run makes the same files as one that was never killed.
    """
    segments = read_segments(folder)
    done = max((s.progress.position for s in segments if s.progress.run == run), default=Position())
    report = GrowthReport(resumed_at=done.sentences)
    told(report)
    kept = WordFilter(manifest.settings, counts)
    writer = SegmentWriter(manifest.width, manifest.settings.precision)
    number, held, end = len(segments), 0, done

    def close() -> None:
        with disk_errors(folder):
            writer.write(folder / NAME.format(number), Progress(run, *end))
        report.occurrences += writer.rows

    what = f"{folder}: adding {manifest.runs[run].name or 'a text'} was not finished, and the text is another one now"
    for chunk in read_chunks(sentences, tokens=CHUNK_TOKENS, done=done, what=what):
        tokens = sum(map(len, chunk.sentences))
        report.sentences += len(chunk.sentences)
        report.tokens += tokens
        report.empty += sum(not len(sentence) for sentence in chunk.sentences)
        if not chunk.done:
            if not held:
                encoder.forget_words()
            _embed(writer, encoder, chunk.sentences, kept, layers=manifest.settings.layers, batch_tokens=batch_tokens)
            held, end = held + tokens, chunk.end
            if writer.rows >= SEGMENT_ROWS or (writer.rows and held >= SEGMENT_TOKENS):
                close()
                writer = SegmentWriter(manifest.width, manifest.settings.precision)
                number, held = number + 1, 0
        told(report)
    if writer.rows:
        close()
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
