"""`elmokit compare`: how alike a word is in two contexts, layer by layer."""

from typing import TYPE_CHECKING, Annotated

import typer

from elmokit.cli.flags import Device, EncoderOption, Json, Tokenized

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from elmokit.text import Sentence

ACROSS = 6  # columns of numbers that fit into 80 characters


def compare(
    texts: Annotated[list[str], typer.Argument(metavar="TEXT", help="Sentences that contain the word.")],
    word: Annotated[str, typer.Option("--word", "-w", help="The word to compare.")],
    model: EncoderOption = None,
    tokenized: Tokenized = False,
    json_output: Json = False,
    device: Device = "auto",
) -> None:
    """Show how alike a word is in different contexts, layer by layer.

        elmokit compare "He sat on the bank." "She went to the bank." -w bank

    Each number is a cosine: 1 for the same vector, 0 for nothing in common. The token layer does not see the context,
    so a word has the same vector there in every sentence; the layers above differ. If a sentence contains the word
    several times, each occurrence is compared.
    """
    from rich.console import Console
    from rich.text import Text

    from elmokit.cli.show import cosine, print_json
    from elmokit.encoders import load_encoder
    from elmokit.errors import InputError
    from elmokit.text import load_tokenizer

    encoder = load_encoder(model, device=device)
    tokenizer = load_tokenizer("whitespace") if tokenized else encoder.tokenizer
    sentences = [tokenizer.tokenize(text) for text in texts]
    places = [(s, t) for s, sentence in enumerate(sentences) for t in _occurrences(sentence, word, s)]
    if len(places) < 2:
        raise InputError(f"{word!r} occurs only once; give two sentences with it, or one that has it twice")
    layers = encoder.encode_layers(sentences)
    names = [*encoder.layer_names, "average"]
    pairs, found = [], []
    for a in range(len(places)):
        for b in range(a + 1, len(places)):
            first, second = (layers[s][:, t] for s, t in (places[a], places[b]))  # (L, D) each
            each = [cosine(x, y) for x, y in zip(first, second, strict=True)]
            pairs.append((a, b))
            found.append([*each, cosine(first.mean(axis=0), second.mean(axis=0))])
    if json_output:
        print_json(
            {
                "word": [sentences[s].tokens[t] for s, t in (places[a], places[b])],
                "sentence": [places[a][0], places[b][0]],
                "position": [places[a][1], places[b][1]],
                "cosines": dict(zip(names, values, strict=True)),
            }
            for (a, b), values in zip(pairs, found, strict=True)
        )
        return
    console = Console(highlight=False)
    for number, (s, t) in enumerate(places, 1):
        tokens = sentences[s].tokens
        shown = Text.assemble(
            (f"{number}  ", "bold"), _words(tokens[:t]), (tokens[t], "bold green"), _words(tokens[t + 1 :], after=True)
        )
        console.print(shown)
    console.print()
    heads, rows = [f"{a + 1} and {b + 1}" for a, b in pairs], [[f"{x:.3f}" for x in values] for values in found]
    if len(names) <= ACROSS:
        console.print(_table("places", names, heads, rows))
        return
    for at in range(0, len(pairs), ACROSS):  # many layers go down the page, as many pairs as fit across it
        some = slice(at, at + ACROSS)
        console.print(_table("layer", heads[some], names, list(zip(*rows[some], strict=True))))


def _table(corner: str, heads: "Sequence[str]", sides: "Sequence[str]", rows: "Sequence[Sequence[str]]") -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    table.add_column(corner)
    for head in heads:
        table.add_column(head, justify="right")
    for side, row in zip(sides, rows, strict=True):
        table.add_row(side, *row)
    return table


def _occurrences(sentence: "Sentence", word: str, number: int) -> list[int]:
    """Where the word is: as spelled if it is there, else in any case."""
    from elmokit.errors import InputError

    exact = [t for t, token in enumerate(sentence.tokens) if token == word]
    found = exact or [t for t, token in enumerate(sentence.tokens) if token.casefold() == word.casefold()]
    if not found:
        words = " ".join(sentence.tokens[:40]) or "none"
        raise InputError(f"{word!r} is not a word of sentence {number + 1}; its words are: {words}")
    return found


def _words(tokens: "Sequence[str]", *, after: bool = False) -> str:
    """Tokens around the word, the farthest left out."""
    near = tokens[:12] if after else tokens[-12:]
    cut = len(near) < len(tokens)
    text = " ".join(near)
    if after:
        return " " * bool(near) + text + " ..." * cut
    return "... " * cut + text + " " * bool(near)
