"""`elmokit senses`: the uses of one word in a corpus, in groups."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elmokit.cli.flags import (
    OLD_JSON_FILE,
    OLD_LINES,
    Device,
    EncoderOption,
    FormatOption,
    Json,
    JsonFile,
    Lines,
    LinesOption,
    Plot,
    TextField,
    Tokenized,
    old_spellings,
)

if TYPE_CHECKING:
    from elmokit.analysis.word_senses import Use, WordSenses


@old_spellings({**OLD_LINES, **OLD_JSON_FILE})
def senses(
    corpus: Annotated[
        list[str],
        typer.Argument(metavar="CORPUS", help="Files, folders, patterns, - for standard input; or one index."),
    ],
    word: Annotated[str, typer.Option("--word", "-w", help="The word, in any case.")],
    clusters: Annotated[
        int | None,
        typer.Option("--clusters", "-k", help="Number of groups; default: the one with the best silhouette."),
    ] = None,
    model: EncoderOption = None,
    layers: Annotated[
        str, typer.Option(help="For texts, layers of the vectors: top, 1, average, concat:1,2 ...")
    ] = "top",
    uses: Annotated[int, typer.Option(help="Group this many uses, evenly spaced; 0: all.", min=0)] = 500,
    examples: Annotated[int, typer.Option(help="Uses of each group to show.", min=1)] = 5,
    plot: Plot = None,
    json_output: Json = False,
    output: JsonFile = None,
    lines: LinesOption = Lines.paragraphs,
    tokenized: Tokenized = False,
    format: FormatOption = "auto",
    field: TextField = "text",
    device: Device = "auto",
) -> None:
    """Group the uses of one word in a corpus, and show the most typical of each group.

        elmokit senses corpus.txt --word play
        elmokit senses corpus.txt.gz --word bank --clusters 3 --plot bank.html
        elmokit senses index/ --word bank

    An index has its vectors already: model and layers are those that it was made with.

    Without --clusters, the number of groups is the one with the best silhouette (1: groups far apart, 0: no groups);
    if even the best is low, all uses are one group. The chart shows the two directions in which the vectors vary most;
    in HTML, each point shows its sentence.

    To measure how well known senses are told apart, see elmokit wsd and elmokit pairs.
    """
    from json import dumps

    from elmokit.analysis.word_senses import SensesConfig, find_uses, group_indexed, group_senses
    from elmokit.cli.inputs import read_inputs
    from elmokit.cli.layer_values import short_names
    from elmokit.cli.show import print_json
    from elmokit.encoders import load_encoder
    from elmokit.errors import InputError
    from elmokit.formats import expand_inputs
    from elmokit.formats.atomic import write_text
    from elmokit.formats.read import told_lines
    from elmokit.index import Index
    from elmokit.index.settings import MANIFEST
    from elmokit.text import load_tokenizer

    config = SensesConfig(layers=layers, clusters=clusters, uses=uses, examples=examples)
    indexed = [one for one in corpus if (Path(one) / MANIFEST).exists()]
    if indexed:
        if len(corpus) > 1:
            raise InputError(f"{indexed[0]} is an index; give it alone, or give texts")
        if model is not None or layers != "top" or tokenized:
            raise InputError(
                f"{indexed[0]} is an index and has its vectors; leave --model, --layers and --tokenized out"
            )
        index = Index.open(indexed[0])
        found = group_indexed(index, word, config=config)
        met = sum(n for other, n in index.words.items() if other.casefold() == word.casefold())
        model, layers = index.manifest.source, index.settings.layers
    else:
        expand_inputs(corpus)  # a wrong file name is an error before a model is loaded
        encoder = load_encoder(model, device=device)
        cut = load_tokenizer("whitespace") if tokenized else encoder.tokenizer
        lines = Lines.sentences if tokenized else lines
        uses_met = find_uses(read_inputs(corpus, tokenizer=cut, lines=lines, format=format, field=field), word)
        met = len(uses_met)
        if met < 2:
            raise InputError(f"{word!r} occurs {met} times in {', '.join(corpus)}; at least 2 uses are needed")
        found = group_senses(encoder, uses_met, config=config)
    record = _record(found, word, indexed=bool(indexed))
    if json_output:
        print_json([record])
    else:
        _show(found, word, met)
    if not indexed:
        typer.echo(told_lines(lines), err=True)
    if output is not None:
        write_text(output, dumps(record, indent=1, ensure_ascii=False) + "\n")
    if plot is not None:
        named = short_names([model])[0]
        _draw(found, word, plot, model=f"{named}, layers {layers}", data=", ".join(corpus))


def _show(found: "WordSenses", word: str, met: int) -> None:
    from elmokit._terminal import Console
    from elmokit.cli.neighbors import line_of
    from elmokit.cli.show import count

    console = Console(highlight=False)
    some = f", {len(found.uses):,} of them grouped" if len(found.uses) < met else ""
    tried = ", ".join(f"{k}: {value:.2f}" for k, value in found.silhouettes.items())
    console.print(f"{met:,} uses of {word!r}{some}; silhouette by number of groups {tried or '-'}", markup=False)
    for number, group in enumerate(found.groups, 1):
        share = len(group.uses) / len(found.uses)
        console.print()
        console.print(
            f"[bold]{number}[/bold]  {count(len(group.uses), 'use')}, {share:.0%}, silhouette {group.silhouette:.2f}"
        )
        for use in (found.uses[k] for k in group.examples):
            console.print(line_of(console, "", use.left, use.word, use.right))


def _record(found: "WordSenses", word: str, *, indexed: bool) -> dict[str, Any]:
    """Uses of a text have tokens and the number of the word; those of an index have text and the place of the word."""
    places = [_text_place(use) if indexed else _token_place(use) for use in found.uses]
    numbers = {use: number for number, group in enumerate(found.groups, 1) for use in group.uses}
    return {
        "word": word,
        "silhouettes": found.silhouettes,
        "groups": [
            {"size": len(group.uses), "silhouette": group.silhouette, "examples": group.examples}
            for group in found.groups
        ],
        "uses": [{**place, "group": numbers[k], "point": found.points[k].tolist()} for k, place in enumerate(places)],
    }


def _token_place(use: "Use") -> dict[str, Any]:
    return {"tokens": use.sentence.tokens, "position": use.position}


def _text_place(use: "Use") -> dict[str, Any]:
    start, end = (use.sentence.offsets or ())[use.position]
    return {"text": use.sentence.text, "start": start, "end": end}


def _draw(found: "WordSenses", word: str, path: Path, *, model: str, data: str) -> None:
    from elmokit.plots import Dot, draw_scatter, save_chart

    dots = []
    for number, group in enumerate(found.groups, 1):
        middle = found.uses[group.examples[0]]
        near = " ".join([*middle.left.split()[-3:], middle.word, *middle.right.split()[:3]])
        for k in group.uses:
            use = found.uses[k]
            shown = " ".join([*use.left.split()[-8:], use.word, *use.right.split()[:8]])
            x, y = found.points[k].tolist()
            label = near if k == group.examples[0] else ""
            dots.append(Dot(x, y, f"group {number} ({len(group.uses)})", shown, label))
    first, second = (f"direction {k + 1}, {share:.0%} of the variance" for k, share in enumerate(found.explained))
    about = f"{model}, {len(found.uses):,} uses; {data}"
    save_chart(draw_scatter(dots, title=f"Uses of {word!r}", x=first, y=second, about=about), path)
    typer.echo(f"{path}: written", err=True)
