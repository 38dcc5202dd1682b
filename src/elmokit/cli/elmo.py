"""`elmokit elmo`: AllenNLP's `elmo` command, for scripts that called it."""

from pathlib import Path
from typing import Annotated

import typer


def elmo(
    input_file: Annotated[
        Path, typer.Argument(help="One tokenised sentence per line; also .gz, .xz, .zst; - for standard input.")
    ],
    output_file: Annotated[Path, typer.Argument(help="HDF5 file to write; it appears when it is complete.")],
    all_layers: Annotated[bool, typer.Option("--all", help="Write all layers: (layers, tokens, width).")] = False,
    top: Annotated[bool, typer.Option("--top", help="Write the top layer: (tokens, width).")] = False,
    average: Annotated[bool, typer.Option("--average", help="Write the mean of all layers: (tokens, width).")] = False,
    options_file: Annotated[
        str | None,
        typer.Option(help="options.json of the model; or, without --weight-file, a model folder, archive or hub id."),
    ] = None,
    weight_file: Annotated[str | None, typer.Option(help="HDF5 weights of the model.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Sentences in a batch; the carried state depends on it.")] = 64,
    cuda_device: Annotated[int, typer.Option(help="Number of the GPU; -1 for the CPU.")] = -1,
    forget_sentences: Annotated[bool, typer.Option("--forget-sentences", help="Leave out sentence_to_index.")] = False,
    use_sentence_keys: Annotated[
        bool, typer.Option("--use-sentence-keys", help="Name datasets by sentence, not by line number.")
    ] = False,
    stateless: Annotated[bool, typer.Option("--stateless", help="Start every sentence from a zero state.")] = False,
) -> None:
    """Embed a file as AllenNLP's elmo command did.

    Takes the same arguments. The state is carried from batch to batch. --options-file alone can name a whole model:

        elmokit elmo sentences.txt vectors.hdf5 --all --options-file MODEL
        elmokit elmo in.txt.gz out.hdf5 --top --options-file options.json \\
          --weight-file weights.hdf5
    """
    chosen = [name for name, on in (("all", all_layers), ("top", top), ("average", average)) if on]
    if len(chosen) != 1:
        given = " and ".join(f"--{name}" for name in chosen) or "none of them"
        raise typer.BadParameter(f"exactly one of --all, --top and --average is required, got {given}")

    from elmokit.compat.allennlp import ElmoEmbedder
    from elmokit.compat.allennlp.embedder import embed_lines
    from elmokit.formats.streams import read_lines

    embedder = ElmoEmbedder(options_file, weight_file, cuda_device, stateful=not stateless)
    embed_lines(
        embedder.embed_sentences,
        read_lines(input_file),
        output_file,
        output_format=chosen[0],
        batch_size=batch_size,
        forget_sentences=forget_sentences,
        use_sentence_keys=use_sentence_keys,
    )
