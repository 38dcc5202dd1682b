"""`elmokit perplexity`: how well a model predicts a text."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from elmokit.cli.flags import (
    BatchTokens,
    BiLMOption,
    Device,
    Json,
    Lines,
    LinesOption,
    OldSpelling,
    TextField,
    TokenizerName,
    old_spellings,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from elmokit.lm import PerplexityReport, SentenceScore


@old_spellings({"--split": OldSpelling("--lines=paragraphs")})
def perplexity(
    inputs: Annotated[
        list[str],
        typer.Argument(metavar="FILE|TEXT", help="Files, folders, patterns, - for standard input, or text itself."),
    ],
    model: BiLMOption = None,
    carried: Annotated[
        bool,
        typer.Option("--carried", help="Carry the LSTM state from sentence to sentence, in the order of the text."),
    ] = False,
    streams: Annotated[
        int,
        typer.Option(help="With --carried: number of parts of the text that run side by side; more is faster.", min=1),
    ] = 1,
    lines: LinesOption = Lines.paragraphs,
    field: TextField = "text",
    per_sentence: Annotated[bool, typer.Option("--per-sentence", help="Show every sentence, too.")] = False,
    tokenizer: TokenizerName = None,
    batch_tokens: BatchTokens = None,
    json_output: Json = False,
    device: Device = "auto",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16, float16 or float64.")] = "float32",
) -> None:
    """Measure how well a model predicts a text: its perplexity, forward, backward, and their geometric mean.

    Files may be text, JSONL, CoNLL-U or Parquet, compressed or not. A line is a paragraph, which is split into
    sentences as pretrain and finetune do:

        elmokit perplexity "The river burst its banks." --per-sentence
        elmokit perplexity heldout.txt.xz --model run/model
        elmokit perplexity sentences.txt --lines sentences
        elmokit perplexity reviews.jsonl --field body

    The whole vocabulary is scored; words outside it count as <UNK>. Every sentence starts from a zero state. With
    --carried, the state goes from sentence to sentence, for models that were trained that way.
    """
    from elmokit.cli.inputs import is_source, read_inputs
    from elmokit.formats.read import told_lines
    from elmokit.lm import LanguageModel, PerplexityReport

    for argument in inputs:  # a wrong file name is an error before a model is loaded
        is_source(argument)
    lm = LanguageModel.from_pretrained(
        model, device=device, dtype=dtype, tokenizer=tokenizer, allow_other_tokenizer=True
    )
    read = read_inputs(inputs, tokenizer=lm.tokenizer, lines=lines, field=field)
    sentences = (sentence for sentence in read if len(sentence))
    scores = _watched(lm.scores(sentences, carried=carried, streams=streams, batch_tokens=batch_tokens))
    kept: list[tuple[int, SentenceScore]] = []
    if per_sentence:
        kept = sorted(scores, key=lambda placed: placed[0])
        scores = iter(kept)
    report = PerplexityReport.of(score for _, score in scores)
    if json_output:
        _print_json(report, [score for _, score in kept] if per_sentence else None, lines=lines)
        return
    if per_sentence:
        _print_sentences([score for _, score in kept])
    _print_report(report)
    typer.echo(told_lines(lines), err=True)


def _watched(scores: "Iterator[tuple[int, SentenceScore]]") -> "Iterator[tuple[int, SentenceScore]]":
    """The same, with a line on standard error (a terminal) that says how far it is."""
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    from elmokit._bars import Bar
    from elmokit._terminal import Console

    shown = TextColumn("{task.fields[words]:,} words, {task.completed:,} sentences")
    console = Console(stderr=True)
    columns = SpinnerColumn(), shown, TimeElapsedColumn()
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=None, words=0)
        words = 0
        for placed in scores:
            words += len(placed[1].tokens)
            progress.update(task, advance=1, words=words)
            yield placed


def _print_json(report: "PerplexityReport", scores: "Sequence[SentenceScore] | None", *, lines: str) -> None:
    from dataclasses import asdict

    from elmokit.cli.show import print_json

    shown: dict[str, Any] = {
        "forward": report.forward,
        "backward": report.backward,
        "mean": report.mean,
        "sentences": report.sentences,
        "words": report.words,
        "predictions": report.predictions,
        "unknown": report.unknown,
        "unknown_share": report.unknown_share,
        "lines": str(lines),
    }
    if scores is not None:
        shown["per_sentence"] = [{**asdict(score), "perplexity": score.perplexity} for score in scores]
    print_json([shown])


def _print_sentences(scores: "Sequence[SentenceScore]") -> None:
    from rich.table import Table
    from rich.text import Text

    from elmokit._terminal import Console

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
        typer.echo(f"{name:20}  {value:>12}")


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:,.2f}"
