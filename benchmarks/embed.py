"""How fast text becomes vectors: elmokit beside the way the older tools run ELMo, and beside BERT-base.

    python benchmarks/embed.py [--quick] [--model MODEL] [--threads 2] [--json embed.json] [--plot embed.svg]

speed      the original size (93.6 M parameters, random weights) and MODEL (default: the bundled one) in every number
           type, the plain version (embed_plain.py), BERT-base (random weights) and, with --peer simple_elmo
           --peer-python PYTHON, the real simple_elmo from another environment. Words a second over the same real
           sentences, the mean of all layers coming out as NumPy arrays; the most memory the process held; the time of
           one sentence of 20 words (p50, p99 over different sentences)
accuracy   cosine to float32 of each token, worst and mean, by layer; for MODEL also what a POS probe loses that was
           trained on float32 vectors
linearity  --linearity 1000000: time and memory of MODEL for so many words, half of them and so on to 10 thousand

Every contender has a process of its own, and each round runs all of them, so that a busy machine is busy for all.
Medians of rounds count; ratios are taken within a round. A batch is a number of sentences for the others and a budget
of positions for elmokit. Word caches are emptied before each round.
"""

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.formats import read_conllu, read_lines
from elmokit.nn.bilm import BiLM, BiLMConfig, initialise
from elmokit.plots import Value, check_chart_path, draw_bars, save_chart
from elmokit.weights import Pretrained, save_pretrained
from embed_accuracy import Accuracy, probe_changes, token_cosines
from embed_contender import Contender, keep_busy, say, stop_busy
from embed_text import heldout, take_words, write_sentences

HERE = Path(__file__).parent
MODES = ("float32", "bfloat16", "int8")
CHOOSING = ("auto", "default")
UPOS = 3  # column of CoNLL-U
LEAST_WORDS = 10_000  # texts are halved until one has no more than these
ORIGINAL, MODEL, OTHERS = "original size", "model", "others"
GOALS = (  # what, contender, measured against, how many times as much is aimed at
    ("words/s", (ORIGINAL, "float32"), (ORIGINAL, "plain"), 2.5),
    ("words/s", (ORIGINAL, "bfloat16"), (ORIGINAL, "plain"), 5.0),
    ("words/s", (ORIGINAL, "int8"), (ORIGINAL, "plain"), 8.0),
    ("words/s", (ORIGINAL, "float32"), (ORIGINAL, "simple_elmo"), 1.3),
    ("words/s", (ORIGINAL, "int8"), (ORIGINAL, "simple_elmo"), 4.0),
    ("sooner", (ORIGINAL, "float32"), (ORIGINAL, "plain"), 2.0),
    ("sooner", (ORIGINAL, "int8"), (ORIGINAL, "plain"), 5.0),
    ("words/s", (MODEL, "default"), (OTHERS, "BERT-base float32"), 8.0),
    ("sooner", (MODEL, "default"), (OTHERS, "BERT-base float32"), 5.0),
)


@dataclass(frozen=True)
class Settings:
    """How much is measured."""

    model: str | None
    shared: Path
    threads: int
    only: tuple[str, ...]
    words: int
    rounds: int
    latencies: int  # sentences of 20 words in each round
    budgets: tuple[int | None, ...]  # positions per batch; None: the default
    accuracy_sentences: int
    probe_sentences: int
    linearity: int
    bert: tuple[str, ...]  # its number types
    which: str  # an expression that a contender's name must hold
    busy: int  # other processes at work meanwhile
    peer: str | None
    peer_python: str | None


# ---------------------------------------------------------------- contenders


