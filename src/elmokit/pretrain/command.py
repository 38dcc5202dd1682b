"""What the commands `pretrain` and `finetune` do once their settings are known: corpora, exit codes, closing words."""

import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from elmokit.pretrain.config import PretrainConfig
from elmokit.pretrain.corpus import Corpus
from elmokit.pretrain.run import pretrain
from elmokit.pretrain.trainer import Stopped
from elmokit.text import load_tokenizer


def corpus_of(config: PretrainConfig, paths: Sequence[str]) -> Corpus:
    tokenizer = load_tokenizer(config.tokenizer)
    return Corpus(paths=list(paths), tokenizer=tokenizer, lines=config.lines, field=config.text_field)


def run_pretrain(
    config: PretrainConfig,
    paths: Sequence[str],
    folder: Path,
    *,
    heldout: Sequence[str] | None = None,
    prepared: Path | None = None,
    device: str | None = None,
    show: bool = True,
) -> None:
    """Trains or goes on; exits with 128 + signal when it was stopped by one, its state saved."""
    with stopping_cleanly():
        ended = pretrain(
            config,
            corpus_of(config, paths),
            folder,
            heldout=corpus_of(config, heldout) if heldout else None,
            prepared=prepared,
            device=device,
            show=show,
        )
    best = f"; best held-out perplexity {ended.best:.2f}" if math.isfinite(ended.best) else ""
    say(f"finished after {ended.step:,} steps{best}")
    say(f"the model is in {folder / 'model'}")


@contextmanager
def stopping_cleanly() -> Iterator[None]:
    """A run that was asked to stop ends with one line and 128 + signal, as shells count."""
    try:
        yield
    except Stopped as stopped:
        say(str(stopped))
        sys.exit(128 + stopped.signal_number)


def say(text: str) -> None:
    """A line on standard error, from the first of all processes."""
    if os.environ.get("RANK", "0") == "0":
        Console(stderr=True).print(text, highlight=False, soft_wrap=True)
