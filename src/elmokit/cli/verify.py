"""`elmokit verify`: whether files are as they were written."""

from pathlib import Path
from typing import Annotated

import typer


def verify(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Folders or files that elmokit wrote.")],
) -> None:
    """Compare files with the checksums that they were written with.

    Reads everything; loading skips the checks that take long:

        elmokit verify my-elmo/ index/ tagger/ run/corpus/

    Takes models, task models, indexes, prepared corpora, exported models and static vectors. Official and
    ELMoForManyLangs models have no checksums; weights that cannot be right are refused. Version 0.1.0 wrote fewer
    checksums, and the output says so. A damaged file gives one line and exit status 2.
    """
    for path in paths:
        typer.echo(f"{path}: {_verify(path)}")


def _verify(path: Path) -> str:
    """What was found to be right; damage is an error."""
    from elmokit.errors import InputError

    if not path.exists():
        raise InputError(f"{path}: no such file or folder")
    if (path / "index.json").is_file():
        from elmokit.index import Index

        return _said("index", complete=Index.open(path).verify())
    if (path / "manifest.json").is_file():
        from elmokit.pretrain.corpus.files import check_file
        from elmokit.pretrain.corpus.manifest import PreparedCorpus

        prepared = PreparedCorpus.open(path)
        for name, expected in prepared.files.items():
            check_file(path / name, expected)
        return _said("prepared corpus")
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
    from elmokit.encoders.static.table import is_table, verify_table

    if is_table(path):
        return _said("static vectors", complete=verify_table(path))
    from elmokit.weights import load_pretrained

    return f"whole; a model of the {load_pretrained(path).format} format, which has no checksums"


def _said(kind: str, *, complete: bool = True) -> str:
    return f"as it was written ({kind})" if complete else f"whole, but 0.1.0 wrote no checksums for all of it ({kind})"