def contenders(settings: Settings, folder: Path) -> Iterator[Contender]:
    def worker(kind: str, dtype: str, *model: str) -> list[str]:
        return [sys.executable, str(HERE / "embed_worker.py"), kind, str(settings.threads), dtype, *model]

    original = str(folder / "original")
    yield Contender(ORIGINAL, "plain", worker("plain", "float32", original), (32,))
    for mode in (*MODES, "auto"):
        yield Contender(ORIGINAL, mode, worker("ours", mode, original), settings.budgets)
    if settings.peer is not None and settings.peer_python is not None:
        command = [settings.peer_python, str(HERE / "embed_peer.py"), str(folder / "official"), str(settings.threads)]
        yield Contender(ORIGINAL, settings.peer, command, (32,))
    for mode in (*MODES, *CHOOSING):
        yield Contender(MODEL, mode, worker("ours", mode, settings.model or ""), settings.budgets)
    for dtype in settings.bert:
        yield Contender(OTHERS, f"BERT-base {dtype}", worker("bert", dtype), (8, 32))


def start_all(asked: Sequence[Contender]) -> list[Contender]:
    """Those that could be started. What `auto` and the default choose is measured once, under its own name."""
    running: list[Contender] = []
    for contender in sorted(asked, key=lambda c: c.name in CHOOSING):
        if not contender.start():
            continue
        if contender.name in CHOOSING and (contender.group, contender.mode) in {c.key for c in running}:
            contender.stop()
        else:
            running.append(contender)
    return sorted(running, key=asked.index)


# ---------------------------------------------------------------- speed


def write_original(settings: Settings, folder: Path) -> None:
    """The published size with random weights of the published scales, in our format and, for the peer, officially."""
    model = BiLM(BiLMConfig())
    initialise(model, seed=0)
    pretrained = Pretrained.of(model, source="original size")
    save_pretrained(pretrained, folder / "original")
    if settings.peer is not None:
        save_pretrained(pretrained, folder / "official", format="official")
        (folder / "official" / "vocab.txt").write_text("<S>\n</S>\n<UNK>\n")


def measure_speed(
    settings: Settings, asked: Sequence[Contender], running: list[Contender], folder: Path
) -> dict[str, Any]:
    taken = take_words(heldout(settings.shared), settings.words)
    text = write_sentences(folder / "speed.json", taken)
    twenty = [sentence for sentence in heldout(settings.shared) if len(sentence) == 20]
    words, types = sum(map(len, taken)), len({word for sentence in taken for word in sentence.tokens})
    say(f"speed: {words:,} words ({types:,} distinct) in {len(taken)} sentences, {settings.rounds} rounds")
    warm = write_sentences(folder / "warm.json", taken[:4])
    for contender in running:
        contender.ask("corpus", warm, batch=contender.batches[0])
    check_plain(running, warm, folder)
    for k in range(settings.rounds):
        one = [twenty[(k * settings.latencies + n) % len(twenty)] for n in range(settings.latencies)]
        single = write_sentences(folder / "single.json", one)
        for contender in running:
            for batch in contender.batches:
                answer = contender.ask("corpus", text, batch=batch)
                contender.seconds.setdefault(batch, []).append(answer["seconds"])
                contender.peak[batch] = max(contender.peak.get(batch, 0), answer["peak"])
            contender.milliseconds.append(contender.ask("latency", single)["milliseconds"])
            quickest = min(took[-1] for took in contender.seconds.values())
            say(f"round {k + 1} of {settings.rounds}: {', '.join(contender.key)}: {words / quickest:,.0f} words/s")
    rows = [row for contender in running for row in speed_rows(contender, words)]
    print_speed(rows)
    for contender in asked:
        if contender.name in CHOOSING and contender.mode:
            print(f"{contender.group}, {contender.name} is {contender.mode} here")
    ratios = compare(asked, running)
    return {"words": words, "distinct": types, "sentences": len(taken), "rows": rows, "ratios": ratios}


