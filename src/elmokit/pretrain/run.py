"""Raw text in, model out: what `elmokit pretrain` does. A run is a folder, and the same call goes on with it.

    run/config.json      what the run computes; another configuration in the same folder is refused
    run/corpus/          the prepared text (vocabulary, lexicon, shards)
    run/checkpoints/     the newest complete states
    run/log.jsonl        loss, speed and perplexity; the same in run/tensorboard/
    run/model/           the best model so far, ready for use
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from elmokit.errors import ConfigError
from elmokit.formats import write_text
from elmokit.pretrain.build import Preparation
from elmokit.pretrain.build import Progress as Made
from elmokit.pretrain.config import PretrainConfig, from_dict, to_dict
from elmokit.pretrain.corpus import Corpus
from elmokit.pretrain.objective import Objective
from elmokit.pretrain.prepare import prepare
from elmokit.pretrain.prepared import PreparedCorpus
from elmokit.pretrain.processes import World
from elmokit.pretrain.rows import TypeRows
from elmokit.pretrain.trainer import Progress, Trainer
from elmokit.pretrain.validation import Perplexity, Validation
from elmokit.weights import save_pretrained
from elmokit.weights.pretrained import CodecSpec, Pretrained, SoftmaxTensors, TokenizerSpec


def pretrain(
    config: PretrainConfig,
    corpus: Corpus,
    folder: str | Path,
    *,
    heldout: Corpus | None = None,
    prepared: str | Path | None = None,
    device: str | None = None,
    show: bool = True,
) -> Progress:
    """Trains a biLM on a corpus into a folder, or goes on with the run that lies there; returns where it ended.

    `heldout` is other text for validation instead of a share of the corpus; `prepared` another place for the prepared
    text, which several runs can share.
    """
    world = World.join(device)
    folder = Path(folder)
    if world.leads:
        claim(folder, config)
    text = prepared_text(config, corpus, Path(prepared or folder / "corpus"), world, heldout=heldout, show=show)
    codec = codec_spec(config, text)
    objective = Objective(
        config.model(n_words=len(text.vocabulary)),
        config.output(),
        len(text.vocabulary),
        dropout=config.dropout,
        dtype=training_dtype(config, world.device),
        device=world.device,
    )
    objective.initialise(config.seed)
    rows = TypeRows(
        text.lexicon, codec.build(config.max_characters), vocabulary=len(text.vocabulary), device=world.device
    )
    validation = Validation(text.heldout, vocabulary=len(text.vocabulary), tokens=config.valid_tokens, rows=rows)

    def save_model(perplexity: Perplexity) -> None:
        save_pretrained(packed(objective, config, text, codec, perplexity), folder / "model")

    trainer = Trainer(
        config, objective, text.train, validation,
        folder=folder, world=world, rows=rows, save_model=save_model, show=show,
    )  # fmt: skip
    try:
        return trainer.run()
    finally:
        world.leave()


def claim(folder: Path, config: PretrainConfig) -> None:
    """Makes the folder this run's own, or finds that it is; leftovers of interrupted writes are cleared away."""
    path = folder / "config.json"
    folder.mkdir(parents=True, exist_ok=True)
    if path.exists():
        there = from_dict(json.loads(path.read_text(encoding="utf-8")), source=str(path))
        if changed := there.differences(config):
            raise ConfigError(
                f"{folder}: holds a run of another configuration ({'; '.join(changed)}); give the same settings to go "
                "on with it, or another output folder"
            )
    for leftover in (folder / "checkpoints").glob(".*.tmp"):
        leftover.unlink(missing_ok=True)
    write_text(path, json.dumps(to_dict(config), indent=1) + "\n")


def prepared_text(
    config: PretrainConfig, corpus: Corpus, folder: Path, world: World, *, heldout: Corpus | None, show: bool
) -> PreparedCorpus:
    """The text as numbers; the first process makes it, the others wait for it."""
    if world.leads:
        plan = Preparation(
            vocab_size=config.vocab_size,
            min_count=config.min_count,
            heldout=heldout if heldout is not None else config.heldout,
            max_characters=config.max_characters,
        )
        columns = (TextColumn("[bold]{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        with Bar(*columns, console=Console(stderr=True), disable=not show, transient=True) as bar:
            task = bar.add_task("reading the corpus", total=None)

            def tell(made: Made) -> None:
                bar.update(task, description=f"{made.stage} the corpus", completed=made.done, total=made.total)

            text = prepare(corpus, folder, plan, workers=config.workers or None, progress=tell)
        if show:
            describe(text)
    world.wait()
    return text if world.leads else PreparedCorpus.open(folder)


def describe(text: PreparedCorpus) -> None:
    r = text.report
    console = Console(stderr=True)
    console.print(
        f"{r.sentences:,} sentences, {r.tokens:,} tokens, {r.types:,} word types; vocabulary {r.vocabulary:,} covers "
        f"{r.coverage:.2%}; held out {r.heldout_sentences:,} sentences, {r.heldout_tokens:,} tokens "
        f"({1 - r.heldout_coverage:.2%} <UNK>)",
        highlight=False,
    )
    odd = {"empty lines": r.empty_lines, "bad bytes": r.bad_bytes, "cut lines": r.cut_lines}
    odd["words over the character limit"] = r.overlong_tokens
    if any(odd.values()):
        console.print(", ".join(f"{n:,} {name}" for name, n in odd.items() if n), style="dim", highlight=False)


def codec_spec(config: PretrainConfig, text: PreparedCorpus) -> CodecSpec:
    return CodecSpec("words", words=text.vocabulary.words) if config.input == "words" else CodecSpec("bytes")


def training_dtype(config: PretrainConfig, device: torch.device) -> torch.dtype:
    half = config.precision == "bfloat16" or (config.precision == "auto" and device.type == "cuda")
    return torch.bfloat16 if half else torch.float32


def packed(
    objective: Objective, config: PretrainConfig, text: PreparedCorpus, codec: CodecSpec, perplexity: Perplexity
) -> Pretrained:
    """The model as it stands, with all that its files should say."""
    report = text.report
    extra: dict[str, Any] = {
        "training": {
            "config": to_dict(config),
            "corpus": asdict(report),
            "heldout_perplexity": asdict(perplexity),
        }
    }
    softmax = objective.softmax
    tensors = SoftmaxTensors(softmax.weight.detach(), softmax.bias.detach())
    return Pretrained.of(
        objective.bilm,
        codec=codec,
        tokenizer=TokenizerSpec(text.tokenizer_name, text.tokenizer_version),
        vocabulary=text.vocabulary.words,
        softmax=tensors,
        extra=extra,
    )
