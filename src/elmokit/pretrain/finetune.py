"""Fine-tuning: a model continues to learn from domain text, as a language model (Peters et al. 2018, section 3.4).

A model with a softmax keeps it and its vocabulary, and may learn more words. One without gets a new softmax over the
words of the new text, learnt first while the rest is frozen, and then everything learns. A run is a folder, as in
pre-training:

- `config.json`, `corpus/`, `checkpoints/`, `log.jsonl`, `tensorboard/` as there
- `softmax/`: the first stage, where there is one
- `before.json`: held-out perplexity before the biLM changed (of a model without softmax: after the first stage)
- `model/`: the best model; beside it `official/`, HDF5 and options.json, where the model came as HDF5
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import numpy as np
import torch

from elmokit.config import plain, read_json
from elmokit.errors import ConfigError, WeightsError
from elmokit.formats.atomic import write_text
from elmokit.nn.bilm import BiLM
from elmokit.nn.softmax import Softmax, SoftmaxConfig
from elmokit.pretrain.added_words import add_rows
from elmokit.pretrain.checkpoint import checkpoints
from elmokit.pretrain.config import FinetuneConfig
from elmokit.pretrain.corpus.lexicon import SPECIALS, Vocabulary
from elmokit.pretrain.corpus.manifest import PreparedCorpus
from elmokit.pretrain.corpus.text import Corpus
from elmokit.pretrain.journal import bar, say
from elmokit.pretrain.objective import Objective, initialise_softmax
from elmokit.pretrain.processes import World
from elmokit.pretrain.rounding import check_rounding
from elmokit.pretrain.run import (
    TextNeeds,
    as_prepared,
    claimed,
    load_text,
    prepare_text,
    softmax_tensors,
    text_folder,
    training_dtype,
)
from elmokit.pretrain.step import TypeCodes
from elmokit.pretrain.teacher import Teacher, check_teacher, digest_model
from elmokit.pretrain.trainer import Progress, Trainer
from elmokit.pretrain.validation import Perplexity, Validation
from elmokit.pretrain.windows import BOS_ID, EOS_ID, UNK_ID
from elmokit.text import Tokenizer, load_tokenizer
from elmokit.weights import AdaptiveTensors, Pretrained, SoftmaxTensors, save_pretrained
from elmokit.weights.pretrained import choose_tokenizer

__all__ = ["Finetuned", "finetune", "prepare_finetuning"]

_BEFORE = "before.json"
_BLOCK = 4096  # words whose token vectors are computed at once


@dataclass(frozen=True, slots=True)
class Finetuned:
    """How a run ended: held-out perplexity before it, and in `progress.best` that of the model it saved."""

    before: Perplexity
    progress: Progress
    new_softmax: bool  # `before` is then that of the new softmax over the model as it was


def finetune(
    config: FinetuneConfig,
    pretrained: Pretrained,
    corpus: Corpus | None,
    folder: str | Path,
    *,
    heldout: Corpus | None = None,
    prepared: str | Path | None = None,
    teacher: Pretrained | None = None,
    device: str | torch.device | None = None,
    show: bool = True,
) -> Finetuned:
    """Fine-tunes a model on a corpus into a folder, or resumes the run in that folder.

    `heldout` is other text for validation instead of a share of the corpus; `prepared` another place for the prepared
    text, which several runs can share (without a corpus: text that lies there, from wherever it came); `teacher` a
    model whose layers this one learns to predict.
    """
    output = Output.of(pretrained, config)
    if config.stored_as == "int4":
        check_rounding(pretrained.config, output.kind)
    given = {"model": digest_model(pretrained)}
    if teacher is not None:
        check_teacher(teacher, pretrained.config, pretrained.codec)
        given["teacher"] = digest_model(teacher)
    folder = Path(folder)
    with World.joined(device) as world, claimed(folder, config, world, **given):
        needs, place = output.needs(config, pretrained, corpus), text_folder(corpus, prepared, folder)
        owner = None if prepared else folder
        text = load_text(config, corpus, place, world, needs, heldout=heldout, show=show, run=owner)
        if corpus is None:
            config = as_prepared(config, text, show=show and world.leads)
        return _Run(config, pretrained, output, text, folder, world, teacher=teacher, show=show).go()


def prepare_finetuning(
    config: FinetuneConfig,
    pretrained: Pretrained,
    corpus: Corpus,
    folder: str | Path,
    *,
    heldout: Corpus | None = None,
    show: bool = True,
) -> PreparedCorpus:
    """The text of a run with this model and these settings, prepared in a folder; nothing is trained."""
    needs = Output.of(pretrained, config).needs(config, pretrained, corpus)
    return prepare_text(config, corpus, Path(folder), needs, heldout=heldout, show=show)


def own_tokenizer(config: FinetuneConfig, pretrained: Pretrained) -> Tokenizer:
    """That of the configuration; if that says auto, the model's."""
    asked = None if config.tokenizer == "auto" else config.tokenizer
    named = choose_tokenizer(pretrained, asked, allow_other=True)  # text may come tokenised by the model's own
    return load_tokenizer(named.name, named.version)


