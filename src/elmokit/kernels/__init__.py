"""The recurrence and the character convolution, once per machine; one contract each, chosen here."""

from elmokit.kernels.char_cnn import reference_char_cnn
from elmokit.kernels.contract import LstmRules, LstmState, LstmWeights, Recurrence
from elmokit.kernels.reference import reference_lstm

clipped_lstm = reference_lstm
char_cnn = reference_char_cnn

__all__ = ["LstmRules", "LstmState", "LstmWeights", "Recurrence", "char_cnn", "clipped_lstm", "reference_lstm"]
