"""A model for Vietnamese, made and judged, from raw text to a table. Stop it at any time: the same command resumes it.

    python benchmarks/vietnamese.py vietnamese/ [--shared ../shared] [--device cuda] [--jobs 3]
    python benchmarks/vietnamese.py vietnamese/ --only train --minutes 1.5 --jobs 3 --device cuda
    python benchmarks/vietnamese.py vietnamese/ --only judge [--model MODEL]
    python benchmarks/vietnamese.py vietnamese/ --preset medium --dropout 0.25 --minutes 3.2
        --flags="--optimizer muon --learning-rate 0.004 --schedule constant --decay 0.7 --valid-every 1500 --patience 0"
    python benchmarks/vietnamese.py trial/ --lines 300 --preset tiny --steps 6 --trial-steps 3
        --seeds 1 --sentences 60 --tag-epochs 1

1. Short runs choose the dropout by held-out perplexity.
2. One long run with the best of them, stopped when validation no longer improves.
3. Perplexity on the held-out documents.
4. Static vectors of the same text (PPMI and a truncated SVD; Levy and Goldberg 2014): the baseline without context.
5. Probes for the parts of speech of UD VTB, by layer.
6. Taggers with and without ELMo, over several seeds. VTB's words of several syllables are read as their syllables,
   whose vectors are averaged, and beside it as one token.

What is finished lies in FOLDER and is not done again. The table is printed and written to FOLDER/results.json. Steps 1
to 3 (`--only train`) and 4 to 6 (`--only judge`) can be run apart, on two machines.
"""

import argparse
import json
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from elmokit.encoders import WordTable
from elmokit.formats.atomic import write_text
from elmokit.formats.streams import read_lines
from elmokit.text import load_tokenizer

TOKENIZER = "unicode@2"
DROPOUTS = (0.1, 0.2, 0.3)
Numbers = NDArray[np.int64]
WORDS, WIDTH, WINDOW, SMOOTHED = 30_000, 256, 5, 0.75  # of the static vectors


def elmokit(*given: object) -> str:
    """Run a command; its standard output."""
    command = [sys.executable, "-m", "elmokit", *map(str, given)]
    print("+ elmokit", *given, file=sys.stderr, flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"elmokit {given[0]} ended with status {done.returncode}")
    return done.stdout


def once(path: Path, make: Callable[[], Any]) -> Any:
    """What the file holds, or what is made and put there."""
    if not path.exists():
        write_text(path, json.dumps(make(), ensure_ascii=False, indent=1))
    return json.loads(path.read_text(encoding="utf-8"))


def sample(source: Path, target: Path, lines: int) -> Path:
    """The first lines of a text, or the text itself."""
    if not lines:
        return source
    if not target.exists():
        write_text(target, "\n".join(islice(read_lines(source), lines)) + "\n")
    return target


def first_sentences(source: Path, target: Path, count: int) -> Path:
    """The first sentences of a CoNLL-U file, or the file itself."""
    if not count:
        return source
    if not target.exists():
        parts = "\n".join(read_lines(source)).split("\n\n")[:count]
        write_text(target, "\n\n".join(parts) + "\n\n")
    return target


def best_perplexity(run: Path) -> float:
    """The best validation of a run."""
    log = map(json.loads, (run / "log.jsonl").read_text(encoding="utf-8").splitlines())
    found = [record["perplexity"] for record in log if "perplexity" in record]
    return min(found) if found else float("inf")


