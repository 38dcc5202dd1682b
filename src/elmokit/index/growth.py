"""Adding text to an index: segments that are whole or not there, and a killed run that resumes."""

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from elmokit.encoders.encoder import Encoder
from elmokit.errors import FormatError
from elmokit.formats.atomic import sweep_drafts
from elmokit.formats.resumable import Position, disk_errors, read_chunks
from elmokit.formats.resumable import locked as locked_file
from elmokit.index._hnsw import DESCRIPTION
from elmokit.index.segment import PATTERN, Progress, Segment, SegmentWriter
from elmokit.index.settings import IndexSettings, Manifest
from elmokit.text import Sentence

NAME = "segment-{:06d}.safetensors"
CHUNK_TOKENS = 32_768  # tokens embedded together
SEGMENT_ROWS = 65_536  # occurrences after which a segment is closed
SEGMENT_TOKENS = 1 << 18  # or tokens read, where few of them are kept: what a kill can cost

# The closed classes of English and the commonest auxiliaries: words that are everywhere and mean little by themselves.
ENGLISH_STOP_WORDS = tuple(
    """
    a about above after again against all also am an and any are as at be because been before being below between both
    but by can could did do does doing down during each either else ever every few for from further had has have having
    he her here hers herself him himself his how i if in into is it its itself just let many may me might more most much
    must my myself neither no nor not now of off on once one only onto or other our ours ourselves out over own per same
    shall she should since so some such than that the their theirs them themselves then there these they this those
    though through thus to too under until up upon us very was we were what when where whether which while who whom
    whose why will with within without would yet you your yours yourself yourselves
    's 'm 're 've 'd 'll n't na ca wo
    """.split()  # noqa: SIM905  (easier to read and to add to)
)


@dataclass(slots=True)
class GrowthReport:
    """What was met on the way; of a resumed run, `occurrences` counts what was added this time."""

    sentences: int = 0
    tokens: int = 0
    empty: int = 0
    occurrences: int = 0
    resumed_at: int = 0
    known: bool = False  # the text was in the index already, and nothing was done


class WordFilter:
    """The positions of a sentence that are kept; it counts what it lets through, for `per_word`."""

    def __init__(self, settings: IndexSettings, counts: Mapping[str, int]) -> None:
        self.settings = settings
        self.counts = Counter(counts)
        self.only = {word.casefold() for word in settings.words}
        self.stop = {word.casefold() for word in settings.stop_words}
        self._known: dict[str, bool] = {}  # answers for types, of which a text has few

    def positions(self, sentence: Sentence) -> list[int]:
        kept = [t for t, token in enumerate(sentence.tokens) if self._wanted(token)]
        if self.settings.per_word is None:
            return kept
        within = []
        for t in kept:
            token = sentence.tokens[t]
            if self.counts[token] < self.settings.per_word:
                self.counts[token] += 1
                within.append(t)
        return within

    def _wanted(self, token: str) -> bool:
        known = self._known.get(token)
        if known is None:
            folded = token.casefold()
            known = self._known[token] = (
                len(token) >= max(self.settings.min_length, 1)
                and (self.settings.punctuation or any(map(str.isalnum, token)))
                and (not self.only or folded in self.only)
                and folded not in self.stop
            )
        return known


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
