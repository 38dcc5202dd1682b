"""Vectors to look at: what each word is nearest to, and how alike the sentences are."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from elmokit._terminal import Console
    from elmokit.encoders import Embedding, Encoder
    from elmokit.tasks.task import Parts
    from elmokit.text import Sentence

SENTENCES, TOKENS, NUMBERS = 8, 40, 3  # shown at most: sentences, tokens of each, numbers of each vector
WORD = 18  # columns for a token; with the others they make 80
LONGEST = 60  # columns of a word in the line above a table


def show_vectors(
    encoder: "Encoder", sentences: "Iterator[Sentence]", *, layers: str, batch_tokens: int | None, normalise: bool
) -> None:
    from elmokit._terminal import Console

    given = list(islice(sentences, SENTENCES))
    if not given:
        typer.echo("the input held no sentences", err=True)
        return
    more = next(sentences, None) is not None
    embedded = list(encoder.stream(given, layers=layers, batch_tokens=batch_tokens, normalise=normalise))
    console = Console(highlight=False)
    everything = [(s, t, v) for s, e in enumerate(embedded) for t, v in enumerate(_flat(e)[:TOKENS])]
    for number, one in enumerate(embedded):
        _show_sentence(console, number, one, everything, embedded)
    if len(embedded) > 1:
        _show_likeness(console, embedded)
    if more:
        console.print(f"[dim]... and more sentences; these were the first {SENTENCES}. -o FILE keeps them all.[/dim]")


def _flat(one: "Embedding") -> Any:
    """One vector per token: layers kept apart stand side by side for comparing. (T, D)"""
    vectors = one.vectors
    return vectors if vectors.ndim == 2 else vectors.swapaxes(0, 1).reshape(vectors.shape[1], -1)


def _show_sentence(
    console: Any, number: int, one: "Embedding", everything: list[tuple[int, int, Any]], embedded: "list[Embedding]"
) -> None:
    import numpy as np
    from rich.markup import escape
    from rich.table import Table

    from elmokit.layers import cosine

    tokens = one.sentence.tokens
    shape = " x ".join(map(str, one.vectors.shape))
    words = " ".join(cut_cells(token, LONGEST) for token in tokens[:TOKENS])
    console.print(f"[bold]{number + 1}[/bold]  {escape(words)}   [dim]{shape}[/dim]")
    table = Table(box=None, pad_edge=True, header_style="dim")
    for title in ("token", "length", "nearest other word", "first numbers"):
        table.add_column(title, justify="right" if title == "length" else "left", no_wrap=True)
    for t, vector in enumerate(_flat(one)[:TOKENS]):
        others = [(cosine(vector, v), s, k) for s, k, v in everything if (s, k) != (number, t)]
        nearest = "-"
        if others:
            likeness, s, k = max(others)
            place = f"({s + 1}:{k + 1})"
            word = cut_cells(embedded[s].sentence.tokens[k], WORD - len(place))
            nearest = f"{likeness:.2f} {escape(word)} [dim]{place}[/dim]"
        numbers = " ".join(f"{x:+.3f}" for x in vector[:NUMBERS])
        shown = escape(cut_cells(tokens[t], WORD))
        table.add_row(shown, f"{np.linalg.norm(vector):.2f}", nearest, f"[dim]{numbers} ...[/dim]")
    if tokens:
        console.print(table)
    if len(tokens) > TOKENS:
        console.print(f"[dim]  ... and {len(tokens) - TOKENS:,} more tokens[/dim]")
    console.print()


def _show_likeness(console: Any, embedded: "list[Embedding]") -> None:
    """Cosines of the sentences' mean vectors."""
    import numpy as np

    from elmokit.layers import cosine

    means = [v.mean(axis=0) if len(v) else np.zeros(v.shape[1]) for v in map(_flat, embedded)]
    console.print("how alike the sentences are (cosine of their mean vectors)")
    numbers = [str(k + 1) for k in range(len(means))]
    rows = [[n, *(f"{cosine(mean, other):.2f}" for other in means)] for n, mean in zip(numbers, means, strict=True)]
    console.print(table_of(["", *numbers], rows))


def cut_cells(text: str, most: int) -> str:
    """The text in at most so many columns of a terminal."""
    from rich.cells import cell_len, set_cell_size

    return text if cell_len(text) <= most else set_cell_size(text, most - 1).rstrip() + "…"


def table_of(heads: Sequence[str], rows: "Iterable[Sequence[str | Text]]", *, left: int = 1, gap: int = 2) -> "Table":
    """A table without lines; all but the first `left` columns hold numbers, with `gap` spaces between columns."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, gap, 0, 0))
    for k, head in enumerate(heads):
        table.add_column(head, justify="left" if k < left else "right")
    for row in rows:
        table.add_row(*row)
    return table


def count(number: int, thing: str) -> str:
    """1 use, 2 uses."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def echo_text(text: str, *, nl: bool = True) -> None:
    """Prints text that was given: exact in a file or pipe; on a terminal control characters are signs."""
    import sys

    if sys.stdout.isatty():
        from elmokit._terminal import visible

        text = visible(text)
    typer.echo(text, nl=nl, color=True)  # with color left open, click takes escape codes out of what goes to a file


def print_parts(console: "Console", parts: "Parts") -> None:
    """Prints styled text on a line of its own: in colour on a terminal, exact in a file or pipe."""
    from rich.text import Text

    from elmokit._terminal import visible

    if console.is_terminal:
        console.print(Text.assemble(*((visible(text), style) for text, style in parts)))
    else:
        typer.echo("".join(text for text, _ in parts), color=True)


def print_json(records: Iterable[Any]) -> None:
    """One object per line; control characters are escaped, all of them."""
    import re
    from json import dumps

    for record in records:
        line = dumps(record, ensure_ascii=False)
        typer.echo(re.sub("[\x7f-\x9f]", lambda found: f"\\u{ord(found[0]):04x}", line))
