"""`elmokit perplexity`: how well a model predicts a text."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from elmokit.lm import PerplexityReport, SentenceScore
    from elmokit.text import Sentence, Tokenizer


def perplexity(
    texts: Annotated[
        list[str],
        typer.Argument(metavar="FILE|TEXT", help="Files, folders, patterns, - for standard input, or text itself."),
    ],
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Model folder, archive or hub id; default the bundled one.")
    ] = None,
    carried: Annotated[
        bool,
        typer.Option("--carried", help="Carry the LSTM state from sentence to sentence, in the order of the text."),
    ] = False,
    streams: Annotated[
        int, typer.Option(help="With --carried: contiguous parts of the text run side by side; more is faster.", min=1)
    ] = 1,
    split: Annotated[
        bool, typer.Option("--split", help="Lines hold running text: cut them into sentences first.")
    ] = False,
    per_sentence: Annotated[bool, typer.Option("--per-sentence", help="Show every sentence, too.")] = False,
    tokenizer: Annotated[
        str | None, typer.Option(help="english, unicode or whitespace (text already tokenised); default the model's.")
    ] = None,
    batch_tokens: Annotated[int | None, typer.Option(help="Positions per batch; default by device.", min=1)] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16, float16 or float64.")] = "float32",
) -> None:
    """Measure the perplexity of a text under a model: forward, backward, and their geometric mean.

    Files may be text (one sentence a line; with --split, paragraphs), JSONL, CoNLL-U or Parquet, compressed or not. An
    argument that is no file but holds a space is taken as text:

        elmokit perplexity "The river burst its banks." --per-sentence
        elmokit perplexity heldout.txt.xz --split --model run/model

    The whole vocabulary is scored; words outside it count as <UNK>. Every sentence starts from zero state; --carried
    shows what a model trained with carried state gains from the sentences before.
    """
    from elmokit.lm import LanguageModel, PerplexityReport

    lm = LanguageModel.from_pretrained(
        model, device=device, dtype=dtype, tokenizer=tokenizer, allow_other_tokenizer=True
    )
    sentences = _sentences(texts, lm.tokenizer, split=split)
    scores = _watched(lm.scores(sentences, carried=carried, streams=streams, batch_tokens=batch_tokens))
    kept: list[tuple[int, SentenceScore]] = []
    if per_sentence:
        kept = sorted(scores, key=lambda placed: placed[0])
        scores = iter(kept)
    report = PerplexityReport.of(score for _, score in scores)
    if json_output:
        _print_json(report, [score for _, score in kept] if per_sentence else None)
        return
    if per_sentence:
        _print_sentences([score for _, score in kept])
    _print_report(report)


def _sentences(texts: "Sequence[str]", tokenizer: "Tokenizer", *, split: bool) -> "Iterator[Sentence]":
    """The sentences of all arguments, in order, without the empty ones."""
    from pathlib import Path

    from elmokit.formats import expand_inputs, read_sentences

    for given in texts:
        if given != "-" and any(map(str.isspace, given.strip())) and not Path(given).exists():
            found = iter([tokenizer.tokenize(given)])
        else:
            found = (s for source in expand_inputs([given]) for s in read_sentences(source, tokenizer=tokenizer))
        for sentence in found:
            parts = tokenizer.split(sentence.text) if split and sentence.text is not None else [sentence]
            yield from (part for part in parts if len(part))


def _watched(scores: "Iterator[tuple[int, SentenceScore]]") -> "Iterator[tuple[int, SentenceScore]]":
    """The same, with a line on standard error (a terminal) that tells how far it is."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    shown = TextColumn("{task.fields[words]:,} words, {task.completed:,} sentences")
    console = Console(stderr=True)
    with Progress(SpinnerColumn(), shown, TimeElapsedColumn(), console=console, transient=True) as progress:
        task = progress.add_task("", total=None, words=0)
        words = 0
        for placed in scores:
            words += len(placed[1].tokens)
            progress.update(task, advance=1, words=words)
            yield placed


def _print_json(report: "PerplexityReport", scores: "Sequence[SentenceScore] | None") -> None:
    import json
    from dataclasses import asdict

    shown: dict[str, Any] = {
        "forward": report.forward,
        "backward": report.backward,
        "mean": report.mean,
        "sentences": report.sentences,
        "words": report.words,
        "predictions": report.predictions,
        "unknown": report.unknown,
        "unknown_share": report.unknown_share,
    }
    if scores is not None:
        shown["per_sentence"] = [{**asdict(score), "perplexity": score.perplexity} for score in scores]
    typer.echo(json.dumps(shown, ensure_ascii=False))


def _print_sentences(scores: "Sequence[SentenceScore]") -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("forward", "backward", "mean"):
        table.add_column(title, justify="right", style="cyan", no_wrap=True)
    table.add_column("sentence; words outside the vocabulary underlined")
    for score in scores:
        words = Text(" ").join(
            Text(token, style="underline" if unknown else "")
            for token, unknown in zip(score.tokens, score.unknown, strict=True)
        )
        table.add_row(*map(_number, (score.forward_perplexity, score.backward_perplexity, score.perplexity)), words)
    console = Console()
    console.print(table)
    console.print()


def _print_report(report: "PerplexityReport") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column()
    table.add_column(justify="right", style="cyan")
    rows = {
        "perplexity forward": _number(report.forward),
        "perplexity backward": _number(report.backward),
        "geometric mean": _number(report.mean),
        "sentences": f"{report.sentences:,}",
        "words": f"{report.words:,}",
        "predictions each way": f"{report.predictions:,}",
        "<UNK> targets": f"{report.unknown_share:.2%}",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    Console().print(table)


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:,.2f}"
