"""`elmokit info`: what a model is, or how a file of vectors was made."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from elmokit.cli.flags import Json

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from elmokit.weights.pretrained import Pretrained

FORMATS = {
    "elmokit": "elmokit (safetensors)",
    "official": "official (HDF5 and options.json)",
    "manylangs": "ELMoForManyLangs",
}
INPUTS = {"bytes": "UTF-8 bytes", "words": "words of a vocabulary", "dictionary": "symbols of its dictionaries"}

LARGE = 1 << 31  # bytes whose checksum takes seconds


def info(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL|VECTORS",
            help="Model folder, archive, hub id, or a file of vectors; default: the bundled model.",
        ),
    ] = None,
    *,
    json_output: Json = False,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub id.")] = None,
) -> None:
    """Describe a model, or how a file of vectors was made.

    Reads and checks the whole model, so a model that is described can be used:

        elmokit info my-elmo/
        elmokit info 144.zip --json

    For a model, shows its format, shape, parameters, vocabulary, origin, and how this CPU runs it. For a task model,
    shows its scores in training, its encoder and the weights of its layers. For a file of vectors, shows the model, its
    layers, tokenizer and arithmetic, the input and the version of elmokit:

        elmokit info vectors.h5
    """
    from pathlib import Path

    from elmokit.cli.show import echo_text, print_json

    if model is not None and (config := _task_config(Path(model))) is not None:
        if json_output:
            print_json([config])
        else:
            echo_text("\n".join(_task_lines(config)))
        return

    if model is not None and (stored := _stored_vectors(Path(model))) is not None:
        shown = (f"{name.replace('_', ' '):<12}  {value}" for name, value in stored.items() if value not in (None, ""))
        if json_output:
            print_json([stored])
        else:
            echo_text("\n".join(shown))
        return

    from elmokit.encoders.load import load_encoder, source_kind
    from elmokit.weights import load_pretrained
    from elmokit.weights.card import describe

    if source_kind(model, revision=revision)[0] != "elmo":
        encoder = load_encoder(model, revision=revision, device="cpu")
        shape = {"source": encoder.source, "layers": list(encoder.layer_names), "width": encoder.width}
        if json_output:
            print_json([{**shape, "context": encoder.context, "arithmetic": encoder.arithmetic}])
        else:
            typer.echo(f"{encoder.info}; here in {encoder.arithmetic}")
        return
    pretrained = load_pretrained(model, revision=revision)
    facts = describe(pretrained) | {"bytes_on_disk": size_of(pretrained.source), "cpu": _on_cpu(pretrained)}
    if json_output:
        print_json([facts])
    else:
        _print(facts)


def _stored_vectors(path: "Path") -> dict[str, Any] | None:
    """How a file of vectors was made; None for any other place."""
    if not path.is_file():
        return None
    from elmokit.config import plain
    from elmokit.store import read_provenance, verify_vectors
    from elmokit.store.hdf5 import holds_sentences

    if path.suffix.lower() in (".h5", ".hdf5"):
        if (size := path.stat().st_size) > LARGE:
            typer.echo(f"{path}: comparing its {size / 1e9:.1f} GB with their checksum", err=True)
        verify_vectors(path)  # before HDF5 opens it: in a damaged file it may search for ever
    if (made := read_provenance(path)) is not None:
        return {"file": str(path), **plain(made)}
    if path.suffix.lower() in (".npz", ".parquet") or holds_sentences(path):
        return {"file": str(path), "made_by": "not recorded: elmokit 0.1.0 or another tool"}
    return None


def _task_config(folder: "Path") -> dict[str, Any] | None:
    """What a folder of a task model says of itself, or one that comes with elmokit by its name; None for the rest."""
    from elmokit.weights.bundled import bundled_task

    folder = folder if (folder / "config.json").is_file() else bundled_task(str(folder)) or folder
    if not (folder / "weights.safetensors").is_file():
        return None
    from elmokit.config import plain
    from elmokit.tasks.saved import FORMAT, VERSION, read_description

    return {"format": FORMAT, "version": VERSION, **plain(read_description(folder))}


def _task_lines(config: dict[str, Any]) -> "Iterator[str]":
    encoder, tokenizer = config["encoder"], config["tokenizer"]
    yield f"task       {config['task']}"
    scores = ", ".join(f"{name} {100 * value:.2f}" for name, value in config["scores"].items())
    yield f"dev        {scores} (in training)"
    if encoder is None:
        yield "encoder    none"
    else:
        kept = "; in the folder" if encoder["held"] else ""
        yield f"encoder    {encoder['source']} (fingerprint {encoder['fingerprint']}){kept}"
    yield f"tokenizer  {tokenizer['name']}, version {tokenizer['version']}"
    for place, mix in config["mixes"].items():
        shares = " ".join(f"{share:.3f}" for share in mix["shares"])
        yield f"mix        at the {place}: layer weights {shares}, gamma {mix['gamma']:.3f}"


def _print(facts: dict[str, Any]) -> None:
    from rich.filesize import decimal
    from rich.markup import escape
    from rich.table import Table

    from elmokit._terminal import Console

    lstm, inputs, tokenizer, cpu = facts["lstm"], facts["input"], facts["tokenizer"], facts["cpu"]
    origin = f", made by {facts['origin']} tools" if facts["origin"] != facts["format"] else ""
    rows = [
        ("source", f"{facts['source']}  ({decimal(facts['bytes_on_disk'])})"),
        ("format", f"{FORMATS[facts['format']]}{origin}; numbers in {facts['dtype']}"),
        ("vectors", f"{facts['layers']} layers of {facts['width']}: {' and '.join(facts['directions'])}"),
        ("input", _inputs(inputs)),
    ]
    if "filters" in inputs:
        filters = ", ".join(f"{n} of width {width}" for width, n in inputs["filters"])
        rows.append(
            ("filters", f"{filters}; {inputs['activation']}, then {_count(inputs['highways'], 'highway layer')}")
        )
    projected = f", projected to {lstm['projection']}" if lstm["projection"] else ", not projected"
    skip = "with" if lstm["skip_connections"] else "without"
    clips = [
        f"{what} {lstm[key]:g}" for what, key in (("cell", "cell_clip"), ("output", "projection_clip")) if lstm[key]
    ]
    made = f"compiled ({cpu['variant']})" if cpu["compiled"] else f"not compiled: {cpu['why_not']}"
    rows += [
        ("LSTM", f"{_count(lstm['layers'], 'layer')} of {lstm['cell']} cells{projected}, {skip} skip connections"),
        ("clips", ", ".join(clips) or "none"),
        ("forget bias", f"{lstm['forget_bias']:g} is added" if lstm["forget_bias"] else "in the weights"),
        ("vocabulary", f"{facts['vocabulary']:,} words" if facts["vocabulary"] is not None else "none"),
        ("softmax", f"{facts['softmax'][0]:,} words" if facts["softmax"] else "none: gives vectors, not probabilities"),
        ("tokenizer", f"{tokenizer['name']}, version {tokenizer['version']}" if tokenizer else "the files do not say"),
        ("on this CPU", f"{cpu['arithmetic']} by default; C functions {made}"),
    ]
    console = Console(highlight=False)
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, escape(value))
    console.print(table)
    console.print()
    counts = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    counts.add_column("parameters", no_wrap=True)
    counts.add_column("", justify="right")
    for part, count in facts["parameters"].items():
        counts.add_row(part, f"{count:,}", style="bold" if part == "total" else None)
    console.print(counts)


def _on_cpu(pretrained: "Pretrained") -> dict[str, Any]:
    """Its default mode on a CPU; whether the functions in C are there, which, and if not, why."""
    import torch

    from elmokit.kernels.cpu.c import compiled
    from elmokit.kernels.cpu.inference import arithmetic
    from elmokit.weights.inference import usual_mode

    mode, found = usual_mode(pretrained, torch.device("cpu")), compiled()
    return {
        "mode": str(mode).removeprefix("torch."),
        "arithmetic": arithmetic(mode),
        "compiled": found.library is not None,
        "why_not": found.missing,
        "variant": None if found.library is None else found.library.variant,
    }


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _inputs(inputs: dict[str, Any]) -> str:
    parts = []
    if "words" in inputs:
        parts.append(f"{inputs['words']:,} words as vectors of {inputs['word_width']}")
    if "characters" in inputs:
        parts.append(
            f"{inputs['characters']:,} characters as vectors of {inputs['character_width']}, up to "
            f"{inputs['longest_word']} a word"
        )
    return f"{INPUTS[inputs['kind']]}: {' and '.join(parts)}"


def size_of(path: "str | Path") -> int:
    """Bytes of a file, or of all files in a folder."""
    from pathlib import Path

    path = Path(path)
    return path.stat().st_size if path.is_file() else sum(p.stat().st_size for p in path.rglob("*") if p.is_file())
