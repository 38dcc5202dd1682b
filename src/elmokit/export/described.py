"""The config.json beside an exported model: what its input means and what comes out. Read and written without torch.

Together with the model file it is all that running needs: how words become rows (bytes need no vocabulary; words and
dictionaries lie beside it as JSON lists), which tokenizer cuts text, and the names of the layers.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from elmokit.chars import CodecSpec
from elmokit.errors import WeightsError
from elmokit.formats.atomic import write_text

FORMAT, VERSION, CONFIG = "elmokit-export", 1, "config.json"
FILES = {"onnx": "model.onnx", "torch": "model.pt2"}
LISTS = ("words", "characters")

Kind = Literal["onnx", "torch"]


@dataclass(frozen=True, slots=True)
class Description:
    """What a runner must know. `pad_id` and `widest_filter` say how far rows of characters may be cut."""

    kind: Kind
    dtype: str  # of the stored numbers; the model computes in float32
    bytes: int  # size of the model file
    layer_names: tuple[str, ...]
    width: int  # D
    context: str  # which neighbours a word's vector depends on: both, left, right
    codec: CodecSpec
    max_characters: int
    pad_id: int | None
    widest_filter: int
    tokenizer: str
    tokenizer_version: int

    @property
    def file(self) -> str:
        return FILES[self.kind]

    def write(self, folder: Path) -> None:
        """config.json last: a folder without it holds no finished export."""
        fields = asdict(self)
        for name in LISTS:
            symbols = fields["codec"].pop(name)
            if symbols is not None:
                write_text(folder / f"{name}.json", json.dumps(symbols) + "\n")
                fields["codec"][name] = len(symbols)
        write_text(folder / CONFIG, json.dumps({"format": FORMAT, "version": VERSION, **fields}, indent=2) + "\n")

    @classmethod
    def read(cls, folder: Path) -> "Description":
        path = folder / CONFIG
        fields = _read_json(path)
        if not isinstance(fields, dict) or fields.pop("format", None) != FORMAT:
            raise WeightsError(f"{path}: not an exported model; make one with  elmokit export MODEL -o FOLDER")
        if (version := fields.pop("version", None)) != VERSION:
            raise WeightsError(
                f"{path}: export version {version}, this elmokit reads {VERSION}; export the model again"
            )
        try:
            codec = _read_codec(folder, fields.pop("codec"))
            found = cls(codec=codec, layer_names=tuple(fields.pop("layer_names")), **fields)
        except (KeyError, TypeError) as error:
            raise WeightsError(f"{path}: fields missing or unknown ({error}); export the model again") from None
        size = (folder / found.file).stat().st_size if (folder / found.file).is_file() else 0
        if size != found.bytes:
            raise WeightsError(
                f"{folder / found.file}: {size:,} bytes, but {CONFIG} was written with one of {found.bytes:,}; export "
                "or copy the model again"
            )
        return found


def _read_codec(folder: Path, fields: Mapping[str, Any]) -> CodecSpec:
    lists: dict[str, tuple[str, ...]] = {}
    for name in LISTS:
        if name not in fields:
            continue
        symbols = _read_json(folder / f"{name}.json")
        if not isinstance(symbols, list) or len(symbols) != fields[name]:
            raise WeightsError(f"{folder / name}.json: not the {fields[name]} {name} of this model; copy it again")
        lists[name] = tuple(symbols)
    return CodecSpec(fields["kind"], boundary_tokens=fields["boundary_tokens"], **lists)


def _read_json(path: Path) -> Any:
    if not path.is_file():
        raise WeightsError(f"{path}: no such file; expected a folder made by  elmokit export MODEL -o FOLDER")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise WeightsError(f"{path}: not JSON ({error}); export or copy the model again") from None
