"""The networks: pure torch, no files, no text."""

from elmokit.nn.bilm import BiLM, BiLMConfig
from elmokit.nn.char_cnn import TokenEncoder, TokenEncoderConfig
from elmokit.nn.crf import Crf
from elmokit.nn.lstm import LstmConfig
from elmokit.nn.mix import MixConfig, ScalarMix

__all__ = ["BiLM", "BiLMConfig", "Crf", "LstmConfig", "MixConfig", "ScalarMix", "TokenEncoder", "TokenEncoderConfig"]