def train_static(texts: Iterable[str], path: Path) -> None:
    """Positive pointwise mutual information of words in a window, and the first directions of its SVD."""
    cut = load_tokenizer(TOKENIZER)
    sentences = [sentence.tokens for line in texts for sentence in cut.split(line)]
    counts = Counter(token for tokens in sentences for token in tokens)
    words = [word for word, count in counts.most_common(WORDS) if count > 2]
    places = {word: k for k, word in enumerate(words)}
    gap = [-1] * WINDOW
    rows = np.array([row for tokens in sentences for row in (*(places.get(t, -1) for t in tokens), *gap)])
    keys, values = pair_counts(rows, len(words))
    left, right = np.divmod(keys, len(words))
    own = np.bincount(left, weights=values, minlength=len(words))
    gain = np.log(values * (own**SMOOTHED).sum() / (own[left] * own[right] ** SMOOTHED))
    kept = gain > 0
    indices = torch.from_numpy(np.stack([left[kept], right[kept]]))
    matrix = torch.sparse_coo_tensor(
        indices, torch.from_numpy(gain[kept]).float(), (len(words), len(words)), check_invariants=True
    )
    matrix = matrix.coalesce()
    torch.manual_seed(0)
    u, s, _ = torch.svd_lowrank(matrix, q=min(WIDTH, len(words) - 1), niter=4)
    WordTable(words, (u * s.sqrt()).numpy().astype(np.float32), "PPMI and SVD").save(path)


def pair_counts(rows: Numbers, words: int) -> tuple[Numbers, Numbers]:
    """Pairs of words in a window, as row * words + column, and how often each stands there; -1 is no word."""
    keys, values = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    for distance in range(1, WINDOW + 1):
        a, b = rows[:-distance], rows[distance:]
        there = (a >= 0) & (b >= 0)
        for pair in (a[there] * words + b[there], b[there] * words + a[there]):
            found, counts = np.unique(pair, return_counts=True)
            keys, places = np.unique(np.concatenate([keys, found]), return_inverse=True)
            values = np.bincount(places, weights=np.concatenate([values, counts])).astype(np.int64)
    return keys, values


