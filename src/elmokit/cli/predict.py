"""`elmokit predict`: words for a blank, or before and after a text."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from elmokit.lm import Candidate

SHOWN = {"</S>": "(end of sentence)", "<S>": "(start of sentence)"}


def predict(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A sentence, with ___ where a word is missing.")],
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Model folder, archive or hub id; default the bundled one.")
    ] = None,
    top: Annotated[int, typer.Option(help="How many words to show.", min=1)] = 10,
    tokenizer: Annotated[
        str | None, typer.Option(help="english, unicode or whitespace (text already tokenised); default the model's.")
    ] = None,
    unknown: Annotated[bool, typer.Option("--unknown", help="Propose <UNK>, any word out of vocabulary, too.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
) -> None:
    """Predict a missing word from both sides of a sentence.

    The forward model reads what stands left of the blank, the backward model what stands right of it; each column shows
    its likeliest words and their probabilities, the last one those of both sides together:

        elmokit predict "He sat on the ___ of the river ."

    Two or more underscores are a blank, and there is one blank at a time: with several, put words into the others.
    Without a blank, the words that may follow the text and those that may stand before it are shown; the text then
    counts as the begin of a sentence for the first and as the end of one for the second:

        elmokit predict "The president of the United"

    Probabilities are among all words of the vocabulary that may stand there.
    """
    from elmokit.lm import LanguageModel
    from elmokit.lm.predictions import blank_positions, read_context

    lm = LanguageModel.from_pretrained(model, device=device, tokenizer=tokenizer, allow_other_tokenizer=True)
    sentence = read_context(text, lm.tokenizer)
    columns: dict[str, Sequence[Candidate] | None]
    if blank_positions(sentence):
        found = lm.fill(sentence, n=top, unknown=unknown)
        columns = {"forward": found.forward, "backward": found.backward, "both": found.both}
        titles = {"forward": "from the left", "backward": "from the right", "both": "both sides"}
    else:
        has = lm.directions
        columns = {
            "next": lm.next_words(sentence, n=top, unknown=unknown) if "forward" in has else None,
            "previous": lm.previous_words(sentence, n=top, unknown=unknown) if "backward" in has else None,
        }
        titles = {"next": "word after", "previous": "word before"}
    if json_output:
        _print_json(sentence.tokens, columns)
    else:
        _print_table({titles[name]: words for name, words in columns.items() if words is not None})


def _print_json(tokens: "Sequence[str]", columns: "dict[str, Sequence[Candidate] | None]") -> None:
    import json

    shown = {name: None if words is None else [word._asdict() for word in words] for name, words in columns.items()}
    typer.echo(json.dumps({"tokens": list(tokens), **shown}, ensure_ascii=False))


def _print_table(columns: "dict[str, Sequence[Candidate]]") -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in columns:
        table.add_column(title, no_wrap=True)
        table.add_column("", justify="right", style="cyan")
    for row in zip(*columns.values(), strict=True):
        cells = []
        for word, probability in row:
            cells += [Text(SHOWN.get(word, word)), Text(f"{probability:.4f}")]
        table.add_row(*cells)
    Console().print(table)
