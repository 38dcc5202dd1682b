"""How good a model is, in one table: what it predicts, and what its layers know.

    python benchmarks/quality.py MODEL [--shared ../shared] [--only pos,ner] [--device cuda] [--json quality.json]

perplexity  held-out text of each source, full softmax, every sentence from zero state and with state carried in file
            order (the text runs as --streams contiguous parts side by side, each from zero state)
pos         UPOS on UD English EWT dev: logistic regression on each layer
wsd         senseval2, nearest sense centroid in each layer, trained on SemCor (brown1 and brown2, all words; brownv,
            verbs). First sense: WordNet's. Covered: instances whose lemma and part of speech SemCor has; of all
            instances, the others take the first sense
ner, chunk  span F1 on CoNLL-2003 and CoNLL-2000 dev: a one-layer BiLSTM-CRF on the learned mix of all layers and
            nothing else, and the same on layer 0, the static vectors of the same model

stored      with --against MODEL: the cosine of each token's vectors with those of another form of the same model (the
            weights as trained, before they were rounded), on held-out text

Vectors are computed once in float32 and kept as float16, in memory or with --cache in files that a later run of the
same model finds again. All of it takes minutes on a GPU. On a CPU the limits make it shorter: --train-sentences takes
evenly spaced sentences of EWT and CoNLL, --per-sense leaves out sentences of SemCor whose senses (of lemmas in the
test) were met that often before, --heldout-sentences takes the first of each source. The table says what was limited.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from elmokit import Elmo, Sentence
from elmokit.analysis.probe import ProbeConfig, fit_probe
from elmokit.analysis.sense_files import read_all_words, read_semcor, read_sense_index, unescape_senses
from elmokit.analysis.senses import count_senses, few_per_sense, score_senses, train_centroids
from elmokit.formats import read_conllu, read_lines
from elmokit.lm import LanguageModel, PerplexityReport, SentenceScore
from elmokit.tasks.layers import CachedLayers, LayerTable, embed_layers
from elmokit.tasks.run import Listener, spaced, train_task
from elmokit.tasks.setup import load_setup
from elmokit.tasks.tagging.network import TaggedExample
from elmokit.tasks.tagging.task import CHUNK, NER, Tagging

UPOS = 3  # column of CoNLL-U
SEMCOR = ("brown1", "brown2", "brownv")
EVERY = 15.0  # seconds between lines of progress
# The tagger of ner and chunk reads nothing but the encoder's vectors, so that what comes out measures them.
PLAIN_TAGGER = {"word_dim": 0, "char_dim": 0, "lstm_layers": 1, "hidden": 200, "elmo_l2": 0.0, "elmo_dropout": 0.0}


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    part: str
    what: str
    value: float
    note: str = ""


@dataclass(frozen=True)
class Settings:
    """What the command line said."""

    model: str
    shared: Path
    device: str
    cache: Path | None
    batch_tokens: int | None
    train_sentences: int
    per_sense: int
    heldout_sentences: int
    against: str | None
    streams: int
    seeds: int
    first_seed: int
    epochs: int


def say(message: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {message}", file=sys.stderr, flush=True)


class Progress:
    """A line on standard error now and then; called with how much is done of how much."""

    def __init__(self, what: str) -> None:
        self.what, self.begun = what, time.monotonic()
        self.last = self.begun

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self.last > EVERY:
            self.last = now
            say(f"{self.what}: {done:,} of {total:,}, {done / (now - self.begun):,.0f} a second")


# ---------------------------------------------------------------- language model


def measure_perplexity(settings: Settings) -> Iterator[Row]:
    lm = LanguageModel.from_pretrained(settings.model, device=settings.device)
    yield Row("perplexity", "words in the softmax", len(lm.vocabulary))
    for path in sorted((settings.shared / "corpora" / "heldout").glob("*.xz")):
        source = path.name.partition(".")[0]
        sentences = [s for line in read_lines(path) for s in lm.tokenizer.split(line) if len(s)]
        sentences = sentences[: settings.heldout_sentences or None]
        say(f"perplexity: {source}, {len(sentences):,} sentences, {sum(map(len, sentences)):,} words")
        tokens = settings.batch_tokens
        alone = _report(lm.scores(sentences, batch_tokens=tokens), len(sentences), source)
        unknown = f"{alone.unknown_share:.2%} of targets <UNK>, {alone.words:,} words"
        yield Row("perplexity", f"{source}, each sentence from zero state", alone.mean, unknown)
        streams = min(settings.streams, len(sentences))
        carried = _report(lm.scores(sentences, carried=True, streams=streams), len(sentences), f"{source}, carried")
        yield Row("perplexity", f"{source}, state carried", carried.mean, f"{streams} streams")


def _report(scores: Iterator[tuple[int, SentenceScore]], total: int, what: str) -> PerplexityReport:
    progress = Progress(f"perplexity, {what}")

    def watched() -> Iterator[SentenceScore]:
        for done, (_, score) in enumerate(scores, 1):
            progress(done, total)
            yield score

    return PerplexityReport.of(watched())


# ---------------------------------------------------------------- layers


class Bench:
    """The model and the texts it has embedded."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.eval = settings, settings.shared / "eval"

    @cached_property
    def elmo(self) -> Elmo:
        return Elmo.from_pretrained(self.settings.model, device=self.settings.device)

    def embed(self, what: str, sentences: Sequence[Sentence]) -> LayerTable:
        say(f"{what}: embedding {len(sentences):,} sentences, {sum(map(len, sentences)):,} tokens")
        settings = self.settings
        return embed_layers(
            self.elmo, sentences, folder=settings.cache, batch_tokens=settings.batch_tokens, told=Progress(what)
        )

    # -------------------------------------------------------- stored numbers

    def measure_stored(self) -> Iterator[Row]:
        """Sentences of all sources, 200 of each unless told otherwise."""
        if self.settings.against is None:
            raise SystemExit("quality.py: the part 'stored' needs --against MODEL")
        other = Elmo.from_pretrained(self.settings.against, device=self.settings.device)
        sentences: list[Sentence] = []
        for path in sorted((self.settings.shared / "corpora" / "heldout").glob("*.xz")):
            found = [s for line in read_lines(path) for s in other.tokenizer.split(line) if len(s)]
            sentences += spaced(found, self.settings.heldout_sentences or 200)
        cosines: list[list[np.ndarray]] = [[] for _ in other.layer_names]
        pairs = zip(self.elmo.stream(sentences, layers="all"), other.stream(sentences, layers="all"), strict=True)
        for (_, mine), (_, theirs) in pairs:
            for found, a, b in zip(cosines, mine, theirs, strict=True):
                found.append((a * b).sum(axis=-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1))
        for k, name in enumerate(other.layer_names):
            values = np.concatenate(cosines[k])
            note = f"mean cosine, {len(values):,} words; lowest {values.min():.5f}"
            yield Row("stored", f"layer {k} ({name})", float(values.mean()), note)

    # -------------------------------------------------------- part of speech

    def measure_pos(self) -> Iterator[Row]:
        folder = self.eval / "pos-ewt"
        train, dev = (_conllu(folder / f"en_ewt-ud-{part}.conllu.xz") for part in ("train", "dev"))
        train = spaced(train, self.settings.train_sentences)
        classes = sorted({tag for _, tags in train for tag in tags})
        tables = [self.embed(f"pos {part}", [s for s, _ in items]) for part, items in (("train", train), ("dev", dev))]
        wanted, held = (
            np.array([classes.index(tag) if tag in classes else -1 for _, tags in items for tag in tags])
            for items in (train, dev)
        )
        for k, name in enumerate(self.elmo.layer_names):
            config = ProbeConfig(device=self.settings.device)
            probe = fit_probe(tables[0].layer(k), wanted, len(classes), config=config)
            value = 100 * probe.accuracy(tables[1].layer(k), held)
            say(f"pos: layer {k} {value:.2f}")
            yield Row("pos", f"layer {k} ({name})", value, f"accuracy, {len(train):,} training sentences")

    # -------------------------------------------------------- word senses

    def measure_wsd(self) -> Iterator[Row]:
        folder, settings = self.eval / "wsd", self.settings
        index = read_sense_index(read_lines(folder / "wordnet3.0_index.sense.xz"), name="index.sense")
        train = [
            unescape_senses(tagged)
            for part in SEMCOR
            for tagged in read_semcor(read_lines(folder / f"semcor3.0_{part}.tsv.xz"), name=part, known=index)
        ]
        data, gold = folder / "senseval2.data.xml.xz", folder / "senseval2.gold.key.txt.xz"
        test = [unescape_senses(tagged) for tagged in read_all_words(data, gold)]
        frequencies = count_senses(train)
        # Sentences without a lemma of the test change nothing; --per-sense leaves out more.
        lemmas = {instance.lemma for tagged in test for instance in tagged.instances}
        kept = few_per_sense(train, lemmas, most=settings.per_sense or len(train))
        say(f"wsd: {len(kept):,} sentences, {sum(len(tagged.sentence) for tagged in kept):,} tokens")
        tokens = settings.batch_tokens
        centroids = train_centroids(self.elmo, kept, batch_tokens=tokens, told=Progress("wsd"))
        found = score_senses(self.elmo, centroids, test, index, frequencies=frequencies, batch_tokens=tokens)
        limit = f", at most about {settings.per_sense} of a sense" if settings.per_sense else ""
        about = f"{found.covered:,} covered instances; all {found.instances:,}: "
        for k, name in enumerate(found.layer_names):
            note = f"{about}{100 * found.layers_all[k]:.1f}{limit}"
            yield Row("wsd", f"layer {k} ({name})", 100 * found.layers[k], note)
        note = f"{about}{100 * found.first_sense_all:.1f}"
        yield Row("wsd", "WordNet's first sense", 100 * found.first_sense, note)
        note = f"{about}{100 * found.most_frequent_all:.1f}"
        yield Row("wsd", "most frequent sense in SemCor", 100 * found.most_frequent, note)

    # -------------------------------------------------------- spans

    def measure_ner(self) -> Iterator[Row]:
        return self._tag(NER, self.eval / "ner-conll2003")

    def measure_chunk(self) -> Iterator[Row]:
        return self._tag(CHUNK, self.eval / "chunk-conll2000")

    def _tag(self, task: Tagging, folder: Path) -> Iterator[Row]:
        train = spaced(task.read(folder / "train.txt.xz", task.settings), self.settings.train_sentences)
        dev = task.read(folder / "dev.txt.xz", task.settings)
        distinct = {example.sentence.tokens: example.sentence for example in (*train, *dev)}
        table = self.embed(task.name, list(distinct.values()))
        layers = CachedLayers(table, {tokens: k for k, tokens in enumerate(distinct)})
        for what, chosen in (("mix of all layers", "mix"), ("layer 0 alone", "0")):
            yield self._train(task, what, chosen, layers, train, dev)

    def _train(
        self,
        task: Tagging,
        what: str,
        chosen: str,
        layers: CachedLayers,
        train: Sequence[TaggedExample],
        dev: Sequence[TaggedExample],
    ) -> Row:
        scores, shares = [], []
        flags = {**PLAIN_TAGGER, "elmo_layers": chosen, "epochs": self.settings.epochs, "patience": 4}
        first = self.settings.first_seed
        for seed in range(first, first + self.settings.seeds):
            model = train_task(
                task,
                load_setup(task, flags={**flags, "seed": seed}),
                train,
                dev,
                encoder=self.elmo,
                layers=layers,
                device=self.settings.device,
                listener=Listener(epoch=_epoch_teller(f"{task.name}, {what}, seed {seed}")),
            )
            assert model.trained is not None
            scores.append(100 * model.trained.best.score)
            shares.append(model.mixes["input"]["shares"] if model.mixes else [1.0])
        weights = ", ".join(f"{share:.2f}" for share in np.mean(shares, axis=0))
        spread = f" (from {min(scores):.2f} to {max(scores):.2f})" if len(scores) > 1 else ""
        note = f"F1, {len(train):,} training sentences, {len(scores)} seed{'s' * (len(scores) > 1)}{spread}"
        return Row(task.name, what, float(np.mean(scores)), f"{note}; layer weights {weights}")