def check_plain(running: Sequence[Contender], text: Path, folder: Path) -> None:
    """The plain version must be the same model, or the comparison means nothing."""
    known = {contender.key: contender for contender in running}
    pair = [known[key] for key in ((ORIGINAL, "plain"), (ORIGINAL, "float32")) if key in known]
    if len(pair) == 2:
        plain, ours = (layers_of(contender, text, folder) for contender in pair)
        if (difference := float(np.abs(plain - ours).max())) > 1e-4:
            sys.exit(f"the plain version's vectors differ from elmokit's by {difference:g}: not the same model")


def speed_rows(contender: Contender, words: int) -> Iterator[dict[str, Any]]:
    every = sorted(took for one in contender.milliseconds for took in one)
    for batch, seconds in contender.seconds.items():
        yield {
            "group": contender.group,
            "contender": contender.name,
            "batch": batch,
            "best": batch == contender.best(),
            "words_per_second": round(words / statistics.median(seconds), 1),
            "rounds": [round(words / took, 1) for took in seconds],
            "peak_mb": round(contender.peak[batch] / 1e6),
            "p50_ms": round(statistics.median(every), 2),
            "p99_ms": round(float(np.quantile(every, 0.99)), 2),
            "told": contender.told,
        }


def print_speed(rows: Sequence[dict[str, Any]]) -> None:
    print(f"\n{'':31} {'batch':>8} {'words/s':>10} {'peak MB':>9} {'p50 ms':>8} {'p99 ms':>8}")
    for row in rows:
        batch = "default" if row["batch"] is None else f"{row['batch']:,}"
        name = f"{row['group']}, {row['contender']}"
        mark = "*" if row["best"] else " "
        numbers = f"{row['words_per_second']:10,.0f} {row['peak_mb']:9,} {row['p50_ms']:8.1f} {row['p99_ms']:8.1f}"
        print(f"{name:31} {batch:>7}{mark} {numbers}")
    print("* the contender's best batch size; milliseconds are of one sentence of 20 words")


def compare(asked: Sequence[Contender], running: Sequence[Contender]) -> list[dict[str, Any]]:
    """Ratios within a round, each contender at its best batch size; their median."""
    known = {contender.key: contender for contender in running}
    for contender in asked:
        if (contender.group, contender.mode) in known:
            known.setdefault(contender.key, known[contender.group, contender.mode])
    found = []
    print(f"\n{'':66} {'times':>7} {'aim':>6}")
    for what, ours, theirs, aim in GOALS:
        if ours not in known or theirs not in known:
            continue
        a, b = known[ours], known[theirs]
        if what == "words/s":
            pairs = zip(b.seconds[b.best()], a.seconds[a.best()], strict=True)
        else:
            pairs = zip(map(statistics.median, b.milliseconds), map(statistics.median, a.milliseconds), strict=True)
        ratio = statistics.median(slow / quick for slow, quick in pairs)
        said = f"{', '.join(ours)}: {what} against {', '.join(theirs)}"
        print(f"{said:66} {ratio:7.2f} {aim:6.1f}  {'' if ratio >= aim else 'not reached'}")
        found.append({"what": what, "contender": ours, "against": theirs, "ratio": round(ratio, 3), "aim": aim})
    return found


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Words a second at each contender's best batch size."""
    values = [Value(f"{row['group']}, {row['contender']}", row["words_per_second"]) for row in rows if row["best"]]
    once = {(row["group"], row["contender"]): row["p50_ms"] for row in rows}
    delays = [Value(", ".join(key), took) for key, took in once.items()]
    save_chart(draw_bars(values, title="Words a second", axis="words a second", digits=0), path)
    late = path.with_name(f"{path.stem}-latency{path.suffix}")
    save_chart(draw_bars(delays, title="One sentence of 20 words", axis="milliseconds (p50)", digits=1), late)


# ---------------------------------------------------------------- accuracy


