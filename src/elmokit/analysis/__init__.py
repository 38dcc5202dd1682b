"""What the layers of an encoder know: probes, word senses, words in context, neighbours, drift."""

from typing import TYPE_CHECKING

from elmokit._lazy import lazy

if TYPE_CHECKING:
    from elmokit.analysis.align import AlignConfig, Found, Translation, align_anchors, identical_words, read_word_list
    from elmokit.analysis.anchors import Anchors, index_anchors, text_anchors
    from elmokit.analysis.drift import Agreement, DriftConfig, WordDrift, compare_gold, measure_drift, read_gold
    from elmokit.analysis.mixes import read_mixes
    from elmokit.analysis.neighbours import Context, Neighbours, find_neighbours
    from elmokit.analysis.pair_files import PlacedWord, WordPair, read_pairs
    from elmokit.analysis.pairs import pair_cosines, spearman
    from elmokit.analysis.probe import ProbeConfig
    from elmokit.analysis.probing import ProbeScore, Probing
    from elmokit.analysis.retrieval import Retrieval, retrieve_tokens
    from elmokit.analysis.sense_files import SenseSentence, read_all_words, read_semcor, read_sense_index
    from elmokit.analysis.senses import SenseCentroids, SenseScores, score_senses, train_centroids
    from elmokit.analysis.views import View, list_views
    from elmokit.analysis.word_labels import WordLabels, read_word_labels
    from elmokit.analysis.word_senses import SensesConfig, WordSenses, find_uses, group_senses

__all__ = [
    "Agreement", "AlignConfig", "Anchors", "Context", "DriftConfig", "Found", "Neighbours", "PlacedWord",
    "ProbeConfig", "ProbeScore", "Probing", "Retrieval", "SenseCentroids", "SenseScores", "SenseSentence",
    "SensesConfig", "Translation", "View", "WordDrift", "WordLabels", "WordPair", "WordSenses", "align_anchors",
    "compare_gold", "find_neighbours", "find_uses", "group_senses", "identical_words", "index_anchors",
    "list_views", "measure_drift", "pair_cosines", "read_all_words", "read_gold", "read_mixes", "read_pairs",
    "read_semcor", "read_sense_index", "read_word_labels", "read_word_list", "retrieve_tokens", "score_senses",
    "spearman", "text_anchors", "train_centroids",
]  # fmt: skip

__getattr__, __dir__ = lazy(
    __name__,
    {
        "align": "AlignConfig Found Translation align_anchors identical_words read_word_list",
        "anchors": "Anchors index_anchors text_anchors",
        "drift": "Agreement DriftConfig WordDrift compare_gold measure_drift read_gold",
        "mixes": "read_mixes",
        "neighbours": "Context Neighbours find_neighbours",
        "pair_files": "PlacedWord WordPair read_pairs",
        "pairs": "pair_cosines spearman",
        "probe": "ProbeConfig",
        "probing": "ProbeScore Probing",
        "retrieval": "Retrieval retrieve_tokens",
        "sense_files": "SenseSentence read_all_words read_semcor read_sense_index",
        "senses": "SenseCentroids SenseScores score_senses train_centroids",
        "views": "View list_views",
        "word_labels": "WordLabels read_word_labels",
        "word_senses": "SensesConfig WordSenses find_uses group_senses",
    },
)
