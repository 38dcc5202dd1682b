"""Whether an exported model gives the vectors of the model it was made from."""

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
TEXT = (
    "After a week of rain the river burst its banks , and the bank in the market square stayed closed until Friday .",
    "",
    "Ja",
    "Größere Überschwemmungen gab es 1,200 Jahre zuvor , sagt man . 🙂",
    "川 は 深い .",
    "a " * 60,
    "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft <S> </S>",
)

Layers = NDArray[np.float32]  # (L, B, T, D)


class Checked(NamedTuple):
    """What the check found."""

    difference: float  # the largest between the export and the model with the same stored weights
    cosine: float  # the smallest, over tokens and layers, between that model and the one in full precision


def check(run: Callable[[TokenBatch], Layers], pretrained: Pretrained, dtype: Dtype) -> Checked:
    """Refuses an export that is off by more than 1e-5 (relative to the value where that is above 1)."""
    rounded, whole = _as_stored(pretrained, dtype).build(), pretrained.build()
    codec = pretrained.codec.build(pretrained.config.tokens.max_characters)
    known = Sentence.of((pretrained.codec.words or ())[:20])  # words of the vocabulary, where there is one
    sentences = [*(Sentence.of(text.split()) for text in TEXT), known]
    worst, cosine = 0.0, 1.0
    for rows in (sentences, sentences[:1], sentences[1:2]):  # of any number and length, one and empty ones too
        batch = build_batch(rows, codec)
        inputs = torch.from_numpy(batch.types), torch.from_numpy(batch.index)
        with torch.inference_mode():
            expected = rounded(*inputs, batch.lengths)[0].values.numpy()
            exact = whole(*inputs, batch.lengths)[0].values.numpy()
        found = run(batch)
        if found.shape != expected.shape or not np.isfinite(found).all():
            raise _unlike(pretrained, f"layers of shape {found.shape}, expected {expected.shape}, all finite")
        worst = max(worst, float((np.abs(found - expected) / np.maximum(np.abs(expected), 1)).max()))
        cosine = min(cosine, _cosine(expected[:, batch.mask], exact[:, batch.mask]))
    if worst > TOLERANCE:
        raise _unlike(pretrained, f"vectors that differ by {worst:.1e}, at most {TOLERANCE} is allowed")
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


def _cosine(a: Layers, b: Layers) -> float:
    products = (a.astype(np.float64) * b).sum(axis=-1)
    norms = np.linalg.norm(a.astype(np.float64), axis=-1) * np.linalg.norm(b.astype(np.float64), axis=-1)
    return float((products / np.maximum(norms, 1e-30)).min())


def _unlike(pretrained: Pretrained, what: str) -> ElmokitError:
    return ElmokitError(
        f"the export of {pretrained.source or 'the model'} gives {what}; nothing was written. Other versions of the "
        "libraries may do better: please tell which ones these were"
    )