def train_model(given: argparse.Namespace, text: Path) -> None:
    """Short runs for the dropout, and the long run; all share one prepared text."""
    folder = given.folder
    shape = ("--preset", given.preset, "--tokenizer", TOKENIZER, "--dedupe", "--vocab-size", given.vocab_size)
    common = (*shape, "--prepared", folder / "corpus", "--quiet", "--device", given.device)

    def trial(dropout: float, steps: int = given.trial_steps) -> float:
        run = folder / f"trial-{dropout}"
        elmokit("pretrain", text, "-o", run, *common, "--valid-every", steps, "--steps", steps, "--dropout", dropout)
        return best_perplexity(run)

    def tried(dropout: float) -> float:
        return float(once(folder / f"trial-{dropout}.json", lambda: trial(dropout)))

    dropout = given.dropout
    if dropout is None:
        first = tried(DROPOUTS[0])  # it prepares the text
        with ThreadPoolExecutor(given.jobs) as pool:
            trials = dict(zip(DROPOUTS, (first, *pool.map(tried, DROPOUTS[1:])), strict=True))
        dropout = min(DROPOUTS, key=lambda rate: trials[rate])
    length = ("--steps", given.steps) if given.steps else ("--epochs", given.epochs)
    length = ("--minutes", given.minutes) if given.minutes else length
    elmokit(
        "pretrain",
        text,
        "-o",
        folder / "run",
        *common,
        *length,
        "--dropout",
        dropout,
        "--patience",
        4,
        *shlex.split(given.flags),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--lines", type=int, default=0, help="paragraphs of the text; 0: all")
    parser.add_argument("--preset", default="small")
    parser.add_argument("--vocab-size", type=int, default=50_000)
    parser.add_argument("--epochs", type=float, default=15)
    parser.add_argument("--steps", type=int, default=0, help="of the long run; 0: by its epochs")
    parser.add_argument("--minutes", type=float, default=0, help="of the long run, instead of epochs")
    parser.add_argument("--trial-steps", type=int, default=1500)
    parser.add_argument("--dropout", type=float, help="of the long run; default: the short runs choose it")
    parser.add_argument("--flags", default="", help="more of `elmokit pretrain`, for the long run")
    parser.add_argument("--only", choices=("train", "judge"), help="steps 1 to 3, or 4 to 6, alone")
    parser.add_argument("--model", type=Path, help="judge this one; default: that of the long run")
    parser.add_argument("--jobs", type=int, default=1, help="short runs and taggers at once")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sentences", type=int, default=0, help="of each part of the treebank; 0: all")
    parser.add_argument("--tag-epochs", type=int, default=0, help="of small taggers; 0: usual ones, until they stop")
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    folder, corpora, treebank = given.folder, given.shared / "corpora", given.shared / "eval" / "pos-vietnamese"
    folder.mkdir(parents=True, exist_ok=True)
    text = sample(corpora / "wikipedia-vietnamese.txt.xz", folder / "text.txt", given.lines)
    heldout = sample(corpora / "heldout" / "wikipedia-vietnamese.txt.xz", folder / "heldout.txt", given.lines)
    train, dev = (
        first_sentences(treebank / f"vi_vtb-ud-{part}.conllu.xz", folder / f"{part}.conllu", given.sentences)
        for part in ("train", "dev")
    )
    device = ("--device", given.device)
    if given.only != "judge":
        train_model(given, text)
    model = given.model or folder / "run" / "model"
    perplexity = once(
        folder / "perplexity.json",
        lambda: json.loads(elmokit("perplexity", heldout, "-m", model, "--json", *device).splitlines()[-1]),
    )
    if given.only == "train":
        return
    static = folder / "static.safetensors"
    if not static.exists():
        train_static(read_lines(text), static)
    encoders = {"syllables": f"syllables:{model}", "words": str(model), "static": f"syllables:static:{static}"}
    probes = {
        name: once(
            folder / f"probe-{name}.json",
            lambda s=source: [
                json.loads(line) for line in elmokit("probe", train, dev, "-m", s, "-l", "upos", "--json").splitlines()
            ],
        )
        for name, source in encoders.items()
    }
    systems = {
        "no ELMo": ("--elmo-at", "none"),
        "ELMo over syllables": ("-m", encoders["syllables"]),
        "ELMo, a word as one token": ("-m", encoders["words"]),
        "its layer 0 only": ("-m", encoders["syllables"], "--elmo-layers", "0"),
        "static vectors of the same text": ("-m", encoders["static"]),
    }
    quick = ("--quick", "--epochs", str(given.tag_epochs)) if given.tag_epochs else ()

    def tag(number: int, flags: tuple[str, ...], seed: int) -> float:
        place = folder / f"tagger-{number}-{seed}"

        def score() -> float:
            files = ("--train", train, "--dev", dev, "-o", place)
            elmokit("train", "pos", *files, "--seed", seed, "--quiet", *quick, *device, *flags)
            record = json.loads(elmokit("evaluate", place, dev, "--json", *device).splitlines()[-1])
            return next(float(value) for key, value in record.items() if key != "file")

        return float(once(place.with_suffix(".json"), score))

    with ThreadPoolExecutor(given.jobs) as pool:
        runs = {
            name: [pool.submit(tag, number, flags, seed) for seed in range(given.seeds)]
            for number, (name, flags) in enumerate(systems.items())
        }
        scores = {name: [run.result() for run in its] for name, its in runs.items()}
    trained = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("trial-*.json"))}
    write_text(
        folder / "results.json",
        json.dumps({"trials": trained, "perplexity": perplexity, "probes": probes, "tags": scores}),
    )
    print("perplexity after the short runs, by dropout", *(f"{k}: {v:.1f}" for k, v in trained.items()), sep="\n  ")
    print("held-out documents:", json.dumps(perplexity))
    for name, rows in probes.items():
        for row in rows:
            print("probe", name, json.dumps(row))
    base = float(np.mean(scores["no ELMo"]))
    print(f"\n{'UPOS accuracy, VTB dev':34} mean   of {given.seeds} seeds   error gone")
    for name, values in scores.items():
        mean = float(np.mean(values))
        gone = (mean - base) / (1 - base) if base < 1 else 0.0
        print(f"{name:34} {mean:6.2%}  {' '.join(f'{v:.2%}' for v in values)}  {gone:6.1%}")


if __name__ == "__main__":
    main()
