"""Models to files that run elsewhere. A file is run and compared with the model before it is kept.

Its vectors may differ by 1e-5, over text that a model might meet. Sums in another order round differently, and a
trained model may let rounding grow from step to step. If float32 itself is further than that from float64, that
distance is the measure.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from elmokit.batch import TokenBatch, build_batch
from elmokit.errors import ElmokitError, InputError, WeightsError
from elmokit.export.described import CONFIG, FILES, Description, Kind
from elmokit.formats.atomic import atomic_folder
from elmokit.formats.tensors import file_checksum
from elmokit.layers import Vectors
from elmokit.text import Sentence
from elmokit.weights import Dtype, Pretrained
from elmokit.weights.pretrained import choose_tokenizer
from elmokit.weights.storage import SCALE, pack

LARGEST_ONNX = 2_000_000_000  # bytes; protocol buffers end at 2 GiB
ONNX_TYPES: tuple[Dtype, ...] = ("float32", "float16", "int8")
TOLERANCE = 1e-5
ROUNDINGS = 4  # times that float32's own error may be passed, where that is more than the tolerance
TEXT = (
    "After a week of rain the river burst its banks , and the bank in the market square stayed closed until Friday .",
    "",
    "Ja",
    "Größere Überschwemmungen gab es 1,200 Jahre zuvor , sagt man . 🙂",
    "川 は 深い .",
    "In the spring of that year , when the snow on the northern passes had at last begun to melt and the first carts "
    "came down into the valley with salt , iron and letters that had lain for months in the houses of strangers , the "
    "old miller , who had not spoken to his brother since their father died , walked to the bridge and waited there .",
    "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft <S> </S>",
)


if TYPE_CHECKING:
    from torch.export import ExportedProgram


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What was written and how near it comes: `difference` to the model with the weights as stored (at most 1e-5),
    `cosine` of the worst token to the model with its full weights (1 unless they were stored smaller)."""

    path: Path
    bytes: int
    difference: float
    cosine: float


def export_onnx(
    pretrained: Pretrained, folder: str | Path, *, dtype: Dtype = "float32", overwrite: bool = True
) -> ExportReport:
    """model.onnx and config.json for `elmokit.integrations.onnx` or any other ONNX runtime.

    `dtype` is how weights are stored: "float16" halves the file, "int8" (a scale per row) quarters it. The model
    computes in float32 whichever it is. Refuses to write what onnxruntime computes differently from the model. An
    export that is in the folder already is replaced unless `overwrite` is False.
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

    def load(path: Path, described: Description) -> Callable[[TokenBatch], Vectors]:
        return OnnxSession(path, described).layers

    return _export(pretrained, Path(folder), "onnx", dtype, write, load, overwrite=overwrite)


def export_torch(pretrained: Pretrained, folder: str | Path, *, overwrite: bool = True) -> ExportReport:
    """model.pt2, a torch.export program, and config.json; `torch.export.load` reads it without elmokit."""
    import torch

    from elmokit.export._program import export_program

    def write(path: Path) -> None:
        program: ExportedProgram = export_program(pretrained)
        with path.open("wb") as stream:
            torch.export.save(program, stream)

    def load(path: Path, described: Description) -> Callable[[TokenBatch], Vectors]:
        with path.open("rb") as stream, warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given buffer is not writable", UserWarning)  # torch 2.11's own
            run = torch.export.load(stream).module()
        return lambda batch: run(*map(torch.from_numpy, (batch.types, batch.index, batch.lengths)))[0].numpy()

    return _export(pretrained, Path(folder), "torch", "float32", write, load, overwrite=overwrite)


def _export(
    pretrained: Pretrained,
    folder: Path,
    kind: Kind,
    dtype: Dtype,
    write: Callable[[Path], None],
    load: Callable[[Path, Description], Callable[[TokenBatch], Vectors]],
    *,
    overwrite: bool,
) -> ExportReport:
    folder = folder.expanduser()
    with atomic_folder(folder, last=CONFIG, replaces=(FILES[kind], CONFIG), overwrite=overwrite) as draft:
        path = draft / FILES[kind]
        write(path)
        described = _describe(pretrained, kind, dtype, path)
        found: Checked = check(load(path, described), pretrained, dtype)
        described.write(draft)
    return ExportReport(folder / FILES[kind], described.bytes, found.difference, found.cosine)


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


class Checked(NamedTuple):
    """What the check found."""

    difference: float  # the largest between the export and the model with the same stored weights
    cosine: float  # the smallest, over tokens and layers, between that model and the one in full precision


def check(run: Callable[[TokenBatch], Vectors], pretrained: Pretrained, dtype: Dtype) -> Checked:
    """Refuses an export that is off by more than 1e-5, relative to the value where that is above 1; see the module."""
    stored = _as_stored(pretrained, dtype)
    rounded, exact, whole = stored.build(), stored.build(dtype=torch.float64), pretrained.build()
    codec = pretrained.codec.build(pretrained.config.tokens.max_characters)
    known = Sentence.of((pretrained.codec.words or ())[:20])  # words of the vocabulary, where there is one
    sentences = [*(Sentence.of(text.split()) for text in TEXT), known]
    worst, own, cosine = 0.0, 0.0, 1.0
    for rows in (sentences, sentences[:1], sentences[1:2]):  # of any number and length, one and empty ones too
        batch = build_batch(rows, codec)
        inputs = torch.from_numpy(batch.types), torch.from_numpy(batch.index)
        with torch.inference_mode():
            expected, double, full = (
                model(*inputs, batch.lengths)[0].values.numpy() for model in (rounded, exact, whole)
            )
        found = run(batch)
        if found.shape != expected.shape or not np.isfinite(found).all():
            raise _unlike(pretrained, f"layers of shape {found.shape}, expected {expected.shape}, all finite")
        worst, own = max(worst, _difference(found, expected)), max(own, _difference(expected, double))
        cosine = min(cosine, _cosine(expected[:, batch.mask], full[:, batch.mask]))
    if worst > (allowed := max(TOLERANCE, ROUNDINGS * own)):
        raise _unlike(pretrained, f"vectors that differ by {worst:.1e}, at most {allowed:.0e} is allowed")
    return Checked(worst, cosine)


def _as_stored(pretrained: Pretrained, dtype: Dtype) -> Pretrained:
    """The model with its weights rounded as the file has them."""
    packed = pack(pretrained.tensors, dtype)
    restored = {}
    for name in pretrained.tensors:
        values, scale = packed[name].float(), packed.get(name + SCALE)
        if scale is not None:
            values = values * scale.reshape(*scale.shape, *(1,) * (values.ndim - scale.ndim))
        restored[name] = values
    return replace(pretrained, tensors=restored)


def _difference(a: Vectors, b: Vectors) -> float:
    """The largest, relative to values above 1."""
    return float((np.abs(a - b) / np.maximum(np.abs(b), 1)).max())


def _cosine(a: Vectors, b: Vectors) -> float:
    products = (a.astype(np.float64) * b).sum(axis=-1)
    norms = np.linalg.norm(a.astype(np.float64), axis=-1) * np.linalg.norm(b.astype(np.float64), axis=-1)
    return float((products / np.maximum(norms, 1e-30)).min())


def _unlike(pretrained: Pretrained, what: str) -> ElmokitError:
    return ElmokitError(
        f"the export of {pretrained.source or 'the model'} gives {what}; nothing was written. Other versions of the "
        "libraries may do better: please tell which ones these were"
    )
