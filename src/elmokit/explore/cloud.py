"""`Cloud`: the occurrences of a word in one or several indexes, with their vectors by layer, and points in the plane.

One projection serves all layers: every layer is centred and scaled, all are put together, and the two directions in
which they vary most are taken. So a point of one layer and the same point of another can be compared.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis.neighbours import require_word
from elmokit.encoders import Encoder
from elmokit.errors import InputError, MissingExtraError
from elmokit.explore.steps import Progress, Steps
from elmokit.index import Index
from elmokit.layers import LayerChoice
from elmokit.text import Sentence

Rows = NDArray[np.float32]
MOST_POINTS = 20_000
CHUNK = 64  # sentences encoded in one step
READ = 2_000  # occurrences read in one step
CONTEXT = 12  # words kept on each side of a line


@dataclass(slots=True)
class Cloud:
    """n occurrences. `layers` holds what is known of their vectors, by name; the index's own choice comes first."""

    word: str
    indexes: list[Index]
    sides: NDArray[np.int64]  # (n,): which index
    rows: NDArray[np.int64]  # (n,): which row of it
    total: int  # occurrences that there are; n of them, evenly spaced, are here
    spelled: list[str]
    lines: list[tuple[str, str, str]] = field(default_factory=list)  # left, word, right
    sources: list[str] = field(default_factory=list)  # name of the text, by occurrence
    fields: list[Mapping[str, str]] = field(default_factory=list)  # kept with the text, by occurrence
    layers: dict[str, NDArray[np.float16]] = field(default_factory=dict)  # (n, D) each

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def own(self) -> str:
        """The name of the layer that the index holds."""
        return next(iter(self.layers))

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.layers.values()) + 400 * len(self)

    @property
    def field_names(self) -> list[str]:
        """The fields that any of the indexes keeps."""
        return list(dict.fromkeys(name for index in self.indexes for name in index.settings.keep))

    def vectors(self, layer: str | None = None) -> Rows:
        """(n, D)"""
        name = layer or self.own
        if name not in self.layers:
            raise InputError(f"layer {name!r} is not here; there are {', '.join(self.layers)}")
        return self.layers[name].astype(np.float32)


def gather(indexes: Sequence[Index], word: str, encoder: Encoder | None, *, limit: int = MOST_POINTS) -> Steps[Cloud]:
    """The occurrences of a word, at most `limit` of each index, evenly spaced."""
    sides, rows, total = [], [], 0
    spelled: dict[str, None] = {}
    for side, index in enumerate(indexes):
        found = require_word(index, word)
        spelled |= dict.fromkeys(found)
        here = np.sort(np.concatenate([index.rows_of(one) for one in found]))
        total += len(here)
        if len(here) > limit:
            here = here[np.linspace(0, len(here) - 1, limit).round().astype(np.int64)]
        rows.append(here)
        sides.append(np.full(len(here), side))
    cloud = Cloud(word, list(indexes), np.concatenate(sides), np.concatenate(rows), total, list(spelled))
    n = len(cloud)
    stored = np.zeros((n, indexes[0].manifest.width), dtype=np.float16)
    for at in range(0, n, READ):
        yield Progress(at, n, "reading")
        for side, index in enumerate(indexes):
            some = np.flatnonzero(cloud.sides[at : at + READ] == side) + at
            if len(some):
                stored[some] = index.vectors(cloud.rows[some])
        for k in range(at, min(at + READ, n)):
            index, row = indexes[cloud.sides[k]], int(cloud.rows[k])
            one = index.occurrence(row)
            left, right = one.text[: one.start].split(), one.text[one.end :].split()
            before = "" if one.start and not one.text[one.start - 1].isspace() else " "
            after = "" if right and not one.text[one.end].isspace() else " "
            cloud.lines.append(
                (" ".join(left[-CONTEXT:]) + before, one.text[one.start : one.end], after + " ".join(right[:CONTEXT]))
            )
            cloud.sources.append(_source(index, row))
            cloud.fields.append(one.fields)
    cloud.layers = _cut(stored, indexes[0], encoder)
    return cloud


def all_layers(cloud: Cloud, encoder: Encoder) -> Steps[Cloud]:
    """The cloud with every layer of the encoder: its sentences run through the model again where needed."""
    missing = [name for name in encoder.layer_names if name not in cloud.layers]
    if not missing:
        return cloud
    n, depth = len(cloud), encoder.depth
    made = np.zeros((depth, n, encoder.width), dtype=np.float16)
    for at in range(0, n, CHUNK):
        yield Progress(at, n, "computing the layers", model=True)
        some = range(at, min(at + CHUNK, n))
        places = [_place(cloud.indexes[cloud.sides[k]], int(cloud.rows[k]), encoder) for k in some]
        distinct = list(dict.fromkeys(sentence for sentence, _ in places))
        values = dict(zip(distinct, encoder.encode_layers(distinct), strict=True))
        for k, (sentence, position) in zip(some, places, strict=True):
            made[:, k] = values[sentence][:, position]
    own = cloud.own
    layers = {name: made[k] for k, name in enumerate(encoder.layer_names)}
    cloud.layers = {own: cloud.layers[own], **layers}
    return cloud


