"""The recurrence, once per machine; one contract, chosen here."""

from elmokit.kernels.contract import LstmRules, LstmState, LstmWeights, Recurrence
from elmokit.kernels.reference import reference_lstm

__all__ = ["LstmRules", "LstmState", "LstmWeights", "Recurrence", "reference_lstm"]