def measure_accuracy(settings: Settings, running: list[Contender], folder: Path) -> dict[str, Any]:
    text = write_sentences(folder / "accuracy.json", list(heldout(settings.shared))[: settings.accuracy_sentences])
    found: list[Accuracy] = []
    for group in (ORIGINAL, MODEL):
        known = {contender.name: contender for contender in running if contender.group == group}
        if "float32" not in known:
            continue
        exact = layers_of(known["float32"], text, folder)
        for name, contender in known.items():
            if name in (*MODES[1:], *CHOOSING):
                found += [
                    Accuracy(group, name, *row) for row in token_cosines(exact, layers_of(contender, text, folder))
                ]
    print(f"\n{'cosine to float32':31} {'layer':>6} {'worst token':>12} {'mean':>10}")
    for row in found:
        print(f"{row.group + ', ' + row.mode:31} {row.layer:6} {row.worst:12.6f} {row.mean:10.7f}")
    known = {contender.name: contender for contender in running if contender.group == MODEL}
    return {"cosine": [asdict(row) for row in found], "probe": measure_probe(settings, known, folder)}


def measure_probe(settings: Settings, known: dict[str, Contender], folder: Path) -> list[dict[str, Any]]:
    if "float32" not in known:
        return []
    texts: list[Path] = []
    labels: list[NDArray[np.int64]] = []
    tags: dict[str, int] = {}
    for part, size in (("train", 2 * settings.probe_sentences), ("dev", settings.probe_sentences)):
        file = settings.shared / "eval" / "pos-ewt" / f"en_ewt-ud-{part}.conllu.xz"
        read = [parsed for parsed, _ in zip(read_conllu(read_lines(file), name=str(file)), range(size), strict=False)]
        texts.append(write_sentences(folder / f"{part}.json", [parsed.sentence for parsed in read]))
        column = [row[UPOS] for parsed in read for row in parsed.rows]
        labels.append(np.array([tags.setdefault(tag, len(tags)) for tag in column]))
    train = layers_of(known["float32"], texts[0], folder)
    dev = {name: layers_of(contender, texts[1], folder) for name, contender in known.items()}
    rows = [asdict(row) for row in probe_changes(train, labels[0], dev, labels[1], classes=len(tags))]
    print(f"\n{'POS probe, ' + f'{len(labels[1]):,} words':31} {'layer':>6} {'float32':>9} {'change':>8}")
    for row in rows:
        print(f"{MODEL + ', ' + row['mode']:31} {row['layer']:6} {row['exact']:9.2f} {row['change']:+8.2f}")
    return rows


def layers_of(contender: Contender, text: Path, folder: Path) -> NDArray[np.float32]:
    path = folder / "layers.npy"
    contender.ask("layers", text, path=str(path))
    layers: NDArray[np.float32] = np.load(path)
    return layers


# ---------------------------------------------------------------- linearity


