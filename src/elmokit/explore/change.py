"""What the Change view shows: words by how differently two corpora use them."""

from typing import Any

from elmokit.analysis.drift import MEASURES, DriftConfig, measure_drift
from elmokit.errors import InputError
from elmokit.explore.steps import Progress, Steps
from elmokit.index import ENGLISH_STOP_WORDS, Index

WORDS_AT_ONCE = 8


def rank_words(
    first: Index, second: Index, *, config: DriftConfig | None = None, most: int = 400
) -> Steps[dict[str, Any]]:
    """The measures of `elmokit drift` for all words that are frequent enough in both, stop words aside."""
    config = config or DriftConfig(examples=0)
    stop = set(ENGLISH_STOP_WORDS)
    common = [
        word
        for word in first.words.keys() & second.words.keys()
        if min(first.words[word], second.words[word]) >= config.min_count and word.casefold() not in stop
    ]
    if not common:
        raise InputError(
            f"no word occurs {config.min_count} times in both {first.folder.name} and {second.folder.name}; index more "
            "text, or ask for fewer occurrences"
        )
    common.sort(key=lambda word: (-min(first.words[word], second.words[word]), word))
    found = []
    for at in range(0, len(common), WORDS_AT_ONCE):
        yield Progress(at, len(common), "measuring words")
        found += measure_drift(first, second, words=common[at : at + WORDS_AT_ONCE], config=config)
    found.sort(key=lambda drift: (-getattr(drift, config.by), drift.word))
    words = [
        {
            "word": drift.word,
            "first": drift.first,
            "second": drift.second,
            **{measure: getattr(drift, measure) for measure in MEASURES},
            "p": drift.chance(config.by),
        }
        for drift in found[:most]
    ]
    return {"by": config.by, "compared": len(found), "sizes": [len(first), len(second)], "words": words}
