"""Notices training that has diverged: a loss far above its best for a while, or above where it began."""

import math
from dataclasses import dataclass

from elmokit.config import Count, Measured
from elmokit.errors import ElmokitError

SMOOTHING = 1 / 50  # of the mean: it covers about the last 50 steps
FIRST = 5  # steps whose mean is the loss at the beginning
PATIENCE = 100  # steps with a loss that is too high and does not fall
FAR, FAR_SHARE = 1.0, 0.25  # too high: above the best by more than this many nats, and by more than this share of it
LEARNS_WITHIN, RISE = 500, 0.5  # too high after so many steps: above the beginning by more than this many nats
SPIKE = 10.0  # one step counts as at most so many nats above the mean


class DivergedError(ElmokitError):
    """The loss is far above what it was: the weights are of no use any more."""


@dataclass(slots=True)
class Watch:
    """Follows the loss step by step. Saved in checkpoints, so a resumed run decides like one that was never stopped.

    Shuffled text is alike everywhere, so the loss is compared with its best. In corpus order the text may become
    harder, and the loss is compared with its beginning.
    """

    shuffled: bool = True
    steps: Count = 0
    mean: Measured = 0.0
    first: Measured = math.inf
    lowest: Measured = math.inf
    high: Count = 0  # steps, since the mean became too high, that did not lower it

    def see(self, loss: float) -> None:
        """The loss of the next step."""
        self.steps += 1
        if self.steps > 1:
            loss = min(loss, self.mean + (SPIKE if self.steps > FIRST else 1.0))
        self.mean += (loss - self.mean) * max(1 / self.steps, SMOOTHING)
        if self.steps == FIRST:
            self.first = self.lowest = self.mean
        elif self.steps > FIRST and self.shuffled:
            self.lowest = min(self.lowest, self.mean)
        self.high = self.high + (loss >= self.mean) if self._rise > 1 else 0

    @property
    def diverged(self) -> bool:
        return self.high >= PATIENCE or not math.isfinite(self.mean)

    @property
    def suspect(self) -> bool:
        """Whether the loss is rising, so that a checkpoint may already hold bad weights."""
        return self._rise > 0.25 or not math.isfinite(self.mean)

    @property
    def _rise(self) -> float:
        """How far the mean has risen; above 1 is too high."""
        if self.steps <= FIRST:
            return 0.0
        from_best = (self.mean - self.lowest) / max(FAR, FAR_SHARE * self.lowest)
        late = self.shuffled and self.steps >= LEARNS_WITHIN
        return max(from_best, (self.mean - self.first) / RISE) if late else from_best
