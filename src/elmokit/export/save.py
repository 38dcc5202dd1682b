"""Models to files that run elsewhere. A file is run and compared with the model before it is kept."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from elmokit.batch import TokenBatch
from elmokit.encoders.tokenizing import choose_tokenizer
from elmokit.errors import InputError, WeightsError
from elmokit.export._check import Checked, Layers, check
from elmokit.export.described import FILES, Description, Kind
from elmokit.formats.atomic import atomic_path
from elmokit.formats.tensors import file_checksum
from elmokit.weights import Dtype, Pretrained
from elmokit.weights.storage import pack

if TYPE_CHECKING:
    from torch.export import ExportedProgram

LARGEST_ONNX = 2_000_000_000  # bytes; protocol buffers end at 2 GiB
ONNX_TYPES: tuple[Dtype, ...] = ("float32", "float16", "int8")


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What was written and how near it comes: `difference` to the model with the weights as stored (at most 1e-5),
    `cosine` of the worst token to the model with its full weights (1 unless they were stored smaller)."""

    path: Path
    bytes: int
    difference: float
    cosine: float


def export_onnx(pretrained: Pretrained, folder: str | Path, *, dtype: Dtype = "float32") -> ExportReport:
    """model.onnx and config.json for `elmokit.integrations.onnx` or any other ONNX runtime.

    `dtype` is how weights are stored: "float16" halves the file, "int8" (a scale per row) quarters it. The model
    computes in float32 whichever it is. Refuses to write what onnxruntime computes differently from the model.
    """
    from elmokit.export._onnx_bilm import onnx_bilm
    from elmokit.export._onnx_graph import write_model
    from elmokit.export.session import OnnxSession

    if dtype not in ONNX_TYPES:
        raise InputError(f"dtype {dtype!r} is not one that ONNX files hold here; choose {', '.join(ONNX_TYPES)}")
    packed = pack(pretrained.tensors, dtype)
    size = sum(values.numel() * values.element_size() for values in packed.values())
    if size > LARGEST_ONNX:
        raise WeightsError(
            f"{pretrained.source}: {size:,} bytes of weights, over the {LARGEST_ONNX:,} that one ONNX file holds; "
            "choose dtype float16 or int8"
        )

    def write(path: Path) -> None:
        write_model(onnx_bilm(pretrained.config, packed), path)

    def load(path: Path, described: Description) -> Callable[[TokenBatch], Layers]:
        return OnnxSession(path, described).layers

    return _export(pretrained, Path(folder), "onnx", dtype, write, load)


def export_torch(pretrained: Pretrained, folder: str | Path) -> ExportReport:
    """model.pt2, a torch.export program, and config.json; `torch.export.load` reads it without elmokit."""
    import torch

    from elmokit.export._program import export_program

    def write(path: Path) -> None:
        program: ExportedProgram = export_program(pretrained)
        with path.open("wb") as stream:
            torch.export.save(program, stream)

    def load(path: Path, described: Description) -> Callable[[TokenBatch], Layers]:
        with path.open("rb") as stream, warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given buffer is not writable", UserWarning)  # torch 2.11's own
            run = torch.export.load(stream).module()
        return lambda batch: run(*map(torch.from_numpy, (batch.types, batch.index, batch.lengths)))[0].numpy()

    return _export(pretrained, Path(folder), "torch", "float32", write, load)


def _export(
    pretrained: Pretrained,
    folder: Path,
    kind: Kind,
    dtype: Dtype,
    write: Callable[[Path], None],
    load: Callable[[Path, Description], Callable[[TokenBatch], Layers]],
) -> ExportReport:
    folder = folder.expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / FILES[kind]
    with atomic_path(target) as path:
        write(path)
        described = _describe(pretrained, kind, dtype, path)
        found: Checked = check(load(path, described), pretrained, dtype)
    described.write(folder)
    return ExportReport(target, described.bytes, found.difference, found.cosine)


def _describe(pretrained: Pretrained, kind: Kind, dtype: Dtype, path: Path) -> Description:
    config, tokens = pretrained.config, pretrained.config.tokens
    tokenizer = choose_tokenizer(pretrained, None, allow_other=False)
    return Description(
        kind=kind,
        dtype=dtype,
        bytes=path.stat().st_size,
        layer_names=config.layer_names,
        width=config.width,
        context="both" if len(config.directions) == 2 else "left" if config.directions == ("forward",) else "right",
        codec=pretrained.codec,
        max_characters=tokens.max_characters,
        pad_id=tokens.pad_id if tokens.char_dim else None,
        widest_filter=max((width for width, _ in tokens.filters), default=1) if tokens.char_dim else 1,
        tokenizer=tokenizer.name,
        tokenizer_version=tokenizer.version,
        checksum=file_checksum(path),
    )
