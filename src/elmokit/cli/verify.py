"""`elmokit verify`: whether files are as they were written."""

from pathlib import Path
from typing import Annotated

import typer

VECTORS = (".h5", ".hdf5", ".parquet", ".npz", ".safetensors")
TAKES = (
    "verify takes what elmokit writes: models, task models, indexes, prepared corpora, exported models, static tables, "
    "files of vectors (.h5, .parquet, .npz, .safetensors), checkpoints, and folders of runs; and published models"
)
KINDS = {  # how files begin
    b"\x89HDF": "an HDF5 file",
    b"PK\x03\x04": "a zip archive",
    b"\x1f\x8b": "a gzip file",
    b"\xfd7zX": "an xz file",
    b"\x28\xb5\x2f\xfd": "a zstd file",
    b"PAR1": "a Parquet file",
    b"\x93NUMPY": "a NumPy array",
    b"%PDF": "a PDF",
    b"\x89PNG": "a picture",
    b"\x7fELF": "a program",
}


def verify(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH", help="Folders or files that elmokit wrote, or names such as en and ner."),
    ],
) -> None:
    """Compare files with the checksums that they were written with.

    Reads everything; loading skips the checks that take long:

        elmokit verify my-elmo/ index/ tagger/ run/ vectors.h5
        elmokit verify en ner

    Takes models, task models, indexes, prepared corpora, exported models, alignments, static vectors, files of vectors,
    checkpoints and folders of runs, finished or not. Official and ELMoForManyLangs models have no checksums; their
    weights are refused if they are NaN, infinite or huge. Version 0.1.0 wrote fewer checksums, and the output says so.
    A damaged file gives one line and exit status 2.
    """
    from elmokit.cli.show import echo_text
    from elmokit.weights.bundled import list_bundled

    ready = {Path(model.name): model.folder for model in list_bundled()}
    for path in paths:
        place = path if path.exists() else ready.get(path, path)
        echo_text(f"{path}: {_verify(place)}")


def _verify(path: Path) -> str:
    """What was found to be right; damage is an error."""
    from elmokit.errors import InputError

    if not path.exists():
        raise InputError(f"{path}: no such file or folder")
    found = _folder(path) if path.is_dir() else _file(path)
    if found is None:
        raise InputError(f"{path}: {_what(path)}, which elmokit did not write; {TAKES}")
    return found


def _folder(path: Path) -> str | None:
    if (path / "index.json").is_file():
        from elmokit.index import Index

        return _said("index", complete=Index.open(path).verify())
    if (path / "records.bin").is_file():
        from elmokit.formats.resumable import check_log
        from elmokit.store._growing import check_growing

        said = check_log(path)
        return f"{check_growing(path) or said} (an unfinished run)"
    if (path / "manifest.json").is_file():
        from elmokit.pretrain.corpus.files import check_file
        from elmokit.pretrain.corpus.manifest import PreparedCorpus

        prepared = PreparedCorpus.open(path)
        for name, expected in prepared.files.items():
            check_file(path / name, expected)
        return _said("prepared corpus")
    if (path / "alignment.json").is_file():
        from elmokit.encoders import Alignment

        Alignment.read(path)
        return _said("alignment")
    if (path / "weights.safetensors").is_file():
        from elmokit.tasks import TaskModel
        from elmokit.weights.own import verify_own

        TaskModel.from_pretrained(path, device="cpu")  # compares the digest
        if (path / "encoder").is_dir():
            verify_own(path / "encoder")
        return _said("task model")
    if (path / "model.onnx").is_file() or (path / "model.pt2").is_file():
        from elmokit.export.described import Description

        return _said("exported model", complete=bool(Description.read(path).checksum))
    if (path / "model.safetensors").is_file():
        from elmokit.weights.own import verify_own

        verify_own(path)
        return _said("model")
    return _run(path) or _published(path)


def _run(path: Path) -> str | None:
    """The folder of a training or an ablation: all that has checksums in it."""
    parts = [path / name for name in ("corpus", "softmax", "model") if (path / name).is_dir()]
    parts += [p for pattern in ("*.pt", "checkpoints/*.pt", "running/*") for p in sorted(path.glob(pattern))]
    known = [part for part in parts if (_folder(part) if part.is_dir() else _file(part))]
    return _said(f"run: {', '.join(str(part.relative_to(path)) for part in known)}") if known else None


def _file(path: Path) -> str | None:
    from elmokit.encoders.static.table import is_table, verify_table

    if path.suffix == ".pt":
        return _checkpoint(path)
    if is_table(path):
        return _said("static vectors", complete=verify_table(path))
    if path.suffix.lower() in VECTORS:
        from elmokit.store import read_provenance, verify_vectors
        from elmokit.store.hdf5 import holds_sentences

        if verify_vectors(path):
            return _said("vectors")
        begin = _begin(path)
        known = begin.startswith((b"PK", b"PAR1")) or b'"offsets"' in begin or holds_sentences(path)
        if known or read_provenance(path) is not None:
            return "vectors without a checksum: of elmokit 0.1.0 or another tool; nothing to compare with"
    from elmokit.tasks.layers import verify_layers

    if (whole := verify_layers(path)) is not None:
        return _said("layers of sentences", complete=whole)
    return _published(path)


def _checkpoint(path: Path) -> str | None:
    """The state of a training; None for another file of torch's."""
    from elmokit.errors import FormatError
    from elmokit.pretrain.checkpoint import PARTS
    from elmokit.tasks.train import Checkpoint
    from elmokit.weights.storage import read_state

    if not _begin(path).startswith(b"PK"):
        return None
    parts = Checkpoint.PARTS if path.name == "checkpoint.pt" else PARTS
    try:
        read_state(path, "cpu", parts)
    except Exception as error:  # whatever a damaged archive leads to
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise FormatError(f"{path}: damaged, or no checkpoint of elmokit's ({why}); restore it from a copy") from error
    return _said("checkpoint")


def _published(path: Path) -> str | None:
    """A model of another format, or an archive; None where there is no model."""
    from elmokit.weights import load_pretrained
    from elmokit.weights._archive import is_archive

    names = [p.name for p in (path, *path.glob("*"), *path.glob("*/*"))]
    model = any(name.endswith((".hdf5", ".h5", ".safetensors", ".pkl")) for name in names)
    if not model and not (path.is_file() and is_archive(path)):
        return None
    found = load_pretrained(path).format
    return _said("model") if found == "elmokit" else f"whole; a model of the {found} format, which has no checksums"


def _what(path: Path) -> str:
    """What a file seems to be, by its first bytes."""
    if path.is_dir():
        return "a folder with nothing in it that verify knows"
    begin = _begin(path)
    for mark, kind in KINDS.items():
        if begin.startswith(mark):
            return kind
    if not begin:
        return "an empty file"
    try:
        begin[:-4].decode()  # a letter may be cut in two at the end
    except UnicodeDecodeError as error:
        return "a text file" if error.end == len(begin[:-4]) else "a file of an unknown kind"
    return "a file of an unknown kind" if b"\0" in begin else "a text file"


def _begin(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(4096)


def _said(kind: str, *, complete: bool = True) -> str:
    return f"as it was written ({kind})" if complete else f"whole, but 0.1.0 wrote no checksums for all of it ({kind})"
