"""Probes over an encoder's layers and mixes: accuracy, a control task beside it, and the curve over training sizes.

A probe on many numbers can memorise words. The control task shows how well: every word type has a random label.
Selectivity is the task's accuracy minus the control's: what the vectors say beyond which word it is.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis.intervals import Interval, mean_interval
from elmokit.analysis.probe import ProbeConfig, fit_mixed_probe, fit_probe
from elmokit.analysis.views import View
from elmokit.analysis.word_labels import WordLabels, control_labels, label_ids
from elmokit.encoders import Encoder
from elmokit.errors import InputError
from elmokit.tasks.layers import Told, embed_layers
from elmokit.text import Sentence


@dataclass(frozen=True, slots=True)
class ProbeScore:
    """Shares of right labels on the second text of a probe trained on the first."""

    view: str
    sentences: int  # it was trained on
    words: int
    classes: int
    accuracy: float
    control: float  # on the control task
    majority: float  # of always saying the label that is most frequent in training
    shares: tuple[float, ...] = ()  # of the layers, where a mix was learned
    interval: Interval = Interval(0.0, 1.0)  # of the accuracy, over sentences

    @property
    def selectivity(self) -> float:
        return self.accuracy - self.control


class Probing:
    """An encoder and two texts, the second held out: vectors are computed once, for any labels, views and sizes.

    `folder` keeps the vectors in files that a later run finds again.
    """

    def __init__(
        self,
        encoder: Encoder,
        train: Sequence[Sentence],
        dev: Sequence[Sentence],
        *,
        folder: Path | None = None,
        batch_tokens: int | None = None,
        told: Told | None = None,
    ) -> None:
        self.encoder = encoder
        self.train = embed_layers(encoder, train, folder=folder, batch_tokens=batch_tokens, told=told)
        self.dev = embed_layers(encoder, dev, folder=folder, batch_tokens=batch_tokens, told=told)

    def score(
        self,
        train: WordLabels,
        dev: WordLabels,
        views: Sequence[View],
        *,
        sentences: int | None = None,
        seed: int = 0,
        config: ProbeConfig | None = None,
    ) -> Iterator[ProbeScore]:
        """A score for each view, trained on all sentences or on `sentences` of them.

        Which ones and the labels of the control task come from `seed`; a smaller choice is part of a larger one.
        """
        rows = self._rows(train, dev, sentences, seed)
        values, held = self.train.values if rows is None else self.train.values[rows], self.dev.values
        words, labels = train.words, train.flat
        if rows is not None:
            words, labels = [words[k] for k in rows], [labels[k] for k in rows]
        counts = Counter(labels)
        names = sorted(counts)
        drawn = [control_labels(side, counts, seed=seed) for side in (words, dev.words)]
        task = label_ids(labels, names), label_ids(dev.flat, names)
        control = label_ids(drawn[0], names), label_ids(drawn[1], names)
        majority = float(np.mean(task[1] == names.index(counts.most_common(1)[0][0])))
        sizes = np.diff(self.dev.starts)
        groups = np.repeat(np.arange(len(sizes)), sizes)
        for view in views:
            right, shares = _fit(view, values, held, *task, len(names), config)
            memory, _ = _fit(view, values, held, *control, len(names), config)
            size = len(train.sentences) if sentences is None else min(sentences, len(train.sentences))
            found = _share(right), _share(memory), majority, shares, mean_interval(right, groups, seed=seed)
            yield ProbeScore(view.name, size, len(words), len(names), *found)

    def _rows(self, train: WordLabels, dev: WordLabels, sentences: int | None, seed: int) -> NDArray[np.int64] | None:
        """The training words that count; None: all."""
        for table, given in ((self.train, train), (self.dev, dev)):
            if np.diff(table.starts).tolist() != [len(labels) for labels in given.labels]:
                raise InputError("the labels do not fit the embedded sentences; expected one label for each word")
        if sentences is None:
            return None
        if sentences < 1:
            raise InputError(f"{sentences} training sentences; expected 1 or more")
        picked = np.random.default_rng(seed).permutation(len(self.train))[:sentences]
        starts = self.train.starts
        return np.concatenate([np.arange(starts[k], starts[k + 1]) for k in sorted(picked)])


def _fit(
    view: View,
    values: NDArray[np.float16],
    held: NDArray[np.float16],
    labels: NDArray[np.int64],
    wanted: NDArray[np.int64],
    n_classes: int,
    config: ProbeConfig | None,
) -> tuple[NDArray[np.bool_], tuple[float, ...]]:
    """Train on `values`, answer `held`: which are right, and the layers' shares if the view is a mix to be trained."""
    picked = view.choice.indices(values.shape[1])
    if view.choice.kind == "mix" and len(picked) > 1:
        whole = picked == list(range(values.shape[1]))
        mixed = fit_mixed_probe(values if whole else values[:, picked], labels, n_classes, config=config)
        answers = mixed.predict(held if whole else held[:, picked])
        return answers == wanted, tuple(mixed.shares.tolist())
    probe = fit_probe(view.of_table(values), labels, n_classes, config=config)
    return probe.predict(view.of_table(held)) == wanted, ()


def _share(right: NDArray[np.bool_]) -> float:
    return float(right.mean()) if len(right) else 0.0
