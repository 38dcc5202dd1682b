"""`elmokit predict`: words for a blank, or before and after a text."""

from typing import TYPE_CHECKING, Annotated

import typer

from elmokit.cli.flags import BiLMOption, Device, Json, Lines, LinesOption, TokenizerName

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from elmokit.lm import Candidate, LanguageModel
    from elmokit.text import Sentence, Tokenizer

    Columns = dict[str, Sequence[Candidate] | None]

SHOWN = {"</S>": "(end of sentence)", "<S>": "(start of sentence)"}
TITLES = {
    "forward": "from the left",
    "backward": "from the right",
    "both": "both sides",
    "next": "word after",
    "previous": "word before",
}


def predict(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE|TEXT",
            help="Sentences with ___ where a word is missing: text, files, folders, patterns, or - for standard input.",
        ),
    ],
    model: BiLMOption = None,
    top: Annotated[int, typer.Option(help="Number of words to show.", min=1)] = 10,
    lines: LinesOption = Lines.paragraphs,
    tokenizer: TokenizerName = None,
    unknown: Annotated[bool, typer.Option("--unknown", help="Propose <UNK>, any word out of vocabulary, too.")] = False,
    json_output: Json = False,
    device: Device = "auto",
) -> None:
    """Predict a missing word from the words on both sides of it.

    The forward model reads the words to the left of the blank, the backward model those to the right. Each column shows
    the likeliest words and their probabilities: from left context, right context, and both.

        elmokit predict "He sat on the ___ of the river ."
        elmokit predict blanks.txt --json

    Two or more underscores are a blank; a sentence can have one. Of a paragraph with blanks, only the sentences that
    have one are shown. Without a blank, the words that may follow and precede each sentence are shown:

        elmokit predict "The president of the United"

    Probabilities are among all words of the vocabulary that can stand there.
    """
    from elmokit.cli.inputs import is_source
    from elmokit.cli.show import echo_text, print_json
    from elmokit.lm import LanguageModel

    for argument in inputs:  # a wrong file name is an error before a model is loaded
        is_source(argument)
    lm = LanguageModel.from_pretrained(model, device=device, tokenizer=tokenizer, allow_other_tokenizer=True)
    sentences = list(_contexts(inputs, lm.tokenizer, lines))
    for number, sentence in enumerate(sentences):
        columns = _predict(lm, sentence, top=top, unknown=unknown)
        if json_output:
            shown = {name: None if ws is None else [word._asdict() for word in ws] for name, ws in columns.items()}
            print_json([{"tokens": list(sentence.tokens), **shown}])
            continue
        if len(sentences) > 1:
            echo_text(("\n" if number else "") + " ".join(sentence.tokens))
        _print_table({TITLES[name]: words for name, words in columns.items() if words is not None})
    if not sentences:
        typer.echo("the input held no sentences", err=True)


def _contexts(inputs: "Sequence[str]", tokenizer: "Tokenizer", lines: str) -> "Iterator[Sentence]":
    """The sentences to predict in: of a paragraph with blanks, those that have one."""
    from elmokit.cli.inputs import read_inputs
    from elmokit.lm.predictions import blank_positions, read_context

    for line in read_inputs(inputs, tokenizer=tokenizer, lines="sentences"):
        split = tokenizer.split(line.text) if lines == "paragraphs" and line.text is not None else [line]
        found = [read_context(part.text or part.tokens, tokenizer) for part in split if len(part)]
        yield from [sentence for sentence in found if blank_positions(sentence)] or found


def _predict(lm: "LanguageModel", sentence: "Sentence", *, top: int, unknown: bool) -> "Columns":
    from elmokit.lm.predictions import blank_positions

    if blank_positions(sentence):
        found = lm.fill(sentence, n=top, unknown=unknown)
        return {"forward": found.forward, "backward": found.backward, "both": found.both}
    has = lm.directions
    return {
        "next": lm.next_words(sentence, n=top, unknown=unknown) if "forward" in has else None,
        "previous": lm.previous_words(sentence, n=top, unknown=unknown) if "backward" in has else None,
    }


def _print_table(columns: "dict[str, Sequence[Candidate]]") -> None:
    from rich.table import Table
    from rich.text import Text

    from elmokit._terminal import Console

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
