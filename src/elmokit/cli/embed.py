"""`elmokit embed`: text to vectors, on the screen or in a file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from elmokit.formats import ReadReport
    from elmokit.store import StoreOptions, StoreReport


def embed(
    inputs: Annotated[
        list[str],
        typer.Argument(metavar="FILE|TEXT", help="Files, folders, patterns, - for standard input, or text itself."),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write: .h5, .hdf5, .parquet, .npz or .safetensors."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="Model folder, archive or hub id, bert:NAME, gpt:NAME, or static vectors; default bundled.",
        ),
    ] = None,
    layers: Annotated[
        str, typer.Option(help="all, top, 0, average, average:1,2, concat:1,2, weights:.2,.3,.5, second-to-last ...")
    ] = "average",
    tokenized: Annotated[
        bool, typer.Option("--tokenized", help="Text is already tokenised: tokens stand between spaces.")
    ] = False,
    tokenizer: Annotated[str | None, typer.Option(help="english, unicode or whitespace; default the model's.")] = None,
    allow_other_tokenizer: Annotated[
        bool, typer.Option("--allow-other-tokenizer", help="Run a model with a tokenizer it was not trained with.")
    ] = False,
    subwords: Annotated[
        str | None, typer.Option(help="BERT, GPT: a word is its first, last, mean or first+last subword.")
    ] = None,
    unknown: Annotated[str | None, typer.Option(help="Static vectors: unknown words get zero, mean or error.")] = None,
    format: Annotated[str, typer.Option(help="auto (by file name), text, jsonl, conllu, columns or parquet.")] = "auto",
    field: Annotated[str, typer.Option(help="The JSON field or Parquet column that holds text or tokens.")] = "text",
    batch_tokens: Annotated[int | None, typer.Option(help="Positions per batch; default by device.", min=1)] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    dtype: Annotated[
        str,
        typer.Option(help="float32, bfloat16, float16, float64, on a CPU int8; auto: fastest; default: as stored."),
    ] = "default",
    normalise: Annotated[bool, typer.Option("--normalise", help="Vectors of length 1.")] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Throw away what an unfinished run has left, and start again.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Write the file again, even if it is finished.")
    ] = False,
    use_sentence_keys: Annotated[
        bool, typer.Option("--use-sentence-keys", help="HDF5: key by sentence instead of line number.")
    ] = False,
    forget_sentences: Annotated[
        bool, typer.Option("--forget-sentences", help="HDF5: leave the index of sentences out.")
    ] = False,
) -> None:
    """Turn text into vectors, one per token.

    Without -o the vectors are shown in a form to look at:

        elmokit embed "He sat on the river bank." "She went to the bank."

    With -o they go to a file. A line is a sentence; the file may be compressed (gz, xz, zst, bz2) or be standard input:

        elmokit embed corpus.txt.gz -o vectors.h5 --layers all
        zcat corpus.gz | elmokit embed - -o vectors.parquet --tokenized
        elmokit embed reviews.jsonl --field body -o vectors.npz

    The model may also be one of transformers (a folder or a name on the hub) or a file of static vectors:

        elmokit embed corpus.txt -o bert.h5 -m bert:google-bert/bert-base-cased
        elmokit embed corpus.txt -o glove.h5 -m glove.6B.100d.txt --unknown mean

    HDF5 has the layout of AllenNLP's elmo command: a dataset per line, named by its number from 0.

    The file appears when it is complete. The same command again resumes an unfinished run; of a finished one it says
    so and does nothing, unless the input has changed. `elmokit info FILE` shows how a file was made.
    """
    from elmokit.cli.inputs import is_source, name_inputs, read_inputs
    from elmokit.cli.progress import embedding
    from elmokit.encoders import load_encoder
    from elmokit.formats import ReadReport
    from elmokit.layers import LayerChoice
    from elmokit.store import StoreOptions, write_vectors
    from elmokit.store.write import check_target
    from elmokit.text import load_tokenizer

    LayerChoice.parse(layers)
    for argument in inputs:  # a mistyped file name is told before a model is loaded
        is_source(argument)
    if output is not None:
        check_target(output)
    encoder = load_encoder(
        model,
        device=device,
        dtype=dtype,
        tokenizer=tokenizer,
        allow_other_tokenizer=allow_other_tokenizer,
        subwords=subwords,  # type: ignore[arg-type]
        unknown=unknown,  # type: ignore[arg-type]
    )
    read = ReadReport()
    cut = load_tokenizer("whitespace") if tokenized else encoder.tokenizer
    sentences = read_inputs(inputs, tokenizer=cut, format=format, field=field, report=read)
    if output is None:
        from elmokit.cli.show import show_vectors

        show_vectors(encoder, sentences, layers=layers, batch_tokens=batch_tokens, normalise=normalise)
        return
    options = StoreOptions(
        layers=layers,
        batch_tokens=batch_tokens,
        normalise=normalise,
        use_sentence_keys=use_sentence_keys,
        forget_sentences=forget_sentences,
    )
    name = name_inputs(inputs, format=format, field=field, tokenized=tokenized)
    with embedding(inputs, output, read) as told:
        done = write_vectors(
            encoder, sentences, output, options=options, name=name, restart=restart, overwrite=overwrite, told=told
        )
    _tell(done, read, output, options, longest_word=encoder.longest_word)


def _tell(
    done: "StoreReport", read: "ReadReport", output: Path, options: "StoreOptions", *, longest_word: int | None
) -> None:
    """What was written, and what was met on the way: nothing is dropped or changed in silence."""
    if done.known:
        typer.echo(
            f"{output}: finished already, with the same input and settings: {done.sentences:,} sentences, "
            f"{done.tokens:,} tokens; --overwrite writes it again",
            err=True,
        )
        return
    keyed = options.use_sentence_keys and output.suffix.lower() in (".h5", ".hdf5")
    typer.echo(f"{output}: {done.sentences:,} sentences, {done.tokens:,} tokens", err=True)
    notes = [
        ("taken over from an earlier run", done.resumed_at, ""),
        ("empty sentences, blank lines among them", done.empty, "left out" if keyed else "kept without vectors"),
        ("repeated sentences", done.duplicates, "written once" if keyed else "written each time"),
        (f"words over {longest_word} characters or bytes", done.overlong_words, "cut there, as in training"),
        ("words that the model does not know", done.unknown_words, "kept in their place"),
        ("bytes that are not UTF-8", read.bad_bytes, "read as U+FFFD"),
    ]
    for what, count, how in notes:
        if count:
            typer.echo(f"  {what}: {count:,}" + (f" ({how})" if how else ""), err=True)
    if keyed:
        typer.echo("  keys are the sentences, with U+2215 for slashes", err=True)
    if not done.sentences:
        typer.echo("  the input held no sentences", err=True)
