"""Text of any size as numbered parts, each embedded into a Parquet file of its own, by any number of processes.

    folder/manifest.json          what was embedded and how; `complete` at the end
    folder/part-000000.parquet    a row per token: `sentence`, `position`, `token`, `vector` (or `layer0` ...)
    folder/part-000000.bad.jsonl  rows that could not be read: number, file, line, why

`sentence` is the number of the row over all inputs: the order of the input. A part is made from the same rows whoever
makes it, and its file appears whole or not at all, last of what belongs to it. So each row is there exactly once,
however often workers or the driver are killed: what is there is kept, what is missing is made again.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from elmokit.config import Count, parse_json, read_json, revive
from elmokit.encoders import Encoder, load_encoder
from elmokit.encoders.results import Block, Choice
from elmokit.errors import FormatError, InputError
from elmokit.formats.atomic import atomic_path, write_text
from elmokit.formats.parts import Part, PartReport, Row, digest_parts, plan_parts, read_rows, set_aside
from elmokit.formats.read import sentence_of
from elmokit.store._parquet import read_metadata, write_parquet
from elmokit.store._records import RecordBlock
from elmokit.text import Sentence, load_tokenizer

__all__ = [
    "Part", "PartEmbedder", "PartOptions", "PartReport", "begin_parts", "finish_parts", "part_file", "plan_parts",
    "read_part",
]  # fmt: skip

MANIFEST, KEY, FORMAT, VERSION = "manifest.json", "elmokit.part", "elmokit parts", 1


@dataclass(frozen=True, slots=True)
class PartOptions:
    """What is embedded and how; as in `Encoder.encode_tokens` and `elmokit embed`."""

    model: str | None = None
    layers: str = "average"
    field: str = "text"
    tokenized: bool = False
    normalise: bool = False
    batch_tokens: int | None = None
    device: str = "auto"
    dtype: str = "default"


@dataclass(frozen=True, slots=True)
class StatedParts:
    """manifest.json, as far as it is read again."""

    run: dict[str, Any]
    parts: Count
    complete: bool


class PartEmbedder:
    """Makes parts; loads the model once. This is what a worker is, and it runs without Ray just as well."""

    def __init__(self, folder: str | Path, options: PartOptions) -> None:
        self.folder, self.options = Path(folder), options

    @cached_property
    def encoder(self) -> Encoder:
        return load_encoder(self.options.model, device=self.options.device, dtype=self.options.dtype)

    def __call__(self, part: Part) -> PartReport:
        """Embeds a part and writes its file. Memory holds the part's text and a row group of vectors."""
        options, encoder = self.options, self.encoder
        tokenizer = load_tokenizer("whitespace") if options.tokenized else encoder.tokenizer
        good: list[int] = []
        sentences: list[Sentence] = []
        bad: list[Row] = []
        for row in read_rows(part, field=options.field):
            if row.wrong:
                bad.append(row)
                continue
            good.append(row.number)
            sentences.append(sentence_of(row.text, tokenizer))
        tokens = sum(map(len, sentences))
        empty = sum(1 for sentence in sentences if not len(sentence))
        report = PartReport(part.number, part.rows, tokens, empty, len(bad))
        set_aside(self.folder, part, bad)
        # A stretch of its own: a part has the same batches and roundings whoever makes it.
        blocks = encoder.blocks(
            [sentences], layers=options.layers, batch_tokens=options.batch_tokens, normalise=options.normalise
        )
        records = map(_record, blocks)
        axes = Choice.of(options.layers, None, default="average").axes(encoder.depth, encoder.width)
        with atomic_path(part_file(self.folder, part)) as draft:
            write_parquet(draft, records, axes=axes, metadata={KEY: json.dumps(asdict(report))}, numbers=good)
        return report


def _record(block: Block) -> RecordBlock:
    """As it is written; the text itself is not."""
    return RecordBlock([""] * len(block.sentences), [s.tokens for s in block.sentences], block.vectors, block.layers)


def part_file(folder: Path, part: Part) -> Path:
    """Where the vectors of a part are."""
    return folder / f"{part.name}.parquet"


def read_part(path: Path) -> PartReport | None:
    """What a finished part says of itself; None where there is none, or it is damaged."""
    if not path.is_file():
        return None
    try:
        report = parse_json(read_metadata(path, KEY) or b"", PartReport, source=str(path))
    except FormatError:
        return None
    return report if path.stem == f"part-{report.number:06d}" else None


def begin_parts(
    folder: Path, parts: Sequence[Part], options: PartOptions, fingerprint: str, arithmetic: str, *, restart: bool
) -> bool:
    """Writes the manifest, or compares with the one that is there; whether all was finished already."""
    run = {"fingerprint": fingerprint, "arithmetic": arithmetic, "input": digest_parts(parts), **asdict(options)}
    manifest = folder / MANIFEST
    if manifest.exists() and not restart:
        stored = read_manifest(folder)
        if stored["run"] != run:
            changed = ", ".join(key for key in run if stored["run"].get(key) != run[key])
            raise InputError(
                f"{folder} holds a run with another {changed}; repeat that run to finish it, or start again with "
                "--restart (restart=True)"
            )
        return bool(stored["complete"])
    if folder.is_dir() and not manifest.exists() and any(path.name != "lock" for path in folder.iterdir()):
        raise InputError(f"{folder}: is a folder of other things; give a new or an empty one")
    folder.mkdir(parents=True, exist_ok=True)
    for old in [*folder.glob("part-*.parquet"), *folder.glob("part-*.bad.jsonl")]:
        old.unlink()
    _write_manifest(folder, run, parts, complete=False)
    return False


def finish_parts(folder: Path, reports: Sequence[PartReport]) -> None:
    """Marks the manifest as complete, with the counts of all parts."""
    stored = read_manifest(folder)
    if len(reports) != stored["parts"]:
        raise FormatError(f"{folder}: {len(reports)} of {stored['parts']} parts were made; give the command again")
    counts = {key: sum(getattr(report, key) for report in reports) for key in ("tokens", "empty", "bad")}
    write_text(folder / MANIFEST, json.dumps({**stored, **counts, "complete": True}, indent=2) + "\n")


def read_manifest(folder: Path) -> dict[str, Any]:
    """What a folder of parts says of itself."""
    path, advice = folder / MANIFEST, "start again with --restart (restart=True)"
    stored = read_json(path, dict[str, Any], advice=advice)
    if stored.get("format") != FORMAT or stored.get("version") != VERSION:
        raise FormatError(f"{path}: not a manifest of parts that this elmokit reads; {advice}")
    revive(StatedParts, stored, source=str(path), error=FormatError, ignore_unknown=True)
    return stored


def _write_manifest(folder: Path, run: dict[str, Any], parts: Sequence[Part], *, complete: bool) -> None:
    stated = {"format": FORMAT, "version": VERSION, "run": run, "parts": len(parts)}
    stated |= {"rows": sum(part.rows for part in parts), "complete": complete}
    write_text(folder / MANIFEST, json.dumps(stated, indent=2) + "\n")
