"""`elmokit export`: a model as a file that runs elsewhere."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Place(StrEnum):
    onnx = "onnx"
    torch = "torch"


class Stored(StrEnum):
    float32 = "float32"
    float16 = "float16"
    int8 = "int8"


def export(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Model folder, archive, .hdf5 file, hub id or bundled name.")
    ],
    *,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where the exported model goes.")],
    to: Annotated[
        Place, typer.Option(help="onnx: model.onnx, runs without torch; torch: model.pt2, a torch.export program.")
    ] = Place.onnx,
    dtype: Annotated[
        Stored, typer.Option(help="onnx: type of the stored weights; computation is in float32.")
    ] = Stored.float32,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub id.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a model that is already there.")] = False,
) -> None:
    """Export a model to ONNX, to run without torch, or as a torch program.

        elmokit export my-elmo/ -o exported/
        elmokit export my-elmo/ -o small/ --dtype int8
        elmokit export my-elmo/ -o program/ --to torch

    The exported file takes any batch and any length. It is run and compared with the model; if they differ by more
    than 1e-5, the export fails. elmokit runs it from text to vectors without torch:
    `from elmokit.integrations.onnx import OnnxElmo`.
    """
    from rich.filesize import decimal

    from elmokit.errors import InputError, WeightsError
    from elmokit.export.save import export_onnx, export_torch
    from elmokit.weights import load_pretrained

    if (output / "config.json").exists():
        if not any((output / name).exists() for name in ("model.onnx", "model.pt2")):
            raise WeightsError(f"{output}: holds something other than an exported model; give another folder")
        if not overwrite:
            raise WeightsError(f"{output}: an exported model is there already; give another folder, or --overwrite")
    if to is Place.torch and dtype is not Stored.float32:
        raise InputError(f"--dtype {dtype.value} is for --to onnx; a torch program holds float32")
    pretrained = load_pretrained(model, revision=revision, softmax=False)
    if to is Place.torch:
        done = export_torch(pretrained, output, overwrite=overwrite)
    else:
        done = export_onnx(pretrained, output, dtype=dtype.value, overwrite=overwrite)
    told = f"{done.path}: {decimal(done.bytes)}; its vectors differ from the model's by at most {done.difference:.0e}"
    if dtype is not Stored.float32:
        told += f"; against float32 weights the worst cosine is {done.cosine:.6f}"
    typer.echo(told, err=True)
