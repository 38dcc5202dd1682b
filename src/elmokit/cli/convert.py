"""`elmokit convert`: a model, or a task model, from one form to another."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Target(StrEnum):
    elmokit = "elmokit"
    official = "official"


class Numbers(StrEnum):
    float32 = "float32"
    float16 = "float16"
    bfloat16 = "bfloat16"
    int8 = "int8"
    int4 = "int4"


def convert(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="Model folder, archive, .hdf5 file, hub id, bundled name or task model."),
    ],
    output: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the converted model goes.")],
    *,
    to: Annotated[
        Target, typer.Option(help="elmokit: safetensors; official: HDF5 with options.json.")
    ] = Target.elmokit,
    dtype: Annotated[
        Numbers | None,
        typer.Option(help="Type of the stored numbers; default: unchanged. Only elmokit's format has int8 and int4."),
    ] = None,
    softmax: Annotated[bool, typer.Option(help="Keep the output layer, if the model has one.")] = True,
    softmax_words: Annotated[
        int | None, typer.Option(min=1, help="Keep only this many words of the output layer, the most frequent.")
    ] = None,
    calibrate: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="With int4: choose the numbers for text like this; may be given again."),
    ] = None,
    whiten: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="Turn the vectors into a basis in which those of this text spread evenly; may be given again.",
        ),
    ] = None,
    whiten_strength: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, help="With --whiten: from 0 (no change) to 1 (all directions equally strong); default: 1."
        ),
    ] = None,
    temper: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="Fit two numbers of the output layer to this text: a factor of all scores, and the bias of <UNK>; may "
            "be given again.",
        ),
    ] = None,
    cell_dim: Annotated[
        int | None, typer.Option(min=1, help="Make the LSTMs wider: cells in each. The model computes the same.")
    ] = None,
    projection_dim: Annotated[
        int | None, typer.Option(min=1, help="Make the vectors wider: numbers in each direction's.")
    ] = None,
    options: Annotated[Path | None, typer.Option(help="options.json, if it is not beside the weights.")] = None,
    vocabulary: Annotated[Path | None, typer.Option(help="vocab.txt, if it is not beside the weights.")] = None,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub id.")] = None,
    licence: Annotated[str | None, typer.Option(help="The model's licence, for its card, such as cc-by-4.0.")] = None,
    language: Annotated[str | None, typer.Option(help="The model's language, for its card, such as en.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a model that is already there.")] = False,
) -> None:
    """Convert a model between the official format, ELMoForManyLangs' and elmokit's own.

        elmokit convert elmo-original/ my-elmo/
        elmokit convert 144.zip english/ --licence cc-by-4.0 --language en
        elmokit convert my-elmo/ small/ --dtype int4 --softmax-words 30000
        elmokit convert my-elmo/ small/ --dtype int4 --calibrate corpus.txt
        elmokit convert my-elmo/ even/ --whiten corpus.txt
        elmokit convert my-elmo/ small/ --softmax-words 30000 --temper corpus.txt
        elmokit convert my-elmo/ for-allennlp/ --to official
        elmokit convert my-elmo/ wider/ --cell-dim 4096 --projection-dim 512
        elmokit convert ner-model/ small-ner/ --dtype int8

    A conversion from official to elmokit's format and back gives the same weights, bit for bit, unless --dtype changes
    them. ELMoForManyLangs models cannot become official ones, since that format has no place for their
    dictionaries.

    A whitened model predicts what it did before, but its vectors (of the LSTM layers) no longer lie along a few
    directions, so that their cosines say more.

    With fewer words in its output layer a model is too sure of its predictions, and expects too few words that it
    does not know. --temper puts that right; vectors stay as they are. Give text of the kind that it will predict.

    A wider model predicts what the narrow one did, until `elmokit finetune` trains it further: new cells and numbers
    begin with fresh weights that nothing reads yet.
    """
    from dataclasses import replace

    from rich.filesize import decimal

    from elmokit._terminal import Console
    from elmokit.cli.info import size_of
    from elmokit.errors import WeightsError
    from elmokit.tasks.saved import convert_task_model, is_task_model
    from elmokit.weights import Dtype, load_pretrained, save_pretrained
    from elmokit.weights.bundled import find_task_model
    from elmokit.weights.calibrate import first_sentences, input_moments
    from elmokit.weights.temper import temper as fit_scores
    from elmokit.weights.whiten import whiten as make_even
    from elmokit.weights.widen import widen

    if whiten_strength is not None and not whiten:
        raise WeightsError("--whiten-strength goes with --whiten; give that and a text, too, or leave it out")
    for flag, wanted in (("--softmax-words", softmax_words), ("--temper", temper)):
        if wanted and not softmax:
            raise WeightsError(f"{flag} changes the output layer, which --no-softmax leaves out; give one of the two")
    folder = find_task_model(model)
    is_task = is_task_model(folder)
    _check_target(output, "a task model" if is_task else "a model", overwrite=overwrite)
    numbers: Dtype | None = None if dtype is None else dtype.value
    told = Console(highlight=False, stderr=True, soft_wrap=True)
    if is_task:
        of_models = (options, vocabulary, revision, licence, language)
        changes = (softmax_words, calibrate, whiten, temper, cell_dim, projection_dim)
        if to is Target.official or any(of_models) or any(changes) or not softmax:
            raise WeightsError(f"{folder}: a task model; of the options, only --dtype and --overwrite fit it")
        convert_task_model(folder, output, dtype=numbers)
        told.print(f"{folder} is now {output} ({decimal(size_of(output))})", markup=False)
        return
    pretrained = load_pretrained(model, revision=revision, options=options, vocabulary=vocabulary, softmax=softmax)
    came = pretrained.format
    if numbers is None and to is Target.elmokit and not whiten:  # which changes every number
        numbers = pretrained.packed_as  # also where something else changes
    notes = {name: value for name, value in (("licence", licence), ("language", language)) if value is not None}
    pretrained = replace(pretrained, extra=pretrained.extra | notes)
    if softmax_words is not None:
        pretrained = pretrained.with_words(softmax_words)
    if cell_dim is not None or projection_dim is not None:
        pretrained = widen(pretrained, cell_dim=cell_dim, projection_dim=projection_dim)
    if whiten:
        seen = input_moments(pretrained, first_sentences(pretrained, whiten))
        pretrained = make_even(pretrained, seen, strength=1.0 if whiten_strength is None else whiten_strength)
    if temper:
        pretrained, fit = fit_scores(pretrained, first_sentences(pretrained, temper))
        scores = f"scores are now {fit.factor:.3f} times what they were, that of <UNK> {fit.unknown:+.2f}"
        told.print(scores, markup=False)
    moments = None
    if calibrate:
        if numbers != "int4" or to is Target.official:
            raise WeightsError("--calibrate goes with --dtype int4, in elmokit's own format")
        moments = input_moments(pretrained, first_sentences(pretrained, calibrate))
    save_pretrained(
        pretrained, output, format=to.value, dtype=numbers, softmax=softmax, overwrite=overwrite, moments=moments
    )
    made = f"{pretrained.source} ({came}) is now {output} ({to.value}, {decimal(size_of(output))})"
    told.print(made, markup=False)


def _check_target(folder: Path, kind: str, *, overwrite: bool) -> None:
    """Refuses a folder with something else than a model of this kind in it; with such a model, unless `overwrite`."""
    from elmokit.errors import WeightsError

    there, file = _find_there(folder)
    if there and there != kind:
        raise WeightsError(f"{folder}: holds {there} ({file}), which {kind} cannot replace; give another folder")
    if there and not overwrite:
        raise WeightsError(f"{folder}: {kind} is there already ({file}); give another folder, or --overwrite")


def _find_there(folder: Path) -> tuple[str, str]:
    """What a folder holds that a model's files would replace or mix with, and the file that says so."""
    from elmokit.tasks.run import CHECKPOINT
    from elmokit.tasks.saved import CONFIG, is_task_model
    from elmokit.weights.described import is_own_model

    if is_task_model(folder):
        return "a task model", CONFIG
    if is_own_model(folder):
        return "a model", CONFIG
    if (config := folder / CONFIG).is_file():
        return "a training run" if b'"learning_rate"' in config.read_bytes() else "something else", CONFIG
    others = {"options.json": "a model", CHECKPOINT: "an unfinished training", "manifest.json": "a prepared corpus"}
    return next(((what, file) for file, what in others.items() if (folder / file).exists()), ("", ""))
