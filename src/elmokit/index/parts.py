"""Text added to an index in parts, by any number of processes.

    index/run-000002-1b9f/plan.json                     what is added and how
    index/run-000002-1b9f/part-000000-000.safetensors   the segments of part 0
    index/run-000002-1b9f/part-000000.bad.jsonl         its rows that could not be read
    index/run-000002-1b9f/part-000000.json              what it holds; appears last

When all parts are there, their segments are renamed, in order, to be the next ones of the index, and the folder goes. A
part is made from the same rows whoever makes it, so each row is in the index exactly once, whatever is killed.
"""

import contextlib
import json
import secrets
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from elmokit.batch import cut_stream
from elmokit.config import Count, read_json
from elmokit.encoders import Encoder, load_encoder
from elmokit.errors import FormatError, InputError
from elmokit.formats.atomic import write_text
from elmokit.formats.parts import Part, PartReport, Row, digest_parts, read_rows, set_aside
from elmokit.formats.read import sentences_of
from elmokit.formats.resumable import RESTART
from elmokit.index import growth
from elmokit.index.growth import NAME, STAGED, Run, SegmentStream, locked, open_run, read_segments
from elmokit.index.segment import Progress
from elmokit.index.settings import Manifest
from elmokit.text import Sentence, load_tokenizer

PLAN = "plan.json"


@dataclass(frozen=True, slots=True)
class SegmentReport(PartReport):
    """What a part has become."""

    sentences: Count
    occurrences: Count
    segments: Count


@dataclass(frozen=True, slots=True)
class SegmentOptions:
    """How the text is read and run; as in `elmokit index`."""

    model: str | None = None
    field: str = "text"
    tokenized: bool = False
    lines: Literal["sentences", "paragraphs"] = "paragraphs"
    batch_tokens: int | None = None
    device: str = "auto"


class SegmentMaker:
    """Makes the segments of parts; loads the model once. This is what a worker is, with Ray or without."""

    def __init__(self, staged: Path, run: int, manifest: Manifest, options: SegmentOptions) -> None:
        self.staged, self.run, self.manifest, self.options = staged, run, manifest, options

    @cached_property
    def encoder(self) -> Encoder:
        return load_encoder(self.options.model, device=self.options.device)

    def __call__(self, part: Part) -> SegmentReport:
        """Writes the segments of a part. Memory holds one segment."""
        bad: list[Row] = []
        stream = SegmentStream(
            lambda number: self.staged / f"{part.name}-{number:03d}.safetensors",
            self.encoder,
            self.manifest,
            counts={},
            batch_tokens=self.options.batch_tokens,
        )
        sentences = tokens = empty = 0
        for chunk in cut_stream(self._read(part, bad), tokens=growth.CHUNK_TOKENS):
            sentences += len(chunk)
            tokens += sum(map(len, chunk))
            empty += sum(not len(sentence) for sentence in chunk)
            stream.add(chunk, Progress(self.run, sentences, part.name))
        stream.close()
        set_aside(self.staged, part, bad)
        counts = tokens, empty, len(bad), sentences, stream.occurrences, stream.closed
        report = SegmentReport(part.number, part.rows, *counts)
        write_text(self.staged / f"{part.name}.json", json.dumps(asdict(report)))
        return report

    def _read(self, part: Part, bad: list[Row]) -> Iterator[Sentence]:
        tokenizer = load_tokenizer("whitespace") if self.options.tokenized else self.encoder.tokenizer
        lines = "sentences" if self.options.tokenized else self.options.lines
        for row in read_rows(part, field=self.options.field):
            if row.wrong:
                bad.append(row)
            else:
                yield from sentences_of(row.text, tokenizer, lines=lines)


@dataclass(frozen=True, slots=True)
class PartsRun:
    """A text that is being added in parts, made in the folder `staged`."""

    run: Run
    staged: Path
    parts: Sequence[Part]

    def read(self) -> dict[int, SegmentReport]:
        """The parts that are finished."""
        found = {}
        for part in self.parts:
            with contextlib.suppress(FormatError):  # not there, or damaged: it is made again
                report = read_json(self.staged / f"{part.name}.json", SegmentReport)
                if report.number == part.number:
                    found[part.number] = report
        return found

    def join(self, name: str) -> None:
        """The segments of all parts become the next ones of the index."""
        reports = self.read()
        missing = len(self.parts) - len(reports)
        if missing:
            raise FormatError(f"{self.staged}: {missing} of {len(self.parts)} parts were not made; do the same again")
        made = [
            self.staged / f"{part.name}-{number:03d}.safetensors"
            for part in self.parts
            for number in range(reports[part.number].segments)
        ]
        there, joined = len(read_segments(self.run.folder)), len(self.run.segments)
        for number, path in enumerate(made[joined:], there):
            path.rename(self.run.folder / NAME.format(number))
        bad = [path.read_text(encoding="utf-8") for path in sorted(self.staged.glob("*.bad.jsonl"))]
        if bad:
            write_text(self.run.folder / f"bad-{self.run.number:06d}.jsonl", "".join(bad))
        self.run.finish(name, sum(report.sentences for report in reports.values()))
        shutil.rmtree(self.staged, ignore_errors=True)


@contextlib.contextmanager
def adding_parts(
    folder: Path,
    encoder: Encoder,
    parts: Sequence[Part],
    options: SegmentOptions,
    *,
    name: str,
    restart: bool,
    mix_arithmetic: bool,
    arithmetic: str,
) -> Iterator[PartsRun | None]:
    """Holds the index while parts are added; None where a text of that name is in it already."""
    with locked(folder):
        settings = Manifest.read(folder).settings
        if (most := settings.per_word) is not None:
            raise InputError(
                f"{folder} keeps the first {most} occurrences of a word (per_word), which "
                "workers that read parts of a text do not know; add the text without Ray"
            )
        if settings.keep:
            raise InputError(
                f"{folder} keeps fields of its texts ({', '.join(settings.keep)}), which the workers of Ray do not "
                "read; add the text without Ray"
            )
        run = open_run(
            folder,
            encoder,
            name=name,
            restart=restart,
            mix_arithmetic=mix_arithmetic,
            arithmetic=arithmetic,
            parts=True,
        )
        if run is None:
            yield None
            return
        plan = {"input": digest_parts(parts), **asdict(options)}
        yield PartsRun(run, _staged(run, plan), parts)


def _staged(run: Run, plan: dict[str, object]) -> Path:
    """The folder of an earlier try, or a new one, whose name nobody has had: late writers of a dropped run fail."""
    for folder in run.folder.glob("run-*"):
        if folder not in run.staged:  # of a run that was killed when it had just finished
            shutil.rmtree(folder)
    for folder in run.staged:
        if not (folder / PLAN).is_file():
            shutil.rmtree(folder)
            continue
        earlier = read_json(folder / PLAN, dict[str, Any], advice=RESTART)
        changed = [key for key in plan if earlier.get(key) != plan[key]]
        if changed:
            raise InputError(f"{run.folder} holds an unfinished run with another {', '.join(changed)}; {RESTART}")
        return folder
    folder = run.folder / STAGED.format(run.number, secrets.token_hex(4))
    folder.mkdir()
    write_text(folder / PLAN, json.dumps(plan, indent=2) + "\n")
    return folder
