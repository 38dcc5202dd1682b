"""Adding text to an index: segments that are whole or not there, and a killed run that resumes."""

import contextlib
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from elmokit.encoders.encoder import Encoder
from elmokit.errors import FormatError, InputError
from elmokit.formats.atomic import sweep_drafts
from elmokit.formats.locks import locked as locked_file
from elmokit.formats.resumable import RESTART, Position, disk_errors, read_chunks
from elmokit.index._hnsw import DESCRIPTION
from elmokit.index.segment import PATTERN, Progress, Segment, SegmentWriter
from elmokit.index.settings import IndexSettings, Manifest, TextRun
from elmokit.text import Sentence

NAME = "segment-{:06d}.safetensors"
STAGED = "run-{:06d}-{}"
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


@dataclass(frozen=True, slots=True)
class Run:
    """A text that is being added: run number `number` of the index in `folder`."""

    folder: Path
    manifest: Manifest
    number: int

    @property
    def segments(self) -> list[Segment]:
        """What is there of it already."""
        return [segment for segment in read_segments(self.folder) if segment.progress.run == self.number]

    @property
    def staged(self) -> list[Path]:
        """Where its parts are made, if it is added in parts; see `elmokit.index.parts`."""
        return sorted(self.folder.glob(STAGED.format(self.number, "*")))

    def finish(self, name: str, sentences: int) -> None:
        """All of the text is in the index."""
        made = sum(map(len, self.segments))
        finished = replace(
            self.manifest.runs[self.number], name=name, complete=True, sentences=sentences, occurrences=made
        )
        self.manifest.with_run(self.number, finished).write(self.folder)

    def drop(self) -> None:
        """Remove what it has written, the last first, so that a kill leaves a beginning of it.

        What was made of its rows goes first: a graph and means of words, whose names say how many rows they cover.
        """
        for staged in self.staged:
            shutil.rmtree(staged)
        segments = read_segments(self.folder)
        kept = sum(len(segment) for segment in segments if segment.progress.run != self.number)
        made = [*self.folder.glob("graph-*.usearch"), *self.folder.glob("types-*.safetensors")]
        for path in made:
            if int(re.sub(r"\D", "", path.stem) or 0) > kept:
                if path.suffix == ".usearch":
                    (self.folder / DESCRIPTION).unlink(missing_ok=True)
                path.unlink()
        for segment in reversed(segments):
            if segment.progress.run == self.number:
                segment.path.unlink()


def open_run(
    folder: Path, encoder: Encoder, *, name: str, restart: bool, mix_arithmetic: bool, arithmetic: str, parts: bool
) -> Run | None:
    """The unfinished run of an index, or a new one; None where a text of that name is in the index already.

    `arithmetic` makes its vectors; `parts` says how it is added: a run that began in the other way is refused.
    """
    manifest = Manifest.read(folder)
    manifest.check_encoder(encoder, folder)
    runs = manifest.runs
    unfinished = bool(runs) and not runs[-1].complete
    number = len(runs) - unfinished
    if any(run.is_of(name) and run.complete for run in runs):
        return None
    run = Run(folder, manifest, number)
    if unfinished and restart:
        run.drop()
        manifest = replace(manifest, runs=runs[:number])
    elif unfinished and bool(run.staged) != parts and (run.staged or run.segments):
        how = "without" if parts else "with"
        raise InputError(
            f"{folder}: adding {runs[-1].name or 'a text'} began {how} Ray and was not finished; {RESTART}"
        )
    manifest.check_arithmetic(arithmetic, folder, mix=mix_arithmetic)
    if not unfinished or restart:
        manifest = manifest.with_run(number, TextRun(name, arithmetic=arithmetic))
        manifest.write(folder)
    return Run(folder, manifest, number)


class SegmentStream:
    """Embeds sentences into segments, each in the file that `place` gives for its number.

    The word cache starts empty in each segment, so that its vectors do not depend on what was embedded before.
    """

    def __init__(
        self,
        place: Callable[[int], Path],
        encoder: Encoder,
        manifest: Manifest,
        *,
        counts: Mapping[str, int],
        batch_tokens: int | None,
    ) -> None:
        self.place, self.encoder, self.manifest, self.batch_tokens = place, encoder, manifest, batch_tokens
        self.filter = WordFilter(manifest.settings, counts)
        self.closed = self.occurrences = 0
        self._empty()

    def _empty(self) -> None:
        settings = self.manifest.settings
        self.writer, self.held = SegmentWriter(self.manifest.width, settings.precision, keep=settings.keep), 0

    def add(self, sentences: list[Sentence], reached: Progress) -> None:
        """Some sentences, and where in the text they end. Only those that have a word to keep are run."""
        if not self.held:
            self.encoder.forget_words()
        chosen = [(sentence, positions) for sentence in sentences if (positions := self.filter.positions(sentence))]
        stream = self.encoder.stream(
            [sentence for sentence, _ in chosen], layers=self.manifest.settings.layers, batch_tokens=self.batch_tokens
        )
        for (sentence, positions), (_, vectors) in zip(chosen, stream, strict=True):
            self.writer.add(sentence, positions, np.asarray(vectors[positions], dtype=np.float32))
        self.held += sum(map(len, sentences))
        self.reached = reached
        if self.writer.rows >= SEGMENT_ROWS or self.held >= SEGMENT_TOKENS:
            self.close()

    def close(self) -> None:
        """Write the segment, if it has any rows."""
        if not self.writer.rows:
            return
        path = self.place(self.closed)
        with disk_errors(path.parent):
            self.writer.write(path, self.reached)
        self.occurrences += self.writer.rows
        self.closed += 1
        self._empty()


def add_text(
    run: Run,
    encoder: Encoder,
    sentences: Iterable[Sentence],
    *,
    counts: Mapping[str, int],
    batch_tokens: int | None,
    told: Callable[[GrowthReport], None],
) -> GrowthReport:
    """Embed what the run does not have yet. A resumed run makes the same files as one that was never killed."""
    done = max((segment.progress.position for segment in run.segments), default=Position())
    report = GrowthReport(resumed_at=done.sentences)
    told(report)
    first = len(read_segments(run.folder))
    stream = SegmentStream(
        lambda number: run.folder / NAME.format(first + number),
        encoder,
        run.manifest,
        counts=counts,
        batch_tokens=batch_tokens,
    )
    name = run.manifest.runs[run.number].name or "a text"
    what = f"{run.folder}: adding {name} was not finished, and the text is another one now"
    for chunk in read_chunks(sentences, tokens=CHUNK_TOKENS, done=done, what=what):
        report.sentences += len(chunk.sentences)
        report.tokens += sum(map(len, chunk.sentences))
        report.empty += sum(not len(sentence) for sentence in chunk.sentences)
        if not chunk.done:
            stream.add(list(chunk.sentences), Progress(run.number, *chunk.end))
            report.occurrences = stream.occurrences
        told(report)
    stream.close()
    report.occurrences = stream.occurrences
    return report
