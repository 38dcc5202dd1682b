"""`elmokit drift`: words that are used differently in two corpora or periods."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elmokit.cli.flags import OLD_JSONL, OLD_LINES, Device, EncoderOption, Json, Lines, LinesOption, Plot, old_spellings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from elmokit.analysis.drift import Agreement, DriftConfig, Measure, WordDrift
    from elmokit.index import Index
    from elmokit.text import Sentence


@old_spellings({**OLD_LINES, **OLD_JSONL})
def drift(
    first: Annotated[str, typer.Argument(metavar="CORPUS1", help="Text (file, folder, pattern) or an index.")],
    second: Annotated[str, typer.Argument(metavar="CORPUS2", help="The other one, of the same kind.")],
    words: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Only the words in this file; default: all that are frequent in both."),
    ] = None,
    by: Annotated[str, typer.Option(help="Rank by net, prt, apd or jsd.")] = "net",
    number: Annotated[int, typer.Option("--number", "-n", help="Words to show.", min=1)] = 20,
    examples: Annotated[int, typer.Option(help="Occurrences to show of a word in each corpus.", min=0)] = 2,
    min_count: Annotated[int, typer.Option(help="Only words with this many occurrences in each corpus.", min=2)] = 10,
    per_word: Annotated[int, typer.Option(help="Occurrences to compare in each corpus at most.", min=2)] = 200,
    clusters: Annotated[int, typer.Option(help="Number of groups of uses for jsd.", min=2)] = 5,
    shuffles: Annotated[int, typer.Option(help="Random swaps of occurrences for p.", min=1)] = 1000,
    gold: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Graded change (word, tab, number); print Spearman's rho against it."),
    ] = None,
    keep: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Keep the indexes of the two texts here, for another run.")
    ] = None,
    plot: Plot = None,
    json_output: Json = False,
    layers: Annotated[
        str, typer.Option(help="For texts, layers of the vectors: top, 1, average, concat:1,2 ...")
    ] = "top",
    lines: LinesOption = Lines.paragraphs,
    model: EncoderOption = None,
    device: Device = "auto",
) -> None:
    """Rank words by how differently they are used in two corpora or periods.

        elmokit drift letters-1860.txt news-2010.txt
        elmokit drift index1/ index2/ --words words.txt --plot drift.html
        elmokit drift corpus1.txt corpus2.txt --gold truth/graded.txt

    apd is the mean distance between a word's occurrences in one corpus and in the other. net is apd minus the mean
    distance within each corpus, so that a word of many uses does not seem changed; the list is ranked by it. prt is
    the distance between the word's mean vectors. For jsd, its uses are grouped, and the shares of the groups are
    compared. p says how often chance alone gives as much; q is p corrected for the number of words. The examples are
    those most unlike the other corpus.
    """
    from contextlib import ExitStack
    from dataclasses import asdict
    from tempfile import TemporaryDirectory

    from elmokit.analysis.drift import DriftConfig, compare_gold, measure_drift, read_gold
    from elmokit.cli.inputs import read_words
    from elmokit.cli.progress import counting
    from elmokit.cli.show import print_json
    from elmokit.errors import InputError
    from elmokit.formats import expand_inputs
    from elmokit.formats.read import told_lines
    from elmokit.index import Index
    from elmokit.index.settings import MANIFEST

    config = DriftConfig(
        by=by,  # type: ignore[arg-type]
        min_count=min_count,
        per_word=per_word,
        clusters=clusters,
        examples=examples,
        shuffles=shuffles,
    )
    graded = read_gold(gold) if gold else None
    wanted = read_words(words) if words else tuple(graded) if graded else None
    indexed = [(Path(corpus) / MANIFEST).exists() for corpus in (first, second)]
    expand_inputs([corpus for corpus, there in zip((first, second), indexed, strict=True) if not there])  # or an error
    if len(set(indexed)) == 2:
        raise InputError(f"of {first} and {second} one is an index and one is text; give two of the same kind")
    with ExitStack() as stack:
        if all(indexed):
            pair = (Index.open(first), Index.open(second))
        else:
            folder = keep or Path(stack.enter_context(TemporaryDirectory(prefix="elmokit-drift-")))
            pair = _index_texts((first, second), folder, wanted, config, layers, model, device, lines=lines)
            typer.echo(told_lines(lines), err=True)
        with counting("comparing words") as told:
            some = _present(pair, wanted) if wanted else _content_words(pair[0].words, pair[1].words, min_count)
            found = measure_drift(*pair, words=some, config=config, told=told)
        rare = sorted({*(wanted or ())} - {drift.word for drift in found})
        if rare:
            typer.echo(f"left out, not {min_count} times in both: {', '.join(rare)}", err=True)
        if json_output:
            print_json(map(asdict, found))
        else:
            _print(found[:number], len(found), (first, second), config)
        if graded is not None:
            _print_agreement(compare_gold(found, graded), len(graded), json_output=json_output)
        if plot is not None:
            _draw(found[:number], plot, (first, second))


def _present(pair: "tuple[Index, Index]", wanted: "Sequence[str]") -> list[str]:
    """The words that are in both; for the others, prints what comes close."""
    from elmokit.analysis.neighbours import require_word
    from elmokit.errors import InputError

    present = []
    for word in wanted:
        try:
            for index in pair:
                require_word(index, word)
        except InputError as missing:
            typer.echo(str(missing), err=True)
        else:
            present.append(word)
    if not present:
        raise InputError("none of the words occurs in both corpora")
    return present


def _index_texts(
    corpora: tuple[str, str],
    folder: Path,
    wanted: "Sequence[str] | None",
    config: "DriftConfig",
    layers: str,
    model: str | None,
    device: str,
    *,
    lines: str,
) -> "tuple[Index, Index]":
    """Only words that are frequent enough in both are embedded, so the texts are read twice."""
    from collections import Counter

    from elmokit.cli.inputs import name_corpus, read_inputs
    from elmokit.cli.progress import watched
    from elmokit.encoders import load_encoder
    from elmokit.errors import InputError
    from elmokit.formats import ReadReport
    from elmokit.formats.streams import warn_of_bad_bytes
    from elmokit.index import Index, IndexSettings

    names = [name_corpus([corpus]) for corpus in corpora]
    if not all(names):
        raise InputError("texts are read twice, which standard input cannot be; give files")
    places = folder / "first", folder / "second"
    for place, name in zip(places, names, strict=True):
        _check_kept(place, name)
    encoder = load_encoder(model, device=device)

    reports: dict[str, ReadReport] = {}  # of the last time that each was read

    def read(corpus: str) -> "Iterator[Sentence]":
        met = reports[corpus] = ReadReport()
        return watched(read_inputs([corpus], tokenizer=encoder.tokenizer, lines=lines, report=met), corpus, met)

    if wanted is None:
        counts = [Counter(token for sentence in read(corpus) for token in sentence.tokens) for corpus in corpora]
        wanted = _content_words(counts[0], counts[1], config.min_count)
    settings = IndexSettings(layers=layers, words=tuple(wanted), per_word=config.per_word)
    first, second = (
        Index.build(encoder, read(corpus), place, settings=settings, name=name)
        for corpus, place, name in zip(corpora, places, names, strict=True)
    )
    for corpus, met in reports.items():
        warn_of_bad_bytes(met, corpus)
    return first, second


def _check_kept(place: Path, name: str) -> None:
    """An index of an earlier run with --keep must be of this text: another one would be added to it."""
    from elmokit.errors import InputError
    from elmokit.index.settings import MANIFEST, Manifest

    if not (place / MANIFEST).exists():
        return
    if other := [run.name for run in Manifest.read(place).runs if not run.is_of(name)]:
        raise InputError(f"{place} holds {', '.join(other)}, not {name}; give another folder with --keep")


def _content_words(first: "Mapping[str, int]", second: "Mapping[str, int]", least: int) -> list[str]:
    """The words, function words aside, that are frequent enough in both."""
    from elmokit.errors import InputError
    from elmokit.index import ENGLISH_STOP_WORDS

    common, stop = (word for word in first if min(first[word], second.get(word, 0)) >= least), set(ENGLISH_STOP_WORDS)
    found = sorted(word for word in common if any(map(str.isalpha, word)) and word.casefold() not in stop)
    if not found:
        raise InputError(f"no word occurs {least} times in both texts; give longer ones or a smaller --min-count")
    return found


def _print(found: "Sequence[WordDrift]", total: int, names: tuple[str, str], config: "DriftConfig") -> None:
    from rich.text import Text

    from elmokit._terminal import Console
    from elmokit.analysis.drift import MEASURES
    from elmokit.cli.neighbors import line_of
    from elmokit.cli.show import table_of

    console = Console(highlight=False)
    if not found:
        console.print(f"no word occurs {config.min_count} times in both")
        return
    rows: list[list[str | Text]] = []
    for drift in found:
        pairs = ((getattr(drift, measure), drift.chance(measure)) for measure in MEASURES)
        numbers = [f"{round(number, 3) + 0.0:.3f}" for pair in pairs for number in pair]  # no -0.000
        numbers.append(f"{drift.q:.3f}")
        rows.append([Text(drift.word), f"{drift.first:,}", f"{drift.second:,}", *numbers])
    heads = ["word", "in 1", "in 2", *(head for measure in MEASURES for head in (measure, "p")), "q"]
    console.print(Text(f"1  {names[0]}\n2  {names[1]}\n", "dim"))
    console.print(table_of(heads, rows, gap=1))
    if total > len(found):
        console.print(Text(f"... and {total - len(found):,} more words", "dim"))
    for drift in found if config.examples else ():
        console.print()
        for number, examples in (("1", drift.first_examples), ("2", drift.second_examples)):
            for one in examples:
                console.print(line_of(console, number, one.text[: one.start], one.word, one.text[one.end :]))


def _print_agreement(found: "Sequence[Agreement]", graded: int, *, json_output: bool) -> None:
    from elmokit.cli.show import print_json

    if json_output:
        print_json({**one._asdict(), "graded": graded} for one in found)
        return
    typer.echo(f"\nSpearman's rho against the gold ranking, {found[0].words} of its {graded} words (95% interval)")
    for one in found:
        typer.echo(f"{one.measure}   {one.rho:+.3f}   ({one.interval.low:+.3f} to {one.interval.high:+.3f})")


def _draw(found: "Sequence[WordDrift]", path: Path, names: tuple[str, str]) -> None:
    from elmokit.plots import Value, draw_bars, save_chart

    measures: dict[Measure, str] = {
        "net": "net: apd less the mean distance within a corpus",
        "prt": "prt: distance of the two mean vectors",
        "apd": "apd: mean distance of an occurrence in one corpus to one in the other",
        "jsd": "jsd: how differently the occurrences fall into groups, 0 to 1",
    }
    values = [
        Value(drift.word, getattr(drift, measure), told, note=f"p {drift.chance(measure):.3f}")
        for measure, told in measures.items()
        for drift in found
    ]
    about = f"1: {names[0]}; 2: {names[1]}; p: how often chance alone gives as much"
    save_chart(draw_bars(values, title="Words used differently in two corpora", about=about, digits=2), path)
    typer.echo(f"{path}: drawn", err=True)
