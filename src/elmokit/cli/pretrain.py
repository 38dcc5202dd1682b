"""`elmokit pretrain`: raw text in, model out. Every field of the configuration is a flag."""

import inspect
from collections.abc import Collection
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer

from elmokit.pretrain.config import PRESETS, load_config

Corpus = Annotated[
    list[str], typer.Argument(help="files (txt, gz, xz, zst, jsonl, parquet), folders or globs", metavar="CORPUS")
]
Output = Annotated[
    Path, typer.Option("-o", "--output", help="the run's folder; an unfinished run there is gone on with")
]
Preset = Annotated[str, typer.Option(help=f"the model's size: {', '.join(PRESETS)}")]
Config = Annotated[Path | None, typer.Option(help="a TOML file of the fields below")]
HeldOut = Annotated[list[str] | None, typer.Option("--heldout-corpus", help="validate on this text, not on a share")]
Prepared = Annotated[Path | None, typer.Option(help="folder of the prepared text, for several runs to share")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N; auto is a GPU if there is one")]
Quiet = Annotated[bool, typer.Option("--quiet", help="no progress display; the log is written all the same")]


def pretrain(
    corpus: Corpus,
    output: Output,
    preset: Preset = "medium",
    config: Config = None,
    heldout_corpus: HeldOut = None,
    prepared: Prepared = None,
    device: Device = "auto",
    quiet: Quiet = False,
    **flags: Any,
) -> None:
    """Pre-train a biLM from raw text.

    Counts the words, builds the vocabulary, sets a held-out part aside, trains, validates and saves; the model is in
    OUTPUT/model. Stop it at any time: the same command goes on from the last checkpoint. Defaults of the model's and
    the training's fields are those of the preset medium.

        elmokit pretrain wiki/*.txt.xz -o run --preset medium
        elmokit pretrain corpus.txt -o run --preset tiny --epochs 3
        elmokit pretrain text.jsonl -o run --text-field body --tokenizer unicode
        elmokit pretrain corpus/ -o run --config my.toml --minutes 120
        torchrun --nproc-per-node 4 -m elmokit pretrain corpus/ -o run
    """
    settings = load_config(preset, file=config, flags=flags)
    from elmokit.pretrain.command import start_pretraining  # torch loads here, once the settings are known to be sound

    start_pretraining(
        settings, corpus, output, heldout=heldout_corpus, prepared=prepared, device=device, show=not quiet
    )


def with_fields(command: Any, *configs: Any, without: Collection[str] = ()) -> Any:
    """The command with an option for each field of its configurations in place of its `**flags`.

    `configs` are dataclasses with the defaults that the help shows; fields of the parts `without` are left out.
    """
    signature = inspect.signature(command)
    own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    options = []
    every = [(usual, get_type_hints(type(usual)), field) for usual in configs for field in fields(usual)]
    for usual, hints, field in every:
        if field.metadata.get("part") in without:
            continue
        hint = hints[field.name]
        kind = hint if hint in (int, float, bool) else str
        choices = "|".join(get_args(hint)) if get_origin(hint) is Literal else None
        shown = _shown(getattr(usual, field.name))
        note = typer.Option(help=field.metadata["help"], metavar=choices, show_default=shown)
        options.append(
            inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, note]
            )
        )
    command.__signature__ = signature.replace(parameters=[*own, *options])
    command.__annotations__ = {p.name: p.annotation for p in (*own, *options)}
    return command


def _shown(value: Any) -> str:
    if isinstance(value, tuple):  # filters
        return ",".join(f"{width}:{n}" for width, n in value)
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else f"{value}"


pretrain = with_fields(pretrain, load_config("medium"))
