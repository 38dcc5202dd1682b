"""Which paragraphs are set aside for validation: neighbours together, spread over the corpus, the same every time."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import ConfigError
from elmokit.pretrain.corpus.duplicates import mix_bits

_SHARE, _LARGEST_SHARE = 0.01, 0.05
_WANTED_TOKENS = 20_000  # a small corpus gives up to 5% for these, a large one 1% or less
_GROUP_TOKENS, _LARGEST_GROUP = 200_000, 32


@dataclass(slots=True)
class HeldOut:
    """One group of paragraphs out of every `period`, at a place hashed from its position, until `tokens` are taken.

    A group is several paragraphs in a row where the corpus is large enough: neighbours tell about each other.
    """

    period: int  # 0: nothing is held out
    group: int
    tokens: int
    taken: int = 0

    def choose(self, paragraphs: NDArray[np.int64], lengths: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """Whether each sentence is held out, by the number of its paragraph in the corpus. (sentences,)"""
        if not self.period:
            return np.zeros(len(paragraphs), dtype=np.bool_)
        windows, places = np.divmod(paragraphs // self.group, self.period)
        mixed = mix_bits(windows.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15))
        chosen = (mixed % np.uint64(self.period)).astype(np.int64)
        chosen[windows == 0] = 1  # so that the smallest corpus with two paragraphs still has one
        mask = places == chosen
        taken = self.taken + np.cumsum(np.where(mask, lengths, 0))
        mask &= taken <= self.tokens
        self.taken += int(lengths[mask].sum(dtype=np.int64))
        return np.asarray(mask)


def plan_heldout(share: float | None, *, tokens: int, estimated: int | None) -> HeldOut:
    """`share` of the text (None: about 1%, more of a small corpus), up to `tokens` of perhaps `estimated`."""
    if share is not None and not 0 <= share <= 0.5:
        raise ConfigError(f"heldout = {share}, expected a share between 0 and 0.5, or a corpus")
    group = 1 if estimated is None else min(max(estimated // _GROUP_TOKENS, 1), _LARGEST_GROUP)
    if share is None:
        share = min(max(_WANTED_TOKENS / estimated, _SHARE), _LARGEST_SHARE) if estimated else _SHARE
    if estimated:
        # Somewhat under the limit, so that an error of the estimate does not leave the corpus's end without a share.
        share = min(share, 0.8 * tokens / estimated)
    return HeldOut(max(round(1 / share), 2) if share else 0, group, tokens)