def measure_linearity(settings: Settings) -> list[dict[str, Any]]:
    """A fresh process for each size, so that its peak is its own; two to five times each: the quickest counts."""
    files = [str(p) for p in sorted((settings.shared / "corpora").glob("wikipedia-*.xz"))]
    rows: list[dict[str, Any]] = []
    sizes = [settings.linearity]
    while sizes[0] > LEAST_WORDS:
        sizes.insert(0, sizes[0] // 2)
    print(f"\n{'words':>10} {'seconds':>9} {'times the half':>15} {'peak MB':>9}")
    for size in sizes:
        arguments = json.dumps({"model": settings.model, "words": size, "files": files})
        command = [sys.executable, str(HERE / "embed_stream.py"), str(settings.threads), arguments]
        runs = [
            json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
            for _ in range(min(max(2, 400_000 // size), 5))
        ]
        row = min(runs, key=lambda run: float(run["seconds"]))
        row["growth"] = round(row["seconds"] / rows[-1]["seconds"], 3) if rows else None
        rows.append(row)
        growth = "" if row["growth"] is None else f"{row['growth']:.2f}"
        print(f"{row['words']:10,} {row['seconds']:9.2f} {growth:>15} {row['peak_mb']:9,}", flush=True)
    return rows


# ---------------------------------------------------------------- command


def read_settings() -> tuple[Settings, Path | None, Path | None]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a model folder, archive, hub id or bundled name; default: the bundled model")
    parser.add_argument("--shared", type=Path, default=Path("../shared"), help="where corpora/ and eval/ lie")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of every contender")
    parser.add_argument("--quick", action="store_true", help="less text and fewer rounds: some minutes")
    parser.add_argument("--only", default="speed,accuracy", help="parts to measure, with commas")
    parser.add_argument("--words", type=int, help="of text in each round; default 12,000, --quick 2,000")
    parser.add_argument("--rounds", type=int, help="default 5, --quick 3")
    parser.add_argument("--batch-tokens", help="budgets to try, with commas; default 256,1024,4096,16384, --quick 1024")
    parser.add_argument("--which", default="", help="an expression: only contenders whose name it is found in")
    parser.add_argument("--busy", type=int, default=0, help="other processes at work meanwhile")
    parser.add_argument("--linearity", type=int, default=0, metavar="WORDS", help="measure growth up to so many words")
    parser.add_argument("--peer", choices=["simple_elmo"], help="an older tool, from another environment")
    parser.add_argument("--peer-python", help="that environment's Python")
    parser.add_argument("--json", type=Path, help="write all numbers here")
    parser.add_argument("--plot", type=Path, help="draw them here: .svg, .png or .html; latencies go beside it")
    given = parser.parse_args()
    if (given.peer is None) != (given.peer_python is None):
        parser.error("--peer and --peer-python go together")
    if given.plot is not None:
        check_chart_path(given.plot)
    quick = given.quick
    budgets = given.batch_tokens or ("1024" if quick else "256,1024,4096,16384")
    settings = Settings(
        model=given.model,
        shared=given.shared,
        threads=given.threads,
        only=tuple(given.only.split(",")),
        words=given.words or (2_000 if quick else 12_000),
        rounds=given.rounds or (3 if quick else 5),
        latencies=12 if quick else 40,
        budgets=(None, *map(int, budgets.split(","))),
        accuracy_sentences=100 if quick else 500,
        probe_sentences=300 if quick else 2000,
        linearity=given.linearity,
        bert=("float32",) if quick else ("float32", "bfloat16"),
        which=given.which,
        busy=given.busy,
        peer=given.peer,
        peer_python=given.peer_python,
    )
    return settings, given.json, given.plot


def main() -> None:
    settings, out, plot = read_settings()
    found: dict[str, Any] = {"settings": asdict(settings), "machine": platform.machine(), "cores": os.cpu_count()}
    running: list[Contender] = []
    others: list[subprocess.Popen[bytes]] = []

    def keep(part: str, measured: Any) -> None:
        """After each part, so that a later failure loses nothing."""
        found[part] = measured
        if out is not None:
            out.write_text(json.dumps(found, indent=2, default=str) + "\n")

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        try:
            if set(settings.only) & {"speed", "accuracy"}:
                write_original(settings, folder)
                asked = [c for c in contenders(settings, folder) if re.search(settings.which, ", ".join(c.key))]
                running = start_all(asked)
                others = keep_busy(settings.busy)
                found["skipped"] = {", ".join(c.key): c.missing for c in asked if c.missing}
                found["chosen"] = {", ".join(c.key): c.mode for c in asked if c.name in CHOOSING and c.mode}
            if "speed" in settings.only:
                keep("speed", measure_speed(settings, asked, running, folder))
            if "accuracy" in settings.only:
                keep("accuracy", measure_accuracy(settings, running, folder))
        finally:
            for contender in running:
                contender.stop()
            stop_busy(others)
        if settings.linearity:
            keep("linearity", measure_linearity(settings))
    for name, why in found.get("skipped", {}).items():
        print(f"not measured: {name} ({why})")
    if plot is not None and "speed" in found:
        draw(found["speed"]["rows"], plot)


if __name__ == "__main__":
    main()
