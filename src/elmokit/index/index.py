"""`Index`: the vectors of all occurrences of words in a corpus, on disk, and the nearest of them to any vector.

index = Index.build(elmo, sentences, "index")
index.search(elmo.encode_tokens("the players of the play", layers="top")[4])
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.encoders.batches import Turn
from elmokit.encoders.encoder import Encoder
from elmokit.errors import FormatError, InputError
from elmokit.formats.given import Given, read_request
from elmokit.index._hnsw import HnswGraph, checksum_of, load_usearch, make_graph
from elmokit.index.exact import BLOCK, Nearest, centred, cosines, merge, nothing, scan
from elmokit.index.growth import GrowthReport, add_text, locked, open_run, read_segments
from elmokit.index.segment import Segment
from elmokit.index.settings import MANIFEST, IndexSettings, Manifest
from elmokit.layers import Vectors

SPARE = 4  # candidates taken from the graph for each neighbour
EXPANSIONS = (64, 128, 256, 512, 1024)  # what `tune` tries
ENOUGH = 0.97  # recall at which it stops


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A word where it stands: `text[start:end]` is the word, `position` its number among the tokens."""

    row: int
    word: str
    text: str
    start: int
    end: int
    position: int
    score: float = 0.0  # how alike it is to what was searched for
    fields: Mapping[str, str] = field(default_factory=dict, compare=False)  # of its text, those that the index keeps


