"""`elmokit wsd`: word senses by nearest centroid, layer by layer."""

from pathlib import Path
from typing import Annotated

import typer

from elmokit.cli.flags import OLD_MEASURING, BatchTokens, Device, EncodersOption, Json, JsonFile, Plot, old_spellings
from elmokit.cli.layer_values import LAYERS_HELP


@old_spellings(OLD_MEASURING)
def wsd(
    train: Annotated[list[str], typer.Argument(metavar="TRAIN", help="Sense-tagged text: SemCor as columns.")],
    data: Annotated[Path, typer.Option(metavar="FILE", help="Text to score: XML of the unified all-words evaluation.")],
    gold: Annotated[Path, typer.Option(metavar="FILE", help="Its gold keys.")],
    index: Annotated[Path, typer.Option(metavar="FILE", help="WordNet's index.sense.")],
    encoder: EncodersOption = None,
    layers: Annotated[list[str] | None, typer.Option(help=LAYERS_HELP)] = None,
    per_sense: Annotated[int, typer.Option(help="Train on this many sentences of each sense; 0: all.", min=0)] = 0,
    plot: Plot = None,
    json_output: Json = False,
    output: JsonFile = None,
    batch_tokens: BatchTokens = None,
    device: Device = "auto",
) -> None:
    """Measure how well each layer tells word senses apart.

        elmokit wsd semcor/*.tsv --index index.sense \\
            --data senseval2.data.xml --gold senseval2.gold.key.txt

    The vectors of all training occurrences of a sense are averaged, and a word takes the sense of its lemma whose
    average is nearest. A lemma that is not in the training text takes its first sense in WordNet. Training files have
    the columns word, lemma, tag and sense keys, as in SemCor; keys that are not in the index are dropped.

    Shows the accuracy on the instances whose lemma is in the training text, and on all. The last two rows do not look
    at the context: WordNet's first sense, and the most frequent sense of the training text.
    """
    from elmokit.analysis.sense_files import read_all_words, read_semcor, read_sense_index, unescape_senses
    from elmokit.analysis.senses import count_senses, few_per_sense, score_senses, train_centroids
    from elmokit.cli.layer_values import LayerValue, draw_values, each_encoder, give_out
    from elmokit.errors import InputError
    from elmokit.formats import expand_inputs, read_lines

    known = read_sense_index(read_lines(index), name=str(index))
    test = [unescape_senses(tagged) for tagged in read_all_words(data, gold)]
    text = [
        unescape_senses(tagged)
        for path in expand_inputs(train)
        for tagged in read_semcor(read_lines(path), name=str(path), known=known)
    ]
    if not any(tagged.instances for tagged in text):
        raise InputError(f"{', '.join(train)}: no word has a sense of {index}; do the keys belong to another WordNet?")
    frequencies = count_senses(text)
    lemmas = {instance.lemma for tagged in test for instance in tagged.instances}
    kept = few_per_sense(text, lemmas, most=per_sense or len(text))  # those without a lemma of the test change nothing
    rows, baselines = list[LayerValue](), list[LayerValue]()
    for name, model, views in each_encoder(encoder, layers, usual="average", device=device):
        typer.echo(f"  training on {len(kept):,} sentences", err=True)
        centroids = train_centroids(model, kept, views=views, batch_tokens=batch_tokens)
        found = score_senses(
            model, centroids, test, known, views=views, frequencies=frequencies, batch_tokens=batch_tokens
        )
        scores = zip(found.layer_names, found.layers, found.layers_all, found.intervals, strict=True)
        rows += [
            LayerValue(name, view, (100 * covered, 100 * every), 100 * spread.low, 100 * spread.high)
            for view, covered, every, spread in scores
        ]
        first, frequent = (found.first_sense, found.first_sense_all), (found.most_frequent, found.most_frequent_all)
        baselines = [
            LayerValue("without vectors", "first sense", (100 * first[0], 100 * first[1])),
            LayerValue("without vectors", "most frequent", (100 * frequent[0], 100 * frequent[1])),
        ]
    heads, all_rows = (f"{found.covered:,} covered", f"all {found.instances:,}"), [*rows, *baselines]
    give_out(heads, all_rows, keys=("covered", "all"), json_output=json_output, output=output)
    if plot is not None:
        about = f"{', '.join(dict.fromkeys(row.encoder for row in rows))}; {data.name}, {found.covered:,} instances"
        title = "Word senses by nearest centroid"
        draw_values(all_rows, plot, title=title, axis="right, % of covered", about=about)
