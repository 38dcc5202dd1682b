"""The biLM as a language model: probabilities of sentences, words for a place in one, and sampling.

lm = LanguageModel.from_pretrained("path/to/model")
lm.score("The river burst its banks .").forward_total
lm.perplexity(Path("heldout.txt.xz")).mean
lm.fill("He sat on the ___ of the river .").both[0].word
lm.sample("Once upon a time", seed=1).tokens
"""

from elmokit.lm.model import LanguageModel
from elmokit.lm.predictions import BLANK, Candidate, Predictions
from elmokit.lm.sampling import Sample
from elmokit.lm.scores import PerplexityReport, SentenceScore

__all__ = ["BLANK", "Candidate", "LanguageModel", "PerplexityReport", "Predictions", "Sample", "SentenceScore"]
