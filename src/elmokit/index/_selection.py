"""Which tokens of a text an index keeps."""

from collections import Counter
from collections.abc import Mapping

from elmokit.index.settings import IndexSettings
from elmokit.text import Sentence

# The closed classes of English and the commonest auxiliaries: words that are everywhere and mean little by themselves.
ENGLISH_STOP_WORDS = tuple(
    """
    a about above after again against all also am an and any are as at be because been before being below between both
    but by can could did do does doing down during each either else ever every few for from further had has have having
    he her here hers herself him himself his how i if in into is it its itself just let many may me might more most much
    must my myself neither no nor not now of off on once one only onto or other our ours ourselves out over own per same
    shall she should since so some such than that the their theirs them themselves then there these they this those
    though through thus to too under until up upon us very was we were what when where whether which while who whom
    whose why will with within without would yet you your yours yourself yourselves
    's 'm 're 've 'd 'll n't na ca wo
    """.split()  # noqa: SIM905  (easier to read and to add to)
)


class WordFilter:
    """The positions of a sentence that are kept; it counts what it lets through, for `per_word`."""

    def __init__(self, settings: IndexSettings, counts: Mapping[str, int]) -> None:
        self.settings = settings
        self.counts = Counter(counts)
        self.only = {word.casefold() for word in settings.words}
        self.stop = {word.casefold() for word in settings.stop_words}
        self._known: dict[str, bool] = {}  # answers for types, of which a text has few

    def positions(self, sentence: Sentence) -> list[int]:
        kept = [t for t, token in enumerate(sentence.tokens) if self._wanted(token)]
        if self.settings.per_word is None:
            return kept
        within = []
        for t in kept:
            token = sentence.tokens[t]
            if self.counts[token] < self.settings.per_word:
                self.counts[token] += 1
                within.append(t)
        return within

    def _wanted(self, token: str) -> bool:
        known = self._known.get(token)
        if known is None:
            folded = token.casefold()
            known = self._known[token] = (
                len(token) >= max(self.settings.min_length, 1)
                and (self.settings.punctuation or any(map(str.isalnum, token)))
                and (not self.only or folded in self.only)
                and folded not in self.stop
            )
        return known
