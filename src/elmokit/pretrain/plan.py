"""`elmokit pretrain --plan`: what a corpus is, what to train on it, how long that takes, and what to expect.

The suggestions are rules of thumb for a first run: a preset by the number of words, a vocabulary by what it covers,
more passes and more dropout over less text. The speed is measured by a few steps on this machine.
"""

import json
import shlex
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from elmokit.errors import InputError
from elmokit.formats.ahead import available_workers
from elmokit.pretrain.config import PRESETS, PretrainConfig, load_config
from elmokit.pretrain.corpus._encoding import encode_blocks
from elmokit.pretrain.corpus.duplicates import DuplicateReport, Duplicates
from elmokit.pretrain.corpus.text import Corpus, read_blocks
from elmokit.pretrain.journal import duration

SIZES = (5_000, 10_000, 20_000, 50_000, 100_000, 131_072, 250_000)
ENOUGH = 0.97  # of the tokens that a vocabulary covers
# Words, preset, epochs, dropout.
STEPS = ((2e6, "tiny", 15, 0.2), (3e7, "small", 15, 0.2), (1e8, "small", 10, 0.1), (1e99, "medium", 10, 0.1))
# Held-out perplexity as docs/pretraining.md and docs/languages.md have it.
MEASURED = {
    "tiny": "387 (4 MB of English news, 4 minutes on a CPU)",
    "small": "65 (Vietnamese, 17 million tokens, 5 passes) to 99 (English, 9 million tokens)",
    "medium": "44 (Vietnamese, 17 million tokens, 9 passes) to 59 (English, 97 million tokens)",
}
SAMPLE_BYTES, TRIAL_STEPS, TRIAL_ROWS = 300_000, 4, 32
MUCH = 0.02  # of the words in repetitions: then a word of warning


