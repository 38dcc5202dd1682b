"""`elmokit embed`: text to vectors, on the screen or in a file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elmokit.cli.flags import (
    Address,
    BatchTokens,
    Device,
    EmbedWorkers,
    EncoderOption,
    Engine,
    EngineOption,
    FormatOption,
    Json,
    Lines,
    LinesOption,
    PartRows,
    TextField,
    Tokenized,
    TokenizerName,
)

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
        typer.Option(
            "--output", "-o", metavar="FILE", help="File to write: .h5, .hdf5, .parquet, .npz or .safetensors."
        ),
    ] = None,
    json_output: Json = False,
    model: EncoderOption = None,
    layers: Annotated[
        str, typer.Option(help="all, top, 0, average, average:1,2, concat:1,2, weights:.2,.3,.5, second-to-last ...")
    ] = "average",
    lines: LinesOption = Lines.sentences,
    tokenized: Tokenized = False,
    tokenizer: TokenizerName = None,
    allow_other_tokenizer: Annotated[
        bool, typer.Option("--allow-other-tokenizer", help="Allow a tokenizer that the model was not trained with.")
    ] = False,
    subwords: Annotated[
        str | None, typer.Option(help="BERT, GPT: a word takes its first, last, mean or first+last subword.")
    ] = None,
    unknown: Annotated[str | None, typer.Option(help="Static vectors: unknown words get zero, mean or error.")] = None,
    format: FormatOption = "auto",
    field: TextField = "text",
    batch_tokens: BatchTokens = None,
    device: Device = "auto",
    dtype: Annotated[
        str,
        typer.Option(
            show_default=False,
            help="float32, bfloat16, float16, float64 or, on a CPU, int8; auto: the fastest; default: as stored.",
        ),
    ] = "default",
    normalise: Annotated[bool, typer.Option("--normalise", help="Scale every vector to length 1.")] = False,
    vectors: Annotated[
        str, typer.Option(metavar="TYPE", help="In the file: float32, or float16 for half the size.")
    ] = "float32",
    restart: Annotated[
        bool, typer.Option("--restart", help="Delete what an unfinished run left and start again.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Write the file again, even if it is finished.")
    ] = False,
    use_sentence_keys: Annotated[
        bool, typer.Option("--use-sentence-keys", help="HDF5: name datasets by sentence, not by number.")
    ] = False,
    forget_sentences: Annotated[
        bool, typer.Option("--forget-sentences", help="HDF5: leave out sentence_to_index.")
    ] = False,
    engine: EngineOption = Engine.local,
    address: Address = None,
    workers: EmbedWorkers = None,
    part_rows: PartRows = None,
) -> None:
    """Turn text into vectors, one per token.

    Without -o, prints a preview of the vectors:

        elmokit embed "He sat on the river bank." "She went to the bank."

    With --json, prints them all, a sentence per line: its tokens and their vectors.

    With -o, writes them to a file. A line is a sentence. Input may be compressed (gz, xz, zst, bz2):

        elmokit embed corpus.txt.gz -o vectors.h5 --layers all
        zcat corpus.gz | elmokit embed - -o vectors.parquet --tokenized
        elmokit embed reviews.jsonl --field body -o vectors.npz

    The model may also be a BERT or GPT of the transformers library, or a file of static vectors:

        elmokit embed corpus.txt -o bert.h5 -m bert:google-bert/bert-base-cased
        elmokit embed corpus.txt -o glove.h5 -m glove.6B.100d.txt --unknown mean

    HDF5 files have the layout of AllenNLP's elmo command: a dataset per sentence, named by its number from 0.

    With --engine ray, workers on all cores, GPUs and machines of a Ray cluster write a folder of Parquet files:

        elmokit embed corpus.jsonl more.parquet -o vectors --engine ray

    The file appears when it is complete. The same command resumes an unfinished run, and does nothing if the file is
    finished and the input unchanged. `elmokit info FILE` shows how a file was made.
    """
    from elmokit.cli.inputs import choose_workers, is_source, name_inputs, read_inputs
    from elmokit.cli.progress import embedding, refuse_with_ray
    from elmokit.encoders import load_encoder
    from elmokit.errors import InputError
    from elmokit.formats import ReadReport, expand_inputs
    from elmokit.formats.ahead import Cutters
    from elmokit.layers import LayerChoice
    from elmokit.store import StoreOptions, write_vectors
    from elmokit.store.write import check_target
    from elmokit.text import load_tokenizer

    LayerChoice.parse(layers)
    if json_output and output is not None:
        raise InputError("--json prints the vectors, -o writes them to a file; give one of the two")
    if engine is Engine.ray:
        refuse_with_ray(
            tokenizer=tokenizer,
            subwords=subwords,
            unknown=unknown,
            lines=lines is Lines.paragraphs,
            format=format != "auto",
            vectors=vectors != "float32",
        )
        if workers == 0:
            raise InputError("--workers 0 was given with --engine ray, which needs one at least")
        given: dict[str, Any] = {"model": model, "layers": layers, "tokenized": tokenized, "field": field}
        given |= {"normalise": normalise, "batch_tokens": batch_tokens, "device": device, "dtype": dtype}
        given |= {"address": address, "workers": workers, "part_rows": part_rows, "restart": restart or overwrite}
        _embed_with_ray(inputs, output, **given)
        return
    named = [argument for argument in inputs if is_source(argument)]  # a wrong name is an error before a model loads
    if output is not None:
        check_target(output, expand_inputs(named))
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
    lines = Lines.sentences if tokenized else lines
    if output is None:
        from elmokit.cli.show import print_json, show_vectors

        sentences = read_inputs(inputs, tokenizer=cut, lines=lines, format=format, field=field, report=read)
        if json_output:
            found = encoder.stream(sentences, layers=layers, batch_tokens=batch_tokens, normalise=normalise)
            print_json({"tokens": sentence.tokens, "vectors": values.tolist()} for sentence, values in found)
            return
        show_vectors(encoder, sentences, layers=layers, batch_tokens=batch_tokens, normalise=normalise)
        return
    options = StoreOptions(
        layers=layers,
        batch_tokens=batch_tokens,
        normalise=normalise,
        vectors=vectors,  # type: ignore[arg-type]
        use_sentence_keys=use_sentence_keys,
        forget_sentences=forget_sentences,
    )
    split = {} if lines is Lines.sentences else {"lines": lines.value}
    name = name_inputs(inputs, format=format, field=field, tokenized=tokenized, **split)
    processes = choose_workers(workers, inputs, device=encoder.device.type)
    with embedding(inputs, output, read) as told, Cutters(cut, workers=processes, lines=lines.value) as cutters:
        done = write_vectors(
            encoder,
            read_inputs(
                inputs,
                tokenizer=cut,
                lines=lines,
                format=format,
                field=field,
                report=read,
                cutters=cutters if processes else None,
            ),
            output,
            options=options,
            name=name,
            restart=restart,
            overwrite=overwrite,
            told=told,
            beside=processes > 0,
        )
    _tell(done, read, output, options, lines=lines, longest_word=encoder.longest_word)


def _embed_with_ray(inputs: list[str], output: Path | None, **options: Any) -> None:
    from elmokit.cli.inputs import expand_addresses
    from elmokit.cli.progress import tell_counts, tell_parts, tell_workers
    from elmokit.errors import InputError
    from elmokit.integrations.ray import embed
    from elmokit.store.write import SUFFIXES

    if output is None or output.suffix.lower() in SUFFIXES:
        raise InputError(f"--engine ray writes a folder of Parquet files; give one with -o, not {output or 'nothing'}")
    done = embed(expand_addresses(inputs), output, told=tell_parts(), **options)
    typer.echo(f"{output}: {done.rows:,} rows, {done.tokens:,} tokens in {done.parts:,} parts", err=True)
    notes = [("parts of an earlier run", done.resumed, ""), ("empty rows", done.empty, "")]
    tell_counts([*notes, ("bad rows", done.bad, "set aside in part-*.bad.jsonl")])
    tell_workers(done)


def _tell(
    done: "StoreReport",
    read: "ReadReport",
    output: Path,
    options: "StoreOptions",
    *,
    lines: str,
    longest_word: int | None,
) -> None:
    """What was written, and what was odd in the input: nothing is dropped or changed in silence."""
    from elmokit.cli.progress import tell_counts
    from elmokit.cli.show import count
    from elmokit.formats.read import told_lines

    if done.known:
        typer.echo(
            f"{output}: finished already, with the same input and settings: {count(done.sentences, 'sentence')}, "
            f"{count(done.tokens, 'token')}; --overwrite writes it again",
            err=True,
        )
        return
    keyed = options.use_sentence_keys and output.suffix.lower() in (".h5", ".hdf5")
    typer.echo(f"{output}: {count(done.sentences, 'sentence')}, {count(done.tokens, 'token')}", err=True)
    typer.echo(f"  {told_lines(lines)}", err=True)
    notes = [
        ("taken over from an earlier run", done.resumed_at, ""),
        ("empty sentences, blank lines among them", done.empty, "left out" if keyed else "kept without vectors"),
        ("repeated sentences", done.duplicates, "written once" if keyed else "written each time"),
        (f"words over {longest_word} characters or bytes", done.overlong_words, "cut there, as in training"),
        ("words that the model does not know", done.unknown_words, "kept in their place"),
        ("bytes that are not UTF-8", read.bad_bytes, "read as U+FFFD"),
    ]
    tell_counts(notes)
    if keyed:
        typer.echo("  keys are the sentences, with U+2215 for slashes", err=True)
    if not done.sentences:
        typer.echo("  the input held no sentences", err=True)