@dataclass(frozen=True, slots=True)
class Output:
    """What becomes of a model's output layer."""

    kind: SoftmaxConfig
    vocabulary: Vocabulary | None  # None: the words of the new text
    softmax: SoftmaxTensors | AdaptiveTensors | None  # None: a new one
    order: torch.Tensor | None = None  # (V,) where the saved vocabulary has each word of this run's

    @classmethod
    def of(cls, pretrained: Pretrained, config: FinetuneConfig) -> "Output":
        kept = pretrained.softmax if pretrained.vocabulary is not None else None  # without words, rows mean nothing
        if config.softmax_words and not isinstance(kept, SoftmaxTensors):
            has = "none to add to" if kept is None else "an adaptive one, which cannot grow"
            raise ConfigError(
                f"softmax_words is {config.softmax_words:,}, the words of a model's own softmax and more; "
                f"{pretrained.source} has {has}"
            )
        if kept is None:
            # A word-level model predicts the words it reads; of others, the new text's words are wanted.
            words = pretrained.codec.words if pretrained.codec.kind == "words" else None
            order = None if words is None else _order(words, pretrained.source)
            ordered = None if words is None or order is None else Vocabulary(words[k] for k in order.tolist())
            return cls(config.output(), ordered, None, order)
        assert pretrained.vocabulary is not None
        order = _order(pretrained.vocabulary, pretrained.source)
        moved = not torch.equal(order, torch.arange(len(order)))
        vocabulary = Vocabulary((pretrained.vocabulary[k] for k in order.tolist()), name=pretrained.source)
        if isinstance(kept, AdaptiveTensors):
            if moved:
                raise WeightsError(
                    f"{pretrained.source}: a vocabulary that does not begin with {' '.join(SPECIALS)} does not go with "
                    "an adaptive softmax here; load the model without its softmax, to learn a new one"
                )
            return cls(SoftmaxConfig("adaptive", cutoffs=kept.cutoffs), vocabulary, kept)
        if config.softmax == "adaptive":
            raise ConfigError("softmax is adaptive, but the model has a plain one; expected sampled or full")
        if 0 < config.softmax_words < len(vocabulary):
            raise ConfigError(
                f"softmax_words is {config.softmax_words:,}, but {pretrained.source} predicts {len(vocabulary):,} "
                "words; expected more (elmokit convert --softmax-words keeps fewer)"
            )
        return cls(config.output(), vocabulary, SoftmaxTensors(kept.weight[order], kept.bias[order]), order)

    def needs(self, config: FinetuneConfig, pretrained: Pretrained, corpus: Corpus | None) -> TextNeeds:
        """What the text must have to train the model with this output layer."""
        return TextNeeds(
            tokenizer=own_tokenizer(config, pretrained) if corpus is None else corpus.tokenizer,
            max_characters=pretrained.config.tokens.max_characters,
            vocabulary=self.vocabulary,
            words=config.softmax_words,
        )

    def grown(self, words: int) -> "Output":
        """With room for this many words: new ones stand after the model's own."""
        if self.order is None:
            return self
        return replace(self, order=torch.cat([self.order, torch.arange(len(self.order), words)]))

    def restored(self, softmax: SoftmaxTensors | AdaptiveTensors) -> SoftmaxTensors | AdaptiveTensors:
        """Rows back in the order of the model's own vocabulary."""
        if self.order is None or isinstance(softmax, AdaptiveTensors):
            return softmax
        back = torch.argsort(self.order).to(softmax.bias.device)
        return SoftmaxTensors(softmax.weight[back], softmax.bias[back])