@dataclass(frozen=True, slots=True)
class CorpusCounts:
    """What a corpus holds."""

    lines: int
    sentences: int
    tokens: int
    types: int
    once: int  # types that occur once
    bad_bytes: int
    coverage: dict[int, float]  # by vocabulary size, the share of tokens
    duplicates: DuplicateReport
    kept: "CorpusCounts | None" = None  # the same without repetitions, where those are counted above

    @property
    def repetitive(self) -> bool:
        """Whether so much is repeated that --dedupe is advised."""
        return self.duplicates.share > MUCH

    @property
    def advised(self) -> "CorpusCounts":
        """Of the text that training should read."""
        return self.kept if self.kept is not None and self.repetitive else self


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Settings for a first run, and the time they take here."""

    preset: str
    vocab_size: int
    epochs: float
    dropout: float
    tokens_per_second: float | None = None
    device: str = "cpu"

    def seconds(self, tokens: int) -> float | None:
        """Time to train."""
        return None if not self.tokens_per_second else tokens * self.epochs / self.tokens_per_second


def count_corpus(corpus: Corpus, *, workers: int | None = None) -> CorpusCounts:
    """Reads a corpus once. Memory holds its distinct words."""
    words = Counter[str](), Counter[str]()  # of what stays without repetitions, and of these
    met = Counter[str](), Counter[str]()
    duplicates = Duplicates()
    blocks = duplicates.split(read_blocks(replace(corpus, dedupe=False)), field=corpus.field)
    for block in encode_blocks(blocks, corpus.reading, workers=available_workers() if workers is None else workers):
        own = block.words.split("\n") if block.words else []
        counts = np.bincount(block.tokens, minlength=len(own)).tolist()
        words[block.repeated].update(dict(zip(own, counts, strict=True)))
        met[block.repeated].update(sentences=len(block.lengths), bad_bytes=block.bad_bytes)
        met[0].update(lines=0 if block.repeated else block.lines)  # the first of the two counts them all
    kept = _counted(words[0], met[0], duplicates.report)
    if corpus.dedupe:
        return kept
    words[0].update(words[1])
    met[0].update(met[1])
    return replace(_counted(words[0], met[0], duplicates.report), kept=kept)


def _counted(words: Counter[str], met: Counter[str], duplicates: DuplicateReport) -> CorpusCounts:
    sizes = np.sort(np.fromiter(words.values(), dtype=np.int64, count=len(words)))[::-1]
    tokens = int(sizes.sum())
    if not tokens:
        raise InputError(f"the corpus holds no words ({met['lines']:,} lines); give it more text")
    covered = np.cumsum(sizes) / tokens
    coverage = {size: float(covered[min(size, len(sizes)) - 1]) for size in SIZES}
    once = int((sizes == 1).sum())
    return CorpusCounts(
        met["lines"], met["sentences"], tokens, len(sizes), once, met["bad_bytes"], coverage, duplicates
    )


def suggest(counts: CorpusCounts) -> Suggestion:
    """Settings by the rules above; the speed is not measured yet."""
    counts = counts.advised
    preset, epochs, dropout = next((p, e, d) for most, p, e, d in STEPS if counts.tokens < most)
    often = counts.types - counts.once
    usual = int(PRESETS[preset].get("vocab_size", 131_072))
    enough = (size for size, share in counts.coverage.items() if share >= ENOUGH)
    size = min(next(enough, usual), usual, max(often, 100))
    return Suggestion(preset, size, float(epochs), dropout)


def measure_speed(suggestion: Suggestion, corpus: Corpus, *, device: str | None = None) -> Suggestion:
    """With the tokens per second of a few real steps on this machine; on a CPU with smaller batches."""
    from elmokit.encoders.places import pick_device
    from elmokit.pretrain.run import pretrain

    place = pick_device(device or "auto")
    block = next(read_blocks(corpus, block_bytes=SAMPLE_BYTES))
    with tempfile.TemporaryDirectory(prefix="elmokit-plan-") as folder:
        rows = int(PRESETS[suggestion.preset].get("rows", 1024)) if place.type == "cuda" else TRIAL_ROWS
        flags: dict[str, Any] = {"vocab_size": suggestion.vocab_size, "rows": rows, "steps": TRIAL_STEPS}
        flags |= {"tokenizer": corpus.tokenizer.name, "lines": corpus.lines}
        flags |= {"log_every": 1, "workers": 1, "valid_tokens": 200, "heldout": 0.1}
        config = load_config(suggestion.preset, flags=flags)
        sample = Path(folder) / ("sample.jsonl" if block.kind == "jsonl" else "sample.txt")
        sample.write_bytes(block.data)
        trial = replace(corpus, paths=[sample], texts=None, format="auto", dedupe=False)
        pretrain(config, trial, Path(folder) / "run", device=str(place), show=False)
        log = (Path(folder) / "run" / "log.jsonl").read_text(encoding="utf-8").splitlines()
    speeds = [record["tokens_per_second"] for record in map(json.loads, log) if "tokens_per_second" in record]
    best = float(max(speeds[1:] or speeds)) if speeds else None  # the first step also sets things up
    return replace(suggestion, tokens_per_second=best, device=str(place))


def told(counts: CorpusCounts, suggestion: Suggestion, config: PretrainConfig, paths: list[str]) -> list[str]:
    """Lines to print."""
    found = [
        f"tokens       {counts.tokens:,} in {counts.sentences:,} sentences, {counts.lines:,} lines",
        f"types        {counts.types:,}, {counts.once:,} of them once",
        "coverage     " + ", ".join(f"{size:,}: {share:.1%}" for size, share in _useful(counts)),
        f"repetitions  {counts.duplicates.told()}",
    ]
    found += [f"             {copies:,} x  {text}" for copies, text in counts.duplicates.examples]
    if counts.bad_bytes:
        found.append(f"warning      {counts.bad_bytes:,} bytes are not UTF-8; check the encoding")
    if counts.repetitive and not config.dedupe:
        found.append("warning      repeated text is learnt by heart and makes perplexity look better: use --dedupe")
    measured = f"{suggestion.preset} models had {MEASURED[suggestion.preset]}"
    seconds = suggestion.seconds(counts.advised.tokens)
    speed = suggestion.tokens_per_second or 0
    dedupe = config.dedupe or counts.repetitive
    at = f"{'with --dedupe ' if dedupe else ''}at {speed:,.0f} tokens/s on {suggestion.device}"
    time = "not measured" if seconds is None else f"{duration(seconds)} {at}"
    found += [
        f"time         {time}; a GPU is ten to a hundred times as fast as a CPU",
        f"perplexity   {measured}; other languages and tokenizers differ",
        f"suggested    {_command(suggestion, config, paths, dedupe=dedupe)}",
    ]
    return found


def _command(suggestion: Suggestion, config: PretrainConfig, paths: list[str], *, dedupe: bool) -> str:
    """What to type in a shell: the text as it was given here, and the suggested settings."""
    settings: dict[str, Any] = {"preset": suggestion.preset, "vocab_size": suggestion.vocab_size}
    settings |= {"epochs": f"{suggestion.epochs:g}", "dropout": f"{suggestion.dropout:g}", "patience": 3}
    settings["tokenizer"] = config.tokenizer
    usual = PretrainConfig()
    settings |= {n: getattr(config, n) for n in ("lines", "text_field") if getattr(config, n) != getattr(usual, n)}
    flags = [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    return shlex.join(["elmokit", "pretrain", *paths, "-o", "run", *flags, *["--dedupe"] * dedupe])


def _useful(counts: CorpusCounts) -> list[tuple[int, float]]:
    """The sizes up to the first that covers everything."""
    return [(size, share) for size, share in counts.coverage.items() if size < counts.types] or [(counts.types, 1.0)]
