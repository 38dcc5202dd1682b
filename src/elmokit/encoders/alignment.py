"""`Alignment`: for each layer a map from one model's vectors into another's, and the folder that it is stored in.

A vector x of a layer becomes (x - mean) @ map * scale + target_mean. The rows of the map are orthonormal (Procrustes),
so nothing but direction, origin and length changes: what was alike stays alike.

The folder holds alignment.json, which says between which models, and alignment.safetensors. A model's own lie in the
folder `aligned` inside the model's.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from elmokit.config import Count, checksum_of, plain, read_json
from elmokit.errors import FormatError, InputError
from elmokit.formats.atomic import atomic_folder, write_text
from elmokit.formats.tensors import Stored, open_tensors, write_tensors
from elmokit.layers import Vectors

DESCRIBES, TENSORS, BESIDE = "alignment.json", "alignment.safetensors", "aligned"
MARK = "elmokit alignment"
ADVICE = "restore it, or make it again with  elmokit align"
PARTS = {"maps": ("F32", 3), "means": ("F32", 2), "scales": ("F32", 1), "target_means": ("F32", 2)}  # types and axes
UNIT = 1e-3  # how far from orthonormal the rows of a map may be


@dataclass(frozen=True, slots=True)
class AlignedModels:
    """alignment.json: from which model to which, how, and what was measured. Models are named by their fingerprints."""

    source: str
    target: str
    source_name: str
    target_name: str
    layer_names: tuple[str, ...]  # of the target
    seed: Literal["words", "identical"]
    seed_pairs: Count
    pairs: Count  # that the last round was fitted on
    rounds: Count
    scores: dict[str, float] = field(default_factory=dict)
    checksums: dict[str, str] = field(default_factory=dict)
    checksum: str = ""
    version: Literal[1] = 1


@dataclass(frozen=True)
class Alignment:
    """A map per layer; the module says how it is applied."""

    maps: Vectors  # (L, D, E)
    means: Vectors  # (L, D), of the source's words
    target_means: Vectors  # (L, E)
    scales: Vectors  # (L,)
    about: AlignedModels

    @property
    def width(self) -> int:
        """E, the width of the target."""
        return int(self.maps.shape[2])

    def apply(self, layers: Vectors) -> Vectors:
        """Vectors of all layers (L, ..., D) as the target would have them (L, ..., E)."""
        if layers.shape[0] != len(self.maps) or layers.shape[-1] != self.maps.shape[1]:
            raise InputError(
                f"vectors of shape {layers.shape}, expected {len(self.maps)} layers of {self.maps.shape[1]}"
            )
        mapped = [self.apply_layer(k, rows) for k, rows in enumerate(layers)]
        return np.stack(mapped)

    def apply_layer(self, layer: int, rows: Vectors) -> Vectors:
        """Vectors of one layer (..., D), as the target would have them (..., E)."""
        made: Vectors = (rows - self.means[layer]) @ self.maps[layer] * self.scales[layer] + self.target_means[layer]
        return made

    def save(self, folder: str | Path) -> Path:
        """Write it; the folder appears whole or not at all."""
        folder = Path(folder)
        tensors = {name: Stored.of(np.asarray(getattr(self, name), dtype=np.float32)) for name in PARTS}
        described: dict[str, Any] = {"format": MARK, **plain(self.about)}
        described["checksums"] = {name: tensor.checksum(name) for name, tensor in tensors.items()}
        described["checksum"] = checksum_of(described)
        try:
            with atomic_folder(folder, last=DESCRIBES, replaces=(DESCRIBES, TENSORS)) as draft:
                write_tensors(draft / TENSORS, tensors)
                write_text(draft / DESCRIBES, json.dumps(described, indent=2, ensure_ascii=False) + "\n")
        except OSError as error:  # a full disk
            raise InputError(f"{folder}: cannot be written: {error.strerror or error}; choose another place") from error
        return folder

    @classmethod
    def read(cls, folder: str | Path) -> "Alignment":
        """The one in a folder; damage is a FormatError."""
        folder = Path(folder)
        if not (folder / DESCRIBES).is_file():
            raise InputError(f"{folder}: holds no alignment (no {DESCRIBES}); make one with  elmokit align")
        about = read_json(folder / DESCRIBES, AlignedModels, marks={"format": MARK}, advice=ADVICE)
        stated = json.loads(json.dumps({"format": MARK, **plain(about)}))
        file = open_tensors(folder / TENSORS, PARTS, advice=ADVICE)
        sums = {name: file.checksum(name) for name in PARTS}
        if checksum_of(stated) != about.checksum or sums != about.checksums:
            raise FormatError(f"{folder}: its files are not as they were written; {ADVICE}")
        maps, means, target_means, scales = map(file.read, ("maps", "means", "target_means", "scales"))
        found = cls(maps, means, target_means, scales, about)
        found.check(folder)
        return found

    def check(self, place: str | Path) -> None:
        """Refuses what cannot be a map."""
        depth, width, wide = self.maps.shape
        if (self.means.shape, self.target_means.shape, self.scales.shape) != ((depth, width), (depth, wide), (depth,)):
            raise FormatError(f"{place}: maps of shape {self.maps.shape} and means of other shapes; {ADVICE}")
        for one in self.maps:
            gram = one @ one.T if width <= wide else one.T @ one
            if not np.abs(gram - np.eye(len(gram), dtype=np.float32)).max() < UNIT:  # NaN too
                raise FormatError(f"{place}: a map is not orthogonal; {ADVICE}")


def find_alignment(given: str | Path, model: str) -> Path:
    """The folder of an alignment: the one given, or the one of that name beside the model."""
    beside = Path(model) / BESIDE
    for folder in (Path(given).expanduser(), beside / given):
        if (folder / DESCRIBES).is_file():
            return folder
    known = sorted(path.parent.name for path in beside.glob(f"*/{DESCRIBES}"))
    raise InputError(
        f"no alignment {str(given)!r}: not a folder that holds one, not beside the model "
        f"({', '.join(known) or 'which has none'}); make one with  elmokit align"
    )
