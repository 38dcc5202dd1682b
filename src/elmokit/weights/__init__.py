"""Files to networks and back; never runs a model."""

from elmokit.chars import CodecSpec
from elmokit.weights.load import bundled_models, load_pretrained, save_pretrained
from elmokit.weights.pretrained import AdaptiveTensors, Pretrained, SoftmaxTensors, TokenizerSpec
from elmokit.weights.storage import Dtype

__all__ = [
    "AdaptiveTensors", "CodecSpec", "Dtype", "Pretrained", "SoftmaxTensors", "TokenizerSpec", "bundled_models",
    "load_pretrained", "save_pretrained",
]  # fmt: skip
