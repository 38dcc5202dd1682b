"""`elmokit index`: the vectors of all words of a corpus on disk, to find nearest neighbours in."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from elmokit.formats import ReadReport
    from elmokit.index import GrowthReport, Index

LARGE = 100_000  # occurrences from which an approximate index is made; below, looking at all is as quick


def index(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder of the index; text is added to one that is there.")
    ],
    inputs: Annotated[
        list[str] | None,
        typer.Argument(metavar="CORPUS", help="Files, folders, patterns, or - for standard input."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="Model, as in elmokit embed; default the index's, else the bundled one."),
    ] = None,
    layers: Annotated[str | None, typer.Option(help="Which layer, or average, concat:1,2 ... [default: top]")] = None,
    precision: Annotated[str | None, typer.Option(help="int8 or float16 on disk. [default: int8]")] = None,
    words: Annotated[Path | None, typer.Option(help="File of words: only these, whatever their case.")] = None,
    min_length: Annotated[int | None, typer.Option(help="Characters of a word at least. [default: 1]", min=1)] = None,
    stop_words: Annotated[
        str | None, typer.Option(help="english, or a file of words to leave out. [default: none]")
    ] = None,
    punctuation: Annotated[bool, typer.Option("--punctuation", help="Keep tokens without a letter or digit.")] = False,
    per_word: Annotated[
        int | None, typer.Option(help="Occurrences of one word at most, the first. [default: all]", min=1)
    ] = None,
    tokenized: Annotated[
        bool, typer.Option("--tokenized", help="Text is already tokenised: tokens stand between spaces.")
    ] = False,
    whole_lines: Annotated[
        bool, typer.Option("--lines", help="A line is a sentence; else a paragraph, to be cut into sentences.")
    ] = False,
    format: Annotated[str, typer.Option(help="auto (by file name), text, jsonl, conllu, columns or parquet.")] = "auto",
    field: Annotated[str, typer.Option(help="The JSON field or Parquet column that holds text or tokens.")] = "text",
    batch_tokens: Annotated[int | None, typer.Option(help="Positions per batch; default by device.", min=1)] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    exact: Annotated[bool, typer.Option("--exact", help="Make no approximate index, however large it is.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Measure how much approximate search finds.")] = False,
    restart: Annotated[bool, typer.Option("--restart", help="Drop what an unfinished run has added.")] = False,
    mix_arithmetic: Annotated[
        bool, typer.Option("--mix-arithmetic", help="Add vectors made with other arithmetic than the index has.")
    ] = False,
) -> None:
    """Store the vectors of all words of a corpus, to find nearest neighbours in.

        elmokit index corpus.txt -o index/
        elmokit index more.txt.gz -o index/
        elmokit neighbors index/ "the players of the play" --word play

    The second line adds to what is there, with the settings of the index; a text that is in it is not added again.
    The same command again resumes an unfinished run.

    From 100,000 occurrences on, an approximate index is made beside the vectors (needs usearch), and its recall is
    measured against exact search. Without text the command completes that one, and with --check measures it again:

        elmokit index -o index/ --check
    """
    from dataclasses import replace

    from elmokit.cli.corpus import load_indexed, name_corpus, read_corpus, read_words
    from elmokit.cli.progress import embedding
    from elmokit.encoders import load_encoder
    from elmokit.formats import ReadReport
    from elmokit.index import Index, IndexSettings
    from elmokit.index.settings import MANIFEST
    from elmokit.text import load_tokenizer

    if not inputs:
        _finish(Index.open(output), exact=exact, check=check)
        return
    name = name_corpus(inputs)  # a mistyped file name is told before a model is loaded
    stored = Index.open(output) if (output / MANIFEST).exists() else None
    given: dict[str, Any] = {
        "layers": layers,
        "precision": precision,
        "words": read_words(words) if words else None,
        "min_length": min_length,
        "stop_words": _stop_words(stop_words) if stop_words else None,
        "punctuation": punctuation or None,
        "per_word": per_word,
    }
    chosen = {key: value for key, value in given.items() if value is not None}
    settings = replace(stored.settings if stored else IndexSettings(), **chosen)
    encoder = load_indexed(stored, model, device=device) if stored else load_encoder(model, device=device)
    cut = load_tokenizer("whitespace") if tokenized else encoder.tokenizer
    read = ReadReport()
    sentences = read_corpus(
        inputs, tokenizer=cut, whole_lines=whole_lines or tokenized, format=format, field=field, report=read
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
    _tell(grown, done, read)
    _finish(grown, exact=exact, check=check)


def _stop_words(name: str) -> tuple[str, ...]:
    from elmokit.cli.corpus import read_words
    from elmokit.index import ENGLISH_STOP_WORDS

    return ENGLISH_STOP_WORDS if name == "english" else read_words(Path(name))


def _tell(grown: "Index", done: "GrowthReport", read: "ReadReport") -> None:
    typer.echo(f"{grown.folder}: {len(grown):,} occurrences of {len(grown.words):,} words", err=True)
    if done.known:
        typer.echo("  this text is in it already; nothing was added", err=True)
        return
    typer.echo(f"  read: {done.sentences:,} sentences, {done.tokens:,} tokens", err=True)
    notes = [
        ("sentences taken over from an earlier run", done.resumed_at),
        ("occurrences added", done.occurrences),
        ("empty sentences, blank lines among them, passed over", done.empty),
        ("bytes that are not UTF-8, read as U+FFFD", read.bad_bytes),
    ]
    for what, count in notes:
        if count:
            typer.echo(f"  {what}: {count:,}", err=True)


def _finish(grown: "Index", *, exact: bool, check: bool) -> None:
    """What makes search quick, and how good it is then."""
    from elmokit.errors import MissingExtraError
    from elmokit.index import save_word_means

    if not grown.finished:
        typer.echo("  adding a text was not finished; the same command again resumes it", err=True)
    save_word_means(grown)
    behind = grown.graph is not None and len(grown.graph) < len(grown)
    if not exact and (len(grown) >= LARGE or behind):
        try:
            _make_graph(grown)
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


def _make_graph(grown: "Index") -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    shown = TextColumn("making the graph"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*shown, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("graph", total=len(grown))
        grown.make_graph(told=lambda rows: progress.advance(task, rows))
