"""AllenNLP 0.9's ELMo: the classes, signatures, shapes and number types of that version.

State is carried from call to call, row by row, as it was there: the same sentence gives other vectors the second time.
`stateful=False`, the last argument of every class, makes each sentence start from zero.
"""

from elmokit.compat.allennlp.elmo import Elmo, ElmoTokenEmbedder, ScalarMix, batch_to_ids
from elmokit.compat.allennlp.embedder import ElmoEmbedder
from elmokit.compat.allennlp.source import ConfigurationError

__all__ = ["ConfigurationError", "Elmo", "ElmoEmbedder", "ElmoTokenEmbedder", "ScalarMix", "batch_to_ids"]
