"""The parts of benchmarks/family.py: each has its data and gives a score for each system.

Every sentence runs once through each model. The layers stay on the device, where they are picked, mixed, probed and
compared.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit import Sentence
from elmokit.analysis.pair_files import PlacedWord, WordPair, read_pairs
from elmokit.analysis.pairs import DIGITS, fit_threshold, spearman, threshold_accuracy
from elmokit.analysis.probe import ProbeConfig, fit_mixed_probe, fit_probe
from elmokit.analysis.sense_files import (
    SenseInstance,
    SenseSentence,
    read_all_words,
    read_semcor,
    read_sense_index,
    unescape_senses,
)
from elmokit.analysis.senses import count_senses, few_per_sense
from elmokit.analysis.word_labels import WordLabels, label_ids, read_word_labels
from elmokit.batch import plan_batches
from elmokit.encoders.places import batch_budget
from elmokit.formats import read_lines
from elmokit.layers import LayerChoice
from elmokit.tasks.labels import convert_tags, score_spans
from family_models import Family, Settings, say, side_by_side

SEMCOR = ("brown1", "brown2", "brownv")
T = TypeVar("T")


def spaced(items: Sequence[T], most: int) -> list[T]:
    """At most so many, evenly spaced; 0: all."""
    return list(items) if not 0 < most < len(items) else [items[k * len(items) // most] for k in range(most)]


class Bench:
    """The data, and a score for each system."""

    def __init__(self, settings: Settings, family: Family) -> None:
        self.settings, self.family, self.eval = settings, family, settings.shared / "eval"
        self.device = family.models["elmo"].device

    # -------------------------------------------------------- probes

    def measure_pos(self) -> Iterator[float]:
        folder = self.eval / "pos-ewt"
        sides = [read_word_labels(folder / f"en_ewt-ud-{part}.conllu.xz", "upos") for part in ("train", "dev")]
        yield from self._probe("pos", sides[0], sides[1], _share_of_right)

    def measure_ner(self) -> Iterator[float]:
        folder = self.eval / "ner-conll2003"
        sides = []
        for part in ("train", "dev"):
            read = read_word_labels(folder / f"{part}.txt.xz", "column")
            sides.append(replace(read, labels=tuple(tuple(convert_tags(tags, "IOBES")) for tags in read.labels)))
        yield from self._probe("ner", sides[0], sides[1], lambda wanted, got: score_spans(wanted, got).f1)

    def _probe(
        self,
        part: str,
        train: WordLabels,
        dev: WordLabels,
        score: Callable[[Sequence[Sequence[str]], Sequence[Sequence[str]]], Any],
    ) -> Iterator[float]:
        settings = self.settings
        train, dev = train.some(settings.train_sentences), dev.some(settings.dev_sentences)
        names = sorted(set(train.flat))
        labels = label_ids(train.flat, names)
        ours, held = (
            {m: self._embed(f"{part}, {m}", m, s.sentences) for m in self.family.models} for s in (train, dev)
        )
        config = ProbeConfig(device=settings.device)
        shares: dict[tuple[str, str], Sequence[float]] = {}
        for system in self.family.systems:
            model, spec = system.parts[0]
            choice = LayerChoice.parse(spec)
            if len(system.parts) == 1 and choice.kind == "mix":
                picked = choice.indices(ours[model].shape[1])
                mixed = fit_mixed_probe(ours[model][:, picked], labels, len(names), config=config)
                shares[model, spec] = mixed.shares.tolist()
                answers = mixed.predict(held[model][:, picked])
            else:
                made = [side_by_side(system.parts, side, shares, unit=False) for side in (ours, held)]
                answers = fit_probe(made[0], labels, len(names), config=config).predict(made[1])
            flat = iter([names[k] for k in answers])
            got = [list(islice(flat, len(tags))) for tags in dev.labels]
            yield 100 * float(score(dev.labels, got))

    def _embed(self, what: str, model: str, sentences: Sequence[Sentence]) -> Tensor:
        """All layers of all words, one sentence after the other. (N, L, D)"""
        ends = np.cumsum([0, *map(len, sentences)])  # and begins
        say(f"{what}: embedding {len(sentences):,} sentences, {ends[-1]:,} tokens")
        encoder = self.family.models[model]
        values = torch.empty(ends[-1], encoder.depth, encoder.width, dtype=torch.float16, device=self.device)
        for batch in plan_batches(sentences, batch_tokens=batch_budget(None, self.device)):
            stack = encoder.run([sentence for _, sentence in batch]).inner()
            rows = np.concatenate([np.arange(ends[k], ends[k + 1]) for k, _ in batch])  # (n,)
            values[torch.from_numpy(rows).to(self.device)] = stack.values[:, stack.mask].transpose(0, 1).half()
        return values

    # -------------------------------------------------------- word senses

    def measure_wsd(self) -> Iterator[float]:
        folder, settings = self.eval / "wsd", self.settings
        index = read_sense_index(read_lines(folder / "wordnet3.0_index.sense.xz"), name="index.sense")
        text = [
            unescape_senses(tagged)
            for part in SEMCOR
            for tagged in read_semcor(read_lines(folder / f"semcor3.0_{part}.tsv.xz"), name=part, known=index)
        ]
        read = read_all_words(folder / "senseval2.data.xml.xz", folder / "senseval2.gold.key.txt.xz")
        test = spaced([unescape_senses(tagged) for tagged in read], settings.wsd_sentences)
        lemmas = {instance.lemma for tagged in test for instance in tagged.instances}
        kept = few_per_sense(text, lemmas, most=settings.per_sense or len(text))
        say(f"wsd: {len(count_senses(kept)):,} senses in {len(kept):,} sentences of SemCor")
        (seen, places), (asked, asked_places) = (placed_instances(side, lemmas) for side in (kept, test))
        ours, held = self._words("wsd", places), self._words("wsd", asked_places)
        senses = NearestSenses(seen, asked, device=self.device)
        for system in self.family.systems:
            sides = (side_by_side(system.parts, side, {}, unit=True) for side in (ours, held))
            answers = [
                index.first.get(instance.lemma) if answer is None else answer
                for instance, answer in zip(asked, senses.answers(*sides), strict=True)
            ]
            right = sum(answer in instance.keys for instance, answer in zip(asked, answers, strict=True))
            yield 100 * right / len(asked)

    # -------------------------------------------------------- words in context

    def measure_scws(self) -> Iterator[float]:
        pairs = self._pairs("scws/ratings.txt.xz")
        for cosines in self._cosines("scws", pairs):
            yield 100 * spearman(cosines, [pair.value for pair in pairs])

    def measure_wic(self) -> Iterator[float]:
        train, dev = self._pairs("wic/train.tsv.xz"), self._pairs("wic/dev.tsv.xz")
        same = [np.array([pair.value > 0.5 for pair in side]) for side in (train, dev)]
        for ours, held in zip(self._cosines("wic train", train), self._cosines("wic dev", dev), strict=True):
            yield 100 * threshold_accuracy(held, same[1], fit_threshold(ours, same[0]))

    def _pairs(self, path: str) -> list[WordPair]:
        return spaced(read_pairs(read_lines(self.eval / path), name=path)[1], self.settings.pairs)

    def _cosines(self, what: str, pairs: Sequence[WordPair]) -> Iterator[NDArray[np.float64]]:
        layers = self._words(what, [word for pair in pairs for word in (pair.first, pair.second)])
        for system in self.family.systems:
            unit = side_by_side(system.parts, layers, {}, unit=True).double()
            yield torch.nn.functional.cosine_similarity(unit[::2], unit[1::2]).cpu().numpy().round(DIGITS)

    def _words(self, what: str, words: Sequence[PlacedWord]) -> dict[str, Tensor]:
        """The layers of each word alone, by model; several words are averaged. (n, L, D)"""
        begins: dict[Sentence, int] = {}
        total = 0
        for word in words:
            if word.sentence not in begins:
                begins[word.sentence] = total
                total += len(word.sentence)
        owned = [(k, begins[w.sentence] + at) for k, w in enumerate(words) for at in range(w.start, w.end)]
        owners, rows = torch.tensor(owned, device=self.device).T
        counts = torch.bincount(owners, minlength=len(words))[:, None, None]
        found = {}
        for model in self.family.models:
            layers = self._embed(f"{what}, {model}", model, list(begins))[rows].float()  # (N, L, D)
            sums = layers.new_zeros(len(words), *layers.shape[1:]).index_add_(0, owners, layers)
            found[model] = (sums / counts).half()
        return found


class NearestSenses:
    """`elmokit.analysis.senses.SenseCentroids` for many systems over the same occurrences, all of them at once."""

    def __init__(self, seen: Sequence[SenseInstance], asked: Sequence[SenseInstance], *, device: torch.device) -> None:
        numbers: dict[str, int] = {}
        senses: dict[tuple[str, str], dict[int, None]] = {}  # by lemma, in the order they were met
        owned = []  # occurrence and sense
        for row, instance in enumerate(seen):
            for key in instance.keys:
                number = numbers.setdefault(key, len(numbers))
                senses.setdefault(instance.lemma, {})[number] = None
                owned.append((row, number))
        self.keys = list(numbers)
        self.candidates = [list(senses.get(instance.lemma, ())) for instance in asked]
        self.owned = torch.tensor(owned, device=device).T  # (2, N)
        tried = [(row, number) for row, many in enumerate(self.candidates) for number in many]
        self.tried = torch.tensor(tried, device=device).reshape(-1, 2).T  # (2, M)

    def answers(self, seen: Tensor, asked: Tensor) -> Iterator[str | None]:
        """The sense nearest to each vector asked for, by those seen; None for a lemma that was not seen."""
        rows, numbers = self.owned
        sums = seen.new_zeros(len(self.keys), seen.shape[1]).index_add_(0, numbers, seen[rows])  # (senses, D)
        unit = torch.nn.functional.normalize(sums, dim=1)  # cosine ignores the count
        rows, numbers = self.tried
        # Static vectors have senses that are equally near: the first of them counts, not the smallest rounding error.
        cosines = iter((unit[numbers] * asked[rows]).sum(dim=1).cpu().numpy().round(DIGITS).tolist())
        for many in self.candidates:
            near = list(islice(cosines, len(many)))
            yield self.keys[many[near.index(max(near))]] if near else None


def placed_instances(
    sentences: Sequence[SenseSentence], lemmas: set[tuple[str, str]]
) -> tuple[list[SenseInstance], list[PlacedWord]]:
    """The instances of these lemmas, and where each of them stands."""
    found = [(t.sentence, instance) for t in sentences for instance in t.instances if instance.lemma in lemmas]
    return [instance for _, instance in found], [PlacedWord(s, i.start, i.end) for s, i in found]


def _share_of_right(wanted: Sequence[Sequence[str]], got: Sequence[Sequence[str]]) -> float:
    pairs = [pair for true, guessed in zip(wanted, got, strict=True) for pair in zip(true, guessed, strict=True)]
    return sum(a == b for a, b in pairs) / len(pairs)
