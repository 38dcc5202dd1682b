"""`elmokit compare`: how alike a word is in two contexts, layer by layer."""

from typing import TYPE_CHECKING, Annotated

import typer

from elmokit.cli.flags import Device, EncoderOption, Json, Tokenized

if TYPE_CHECKING:
    from collections.abc import Sequence

ACROSS = 6  # columns of numbers that fit into 80 characters


def compare(
    texts: Annotated[list[str], typer.Argument(metavar="TEXT", help="Sentences that contain the word.")],
    word: Annotated[str, typer.Option("--word", "-w", help="The word to compare.")],
    model: EncoderOption = None,
    match_case: Annotated[
        bool, typer.Option("--match-case", help="Only places where the word is spelled as given: not Bank for bank.")
    ] = False,
    tokenized: Tokenized = False,
    json_output: Json = False,
    device: Device = "auto",
) -> None:
    """Show how alike a word is in different contexts, layer by layer.

        elmokit compare "He sat on the bank." "She went to the bank." -w bank

    Each number is a cosine: 1 for the same vector, 0 for nothing in common. The token layer does not see the context,
    so a word has the same vector there in every sentence (but "Bank" not that of "bank"); the layers above differ. If a
    sentence contains the word several times, each occurrence is compared, whatever its case.
    """
    from itertools import combinations

    from rich.text import Text

    from elmokit._terminal import Console
    from elmokit.analysis.compare import compare_word, find_word
    from elmokit.cli.show import print_json, table_of
    from elmokit.encoders import load_encoder
    from elmokit.text import load_tokenizer

    encoder = load_encoder(model, device=device)
    tokenizer = load_tokenizer("whitespace") if tokenized else encoder.tokenizer
    sentences = [tokenizer.tokenize(text) for text in texts]
    places = find_word(sentences, word, match_case=match_case)
    compared = compare_word(sentences, encoder.encode_layers(sentences), places, names=encoder.layer_names)
    if json_output:
        print_json(pair._asdict() for pair in compared)
        return
    console = Console(highlight=False)
    for number, (s, t) in enumerate(places, 1):
        tokens = sentences[s].tokens
        shown = Text.assemble(
            (f"{number}  ", "bold"), _words(tokens[:t]), (tokens[t], "bold green"), _words(tokens[t + 1 :], after=True)
        )
        console.print(shown)
    console.print()
    names = list(compared[0].cosines)
    pairs = list(combinations(range(1, len(places) + 1), 2))
    heads = [f"{a} and {b}" for a, b in pairs]
    rows = [[f"{x:.3f}" for x in pair.cosines.values()] for pair in compared]
    if len(names) <= ACROSS:
        console.print(table_of(["places", *names], [[head, *row] for head, row in zip(heads, rows, strict=True)]))
        return
    for at in range(0, len(pairs), ACROSS):  # many layers go down the page, as many pairs as fit across it
        some = slice(at, at + ACROSS)
        console.print(table_of(["layer", *heads[some]], list(zip(names, *rows[some], strict=True))))


def _words(tokens: "Sequence[str]", *, after: bool = False) -> str:
    """Tokens around the word, the farthest left out."""
    near = tokens[:12] if after else tokens[-12:]
    cut = len(near) < len(tokens)
    text = " ".join(near)
    if after:
        return " " * bool(near) + text + " ..." * cut
    return "... " * cut + text + " " * bool(near)
