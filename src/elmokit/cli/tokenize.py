"""`elmokit tokenize`: how text is cut into sentences and words."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elmokit.cli.flags import EncoderOption, Json, Lines, LinesOption

if TYPE_CHECKING:
    from elmokit.text import Sentence, Tokenizer


def tokenize(
    texts: Annotated[list[str], typer.Argument(metavar="TEXT", help="Text, files, or - for standard input.")],
    tokenizer: Annotated[
        str,
        typer.Option(help="english, unicode, unicode@2 ...; +nfc, +lower, +digits, +abbreviations:FILE; python:..."),
    ] = "",
    explain: Annotated[bool, typer.Option("--explain", help="One token a line, with its place and its kind.")] = False,
    learn: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Cut nothing: learn the abbreviations of the text, and write them here."),
    ] = None,
    lines: LinesOption = Lines.paragraphs,
    model: EncoderOption = None,
    json_output: Json = False,
) -> None:
    """Show how text is cut: a sentence per line, tokens between spaces.

        elmokit tokenize "Dr. Smith, l'homme." --tokenizer unicode@2 --explain
        elmokit tokenize corpus.txt --tokenizer unicode@2+nfc+lower > tokens.txt
        elmokit tokenize text.txt \\
          --tokenizer python:pyvi.ViTokenizer:spacy_tokenize
        elmokit tokenize text.txt -m my-elmo/
        elmokit tokenize corpus.txt --learn abbreviations.txt
        elmokit tokenize text.txt \\
          --tokenizer unicode@2+abbreviations:abbreviations.txt

    The tokenizer is the one named, else that of the model, else english. --explain says of each token where it stands
    and which kind it is; the kinds of unicode@2 are its rules.
    """
    from elmokit.cli.inputs import read_inputs
    from elmokit.cli.show import echo_text, print_json

    if learn is not None:
        _learn(texts, learn)
        return
    cut = _chosen(tokenizer, model)
    for sentence in read_inputs(texts, tokenizer=cut, lines=lines):
        if json_output:
            record = {"tokens": sentence.tokens, "offsets": sentence.offsets, "start": sentence.start}
            print_json([record | ({"kinds": kinds_of(cut, sentence)} if explain else {})])
        elif explain:
            for token, (begin, end), kind in zip(
                sentence.tokens, sentence.places, kinds_of(cut, sentence), strict=True
            ):
                echo_text(f"{begin:6} {end:6}  {kind:12} {token}")
            typer.echo("")
        else:
            echo_text(" ".join(sentence.tokens))


def _learn(texts: list[str], path: Path) -> None:
    from elmokit.cli.inputs import read_inputs
    from elmokit.formats.atomic import write_text
    from elmokit.text import load_tokenizer
    from elmokit.text.abbreviations import learn_abbreviations, lists_as_text

    lines = read_inputs(texts, tokenizer=load_tokenizer("whitespace"), lines=Lines.paragraphs)
    abbreviations, starters = learn_abbreviations(sentence.as_text for sentence in lines)
    write_text(path, lists_as_text(abbreviations, starters))
    said = f"{len(abbreviations)} abbreviations and {len(starters)} words that begin sentences are in {path}"
    typer.echo(f"{said}; use them with  --tokenizer unicode@2+abbreviations:{path}", err=True)


def _chosen(name: str, model: str | None) -> "Tokenizer":
    from elmokit.text import load_tokenizer

    if name or model is None:
        return load_tokenizer(name or "english")
    from elmokit.weights import load_pretrained
    from elmokit.weights.pretrained import choose_tokenizer

    return choose_tokenizer(load_pretrained(model, softmax=False), None, allow_other=False)


def kinds_of(tokenizer: "Tokenizer", sentence: "Sentence") -> list[str]:
    """The rule that cut each token, where the tokenizer has names for them; else what it looks like."""
    from elmokit.text._custom import NormalisedTokenizer
    from elmokit.text._unicode_2 import UnicodeTokenizer2

    base = getattr(tokenizer, "loaded", tokenizer)
    base = base.base if isinstance(base, NormalisedTokenizer) else base
    if isinstance(base, UnicodeTokenizer2) and sentence.text is not None:
        return base.kinds(sentence.text)
    return [_looks(token) for token in sentence.tokens]


def _looks(token: str) -> str:
    if any(map(str.isalpha, token)):
        return "word"
    return "number" if any(map(str.isdigit, token)) else "mark"
