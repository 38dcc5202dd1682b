"""`elmokit manylangs`: the command of ELMoForManyLangs, for scripts that called it."""

from pathlib import Path
from typing import Annotated

import typer


def manylangs(
    action: Annotated[str, typer.Argument(metavar="[test]", help="Optional; the older command had it.")] = "test",
    *,
    input: Annotated[Path, typer.Option("--input", help="File to embed; also .gz, .xz, .zst; - for standard input.")],
    model: Annotated[str, typer.Option("--model", "-m", help="Model folder, archive, manylangs:CODE or hub id.")],
    output_prefix: Annotated[
        str, typer.Option("--output_prefix", "--output-prefix", help="Files are named PREFIX.lyLAYER.FORMAT.")
    ],
    input_format: Annotated[
        str,
        typer.Option(
            "--input_format", "--input-format", metavar="FORMAT", help="plain, conll, conll_char or conll_char_vi."
        ),
    ] = "plain",
    output_format: Annotated[
        str, typer.Option("--output_format", "--output-format", metavar="FORMATS", help="hdf5, txt, or both: hdf5,txt.")
    ] = "hdf5",
    output_layer: Annotated[
        str,
        typer.Option("--output_layer", "--output-layer", metavar="LAYERS", help="0, 1, 2, -1 (mean), or several."),
    ] = "-1",
    gpu: Annotated[int, typer.Option("--gpu", help="Number of the GPU; -1 for the CPU.")] = -1,
    batch_size: Annotated[int, typer.Option("--batch_size", "--batch", "--batch-size", help="No effect.")] = 1,
) -> None:
    """Embed a file as `python -m elmoformanylangs test` did.

    Takes the same arguments and writes the same files:

        elmokit manylangs test --input_format conll --input in.conllu \\
          --model manylangs:fi --output_prefix out --output_layer -1,2

    `plain` has words between tabs. Every sentence starts from a zero state.
    """
    if action != "test":
        raise typer.BadParameter(f"{action!r} is not there; the command is `elmokit manylangs [test] --input ...`")
    try:
        layers = [int(layer) for layer in output_layer.split(",")]
    except ValueError:
        raise typer.BadParameter(f"--output_layer is {output_layer!r}; expected numbers, as -1 or 0,1,2") from None

    from elmokit.compat.manylangs import Embedder, read_sentences, write_layers

    sentences = read_sentences(input, input_format)
    embedder = Embedder(model, batch_size, device="cpu" if gpu < 0 else f"cuda:{gpu}")
    for path in write_layers(embedder, sentences, output_prefix, layers=layers, formats=output_format.split(",")):
        typer.echo(f"{path}: {len(sentences):,} sentences", err=True)
