"""`elmokit neighbors`: contexts of a corpus in which a word is used as it is in yours."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elmokit.cli.flags import OLD_JSONL, AllowOtherEncoder, Device, Json, Tokenized, old_spellings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.text import Text

    from elmokit._terminal import Console
    from elmokit.analysis.neighbours import Neighbours


@old_spellings(OLD_JSONL)
def neighbors(
    index: Annotated[Path, typer.Argument(metavar="INDEX", help="Folder made by elmokit index.")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A sentence that contains the word.")],
    word: Annotated[str | None, typer.Option("--word", "-w", help="The word.")] = None,
    position: Annotated[
        int | None, typer.Option("--position", "-p", help="Number of the token, from 0, if the word occurs twice.")
    ] = None,
    number: Annotated[int, typer.Option("--number", "-n", help="Number of contexts to show.", min=1)] = 10,
    same_word: Annotated[bool, typer.Option("--same-word", help="Only contexts of the same word.")] = False,
    static: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Static vectors (GloVe, word2vec); default: means over the index."),
    ] = None,
    exact: Annotated[bool, typer.Option("--exact", help="Compare all vectors, even of a large index.")] = False,
    json_output: Json = False,
    tokenized: Tokenized = False,
    model: Annotated[
        str | None, typer.Option("--model", "-m", metavar="MODEL", help="Where the index's model is, if it was moved.")
    ] = None,
    allow_other_encoder: AllowOtherEncoder = False,
    device: Device = "auto",
) -> None:
    """Find the contexts in which a word is used as it is in your sentence.

        elmokit index corpus.txt -o index/
        elmokit neighbors index/ "the players of the play" --word play

    Shows one context per line, with the word in the middle and a cosine: 1 for the same vector, 0 for nothing in
    common. Copies of a sentence are shown once. Below them are the word's static neighbours, the same in every
    sentence: words whose mean vector over the corpus is nearest.
    """
    from elmokit.analysis.neighbours import find_neighbours
    from elmokit.cli.inputs import load_indexed
    from elmokit.cli.show import print_json
    from elmokit.encoders import Static
    from elmokit.encoders.static.table import WordTable
    from elmokit.errors import InputError
    from elmokit.formats.streams import mend
    from elmokit.index import Index
    from elmokit.text import load_tokenizer

    opened = Index.open(index)
    if not len(opened):
        raise InputError(f"{index} holds no words yet; add text with  elmokit index TEXT -o {index}")
    table = None
    if static is not None:
        loaded = Static.from_pretrained(static).table
        if not isinstance(loaded, WordTable):
            raise InputError(f"{static}: a fastText .bin has no list of vectors to search; give its .vec")
        table = loaded
    encoder = load_indexed(opened, model, device=device, allow_other=allow_other_encoder)
    cut = load_tokenizer("whitespace") if tokenized else encoder.tokenizer
    sentence = cut.tokenize(mend(text)[0])
    found = find_neighbours(
        opened,
        encoder,
        sentence,
        word=word,
        position=position,
        k=number,
        same_word=same_word,
        exact=exact,
        static=table,
        allow_other_encoder=allow_other_encoder,
    )
    if json_output:
        print_json(_records(found))
    else:
        _print(found, "means over the corpus" if static is None else static.name)


def _records(found: "Neighbours") -> "Iterator[dict[str, Any]]":
    for context in found.contexts:
        at = context.occurrence
        record = {"kind": "context", "score": round(at.score, 6), "word": at.word, "text": at.text, "start": at.start}
        yield record | {"end": at.end, "copies": context.copies} | ({"fields": at.fields} if at.fields else {})
    for word, score in found.static:
        yield {"kind": "static", "score": round(score, 6), "word": word}


def _print(found: "Neighbours", static: str) -> None:
    from rich.text import Text

    from elmokit._terminal import Console

    console = Console(highlight=False)
    before, after = found.sentence.tokens[: found.position], found.sentence.tokens[found.position + 1 :]
    console.print(line_of(console, "", " ".join(before), found.word, " ".join(after)))
    console.print()
    for context in found.contexts:
        console.print(line_of(console, f"{context.score:.2f}", context.left, context.occurrence.word, context.right))
    if not found.contexts:
        console.print("no other context")
    copied = [c for c in found.contexts if c.copies > 1]
    if copied:
        console.print(Text(f"copies folded: {sum(c.copies - 1 for c in copied)}", "dim"))
    console.print()
    words = Text(", ").join(Text.assemble((word, ""), (f" {score:.2f}", "dim")) for word, score in found.static)
    none = f"{found.word!r} has no vector of its own there"
    console.print(Text.assemble((f"static neighbours ({static}): ", "bold"), words if found.static else none))


def line_of(console: "Console", score: str, left: str, word: str, right: str) -> "Text":
    """One line of a concordance: the word begins in the middle, with as many words around it as fit."""
    from rich.cells import cell_len, set_cell_size
    from rich.text import Text

    room = max(console.width - 6, 40)
    before = _fitting(left.split()[::-1], room // 2 - 1)[::-1]
    after = _fitting(right.split(), room - room // 2 - cell_len(word) - 1)
    padding = " " * max(room // 2 - 1 - cell_len(" ".join(before)), 0)
    line = Text(no_wrap=True, overflow="crop").append(set_cell_size(score, 6), "dim").append(padding)
    return line.append(f"{' '.join(before)} ").append(word, "bold").append(f" {' '.join(after)}")


def _fitting(words: list[str], cells: int) -> list[str]:
    """The first words, as many as fit into so many columns."""
    from itertools import accumulate

    from rich.cells import cell_len

    ends = accumulate(cell_len(word) + 1 for word in words)
    return words[: sum(end - 1 <= cells for end in ends)]
