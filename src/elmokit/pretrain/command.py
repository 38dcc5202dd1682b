"""What the commands `pretrain` and `finetune` do once their settings are known: corpora, exit codes, closing words."""

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from elmokit.errors import InputError
from elmokit.pretrain.config import FinetuneConfig, PretrainConfig
from elmokit.pretrain.corpus.text import Corpus
from elmokit.pretrain.finetune import finetune, own_tokenizer, prepare_finetuning
from elmokit.pretrain.journal import say
from elmokit.pretrain.plan import count_corpus, measure_speed, suggest, told
from elmokit.pretrain.run import TextNeeds, prepare_text, pretrain
from elmokit.pretrain.trainer import Progress, Stopped
from elmokit.text import Tokenizer, load_tokenizer
from elmokit.weights import load_pretrained
from elmokit.weights.card import CONVERT
from elmokit.weights.pretrained import Pretrained


def corpus_of(config: PretrainConfig, paths: Sequence[str], tokenizer: Tokenizer | None = None) -> Corpus:
    """The text as the configuration reads it; its tokenizer is the one given, or that of the configuration."""
    chosen = tokenizer or load_tokenizer(config.tokenizer)
    return Corpus(
        paths=list(paths), tokenizer=chosen, lines=config.lines, field=config.text_field, dedupe=config.dedupe
    )


def start_pretraining(
    config: PretrainConfig,
    paths: Sequence[str] | None,
    folder: Path,
    *,
    heldout: Sequence[str] | None = None,
    prepared: Path | None = None,
    teacher: str | None = None,
    device: str | None = None,
    show: bool = True,
) -> None:
    """Trains or resumes; when a signal stopped it, saves and exits with 128 + signal."""
    with stopping_cleanly():
        ended = pretrain(
            config,
            corpus_of(config, paths) if paths else None,
            folder,
            heldout=corpus_of(config, heldout) if heldout else None,
            prepared=prepared,
            teacher=_teacher(teacher),
            device=device,
            show=show,
        )
    best = f"; best held-out perplexity {ended.best:.2f}" if math.isfinite(ended.best) else ""
    say(f"{_ending(ended)}{best}")
    say(f"the model is in {folder / 'model'}")


def prepare_only(
    config: PretrainConfig,
    paths: Sequence[str],
    folder: Path | None,
    *,
    model: str | None = None,
    heldout: Sequence[str] | None = None,
    new_softmax: bool = False,
    show: bool = True,
) -> None:
    """Prepares text for runs elsewhere: for new models, or for fine-tuning `model` (None: the bundled one)."""
    if folder is None:
        raise InputError("--prepare-only needs a place for what it makes of the text; say where with --prepared FOLDER")
    if isinstance(config, FinetuneConfig):
        pretrained = load_pretrained(model, softmax=not new_softmax)
        tokenizer = own_tokenizer(config, pretrained)
        other = corpus_of(config, heldout, tokenizer) if heldout else None
        corpus = corpus_of(config, paths, tokenizer)
        prepare_finetuning(config, pretrained, corpus, folder, heldout=other, show=show)
    else:
        corpus, other = corpus_of(config, paths), corpus_of(config, heldout) if heldout else None
        needs = TextNeeds(tokenizer=corpus.tokenizer, max_characters=config.max_characters)
        prepare_text(config, corpus, folder, needs, heldout=other, show=show)
    say(f"the prepared text is in {folder}; train on it, here or elsewhere, with --prepared and without a corpus")


def show_plan(config: PretrainConfig, paths: Sequence[str], *, device: str | None = None) -> None:
    """Counts the text, tries the speed, and prints what to train."""
    corpus = corpus_of(config, paths)
    counts = count_corpus(corpus, workers=config.workers or None)
    chosen = measure_speed(suggest(counts), corpus, device=device)
    print("\n".join(told(counts, chosen, config, list(paths))))


def start_finetuning(
    config: FinetuneConfig,
    model: str | None,
    paths: Sequence[str] | None,
    folder: Path,
    *,
    heldout: Sequence[str] | None = None,
    prepared: Path | None = None,
    new_softmax: bool = False,
    teacher: str | None = None,
    device: str | None = None,
    show: bool = True,
) -> None:
    """The same for fine-tuning; prints perplexity before and after."""
    pretrained = load_pretrained(model, softmax=not new_softmax)
    if pretrained.softmax is not None and pretrained.vocabulary is None:
        say(
            f"{pretrained.source}: its softmax comes without a vocabulary (vocab.txt in the model's folder), so its "
            "rows mean nothing; a new one is learnt"
        )
    tokenizer = own_tokenizer(config, pretrained)
    with stopping_cleanly():
        ended = finetune(
            config,
            pretrained,
            corpus_of(config, paths, tokenizer) if paths else None,
            folder,
            heldout=corpus_of(config, heldout, tokenizer) if heldout else None,
            prepared=prepared,
            teacher=_teacher(teacher),
            device=device,
            show=show,
        )
    say(_ending(ended.progress))
    if ended.before.predictions:
        when = " (with a new softmax, the rest as it was)" if ended.new_softmax else ""
        say(f"held-out perplexity: {ended.before.mean:.2f} before{when}, {ended.progress.best:.2f} after")
    hdf5 = f", as HDF5 in {folder / 'official'}" if pretrained.format == "official" else ""
    say(f"the model is in {folder / 'model'}{hdf5}")
    kind = "int4" if config.stored_as == "int4" else "int8"
    say(f"to store it {CONVERT[kind]}: elmokit convert {folder / 'model'} SMALLER --dtype {kind}")


def _ending(ended: Progress) -> str:
    if not ended.early:
        return f"finished after {ended.step:,} steps"
    of = f" of {ended.total:,}" if ended.total else ""
    return f"no better validation in {ended.worse:,}: stopped by --patience at step {ended.step:,}{of}"


def _teacher(model: str | None) -> Pretrained | None:
    return None if model is None else load_pretrained(model, softmax=False)


@contextmanager
def stopping_cleanly() -> Iterator[None]:
    """A run that a signal stopped ends with one line and status 128 + signal, as in a shell."""
    try:
        yield
    except Stopped as stopped:
        say(str(stopped))
        sys.exit(128 + stopped.signal_number)
