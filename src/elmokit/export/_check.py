"""Whether an exported model gives the vectors of the model it was made from.

To 1e-5, over text that a model might meet. Sums in another order round otherwise, and a trained model may let rounding
grow from step to step (for one word sixty times, say, far beyond that of real text). If float32 itself is further than
that from float64, that distance is the measure.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from elmokit.batch import TokenBatch, build_batch
from elmokit.errors import ElmokitError
from elmokit.text import Sentence
from elmokit.weights import Pretrained
from elmokit.weights.storage import SCALE, Dtype, pack

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

Layers = NDArray[np.float32]  # (L, B, T, D)


class Checked(NamedTuple):
    """What the check found."""

    difference: float  # the largest between the export and the model with the same stored weights
    cosine: float  # the smallest, over tokens and layers, between that model and the one in full precision


def check(run: Callable[[TokenBatch], Layers], pretrained: Pretrained, dtype: Dtype) -> Checked:
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


def _difference(a: Layers, b: Layers) -> float:
    """The largest, relative to values above 1."""
    return float((np.abs(a - b) / np.maximum(np.abs(b), 1)).max())


def _cosine(a: Layers, b: Layers) -> float:
    products = (a.astype(np.float64) * b).sum(axis=-1)
    norms = np.linalg.norm(a.astype(np.float64), axis=-1) * np.linalg.norm(b.astype(np.float64), axis=-1)
    return float((products / np.maximum(norms, 1e-30)).min())


def _unlike(pretrained: Pretrained, what: str) -> ElmokitError:
    return ElmokitError(
        f"the export of {pretrained.source or 'the model'} gives {what}; nothing was written. Other versions of the "
        "libraries may do better: please tell which ones these were"
    )
