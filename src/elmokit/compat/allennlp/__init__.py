"""AllenNLP's ELMo: the classes, signatures, shapes and number types of its version 0.9.

State is carried from call to call, row by row, as it was there: the same sentence gives other vectors the second time.
`stateful=False`, the last argument of every class, makes each sentence start from zero.
"""

from elmokit.compat.allennlp.bilm import _ElmoBiLm, _ElmoCharacterEncoder, lazy_groups_of
from elmokit.compat.allennlp.elmo import Elmo, ElmoTokenEmbedder, ScalarMix, batch_to_ids
from elmokit.compat.allennlp.embedder import DEFAULT_BATCH_SIZE, DEFAULT_OPTIONS_FILE, DEFAULT_WEIGHT_FILE, ElmoEmbedder
from elmokit.compat.allennlp.indexer import ELMoCharacterMapper, ELMoTokenCharactersIndexer
from elmokit.compat.allennlp.source import ConfigurationError
from elmokit.compat.allennlp.states import ElmoLstm

__all__ = [
    "DEFAULT_BATCH_SIZE", "DEFAULT_OPTIONS_FILE", "DEFAULT_WEIGHT_FILE", "ConfigurationError", "ELMoCharacterMapper",
    "ELMoTokenCharactersIndexer", "Elmo", "ElmoEmbedder", "ElmoLstm", "ElmoTokenEmbedder", "ScalarMix", "_ElmoBiLm",
    "_ElmoCharacterEncoder", "batch_to_ids", "lazy_groups_of",
]  # fmt: skip
