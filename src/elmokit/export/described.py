"""The config.json beside an exported model: what its input means and what comes out. Read and written without torch.

Together with the model file it is all that running needs: how words become rows (bytes need no vocabulary; words and
dictionaries lie beside it as JSON lists), which tokenizer cuts text, and the names of the layers.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from elmokit.chars import CodecSpec
from elmokit.config import Count, Positive, read_json, revive
from elmokit.errors import WeightsError
from elmokit.formats.atomic import write_text
from elmokit.formats.tensors import file_checksum

FORMAT, VERSION, CONFIG = "elmokit-export", 1, "config.json"
FILES = {"onnx": "model.onnx", "torch": "model.pt2"}
LISTS = ("words", "characters")

Kind = Literal["onnx", "torch"]


@dataclass(frozen=True, slots=True)
class Description:
    """What a runner must know. `pad_id` and `widest_filter` say how far rows of characters may be cut."""

    kind: Kind
    dtype: str  # of the stored numbers; the model computes in float32
    bytes: Count  # size of the model file
    layer_names: tuple[str, ...]
    width: Positive  # D
    context: str  # which neighbours a word's vector depends on: both, left, right
    codec: CodecSpec
    max_characters: Positive
    pad_id: Count | None
    widest_filter: Positive
    tokenizer: str
    tokenizer_version: int
    checksum: str = ""  # CRC-32 of the model file; 0.1.0 recorded none

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
        path, advice = folder / CONFIG, "export the model again"
        what = "a folder made by  elmokit export MODEL -o FOLDER"
        values = read_json(path, dict[str, Any], what=what, advice=advice, error=WeightsError)
        if values.pop("format", None) != FORMAT:
            raise WeightsError(f"{path}: not an exported model; make one with  elmokit export MODEL -o FOLDER")
        if (version := values.pop("version", None)) != VERSION:
            raise WeightsError(f"{path}: export version {version}, this elmokit reads {VERSION}; {advice}")
        codec = revive(_Codec, values.get("codec"), source=f"{path}: codec", error=WeightsError)
        lists: dict[str, tuple[str, ...]] = {}
        for name, size in (("words", codec.words), ("characters", codec.characters)):
            if size is not None:
                symbols = read_json(folder / f"{name}.json", list[str], what=what, advice=advice, error=WeightsError)
                if len(symbols) != size:
                    raise WeightsError(f"{folder / name}.json: not the {size} {name} of this model; copy it again")
                lists[name] = tuple(symbols)
        values["codec"] = CodecSpec(codec.kind, boundary_tokens=codec.boundary_tokens, **lists)
        found = revive(cls, values, source=str(path), error=WeightsError)
        model = folder / found.file
        size = model.stat().st_size if model.is_file() else 0
        if size != found.bytes:
            raise WeightsError(
                f"{model}: {size:,} bytes, but {CONFIG} was written with one of {found.bytes:,}; export or copy the "
                "model again"
            )
        if found.checksum and file_checksum(model) != found.checksum:
            raise WeightsError(f"{model}: not as it was exported (its checksum does not fit); {advice}")
        return found


@dataclass(frozen=True, slots=True)
class _Codec:
    """A `CodecSpec` with the lengths of its lists, which lie beside."""

    kind: Literal["bytes", "words", "dictionary"]
    boundary_tokens: bool
    words: Count | None = None
    characters: Count | None = None
