"""What the Blank view shows: words for a blank, and how probable each word of a sentence is."""

from collections.abc import Sequence
from typing import Any

from elmokit.errors import InputError
from elmokit.explore.sentence import sentence_facts
from elmokit.explore.steps import Progress, Steps
from elmokit.lm import BLANK, Candidate, LanguageModel, SentenceScore
from elmokit.lm.predictions import blank_positions, read_context

MOST_TOKENS = 400


def fill_or_score(lm: LanguageModel, text: str, *, n: int = 12) -> Steps[dict[str, Any]]:
    """Of a sentence with one blank, its likeliest words; of one without, the probability of each word."""
    sentence = read_context(text, lm.tokenizer)
    if not len(sentence):
        raise InputError(f"no word was given; expected a sentence, with {BLANK} where a word is missing")
    if len(sentence) > MOST_TOKENS:
        raise InputError(f"{len(sentence)} words were given; expected {MOST_TOKENS} at most")
    yield Progress(0, 1, model=True)
    if blank_positions(sentence):
        found = lm.fill(sentence, n=n)
        sides = {"left": found.forward, "right": found.backward, "both": found.both}
        return {
            "kind": "fill",
            "tokens": list(sentence.tokens),
            "blank": blank_positions(sentence)[0],
            **{side: _listed(words) for side, words in sides.items()},
        }
    score = lm.score(sentence)
    return {"kind": "score", **sentence_facts(sentence), **_scored(lm, score)}


def _listed(words: Sequence[Candidate] | None) -> list[dict[str, Any]] | None:
    return None if words is None else [{"word": word, "probability": p} for word, p in words]


def _scored(lm: LanguageModel, score: SentenceScore) -> dict[str, Any]:
    """Log probabilities by direction. A word is surprising that its context makes less likely than its frequency."""
    ranks = lm.output.numbers(score.tokens)
    plain = lm.unigram[ranks].tolist()  # (n,): by frequency alone
    forward = None if score.forward is None else list(score.forward[:-1])
    backward = None if score.backward is None else list(score.backward[1:])
    sides = [side for side in (forward, backward) if side is not None]
    means = [sum(values) / len(values) for values in zip(*sides, strict=True)]
    return {
        "forward": forward,
        "backward": backward,
        "frequency": plain,
        "unknown": list(score.unknown),
        "surprising": [
            mean < usual and not unknown for mean, usual, unknown in zip(means, plain, score.unknown, strict=True)
        ],
        "totals": {"forward": score.forward_total, "backward": score.backward_total},
        "perplexity": score.perplexity,
    }