class View:
    """What an index holds at one moment. It never changes, so a search sees one state from beginning to end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = Manifest.read(folder)
        self.segments = read_segments(folder)
        sizes = np.array([len(segment) for segment in self.segments], dtype=np.int64)  # (segments,)
        self.ends = np.cumsum(sizes)  # (segments,)
        self.begins = self.ends - sizes  # (segments,)
        self._check()

    def _check(self) -> None:
        found: Counter[int] = Counter()
        width, texts = self.manifest.width, len(self.manifest.runs)
        for segment in self.segments:
            if segment.width != width or segment.progress.run >= texts:
                there = f"vectors of {segment.width} from text {segment.progress.run}"
                raise FormatError(
                    f"{segment.path} has {there}, but {self.folder} has vectors of {width} from {texts} texts; it "
                    "belongs to another index"
                )
            if segment.kept != len(self.manifest.settings.keep):
                raise FormatError(
                    f"{segment.path} keeps {segment.kept} fields of its texts, but {self.folder} keeps "
                    f"{len(self.manifest.settings.keep)}; it belongs to another index"
                )
            found[segment.progress.run] += len(segment)
        for number, run in enumerate(self.manifest.runs):
            if run.complete and run.occurrences is not None and found[number] != run.occurrences:
                raise FormatError(
                    f"{self.folder} has {found[number]:,} occurrences of {run.name or f'text {number}'}, expected "
                    f"{run.occurrences:,}: a segment is missing; restore it from a copy, or make the index again"
                )

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    @cached_property
    def mean(self) -> Vectors:
        total = sum((segment.total for segment in self.segments), start=np.zeros(self.manifest.width))
        return np.asarray(total / max(len(self), 1), dtype=np.float32)

    @cached_property
    def words(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for segment in self.segments:
            counts = np.bincount(segment.word_ids, minlength=len(segment.vocabulary)).tolist()
            for word, count in zip(segment.vocabulary, counts, strict=True):
                found[word] += count
        return found

    @cached_property
    def graph(self) -> HnswGraph | None:
        return HnswGraph.open(self.folder, width=self.manifest.width)

    def place(self, row: int) -> tuple[int, Segment, int]:
        """The number of a row's segment, the segment, and the row's number in it."""
        if not 0 <= row < len(self):
            raise InputError(f"row {row} was given, but {self.folder} has rows 0 to {len(self) - 1}")
        home = int(np.searchsorted(self.ends, row, side="right"))
        return home, self.segments[home], row - int(self.begins[home])

    def vectors(self, rows: Sequence[int] | NDArray[np.int64]) -> Vectors:
        wanted = np.asarray(rows, dtype=np.int64)
        for row in (wanted.min(), wanted.max()) if wanted.size else ():
            self.place(int(row))
        found = np.zeros((len(wanted), self.manifest.width), dtype=np.float32)
        homes = np.searchsorted(self.ends, wanted, side="right")  # (n,)
        for home in np.unique(homes):
            here = homes == home
            found[here] = self.segments[home].vectors(wanted[here] - self.begins[home])
        return found

    def search(self, given: Vectors, *, k: int, exact: bool, expansion: int | None = None) -> Nearest:
        """The k nearest rows of each vector (Q, D); `expansion` is how far the graph is searched, else its own."""
        queries = centred(given, self.mean)
        if exact or self.graph is None:
            return scan(self.segments, queries, self.mean, k=k)
        proposed = self.graph.propose(given, count=min(SPARE * k, len(self.graph)), expansion=expansion)
        proposed = [some[some < len(self)] for some in proposed]  # the graph may have been completed since
        found = [self.search_rows(one[None], some, k=k) for one, some in zip(given, proposed, strict=True)]
        best = Nearest(np.concatenate([f.rows for f in found]), np.concatenate([f.scores for f in found]))
        if len(self.graph) < len(self):  # what the graph does not have yet
            best = merge(best, scan(self.segments, queries, self.mean, k=k, first=len(self.graph)), k=k)
        return best

    def search_rows(self, given: Vectors, rows: NDArray[np.int64], *, k: int) -> Nearest:
        """The same among these rows only; exact."""
        queries, best = centred(given, self.mean), nothing(len(given), k)
        for at in range(0, len(rows), BLOCK):
            some = rows[at : at + BLOCK]
            scores = cosines(queries, centred(self.vectors(some), self.mean))  # (Q, n)
            best = merge(best, Nearest(np.broadcast_to(some, scores.shape), scores), k=k)
        return best


class Index:
    """An index on disk. It stays as it was when it was opened, but for what is added through the same object.

    Any number of threads may search while one adds text or makes the graph.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder, self._turn = Path(folder), Turn()
        self._view = View(self.folder)

    def __repr__(self) -> str:
        return f"Index({str(self.folder)!r}, {len(self):,} occurrences of {len(self.words):,} words)"

    def _look(self) -> View:
        """Read what is on the disk now. A search that has begun is not disturbed."""
        self._view = view = View(self.folder)
        return view

    @property
    def manifest(self) -> Manifest:
        return self._view.manifest

    @property
    def segments(self) -> list[Segment]:
        return self._view.segments

    @classmethod
    def open(cls, folder: str | Path) -> "Index":
        """The index in a folder."""
        return cls(folder)

    @classmethod
    def build(
        cls,
        encoder: Encoder,
        sentences: Given,
        folder: str | Path,
        *,
        settings: IndexSettings | None = None,
        **options: Any,
    ) -> "Index":
        """The index in this folder with these sentences added; a new one if there is none.

        Without `settings` an index keeps those it has. The same call after a kill resumes after the last segment. The
        other options are those of `grow`, which this calls.
        """
        index = cls.begin(encoder, folder, settings=settings)
        index.grow(encoder, sentences, **options)
        return index

    @classmethod
    def begin(cls, encoder: Encoder, folder: str | Path, *, settings: IndexSettings | None = None) -> "Index":
        """The index in this folder, an empty one if it is not there; see `build`."""
        folder = Path(folder)
        if not (folder / MANIFEST).exists():
            if folder.is_dir() and any(p.name != "lock" and not p.name.endswith(".tmp") for p in folder.iterdir()):
                raise InputError(f"{folder}: is a folder of other things; give a new or an empty one for the index")
            folder.mkdir(parents=True, exist_ok=True)
            with locked(folder):
                if not (folder / MANIFEST).exists():  # or another process has just made it
                    Manifest.of(encoder, settings or IndexSettings()).write(folder)
        index = cls(folder)
        index.manifest.check_encoder(encoder, folder)
        if settings is not None:
            index.manifest.check_settings(settings, folder)
        return index

    def grow(
        self,
        encoder: Encoder,
        sentences: Given,
        *,
        name: str = "",
        batch_tokens: int | None = None,
        restart: bool = False,
        mix_arithmetic: bool = False,
        told: Callable[[GrowthReport], None] = lambda report: None,
    ) -> GrowthReport:
        """Add sentences. Memory holds one segment, and a kill costs one at most.

        name            what the text is called; a text that was added under the same name is not added again
        restart         drop what an unfinished run has added before, whatever its text was
        mix_arithmetic  add vectors even if those in the index were made with other arithmetic (`Encoder.arithmetic`)
        told            is called with the report when the work begins and after each chunk
        """
        with locked(self.folder):
            keep = Manifest.read(self.folder).settings.keep
            request = read_request(sentences, tokenizer=encoder.tokenizer, keep=keep)
            if request.single:
                raise InputError("one string was given, expected a list of sentences, a generator or a Path")
            run = open_run(
                self.folder,
                encoder,
                name=name,
                restart=restart,
                mix_arithmetic=mix_arithmetic,
                arithmetic=encoder.arithmetic,
                parts=False,
            )
            if run is None:
                return GrowthReport(known=True)
            counts = self._look().words if run.manifest.settings.per_word else {}
            report = add_text(run, encoder, request.sentences, counts=counts, batch_tokens=batch_tokens, told=told)
            run.finish(name, report.sentences)
            self._look()
        return report

    def __len__(self) -> int:
        """N, the number of occurrences."""
        return len(self._view)

    @property
    def settings(self) -> IndexSettings:
        return self.manifest.settings

    @property
    def finished(self) -> bool:
        """Whether all texts in it are complete."""
        return all(run.complete for run in self.manifest.runs)

    @property
    def mean(self) -> Vectors:
        """The mean of all vectors. (D,)"""
        return self._view.mean

    @property
    def words(self) -> Counter[str]:
        """How often each word stands in it, as it is spelled."""
        return self._view.words

    @property
    def graph(self) -> HnswGraph | None:
        """The approximate index, where one has been made."""
        return self._view.graph

    def spelled(self, word: str) -> list[str]:
        """The word as it stands in the index: as given if it does, else whatever its case."""
        words = self.words
        return [word] if word in words else [other for other in words if other.casefold() == word.casefold()]

    def rows_of(self, word: str) -> NDArray[np.int64]:
        """The rows of a word as it is spelled. (n,)"""
        found, view = [np.zeros(0, dtype=np.int64)], self._view
        for segment, base in zip(view.segments, view.begins, strict=True):
            if (number := segment.vocabulary.get(word)) is not None:
                found.append(np.flatnonzero(segment.word_ids == number) + base)
        return np.concatenate(found)

    def vectors(self, rows: Sequence[int] | NDArray[np.int64]) -> Vectors:
        """Rows as they were stored. (n, D)"""
        return self._view.vectors(rows)

    def occurrence(self, row: int, score: float = 0.0) -> Occurrence:
        """The word and its sentence at a row."""
        _, segment, at = self._view.place(row)
        sentence = int(segment.sentences[at])
        text, word = segment.text(sentence), segment.spellings[int(segment.word_ids[at])]
        start, end = segment.spans[at].tolist()
        fields = dict(zip(self.settings.keep, segment.fields(sentence), strict=True))
        return Occurrence(row, word, text, start, end, int(segment.positions[at]), score, fields)

    def sentence_of(self, row: int) -> tuple[int, int]:
        """Which sentence a row stands in: the segment's number and the sentence's in it."""
        home, segment, at = self._view.place(row)
        return home, int(segment.sentences[at])

    def search(
        self, vectors: Vectors, *, k: int = 10, exact: bool = False, rows: NDArray[np.int64] | None = None
    ) -> Nearest:
        """The k nearest occurrences of each vector (Q, D), or of one vector (D,).

        The vectors are as the encoder gives them for the index's layers. The graph is used where there is one, unless
        `exact`; with `rows` the search is among these only, and exact.
        """
        view, given = self._view, np.atleast_2d(np.asarray(vectors, dtype=np.float32))
        if k < 1:
            raise InputError(f"k is {k}; at least 1 occurrence is to be found")
        if not np.isfinite(given).all():
            raise InputError("a vector to search for holds NaN or infinity")
        if given.shape[1] != view.manifest.width:
            raise InputError(
                f"vectors of {given.shape[1]} given, but those of {self.folder} have {view.manifest.width}"
            )
        with self._turn:
            return view.search(given, k=k, exact=exact) if rows is None else view.search_rows(given, rows, k=k)

    def verify(self) -> bool:
        """Compare all files with their checksums; damage is a FormatError. False where some have none (0.1.0)."""
        view = self._view
        checked = [segment.verify() for segment in view.segments]
        return all(checked) and (view.graph is None or bool(view.graph.description.checksum))

    def make_graph(self, *, threads: int = 0, told: Callable[[int], None] = lambda rows: None) -> HnswGraph:
        """Make or complete the approximate index. Needs usearch.

        threads  0 for all cores
        told     is called with the number of rows in each part that is added
        """
        load_usearch()
        with locked(self.folder):
            view = self._look()  # another process may have added text, or dropped some
            earlier = view.graph
            if earlier is not None and len(earlier) == len(view):
                if not earlier.description.checksum:  # elmokit 0.1.0 made it
                    earlier.describe(checksum=checksum_of(self.folder / earlier.description.file, earlier.mean))
                return earlier
            make_graph(self.folder, view.segments, view.mean, earlier=earlier, threads=threads, told=told)
            made = self._look().graph
            assert made is not None
        self.tune()
        return made

    def tune(self, *, queries: int = 200, k: int = 10) -> float:
        """Measure recall and settle how far the graph is searched: the least that finds 97 of 100; kept with it."""
        view, graph = self._view, self._view.graph
        if graph is None:
            raise InputError(f"{self.folder} has no graph, so its search is exact; make one first (make_graph)")
        sample = np.random.default_rng(0).choice(len(view), size=min(queries, len(view)), replace=False)
        truth = _others(view, sample, k=k, exact=True)
        recall, expansion = 0.0, EXPANSIONS[0]
        for expansion in EXPANSIONS:
            recall = _recall(truth, _others(view, sample, k=k, exact=False, expansion=expansion))
            if recall >= ENOUGH:
                break
        with locked(self.folder):
            graph.describe(expansion=expansion, recall=recall, checked=len(sample))
        return recall

    def recall(self, *, queries: int = 200, k: int = 10, seed: int = 1) -> float:
        """The share of the k nearest neighbours that the graph finds, of rows of the index, themselves left out."""
        view = self._view
        sample = np.random.default_rng(seed).choice(len(view), size=min(queries, len(view)), replace=False)
        return _recall(_others(view, sample, k=k, exact=True), _others(view, sample, k=k, exact=False))


def _others(
    view: View, sample: NDArray[np.int64], *, k: int, exact: bool, expansion: int | None = None
) -> list[list[int]]:
    """The k nearest rows of each row of the sample, itself left out."""
    found = view.search(view.vectors(sample), k=k + 1, exact=exact, expansion=expansion).rows.tolist()
    return [[row for row in rows if row not in (own, -1)][:k] for own, rows in zip(sample.tolist(), found, strict=True)]


def _recall(truth: list[list[int]], found: list[list[int]]) -> float:
    shares = [len(set(a) & set(b)) / len(a) for a, b in zip(truth, found, strict=True) if a]
    return float(np.mean(shares)) if shares else 1.0
