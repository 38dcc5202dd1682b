"""`elmokit finetune`: a loaded model learns on from domain text. Fields of the configuration are flags."""

from typing import Annotated, Any

import typer

from elmokit.cli.pretrain import Config, Corpus, Device, HeldOut, Output, Quiet, with_fields
from elmokit.pretrain.config import load_finetune_config

Model = Annotated[
    str | None,
    typer.Option("--model", "-m", help="model folder, archive, .hdf5 file or hub id; default the bundled one"),
]
NewSoftmax = Annotated[
    bool, typer.Option("--new-softmax", help="learn a new softmax, with the corpus's words, even if the model has one")
]


def finetune(
    corpus: Corpus,
    output: Output,
    model: Model = None,
    config: Config = None,
    heldout_corpus: HeldOut = None,
    new_softmax: NewSoftmax = False,
    device: Device = "auto",
    quiet: Quiet = False,
    **flags: Any,
) -> None:
    """Fine-tune a model on domain text, as a language model.

    From elmokit's own format, official HDF5 or ELMoForManyLangs. A model with softmax keeps it and its vocabulary; one
    without learns a new softmax first, the rest frozen, then all. Held-out perplexity is told before and after. The
    model is in OUTPUT/model, of an HDF5 source also in OUTPUT/official. Stop it at any time: the same command goes on.

        elmokit finetune reviews.txt -o tuned
        elmokit finetune law/*.txt.gz -o tuned --epochs 2 --model weights.hdf5
        elmokit finetune text.txt -o tuned --lines sentences --model manylangs/
    """
    settings = load_finetune_config(file=config, flags=flags)
    from elmokit.pretrain.command import start_finetuning  # torch loads here, once the settings are known to be sound

    start_finetuning(
        settings, model, corpus, output,
        heldout=heldout_corpus, new_softmax=new_softmax, device=device, show=not quiet,
    )  # fmt: skip


finetune = with_fields(finetune, load_finetune_config(), without=["model"])
