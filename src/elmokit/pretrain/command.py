"""What the commands `pretrain` and `finetune` do once their settings are known: corpora, exit codes, closing words."""

import sys
from collections.abc import Sequence
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
    console = Console(stderr=True)
    try:
        ended = pretrain(
            config,
            corpus_of(config, paths),
            folder,
            heldout=corpus_of(config, heldout) if heldout else None,
            prepared=prepared,
            device=device,
            show=show,
        )
    except Stopped as stopped:
        console.print(str(stopped), highlight=False)
        sys.exit(128 + stopped.signal_number)
    console.print(f"finished after {ended.step:,} steps; best held-out perplexity {ended.best:.2f}", highlight=False)
    console.print(f"the model is in {folder / 'model'}", highlight=False)
