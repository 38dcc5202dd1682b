"""`elmokit pretrain` and `elmokit finetune`: raw text in, model out. Every field of the configuration is a flag."""

from pathlib import Path
from typing import Annotated, Any

import typer

from elmokit.cli.flags import BiLMOption, Config, Device, Quiet, with_fields
from elmokit.errors import InputError
from elmokit.pretrain.config import PRESETS, load_config, load_finetune_config

Corpus = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="CORPUS",
        help="Text, JSONL or Parquet files (also gz, xz, zst), folders, globs. None: the text in --prepared.",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FOLDER", help="Folder of the run; resumes an unfinished run in it."),
]
HeldOut = Annotated[
    list[str] | None,
    typer.Option("--heldout-corpus", metavar="FILE", help="Validate on this text, not on a share of the corpus."),
]
Prepared = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Keep the prepared text here, for several runs to share; without CORPUS, train on what is here.",
    ),
]
PrepareOnly = Annotated[
    bool,
    typer.Option("--prepare-only", help="Train nothing: prepare the text in --prepared, for runs here or elsewhere."),
]
Teacher = Annotated[
    str | None,
    typer.Option(metavar="MODEL", help="Learn to predict the layers of this model, too; see --distil."),
]


def pretrain_command(
    corpus: Corpus = None,
    output: Output = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Train nothing: count the text and say what to train and how long it takes.")
    ] = False,
    preset: Annotated[str, typer.Option(metavar="|".join(PRESETS), help="Size of the model.")] = "medium",
    config: Config = None,
    heldout_corpus: HeldOut = None,
    prepared: Prepared = None,
    prepare_only: PrepareOnly = False,
    teacher: Teacher = None,
    device: Device = "auto",
    quiet: Quiet = False,
    **flags: Any,
) -> None:
    """Train a new model on raw text.

    Counts the words, builds the vocabulary, sets a share of the text aside, trains and validates. The best model so
    far is in OUTPUT/model. Stop the run at any time: the same command resumes it from the last checkpoint.

        elmokit pretrain --plan wiki/*.txt.xz --tokenizer unicode
        elmokit pretrain wiki/*.txt.xz -o run --preset medium
        elmokit pretrain corpus.txt -o run --preset tiny --epochs 3
        elmokit pretrain text.jsonl -o run --text-field body --tokenizer unicode
        elmokit pretrain corpus/ -o run --config my.toml --minutes 120
        elmokit pretrain corpus/ -o smaller --preset small --teacher run/model
        elmokit pretrain corpus/ --prepared text --prepare-only
        elmokit pretrain --prepared text -o run
        torchrun --nproc-per-node 4 -m elmokit pretrain corpus/ -o run

    The defaults below are those of the preset medium.
    """
    settings = load_config(preset, file=config, flags=flags)
    folder = run_folder(output, corpus, prepared, needed=not (plan or prepare_only))
    from elmokit.pretrain import command  # torch loads here, once the settings are sound

    if plan:
        command.show_plan(settings, corpus or (), device=device)
    elif prepare_only:
        command.prepare_only(settings, corpus or (), prepared, heldout=heldout_corpus, show=not quiet)
    else:
        command.start_pretraining(
            settings, corpus, folder,
            heldout=heldout_corpus, prepared=prepared, teacher=teacher, device=device, show=not quiet,
        )  # fmt: skip


def run_folder(output: Path | None, corpus: list[str] | None, prepared: Path | None, *, needed: bool) -> Path:
    """The folder of a run, if one is needed, with its text; without a run, a text is a corpus."""
    if not corpus and (prepared is None or not needed):
        more = ", or with --prepared FOLDER text that was prepared before" if needed else ""
        raise InputError(f"no text was given; name a corpus{more}")
    if output is None and needed:
        raise InputError("no folder for the run was given; say where with -o FOLDER")
    return output or Path()


def finetune_command(
    corpus: Corpus = None,
    output: Output = None,
    model: BiLMOption = None,
    config: Config = None,
    heldout_corpus: HeldOut = None,
    prepared: Prepared = None,
    prepare_only: PrepareOnly = False,
    new_softmax: Annotated[
        bool,
        typer.Option("--new-softmax", help="Learn a new softmax for the words of the corpus, even if there is one."),
    ] = False,
    teacher: Teacher = None,
    device: Device = "auto",
    quiet: Quiet = False,
    **flags: Any,
) -> None:
    """Train a model further on text of your own domain.

    Takes models in elmokit's own format, official HDF5 or ELMoForManyLangs. A model with a softmax keeps it and its
    vocabulary. A model without one learns a new softmax first, with the rest frozen, and then all weights. Shows the
    perplexity of held-out text before and after.

        elmokit finetune reviews.txt -o tuned
        elmokit finetune law/*.txt.gz -o tuned --epochs 2 --model weights.hdf5
        elmokit finetune text.txt -o tuned --lines sentences --model manylangs/
        elmokit finetune text.txt --prepared ready --prepare-only
        elmokit finetune --prepared ready -o tuned

    The model is in OUTPUT/model; a model that came as HDF5 is also in OUTPUT/official. Stop the run at any time: the
    same command resumes it.
    """
    settings = load_finetune_config(file=config, flags=flags)
    folder = run_folder(output, corpus, prepared, needed=not prepare_only)
    from elmokit.pretrain import command  # torch loads here, once the settings are known to be sound

    if prepare_only:
        command.prepare_only(
            settings, corpus or (), prepared,
            model=model, heldout=heldout_corpus, new_softmax=new_softmax, show=not quiet,
        )  # fmt: skip
    else:
        command.start_finetuning(
            settings, model, corpus, folder,
            heldout=heldout_corpus, prepared=prepared, new_softmax=new_softmax, teacher=teacher, device=device,
            show=not quiet,
        )  # fmt: skip


pretrain_command = with_fields(pretrain_command, load_config("medium"))
finetune_command = with_fields(finetune_command, load_finetune_config(), without=["model"])
