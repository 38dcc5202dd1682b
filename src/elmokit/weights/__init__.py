"""Files to networks and back; never runs a model. Names load on first use: `described` needs no torch."""

from typing import TYPE_CHECKING

from elmokit._lazy import lazy
from elmokit.chars import CodecSpec

if TYPE_CHECKING:
    from elmokit.weights.described import TokenizerSpec, bundled_models
    from elmokit.weights.load import load_pretrained, save_pretrained
    from elmokit.weights.pretrained import AdaptiveTensors, Pretrained, SoftmaxTensors
    from elmokit.weights.storage import Dtype

__all__ = [
    "AdaptiveTensors", "CodecSpec", "Dtype", "Pretrained", "SoftmaxTensors", "TokenizerSpec", "bundled_models",
    "load_pretrained", "save_pretrained",
]  # fmt: skip

__getattr__, _others = lazy(
    __name__,
    {
        "described": "TokenizerSpec bundled_models",
        "load": "load_pretrained save_pretrained",
        "pretrained": "AdaptiveTensors Pretrained SoftmaxTensors",
        "storage": "Dtype",
    },
)


def __dir__() -> list[str]:
    return sorted([*_others(), "CodecSpec"])