class _Run:
    """The two stages and what is saved."""

    def __init__(
        self,
        config: FinetuneConfig,
        pretrained: Pretrained,
        output: Output,
        text: PreparedCorpus,
        folder: Path,
        world: World,
        *,
        teacher: Pretrained | None,
        show: bool,
    ) -> None:
        self.config, self.pretrained, self.text = config, pretrained, text
        self.output = output.grown(len(text.vocabulary))
        self.folder, self.world, self.teacher, self.show = folder, world, teacher, show
        codec = pretrained.codec.build(pretrained.config.tokens.max_characters)
        self.codes = TypeCodes(text.lexicon, codec, device=world.device, recased=config.recase > 0)
        self.validation = Validation(
            text.heldout, vocabulary=len(text.vocabulary), tokens=config.valid_tokens, codes=self.codes
        )

    def go(self) -> Finetuned:
        objective = self._objective()
        objective.bilm.load_state_dict({name: values.float() for name, values in self.pretrained.tensors.items()})
        if self.output.softmax is not None:
            softmax = self._with_new_words(self.output.softmax, objective.bilm)
            objective.softmax.load_state_dict({n: t.float() for n, t in softmax.named.items()})
        elif not (checkpoints(self.folder / "checkpoints") and (self.folder / _BEFORE).exists()):
            # Later checkpoints hold the softmax, too; but what it scored before them is measured with this one.
            objective = self._learn_softmax(objective)
        before = self._before(objective)
        trainer = self._trainer(self.config, objective, self.folder, title="fine-tuning", before=before)
        return Finetuned(before, trainer.run(), new_softmax=self.output.softmax is None)

    def _objective(self) -> Objective:
        dtype, device = training_dtype(self.config, self.world.device), self.world.device
        return Objective(
            self.pretrained.config,
            self.output.kind,
            len(self.text.vocabulary),
            dropout=self.config.dropout,
            dtype=dtype,
            device=device,
            teacher=None if self.teacher is None else Teacher(self.teacher, dtype=dtype, device=device),
            distil=self.config.distil,
            stored_as=self.config.stored_as,
        )

    @torch.no_grad()
    def _with_new_words(
        self, softmax: SoftmaxTensors | AdaptiveTensors, bilm: BiLM
    ) -> SoftmaxTensors | AdaptiveTensors:
        """The model's own rows, and those of the words that it is to learn."""
        words = len(self.text.vocabulary)
        if isinstance(softmax, AdaptiveTensors) or len(softmax.bias) == words:
            return softmax
        blocks = (np.arange(k, min(k + _BLOCK, words)) for k in range(0, words, _BLOCK))
        vectors = torch.cat([bilm.tokens(self.codes(block)) for block in blocks])  # (V, P)
        counts = torch.from_numpy(np.array(self.text.lexicon.counts[:words], dtype=np.float64))
        if self.show and self.world.leads and not checkpoints(self.folder / "checkpoints"):
            say(f"{words - len(softmax.bias):,} words are new to the softmax")
        report = self.text.report
        rest = (1 - report.coverage) * report.tokens
        return add_rows(softmax, vectors, counts, special=len(SPECIALS), unknown=UNK_ID, rest=rest)

    def _learn_softmax(self, objective: Objective) -> Objective:
        """The objective with a new softmax that fits the frozen rest."""
        initialise_softmax(objective.softmax, seed=self.config.seed + 1)
        if isinstance(objective.softmax, Softmax):
            _start_at_frequencies(objective.softmax, self.text)
        objective.bilm.requires_grad_(False)
        folder = self.folder / "softmax"
        folder.mkdir(exist_ok=True)
        self._trainer(self.config.first_stage(), objective, folder, title="learning a softmax").run()
        fresh = self._objective()  # not the same one again: in several processes, it is bound to the first stage
        fresh.load_state_dict(objective.state_dict())
        return fresh

    def _trainer(
        self,
        config: FinetuneConfig,
        objective: Objective,
        folder: Path,
        *,
        title: str,
        before: Perplexity | None = None,
    ) -> Trainer:
        def save_model(perplexity: Perplexity) -> None:
            if before is not None:
                self._save(objective, before, perplexity)

        return Trainer(
            config, objective, self.text.train, self.validation,
            folder=folder, fingerprint=self.text.fingerprint, world=self.world, codes=self.codes, save_model=save_model,
            title=title, rate_name="softmax_rate" if before is None else "learning_rate", show=self.show,
        )  # fmt: skip

    def _before(self, objective: Objective) -> Perplexity:
        path = self.folder / _BEFORE
        if path.exists():
            return read_json(path, Perplexity, advice="delete it to measure again")
        with bar(show=self.show and self.world.leads) as progress:
            task = progress.add_task("held-out perplexity before", total=1.0)
            found = self.validation(
                objective, self.world, tell=lambda done, total: progress.update(task, completed=done / total)
            )
        if self.world.leads:
            write_text(path, json.dumps(asdict(found)) + "\n")
            if self.show and found.predictions:
                say(f"held-out perplexity before: {found}")
        return found

    def _save(self, objective: Objective, before: Perplexity, after: Perplexity) -> None:
        model = self._packed(objective, before, after)
        save_pretrained(model, self.folder / "model")
        if self.pretrained.format == "official":
            plain = isinstance(model.softmax, SoftmaxTensors)  # that format has no adaptive one
            save_pretrained(model, self.folder / "official", format="official", softmax=plain)

    def _packed(self, objective: Objective, before: Perplexity, after: Perplexity) -> Pretrained:
        source, text = self.pretrained, self.text
        vocabulary = text.vocabulary.words
        if self.output.order is not None:
            vocabulary = tuple(vocabulary[k] for k in torch.argsort(self.output.order).tolist())
        shape = {
            f.name for f in fields(self.config) if f.metadata["part"] == "model"
        }  # the model's own, not this run's
        settings = {name: value for name, value in plain(self.config).items() if name not in shape}
        told = {"config": settings, "corpus": asdict(text.report), "model": Path(source.source).name}
        if before.predictions:
            told |= {"heldout_perplexity_before": asdict(before), "heldout_perplexity": asdict(after)}
        bilm, softmax = objective.finished()
        return replace(
            source,
            tensors={name: values.detach() for name, values in bilm.state_dict().items()},
            vocabulary=vocabulary,
            softmax=self.output.restored(softmax_tensors(softmax)),
            tokenizer=source.tokenizer or text.tokenizer,
            format=None,
            stored=None,
            extra={**source.extra, "finetuning": told},
        )


def _order(words: Sequence[str], source: str) -> torch.Tensor:
    """Where each word stands once `<S> </S> <UNK>` come first: published vocabularies begin with them in any order."""
    if absent := [mark for mark in SPECIALS if mark not in words]:
        raise WeightsError(f"{source}: the vocabulary lacks {' '.join(absent)}; expected them among its words")
    first = [words.index(mark) for mark in SPECIALS]
    return torch.tensor([*first, *(k for k in range(len(words)) if k not in first)])  # (V,)


@torch.no_grad()
def _start_at_frequencies(softmax: Softmax, text: PreparedCorpus) -> None:
    """Biases as the words' log frequencies as targets, one more than counted, so that learning starts from there."""
    counts = np.array(text.lexicon.counts[: len(softmax.bias)], dtype=np.float64) + 1  # (V,)
    counts[[BOS_ID, EOS_ID]] += text.report.sentences / 2  # each is a target in one of the directions
    counts[UNK_ID] += (1 - text.report.coverage) * text.report.tokens
    softmax.bias.copy_(torch.from_numpy(np.log(counts / counts.sum())))
