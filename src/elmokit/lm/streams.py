"""A text as streams that run side by side with their states carried."""

from collections.abc import Iterable, Iterator
from itertools import pairwise

from elmokit.encoders.batches import Placed
from elmokit.errors import InputError
from elmokit.text import Sentence


def parallel_streams(sentences: Iterable[Sentence], streams: int) -> Iterator[list[Placed]]:
    """Batches of (position, sentence): row k of each is the next sentence of stream k, a contiguous part of the text.

    One stream is read as it comes. Of several, the longer ones come first, so that rows only ever leave from the back.
    """
    if streams < 1:
        raise InputError(f"{streams} streams asked for; expected at least 1")
    if streams == 1:
        yield from ([placed] for placed in enumerate(sentences))
        return
    placed = list(enumerate(sentences))
    size, longer = divmod(len(placed), streams)
    starts = [k * size + min(k, longer) for k in range(streams + 1)]
    for step in range(size + (longer > 0)):
        yield [placed[a + step] for a, b in pairwise(starts) if a + step < b]
