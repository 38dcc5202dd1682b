"""`Explorer`: what the page can ask for. Every method gives work in steps; see `elmokit.explore.steps`."""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from elmokit.analysis.drift import DriftConfig, Measure
from elmokit.encoders import Elmo, Encoder
from elmokit.errors import InputError
from elmokit.explore import blank, change, cloud, facts, groups, labels, sentence
from elmokit.explore.cloud import Cloud
from elmokit.explore.steps import Progress, Steps, finish, packed
from elmokit.index import ENGLISH_STOP_WORDS, Index
from elmokit.lm import LanguageModel
from elmokit.tasks.catalogue import CATALOGUE
from elmokit.tasks.saved import TaskModel, read_description

KEPT_BYTES = 384 << 20  # of clouds
AT_ONCE = 1_500  # occurrences whose layers are computed without being asked for
LONG = 5  # letters of a word to begin with: shorter ones are mostly grammar
STOP = frozenset(ENGLISH_STOP_WORDS)


class Explorer:
    """A model, and what was given beside it: indexes, task models, training runs, probes. May be used by many threads.

    Indexes and task models are known by their names. The language model, and the task models in the folders `ready`,
    are loaded when they are first needed.
    """

    def __init__(
        self,
        encoder: Encoder,
        *,
        indexes: Mapping[str, Index] | None = None,
        tasks: Mapping[str, TaskModel[Any, Any]] | None = None,
        ready: Mapping[str, Path] | None = None,
        runs: Sequence[Path] = (),
        probes: Sequence[Path] = (),
        model: str | None = None,
        lm: Callable[[], LanguageModel] | None = None,
    ) -> None:
        self.encoder, self.model = encoder, model
        self.indexes, self.tasks = dict(indexes or {}), dict(tasks or {})
        self.ready = {name: folder for name, folder in (ready or {}).items() if name not in self.tasks}
        self.runs = named(runs)
        self.probes = facts.read_probes(probes)
        self._load_lm = lm or self._own_lm
        self._lm: LanguageModel | None = None
        self._lock, self._loading = Lock(), Lock()
        self._clouds: OrderedDict[tuple[Any, ...], Cloud] = OrderedDict()
        self._model_facts: dict[str, Any] | None = None

    def warm_up(self) -> None:
        """Computes what the first view needs, so that it opens at once."""
        for first in (self.about(), self.sentence(("A first sentence.", "And another."))):
            finish(first)

    def about(self) -> Steps[dict[str, Any]]:
        """All that was given, in facts."""
        yield Progress(0, 1)
        return {
            "model": self._described(),
            "predicts": self._predicts(),
            "indexes": [
                {**facts.describe_index(name, index), "fits": self._fits(index)} for name, index in self.indexes.items()
            ],
            "tasks": self._described_tasks(),
            "runs": list(self.runs),
            "probes": self.probes,
            "projections": cloud.methods(),
        }

    def sentence(self, texts: Sequence[str]) -> Steps[dict[str, Any]]:
        return sentence.compare_sentences(self.encoder, texts)

    def nearest(self, index: str, text: str, position: int) -> Steps[dict[str, Any]]:
        return sentence.nearest_words(self._index(index), self.encoder, text, position)

    def blank(self, text: str, n: int = 12) -> Steps[dict[str, Any]]:
        yield Progress(0, 1, "loading the language model" if self._lm is None else "", model=True)
        return (yield from blank.fill_or_score(self.lm, text, n=n))

    def words(self, index: str, prefix: str = "", most: int = 120) -> Steps[dict[str, Any]]:
        """The most frequent words of an index that begin so; those that tell something; the one to show first."""
        yield Progress(0, 1)
        words, folded = self._index(index).words, prefix.casefold()
        found = [(word, n) for word, n in words.items() if word.casefold().startswith(folded)]
        found.sort(key=lambda pair: (-pair[1], pair[0]))
        telling = [word for word, _ in found if _tells(word)]
        long = [word for word in telling if len(word) >= LONG]
        few = [word for word in long if words[word] <= AT_ONCE]
        return {
            "words": [{"word": word, "count": n} for word, n in found[:most]],
            "telling": telling[:most],
            "first": next(iter(few or long or telling or [word for word, _ in found]), ""),
        }

    def word(
        self,
        indexes: Sequence[str],
        word: str,
        *,
        layers: str = "some",
        projection: str = "pca",
        limit: int = cloud.MOST_POINTS,
    ) -> Steps[dict[str, Any]]:
        """The occurrences of a word as lines and points.

        `layers` "own": as the index holds them; "all": every layer of the model; "some": all if there are few.
        """
        found = yield from self._cloud(indexes, word, limit)
        fits = all(map(self._fits, found.indexes))
        if layers == "all" or (layers == "some" and fits and len(found) <= AT_ONCE):
            found = yield from self._all_layers(found)
        yield Progress(0, 1, "projecting")
        points = cloud.project(found, method=projection)
        order = [name for name in self.encoder.layer_names if name in points]
        order += [name for name in points if name not in order]
        return {
            "word": word,
            "spelled": found.spelled,
            "total": found.total,
            "indexes": list(indexes),
            "side": packed(found.sides),
            "own": found.own if found.own in points else order[-1],
            "more": fits and not all(name in points for name in self.encoder.layer_names),
            "layers": [{"name": name, "points": packed(points[name])} for name in order],
            "lines": found.lines,
            **_numbered("source", found.sources),
            "fields": [
                {"name": name, **_numbered("value", [fields.get(name, "") for fields in found.fields])}
                for name in found.field_names
            ],
            **({"apart": packed(groups.apart(found))} if len(indexes) == 2 and len(found) <= 2 * 4_000 else {}),
        }

    def groups(
        self,
        indexes: Sequence[str],
        word: str,
        *,
        layer: str | None = None,
        clusters: int | None = None,
        limit: int = cloud.MOST_POINTS,
    ) -> Steps[dict[str, Any]]:
        """Sense groups of a word's occurrences."""
        found = yield from self._cloud(indexes, word, limit, layer)
        yield Progress(0, 1, "grouping")
        made = groups.group(found, layer=layer, clusters=clusters)
        return {**made, "labels": packed(made["labels"])}

    def substitutes(
        self,
        indexes: Sequence[str],
        word: str,
        examples: Sequence[Sequence[int]],
        *,
        limit: int = cloud.MOST_POINTS,
    ) -> Steps[dict[str, Any]]:
        """Substitutes for each group, from its typical occurrences."""
        found = yield from self._cloud(indexes, word, limit)
        if any(not 0 <= k < len(found) for some in examples for k in some):
            raise InputError(f"an occurrence was asked for that is not there; there are {len(found)}")
        return {"groups": (yield from groups.substitutes(found, self.lm, examples))}

    def similar(
        self,
        indexes: Sequence[str],
        word: str,
        number: int,
        *,
        layer: str | None = None,
        limit: int = cloud.MOST_POINTS,
    ) -> Steps[dict[str, Any]]:
        """How like one occurrence all others are."""
        found = yield from self._cloud(indexes, word, limit, layer)
        if not 0 <= number < len(found):
            raise InputError(f"occurrence {number} was asked for, but there are {len(found)}")
        return {"scores": packed(groups.similar_to(found, number, layer=layer))}

    def change(self, first: str, second: str, *, by: Measure = "net", min_count: int = 10) -> Steps[dict[str, Any]]:
        config = DriftConfig(by=by, min_count=min_count, per_word=max(200, min_count), examples=0)
        return change.rank_words(self._index(first), self._index(second), config=config)

    def answer(self, task: str, text: str, second: str = "") -> Steps[dict[str, Any]]:
        if task not in self.tasks and task not in self.ready:
            there = ", ".join([*self.tasks, *self.ready])
            raise InputError(f"no task model {task!r}; there are {there or 'none'}")
        if task not in self.tasks:
            yield Progress(0, 1, "loading the task model", model=True)
            self._load_task(task)
        return (yield from labels.answer(self.tasks[task], text, second))

    def layers(self, index: str) -> Steps[dict[str, Any]]:
        return facts.context_by_layer(self.encoder, self._index(index))

    def run(self, name: str) -> Steps[dict[str, Any]]:
        """The curves of a training, as far as it has come."""
        if name not in self.runs:
            raise InputError(f"no run {name!r}; there are {', '.join(self.runs) or 'none'}")
        yield Progress(0, 1)
        return facts.read_run(self.runs[name])

    @property
    def lm(self) -> LanguageModel:
        """The language model that the encoder is a part of."""
        with self._lock:
            if self._lm is None:
                self._lm = self._load_lm()
            return self._lm

    def _own_lm(self) -> LanguageModel:
        if not self._predicts():
            raise InputError(
                f"{self.encoder.source} gives vectors, not probabilities; start with an ELMo that has a softmax, such "
                "as the bundled model"
            )
        assert isinstance(self.encoder, Elmo)
        return LanguageModel(self.encoder.pretrained, device=self.encoder.device, tokenizer=self.encoder.tokenizer)

    def _load_task(self, name: str) -> None:
        with self._loading:
            if name not in self.tasks:
                stated = read_description(self.ready[name]).encoder
                same = stated is not None and not stated.held and stated.fingerprint == self.encoder.fingerprint
                self.tasks[name] = TaskModel.from_pretrained(
                    self.ready[name], encoder=self.encoder if same else None, device=self.encoder.device
                )

    def _described_tasks(self) -> list[dict[str, Any]]:
        own = [labels.describe_task(name, model) for name, model in list(self.tasks.items()) if name not in self.ready]
        ready = [labels.describe_saved(name, folder) for name, folder in self.ready.items()]
        return own + sorted(ready, key=lambda one: (list(CATALOGUE).index(one["task"]), one["name"]))

    def _described(self) -> dict[str, Any]:
        if self._model_facts is None:
            self._model_facts = {**facts.describe_model(self.encoder), "given": self.model}
        return self._model_facts

    def _predicts(self) -> bool:
        return isinstance(self.encoder, Elmo) and self.encoder.pretrained.softmax is not None

    def _index(self, name: str) -> Index:
        if name not in self.indexes:
            raise InputError(f"no index {name!r}; there are {', '.join(self.indexes) or 'none'}")
        return self.indexes[name]

    def _cloud(self, indexes: Sequence[str], word: str, limit: int, layer: str | None = None) -> Steps[Cloud]:
        """From what was kept, or from the indexes; with this layer, which may have to be computed."""
        found = self._kept((*indexes, word, limit))
        if found is None:
            found = yield from self._gather(indexes, word, limit)
        if layer is not None and layer not in found.layers and layer in self.encoder.layer_names:
            found = yield from self._all_layers(found)
        return found

    def _all_layers(self, found: Cloud) -> Steps[Cloud]:
        if not all(map(self._fits, found.indexes)):
            raise InputError("the index was made with another model, so other layers cannot be computed; load that one")
        return (yield from cloud.all_layers(found, self.encoder))

    def _fits(self, index: Index) -> bool:
        """Whether the index was made with this model."""
        return index.manifest.model == self.encoder.fingerprint

    def _kept(self, key: tuple[Any, ...]) -> Cloud | None:
        with self._lock:
            if key in self._clouds:
                self._clouds.move_to_end(key)
            return self._clouds.get(key)

    def _gather(self, indexes: Sequence[str], word: str, limit: int) -> Steps[Cloud]:
        opened = [self._index(name) for name in indexes]
        if len({(index.manifest.model, index.settings.layers) for index in opened}) > 1:
            raise InputError("the indexes were made with different models or layers; make both with the same")
        made = yield from cloud.gather(opened, word, self.encoder, limit=limit)
        with self._lock:
            self._clouds[(*indexes, word, limit)] = made
            while len(self._clouds) > 1 and sum(c.nbytes for c in self._clouds.values()) > KEPT_BYTES:
                self._clouds.popitem(last=False)
        return made


def _numbered(name: str, given: Sequence[str]) -> dict[str, Any]:
    """Values that repeat: each once, as `{name}s`, and their numbers."""
    once = sorted(set(given))
    numbers = {value: k for k, value in enumerate(once)}
    return {f"{name}s": once, name: packed(np.array([numbers[value] for value in given], dtype=np.int64))}


def _tells(word: str) -> bool:
    """Whether a word is likely to have a meaning of its own: no name, no stop word, not very short."""
    return word.isalpha() and not word[0].isupper() and word not in STOP and (len(word) > 2 or not word.isascii())


def named(folders: Sequence[Path]) -> dict[str, Path]:
    """Folders by their last part, with as much before it as tells them apart."""
    parts = [folder.expanduser().absolute().parts for folder in folders]
    names: dict[str, Path] = {}
    for k, folder in enumerate(folders):
        length = 1
        while length < len(parts[k]) and any(
            parts[k][-length:] == other[-length:] for n, other in enumerate(parts) if n != k and other != parts[k]
        ):
            length += 1
        names["/".join(parts[k][-length:])] = folder
    return names
