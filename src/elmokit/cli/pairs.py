"""`elmokit pairs`: words in context against what people say of them, layer by layer."""

from typing import Annotated

import typer

from elmokit.cli.flags import OLD_MEASURING, BatchTokens, Device, EncodersOption, Json, JsonFile, Plot, old_spellings
from elmokit.cli.layer_values import LAYERS_HELP


@old_spellings(OLD_MEASURING)
def pairs(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE", help="SCWS's ratings, or WiC's training and test part.")
    ],
    encoder: EncodersOption = None,
    layers: Annotated[list[str] | None, typer.Option(help=LAYERS_HELP)] = None,
    limit: Annotated[int, typer.Option(help="Read this many pairs of each file, evenly spaced; 0: all.", min=0)] = 0,
    plot: Plot = None,
    json_output: Json = False,
    output: JsonFile = None,
    batch_tokens: BatchTokens = None,
    device: Device = "auto",
) -> None:
    """Compare cosines of words in context with human judgements.

        elmokit pairs scws/ratings.txt
        elmokit pairs wic/train.tsv wic/dev.tsv -m en -m glove.6B.100d.txt

    With one file of ratings (SCWS), shows their rank correlation (Spearman, times 100) with the cosines. With two files
    that say whether a word has the same sense in both sentences (WiC), fits a threshold for the cosine on the first and
    shows the accuracy on both.
    """
    import numpy as np

    from elmokit.analysis.intervals import mean_interval, score_interval
    from elmokit.analysis.pair_files import read_pairs
    from elmokit.analysis.pairs import fit_threshold, pair_cosines, spearman, threshold_accuracy
    from elmokit.cli.layer_values import LayerValue, draw_values, each_encoder, give_out
    from elmokit.errors import InputError
    from elmokit.formats import read_lines
    from elmokit.tasks.run import spaced

    read = [read_pairs(read_lines(path), name=path) for path in files]
    same = [kind == "wic" for kind, _ in read]
    if same not in ([False], [True, True]):
        raise InputError("expected one file of SCWS's ratings, or two of WiC's: the training part and another")
    data = [spaced(found, limit) for _, found in read]
    human = [np.array([pair.value for pair in part]) for part in data]
    rows = list[LayerValue]()
    for name, model, views in each_encoder(encoder, layers, usual="average", device=device):
        cosines = [pair_cosines(model, part, views, batch_tokens=batch_tokens) for part in data]
        for k, view in enumerate(views):
            if len(data) == 1:
                ours, theirs = cosines[0][k], human[0]
                values: tuple[float, ...] = (100 * spearman(ours, theirs),)
                spread = score_interval(lambda n, a=ours, b=theirs: spearman(a[n], b[n]), len(theirs))  # type: ignore[misc]
            else:
                answers = [value > 0.5 for value in human]
                cut = fit_threshold(cosines[0][k], answers[0])
                right = [threshold_accuracy(c[k], a, cut) for c, a in zip(cosines, answers, strict=True)]
                values = (100 * right[1], 100 * right[0], cut)
                spread = mean_interval((cosines[1][k] >= cut) == answers[1])
            rows.append(LayerValue(name, view.name, values, 100 * spread.low, 100 * spread.high))
    heads = ("correlation",) if len(data) == 1 else ("accuracy", "on the first", "cosine from")
    about = f"{len(data[-1]):,} pairs" if len(data) == 1 else f"{len(data[1]):,} pairs, fitted on {len(data[0]):,}"
    give_out(heads, rows, keys=heads, about=about, json_output=json_output, output=output)
    if plot is not None:
        axis = "Spearman's correlation with ratings, x 100" if len(data) == 1 else "right answers, %"
        most = max(float((human[-1] > 0.5).mean()), float((human[-1] <= 0.5).mean()))  # always the same answer
        chance = 0.0 if len(data) == 1 else 100 * most
        told = f"{', '.join(dict.fromkeys(row.encoder for row in rows))}; {', '.join(files)}, {about}"
        draw_values(rows, plot, title="Words in context", axis=axis, about=told, chance=chance)
