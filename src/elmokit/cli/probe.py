"""`elmokit probe`: what a linear classifier can read from each layer."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from elmokit.cli.flags import OLD_MEASURING, Device, EncodersOption, Json, JsonFile, Plot, old_spellings
from elmokit.cli.layer_values import each_encoder, write_records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from elmokit._terminal import Console
    from elmokit.analysis.probing import ProbeScore


class Scored(NamedTuple):
    """A score and what it belongs to."""

    encoder: str
    label: str
    score: "ProbeScore"


@old_spellings(OLD_MEASURING)
def probe(
    train: Annotated[str, typer.Argument(metavar="TRAIN", help="CoNLL-U or column file to train the probes on.")],
    dev: Annotated[str, typer.Argument(metavar="DEV", help="Another of the same kind, to score them on.")],
    encoder: EncodersOption = None,
    label: Annotated[
        list[str] | None,
        typer.Option(
            "--label", "-l", help="upos, xpos, deprel, column[:N] or type[:N]; give several. Default: upos or column."
        ),
    ] = None,
    layers: Annotated[
        list[str] | None,
        typer.Option(
            help="each, mix, average, concat:1,2, weighted-last-four ...; give several. Default: each and mix."
        ),
    ] = None,
    curve: Annotated[
        str | None, typer.Option(help="Numbers of training sentences for a learning curve, such as 100,1000,10000.")
    ] = None,
    sentences: Annotated[int, typer.Option(help="Train on this many sentences, evenly spaced; 0: all.", min=0)] = 0,
    plot: Plot = None,
    json_output: Json = False,
    output: JsonFile = None,
    cache: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Keep vectors here for later runs.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the control task and of the curve's sentences.", min=0)] = 0,
    device: Device = "auto",
) -> None:
    """Measure what a linear classifier can read from each layer.

        elmokit probe train.conllu dev.conllu --label upos --label deprel
        elmokit probe train.iob dev.iob --label type --plot ner.svg

    A label is a column of CoNLL-U (upos, xpos, deprel) or of a column file: `column` is the last column as it is
    (chunks), `type` is the same without B- and I- (entity types), and `column:3` is the third.

    The control task gives every word a fixed random label: its accuracy shows what a probe can memorise. Selectivity is
    the difference. `mix` learns the layers' weights with the probe.

    Compare encoders, or numbers of training sentences:

        elmokit probe train.conllu dev.conllu -m en -m bert:bert-base-cased
        elmokit probe train.conllu dev.conllu --curve 100,1000 --plot curve.svg
    """
    from elmokit._terminal import Console
    from elmokit.analysis.probe import ProbeConfig
    from elmokit.analysis.probing import Probing
    from elmokit.analysis.word_labels import read_word_labels
    from elmokit.cli.show import print_json
    from elmokit.formats import format_of

    sizes = _sizes(curve)
    labels = label or (["upos"] if format_of(train) == "conllu" else ["column"])
    data = [(read_word_labels(train, name).some(sentences), read_word_labels(dev, name)) for name in labels]
    console, found = Console(highlight=False), list[Scored]()
    config = ProbeConfig(device=device)
    for called, model, views in each_encoder(encoder, layers, usual="mix", device=device):
        probing = Probing(model, data[0][0].sentences, data[0][1].sentences, folder=cache)
        for name, (ours, held) in zip(labels, data, strict=True):
            for size in sizes:
                for score in probing.score(ours, held, views, sentences=size, seed=seed, config=config):
                    found.append(Scored(called, name, score))
                    _tell(found[-1])
    if json_output:
        print_json(_records(found))
    else:
        for name in labels:
            _show(console, [one for one in found if one.label == name])
    if output is not None:
        write_records(_records(found), output)
    if plot is not None:
        _draw(found, plot, (Path(train).name, Path(dev).name), curve=curve is not None)


def _sizes(curve: str | None) -> "list[int | None]":
    from elmokit.errors import InputError

    if curve is None:
        return [None]
    parts = [part.strip() for part in curve.split(",")]
    if not all(part.isdecimal() and int(part) for part in parts):
        raise InputError(f"--curve {curve!r} not understood; expected numbers of sentences, such as 100,1000,10000")
    return [int(part) for part in parts]


def _tell(one: Scored) -> None:
    score = one.score
    typer.echo(
        f"  {one.label}, {score.view}, {score.sentences:,} sentences: {100 * score.accuracy:.2f} "
        f"(control {100 * score.control:.2f})",
        err=True,
    )


def _show(console: "Console", found: "Sequence[Scored]") -> None:
    from rich.table import Table

    first = found[0].score
    about = f"{first.classes} labels; always the most frequent: {100 * first.majority:.1f}"
    console.print(f"[bold]{found[0].label}[/bold]  {about}")
    encoders = list(dict.fromkeys(one.encoder for one in found))
    for encoder in encoders:
        if len(encoders) > 1:
            console.print(encoder, soft_wrap=True)
        table = Table(box=None, pad_edge=True, header_style="dim")
        table.add_column("layers", min_width=max(len(one.score.view) for one in found))
        for head in ("sentences", "accuracy", "95% interval", "control", "selectivity"):
            table.add_column(head, justify="right")
        table.add_column("layer weights" if any(one.score.shares for one in found) else "")
        for score in (one.score for one in found if one.encoder == encoder):
            numbers = [f"{100 * value:.2f}" for value in (score.accuracy, score.control, score.selectivity)]
            numbers.insert(1, f"{100 * score.interval.low:.1f} to {100 * score.interval.high:.1f}")
            shares = " ".join(f"{share:.2f}" for share in score.shares)
            table.add_row(score.view, f"{score.sentences:,}", *numbers, shares)
        console.print(table)
    console.print()


def _records(found: "Sequence[Scored]") -> list[dict[str, Any]]:
    from dataclasses import asdict

    return [
        {"encoder": one.encoder, "label": one.label, **asdict(one.score), "selectivity": one.score.selectivity}
        for one in found
    ]


def _draw(found: "Sequence[Scored]", path: Path, data: tuple[str, str], *, curve: bool) -> None:
    from elmokit.plots import CurvePoint, Value, draw_bars, draw_lines, save_chart

    several = len({one.encoder for one in found}) > 1
    labels = len({one.label for one in found}) > 1

    def named(one: Scored, *more: str) -> str:
        return ", ".join([*([one.label] if labels else []), *([one.encoder] if several else []), *more])

    about = f"{', '.join(dict.fromkeys(one.encoder for one in found))}; trained on {data[0]}, scored on {data[1]}"
    if curve:
        points = [
            CurvePoint(
                one.score.sentences,
                100 * one.score.accuracy,
                named(one, one.score.view),
                100 * one.score.interval.low,
                100 * one.score.interval.high,
            )
            for one in found
        ]
        title = "Probes by number of training sentences"
        chart = draw_lines(points, title=title, x="training sentences", y="accuracy, %", log=True, about=about)
    else:
        values = [
            Value(
                one.score.view,
                100 * one.score.accuracy,
                named(one),
                baseline=100 * one.score.control,
                low=100 * one.score.interval.low,
                high=100 * one.score.interval.high,
            )
            for one in found
        ]
        title = f"Linear probes: {', '.join(dict.fromkeys(one.label for one in found))}"
        chart = draw_bars(
            values, title=title, axis="accuracy, %", baseline="control task (random label per word)", about=about
        )
    save_chart(chart, path)
    typer.echo(f"{path}: written", err=True)