def _epoch_teller(what: str) -> Callable[..., None]:
    return lambda epoch: say(f"{what}, epoch {epoch.number}: loss {epoch.loss:.3f}, dev {100 * epoch.score:.2f}")


def _conllu(path: Path) -> list[tuple[Sentence, list[str]]]:
    return [(s.sentence, [row[UPOS] for row in s.rows]) for s in read_conllu(read_lines(path), name=str(path))]


# ---------------------------------------------------------------- the table


def print_table(rows: Sequence[Row]) -> None:
    width = max((len(row.what) for row in rows), default=0)
    part = ""
    for row in rows:
        if row.part != part:
            part = row.part
            print(f"\n{part}")
        digits = 5 if row.part == "stored" else 0 if row.value == int(row.value) and row.value > 1000 else 2
        print(f"  {row.what:{width}}  {row.value:9,.{digits}f}  {row.note}")


def main() -> None:
    names = ("perplexity", "pos", "wsd", "ner", "chunk", "stored")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a model folder, archive, hub id or bundled name")
    parser.add_argument("--shared", type=Path, default=Path("../shared"), help="where corpora/ and eval/ lie")
    parser.add_argument("--only", help="parts to measure, with commas; default all but stored, that too with --against")
    parser.add_argument("--against", help="the same model in another form, for the part stored")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", type=Path, help="write the table here, too")
    parser.add_argument("--cache", type=Path, help="keep the vectors of EWT and CoNLL in this folder")
    parser.add_argument("--batch-tokens", type=int, help="positions per batch when embedding; default by device")
    parser.add_argument("--train-sentences", type=int, default=0, help="of EWT and CoNLL; 0: all")
    parser.add_argument("--per-sense", type=int, default=0, help="occurrences of a sense in SemCor; 0: all")
    parser.add_argument("--heldout-sentences", type=int, default=0, help="of each source; 0: all")
    parser.add_argument("--streams", type=int, default=32, help="parts of a text that run side by side")
    parser.add_argument("--seeds", type=int, default=1, help="trainings of each tagger; the mean counts")
    parser.add_argument("--first-seed", type=int, default=1, help="seed of the first, for several processes at once")
    parser.add_argument("--epochs", type=int, default=30, help="of each tagger, at most")
    given = vars(parser.parse_args())
    usual = ",".join(name for name in names if name != "stored" or given["against"])
    only, out = (given.pop("only") or usual).split(","), given.pop("json")
    if unknown := set(only) - set(names):
        parser.error(f"no part {', '.join(sorted(unknown))}; available are {', '.join(names)}")
    settings = Settings(**given)
    rows: list[Row] = []
    took: dict[str, float] = {}
    bench = Bench(settings)
    measures: dict[str, Callable[[], Iterator[Row]]] = {
        "perplexity": lambda: measure_perplexity(settings),
        "pos": bench.measure_pos,
        "wsd": bench.measure_wsd,
        "ner": bench.measure_ner,
        "chunk": bench.measure_chunk,
        "stored": bench.measure_stored,
    }
    for name in (name for name in names if name in only):
        begun = time.monotonic()
        rows += measures[name]()
        took[name] = round(time.monotonic() - begun, 1)
        say(f"{name}: {took[name]:.0f} seconds")
        if out is not None:  # after each part, so that a later failure loses nothing
            table = {"settings": asdict(settings), "rows": [asdict(row) for row in rows], "seconds": took}
            out.write_text(json.dumps(table, indent=2, default=str) + "\n")
    print_table(rows)


if __name__ == "__main__":
    main()