def project(cloud: Cloud, *, method: str = "pca") -> dict[str, NDArray[np.float64]]:
    """Points (n, 2) for each layer that is known, all in one projection, within a square of about -1 to 1."""
    if method == "umap":
        return _umap(cloud)
    scaled = {name: _scaled(cloud.vectors(name)) for name in cloud.layers}
    widths = {array.shape[1] for array in scaled.values()}
    if len(widths) > 1:  # an index of several layers side by side, beside single ones
        scaled = {name: array for name, array in scaled.items() if array.shape[1] == min(widths)}
    spread = sum(array.T.astype(np.float64) @ array for array in scaled.values())  # (D, D)
    _, directions = np.linalg.eigh(spread)
    axes = directions[:, ::-1][:, :2]  # (D, 2)
    axes *= np.sign(axes[np.abs(axes).argmax(axis=0), [0, 1]])  # the same sign on every machine
    points = {name: array @ axes for name, array in scaled.items()}
    reach = max((float(np.quantile(np.abs(p), 0.995)) for p in points.values()), default=1.0) or 1.0
    return {name: p / reach for name, p in points.items()}


def methods() -> list[str]:
    """The projections that can be had here."""
    return ["pca", *(["umap"] if find_spec("umap") else [])]


def _umap(cloud: Cloud) -> dict[str, NDArray[np.float64]]:
    """The last layer by itself, and each layer below it begun from the points of the one above."""
    if not find_spec("umap"):
        raise MissingExtraError("the projection UMAP needs umap-learn", extra="umap")
    from umap import UMAP

    start: Any = "spectral"
    found: dict[str, NDArray[np.float64]] = {}
    for name in reversed(cloud.layers):
        vectors = _scaled(cloud.vectors(name))
        if len(vectors) < 5 or float(vectors.std()) < 1e-3:
            found[name] = np.zeros((len(vectors), 2))
            continue
        neighbours = min(15, len(vectors) - 1)
        made = UMAP(n_neighbors=neighbours, metric="cosine", init=start, random_state=0, n_jobs=1)  # a seed allows one
        points = made.fit_transform(vectors)
        start = points
        middle = points - points.mean(axis=0)
        found[name] = middle / (np.abs(middle).max() or 1.0)
    return {name: found[name] for name in cloud.layers}


def _scaled(vectors: Rows) -> Rows:
    """Centred, with a mean length of 1; vectors that are all alike become zero. (n, D)"""
    left = vectors - vectors.mean(axis=0)
    length = float(np.sqrt((left**2).sum(axis=1)).mean())
    usual = float(np.sqrt((vectors**2).sum(axis=1)).mean())
    scaled: Rows = left / length if length > 1e-3 * usual else np.zeros_like(left)
    return scaled


def _cut(stored: NDArray[np.float16], index: Index, encoder: Encoder | None) -> dict[str, NDArray[np.float16]]:
    """The index's vectors by layer: an index of layers side by side (concat) holds several."""
    choice = LayerChoice.parse(index.settings.layers)
    if encoder is None or encoder.fingerprint != index.manifest.model:
        return {f"layers {index.settings.layers}": stored}
    picked, names = choice.indices(encoder.depth), encoder.layer_names
    if choice.kind == "concat":
        width = encoder.width
        return {names[k]: stored[:, n * width : (n + 1) * width] for n, k in reversed([*enumerate(picked)])}
    if len(picked) == 1 and choice.kind == "average":
        return {names[picked[0]]: stored}
    return {f"layers {index.settings.layers}": stored}


def _place(index: Index, row: int, encoder: Encoder) -> tuple[Sentence, int]:
    """The sentence of a row, cut as it was for the index, and the word's position in it."""
    one = index.occurrence(row)
    sentence = encoder.tokenizer.tokenize(one.text)
    if one.position < len(sentence) and sentence.spans[one.position] == (one.start, one.end):
        return sentence, one.position
    words = [*one.text[: one.start].split(), one.text[one.start : one.end], *one.text[one.end :].split()]
    return Sentence.of(words), len(one.text[: one.start].split())


def _source(index: Index, row: int) -> str:
    home, _ = index.sentence_of(row)
    run = index.manifest.runs[index.segments[home].progress.run]
    return run.name.rpartition(" (")[0] or run.name or "text"
