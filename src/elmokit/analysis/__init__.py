"""What the layers of an encoder know: probes, word senses, words in context, neighbours, drift."""

from typing import TYPE_CHECKING

from elmokit._lazy import lazy

if TYPE_CHECKING:
    from elmokit.analysis.drift import DriftConfig, WordDrift, measure_drift
    from elmokit.analysis.mixes import read_mixes
    from elmokit.analysis.neighbours import Context, Neighbours, find_neighbours
    from elmokit.analysis.pair_files import PlacedWord, WordPair, read_pairs
    from elmokit.analysis.pairs import pair_cosines, spearman
    from elmokit.analysis.probe import ProbeConfig
    from elmokit.analysis.probing import ProbeScore, Probing
    from elmokit.analysis.sense_files import SenseSentence, read_all_words, read_semcor, read_sense_index
    from elmokit.analysis.senses import SenseCentroids, SenseScores, score_senses, train_centroids
    from elmokit.analysis.views import View, list_views
    from elmokit.analysis.word_labels import WordLabels, read_word_labels
    from elmokit.analysis.word_senses import SensesConfig, WordSenses, find_uses, group_senses

__all__ = [
    "Context", "DriftConfig", "Neighbours", "PlacedWord", "ProbeConfig", "ProbeScore", "Probing",
    "SenseCentroids", "SenseScores", "SenseSentence", "SensesConfig", "View", "WordDrift", "WordLabels",
    "WordPair", "WordSenses", "find_neighbours", "find_uses", "group_senses", "list_views", "measure_drift",
    "pair_cosines", "read_all_words", "read_mixes", "read_pairs", "read_semcor", "read_sense_index",
    "read_word_labels", "score_senses", "spearman", "train_centroids",
]  # fmt: skip

__getattr__, __dir__ = lazy(
    __name__,
    {
        "drift": "DriftConfig WordDrift measure_drift",
        "mixes": "read_mixes",
        "neighbours": "Context Neighbours find_neighbours",
        "pair_files": "PlacedWord WordPair read_pairs",
        "pairs": "pair_cosines spearman",
        "probe": "ProbeConfig",
        "probing": "ProbeScore Probing",
        "sense_files": "SenseSentence read_all_words read_semcor read_sense_index",
        "senses": "SenseCentroids SenseScores score_senses train_centroids",
        "views": "View list_views",
        "word_labels": "WordLabels read_word_labels",
        "word_senses": "SensesConfig WordSenses find_uses group_senses",
    },
)
