"""`elmokit index`: the vectors of all words of a corpus on disk, to find nearest neighbours in."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elmokit.cli.flags import (
    OLD_LINES,
    Address,
    BatchTokens,
    Device,
    Engine,
    EngineOption,
    FormatOption,
    Lines,
    LinesOption,
    PartRows,
    TextField,
    Tokenized,
    Workers,
    old_spellings,
)

if TYPE_CHECKING:
    from elmokit.index import GrowthReport, Index
    from elmokit.integrations.ray import RunReport

LARGE = 100_000  # occurrences from which an approximate index is made; below, looking at all is as quick


@old_spellings(OLD_LINES)
def index(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Folder of the index; adds to one that is there.")
    ],
    inputs: Annotated[
        list[str] | None,
        typer.Argument(metavar="CORPUS", help="Files, folders, patterns, or - for standard input."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", "-m", metavar="MODEL", help="As in elmokit embed; default: the index's, or the bundled model."
        ),
    ] = None,
    layers: Annotated[
        str | None, typer.Option(help="Layers of the vectors: top, 1, average, concat:1,2 ... [default: top]")
    ] = None,
    precision: Annotated[str | None, typer.Option(help="Numbers on disk: int8 or float16. [default: int8]")] = None,
    words: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Only the words in this file, in any case.")
    ] = None,
    min_length: Annotated[
        int | None, typer.Option(help="Only words of at least this many characters. [default: 1]", min=1)
    ] = None,
    stop_words: Annotated[
        str | None, typer.Option(help="Words to leave out: english, or a file. [default: none]")
    ] = None,
    punctuation: Annotated[bool, typer.Option("--punctuation", help="Keep tokens without a letter or digit.")] = False,
    per_word: Annotated[
        int | None, typer.Option(help="Keep at most this many occurrences of a word. [default: all]", min=1)
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD", help="Keep this JSON field or Parquet column with each text, or 'file'; may be repeated."
        ),
    ] = None,
    tokenized: Tokenized = False,
    lines: LinesOption = Lines.paragraphs,
    format: FormatOption = "auto",
    field: TextField = "text",
    batch_tokens: BatchTokens = None,
    device: Device = "auto",
    exact: Annotated[bool, typer.Option("--exact", help="Make no approximate index, however large it is.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Measure how much approximate search finds.")] = False,
    restart: Annotated[bool, typer.Option("--restart", help="Drop what an unfinished run has added.")] = False,
    mix_arithmetic: Annotated[
        bool, typer.Option("--mix-arithmetic", help="Add vectors made with other arithmetic than the index has.")
    ] = False,
    export: Annotated[
        Path | None, typer.Option(metavar="FILE.parquet", help="Also write the index for embedding-atlas to show.")
    ] = None,
    engine: EngineOption = Engine.local,
    address: Address = None,
    workers: Workers = None,
    part_rows: PartRows = None,
) -> None:
    """Store the vectors of all words of a corpus, to search for nearest neighbours.

        elmokit index corpus.txt -o index/
        elmokit index more.txt.gz -o index/
        elmokit neighbors index/ "the players of the play" --word play

    The second command adds to the index, with the settings of the first. A text that is already in the index is not
    added again. The same command resumes an unfinished run.

    --keep stores a field of each text with its words, such as a year or an author, for the explorer to show and to
    colour by; the field "file" is the name of the file:

        elmokit index letters.jsonl -o index/ --keep year --keep author

    From 100,000 occurrences on, an approximate index is made, too (needs usearch), and its recall is measured against
    exact search. Without text, the command completes that index, and with --check measures it again:

        elmokit index -o index/ --check

    --export writes all occurrences with text, vectors, neighbours and places on a map; embedding-atlas shows them:

        elmokit index -o index/ --export atlas.parquet

    With --engine ray, workers on all cores, GPUs and machines of a Ray cluster add text, JSONL or Parquet:

        elmokit index corpus.jsonl -o index/ --engine ray
    """
    from dataclasses import replace

    from elmokit.cli.inputs import load_indexed, name_corpus, read_inputs, read_words
    from elmokit.cli.progress import embedding, refuse_with_ray
    from elmokit.encoders import load_encoder
    from elmokit.formats import ReadReport
    from elmokit.formats.read import told_lines
    from elmokit.index import Index, IndexSettings
    from elmokit.index.settings import MANIFEST
    from elmokit.text import load_tokenizer

    if export is not None:
        _check_export(export)
    if not inputs:
        opened = Index.open(output)
        _finish(opened, exact=exact, check=check)
        _export(opened, export)
        return
    far = engine is Engine.ray and any("://" in argument for argument in inputs)
    name = "" if far else name_corpus(inputs)  # a wrong file name is an error before a model is loaded
    stored = Index.open(output) if (output / MANIFEST).exists() else None
    given: dict[str, Any] = {
        "layers": layers,
        "precision": precision,
        "words": read_words(words) if words else None,
        "min_length": min_length,
        "stop_words": _stop_words(stop_words) if stop_words else None,
        "punctuation": punctuation or None,
        "per_word": per_word,
        "keep": tuple(keep) if keep else None,
    }
    chosen = {key: value for key, value in given.items() if value is not None}
    settings = replace(stored.settings if stored else IndexSettings(), **chosen)
    if engine is Engine.ray:
        refuse_with_ray(format=format != "auto", per_word=settings.per_word)
        run: dict[str, Any] = {"model": model or (stored.manifest.model_place if stored else None), "name": name}
        run |= {"settings": settings, "tokenized": tokenized, "lines": lines.value, "field": field, "address": address}
        run |= {"batch_tokens": batch_tokens, "device": device, "workers": workers, "part_rows": part_rows}
        grown = _grow_with_ray(inputs, output, restart=restart, mix_arithmetic=mix_arithmetic, **run)
        _finish(grown, exact=exact, check=check)
        _export(grown, export)
        return
    encoder = load_indexed(stored, model, device=device) if stored else load_encoder(model, device=device)
    cut = load_tokenizer("whitespace") if tokenized else encoder.tokenizer
    read = ReadReport()
    lines = Lines.sentences if tokenized else lines
    sentences = read_inputs(
        inputs, tokenizer=cut, lines=lines, format=format, field=field, keep=settings.keep, report=read
    )
    grown = Index.begin(encoder, output, settings=settings)
    with embedding(inputs, output, read) as told:
        done = grown.grow(
            encoder,
            sentences,
            name=name,
            batch_tokens=batch_tokens,
            restart=restart,
            mix_arithmetic=mix_arithmetic,
            told=told,
        )
    notes = [
        ("sentences taken over from an earlier run", done.resumed_at, ""),
        ("occurrences added", done.occurrences, ""),
        ("empty sentences, blank lines among them", done.empty, "passed over"),
        ("bytes that are not UTF-8", read.bad_bytes, "read as U+FFFD"),
    ]
    _tell(grown, done, f"tokens; {told_lines(lines)}", notes)
    _finish(grown, exact=exact, check=check)
    _export(grown, export)


def _grow_with_ray(inputs: list[str], output: Path, **options: Any) -> "Index":
    from elmokit.cli.inputs import expand_addresses
    from elmokit.cli.progress import tell_parts, tell_workers
    from elmokit.index import Index
    from elmokit.integrations.ray import index as add

    done = add(expand_addresses(inputs), output, told=tell_parts(), **options)
    grown = Index.open(output)
    aside = sorted(path.name for path in output.glob("bad-*.jsonl"))
    notes = [
        ("parts of an earlier run", done.resumed, ""),
        ("occurrences added", done.occurrences, ""),
        ("bad rows", done.bad, f"set aside in {aside[-1]}" if aside else ""),
    ]
    _tell(grown, done, f"tokens in {done.parts:,} parts", notes)
    tell_workers(done)
    return grown


def _check_export(path: Path) -> None:
    """What would fail at the end is told before the work."""
    from elmokit.errors import InputError
    from elmokit.store._parquet import load_pyarrow

    if path.suffix != ".parquet":
        raise InputError(f"--export {path}: expected a name that ends in .parquet")
    load_pyarrow()


def _export(grown: "Index", path: Path | None) -> None:
    if path is None:
        return
    from elmokit.cli.progress import adding
    from elmokit.integrations.embedding_atlas import export_atlas

    with adding("exporting", len(grown)) as told:
        export_atlas(grown, path, told=told)
    typer.echo(f"{path}: {len(grown):,} occurrences for embedding-atlas", err=True)


def _stop_words(name: str) -> tuple[str, ...]:
    from elmokit.cli.inputs import read_words
    from elmokit.index import ENGLISH_STOP_WORDS

    return ENGLISH_STOP_WORDS if name == "english" else read_words(Path(name))


def _tell(grown: "Index", done: "GrowthReport | RunReport", how: str, notes: Sequence[tuple[str, int, str]]) -> None:
    from elmokit.cli.progress import tell_counts
    from elmokit.cli.show import count

    typer.echo(f"{grown.folder}: {count(len(grown), 'occurrence')} of {count(len(grown.words), 'word')}", err=True)
    if done.known:
        typer.echo("  this text is in it already; nothing was added", err=True)
        return
    typer.echo(f"  read: {count(done.sentences, 'sentence')}, {done.tokens:,} {how}", err=True)
    tell_counts(notes)


def _finish(grown: "Index", *, exact: bool, check: bool) -> None:
    """What makes search quick, and how good it is then."""
    from elmokit.cli.progress import adding
    from elmokit.errors import MissingExtraError
    from elmokit.index import save_word_means

    if not grown.finished:
        typer.echo("  a text was not added completely; run that command again to resume", err=True)
    save_word_means(grown)
    behind = grown.graph is not None and len(grown.graph) < len(grown)
    if not exact and (len(grown) >= LARGE or behind):
        try:
            with adding("making the graph", len(grown)) as told:
                grown.make_graph(told=told)
        except MissingExtraError as missing:
            typer.echo(f"  search stays exact and takes longer; {missing}", err=True)
    if check and grown.graph is not None:
        grown.tune()
    if grown.graph is None:
        typer.echo("  search: exact", err=True)
        return
    known = grown.graph.description
    found = f"{known.recall:.3f} on {known.checked} queries" if known.recall is not None else "not measured"
    typer.echo(f"  search: approximate; recall at 10 against exact search: {found}", err=True)
