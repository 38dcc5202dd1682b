"""Raw text in, model out: what `elmokit pretrain` does. A run is a folder; the same call resumes it.

run/config.json      what the run computes; another configuration in the same folder is refused
run/corpus/          the prepared text (vocabulary, lexicon, shards)
run/checkpoints/     the newest complete states
run/log.jsonl        loss, speed and perplexity; the same in run/tensorboard/
run/model/           the best model so far, ready for use
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn

from elmokit._bars import Bar
from elmokit._terminal import Console
from elmokit.chars import CodecSpec
from elmokit.config import plain, read_json, revive
from elmokit.errors import ConfigError, InputError
from elmokit.formats.atomic import sweep_drafts, write_text
from elmokit.formats.locks import LOCK, locked
from elmokit.formats.read import told_lines
from elmokit.nn.softmax import AdaptiveSoftmax, Softmax
from elmokit.pretrain.checkpoint import check_text, checkpoints, load_checkpoint, write_error
from elmokit.pretrain.config import PretrainConfig
from elmokit.pretrain.corpus.lexicon import Vocabulary
from elmokit.pretrain.corpus.manifest import PreparedCorpus
from elmokit.pretrain.corpus.prepare import CorpusPlan, PrepareProgress, prepare
from elmokit.pretrain.corpus.text import Corpus
from elmokit.pretrain.journal import say
from elmokit.pretrain.objective import Objective
from elmokit.pretrain.processes import World
from elmokit.pretrain.rounding import check_rounding
from elmokit.pretrain.step import TypeCodes
from elmokit.pretrain.teacher import Teacher, check_teacher, digest_model
from elmokit.pretrain.trainer import Progress, Trainer
from elmokit.pretrain.validation import Perplexity, Validation
from elmokit.text import Tokenizer, load_tokenizer
from elmokit.weights import save_pretrained
from elmokit.weights.pretrained import AdaptiveTensors, Pretrained, SoftmaxTensors

C = TypeVar("C", bound=PretrainConfig)


def pretrain(
    config: PretrainConfig,
    corpus: Corpus | None,
    folder: str | Path,
    *,
    heldout: Corpus | None = None,
    prepared: str | Path | None = None,
    teacher: Pretrained | None = None,
    device: str | torch.device | None = None,
    show: bool = True,
) -> Progress:
    """Trains a biLM on a corpus into a folder, or resumes the run in that folder; returns where it ended.

    `heldout` is other text for validation instead of a share of the corpus; `prepared` another place for the prepared
    text, which several runs can share (without a corpus: text that lies there, from wherever it came); `teacher` a
    model whose layers this one learns to predict.
    """
    shape = config.model(n_words=config.vocab_size)  # an impossible shape is refused before the text is read
    if config.stored_as == "int4":
        check_rounding(shape, config.output())
    if teacher is not None and config.input != "words":  # the words are known only when the text was read
        check_teacher(teacher, shape, CodecSpec("bytes"))
    folder = Path(folder)
    given = {} if teacher is None else {"teacher": digest_model(teacher)}
    with World.joined(device) as world, claimed(folder, config, world, **given):
        tokenizer = load_tokenizer(config.tokenizer) if corpus is None else corpus.tokenizer
        needs = TextNeeds(tokenizer=tokenizer, max_characters=config.max_characters)
        place = text_folder(corpus, prepared, folder)
        owner = None if prepared else folder
        text = load_text(config, corpus, place, world, needs, heldout=heldout, show=show, run=owner)
        if corpus is None:
            config = as_prepared(config, text, show=show and world.leads)
        codec, dtype = codec_spec(config, text), training_dtype(config, world.device)
        shape = config.model(n_words=len(text.vocabulary))
        if teacher is not None:
            check_teacher(teacher, shape, codec)
        objective = Objective(
            shape,
            config.output(),
            len(text.vocabulary),
            dropout=config.dropout,
            dtype=dtype,
            device=world.device,
            teacher=None if teacher is None else Teacher(teacher, dtype=dtype, device=world.device),
            distil=config.distil,
            stored_as=config.stored_as,
        )
        objective.initialise(config.seed)
        codes = TypeCodes(
            text.lexicon, codec.build(config.max_characters), device=world.device, recased=config.recase > 0
        )
        validation = Validation(text.heldout, vocabulary=len(text.vocabulary), tokens=config.valid_tokens, codes=codes)

        def save_model(perplexity: Perplexity) -> None:
            save_pretrained(packed(objective, config, text, codec, perplexity), folder / "model")

        trainer = Trainer(
            config, objective, text.train, validation,
            folder=folder, fingerprint=text.fingerprint, world=world, codes=codes, save_model=save_model, show=show,
        )  # fmt: skip
        return trainer.run()


@contextmanager
def claimed(folder: Path, config: PretrainConfig, world: World, **given: str) -> Iterator[None]:
    """Makes the folder this run's own while the block runs; a folder of another run is refused.

    `given` is what the run depends on besides the configuration and the text, by name.
    """
    if not world.leads:
        yield
        return
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            busy = f"{folder}: another process trains there; wait until it ends, or choose another output folder"
            stack.enter_context(locked(folder / LOCK, busy=busy))
            _check_settings(folder, config, given)
            if (folder / "checkpoints").is_dir():
                sweep_drafts(folder / "checkpoints")
            write_text(folder / "config.json", json.dumps({**plain(config), "given": given}, indent=1) + "\n")
        except OSError as error:
            raise write_error(error, folder, folder / "checkpoints") from error
        yield


def _check_settings(folder: Path, config: PretrainConfig, given: dict[str, str]) -> None:
    path = folder / "config.json"
    if not path.exists():
        return
    try:
        stored = read_json(path, dict[str, Any], error=ConfigError)
        before = revive(dict[str, str], stored.pop("given", None), source=f"{path}: given")
        there = revive(type(config), stored, source=str(path))
    except ConfigError as error:
        raise ConfigError(f"{folder}: holds something other than such a run ({error}); choose another folder") from None
    changed = there.differences(config)
    changed += [
        f"{name}: {before.get(name)} there, {given.get(name)} here"
        for name in sorted({*before, *given})
        if before.get(name) != given.get(name)
    ]
    begun = [*folder.rglob("step-*.pt"), *folder.glob("before.json")]  # until then nothing depends on the settings
    if changed and begun:
        raise ConfigError(
            f"{folder}: holds a run of another configuration ({'; '.join(changed)}); give the same settings to resume "
            "it, or another output folder"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TextNeeds:
    """What a model asks of its text."""

    tokenizer: Tokenizer
    max_characters: int
    vocabulary: Vocabulary | None = None  # words that come first
    words: int = 0  # how many there may be in all; 0: those, and no others


def load_text(
    config: PretrainConfig,
    corpus: Corpus | None,
    folder: Path,
    world: World,
    needs: TextNeeds,
    *,
    heldout: Corpus | None,
    show: bool,
    run: Path | None,
) -> PreparedCorpus:
    """The text as numbers; the first process makes it, the others wait for it.

    `run` is the run that the folder belongs to; None: others use it, too.
    """
    if world.leads:
        text = prepare_text(config, corpus, folder, needs, heldout=heldout, show=show, run=run)
    world.wait()
    return text if world.leads else PreparedCorpus.open(folder)


def as_prepared(config: C, text: PreparedCorpus, *, show: bool) -> C:
    """The configuration with what text that was prepared before says of its preparation."""
    identity = text.manifest.identity
    if identity is None:
        return config
    made = {"lines": identity["text"]["lines"], "text_field": identity["text"]["field"]}
    made["dedupe"] = identity["text"].get("dedupe", False)
    if isinstance(identity["heldout"], float):
        made["heldout"] = identity["heldout"]
    if not identity["vocabulary_crc32"]:  # no words came first
        made["min_count"] = identity["min_count"]
    changed = {name: value for name, value in made.items() if getattr(config, name) != value}
    if show and changed:
        told = ", ".join(f"{name} {value} (not {getattr(config, name)})" for name, value in changed.items())
        say(f"the text was prepared with {told}")
    return replace(config, **changed)


def text_folder(corpus: Corpus | None, prepared: str | Path | None, run: Path) -> Path:
    """Where prepared text lies, or will lie."""
    if corpus is None and prepared is None:
        raise InputError("there is no text to train on; give a corpus, or a folder of prepared text (--prepared)")
    return Path(prepared or run / "corpus")


def prepare_text(
    config: PretrainConfig,
    corpus: Corpus | None,
    folder: Path,
    needs: TextNeeds,
    *,
    heldout: Corpus | None,
    show: bool,
    run: Path | None = None,
) -> PreparedCorpus:
    """The corpus as numbers in `folder`; without one, what was prepared there, if its words and tokenizer are right."""
    if corpus is None:
        if heldout is not None:
            raise InputError("a held-out corpus goes with a corpus; prepared text has its held-out part already")
        text = _given_text(config, folder, needs)
        if show:
            describe(text)
        return text
    plan = CorpusPlan(
        vocab_size=(needs.words or None) if needs.vocabulary else config.vocab_size,
        min_count=config.min_count if needs.words or not needs.vocabulary else 1,
        vocabulary=needs.vocabulary,
        heldout=heldout if heldout is not None else config.heldout,
        max_characters=needs.max_characters,
    )
    columns = (TextColumn("[bold]{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), disable=not show, transient=True) as bar:
        task = bar.add_task("reading the corpus", total=None)

        def tell(made: PrepareProgress) -> None:
            bar.update(task, description=f"{made.stage} the corpus", completed=made.done, total=made.total)

        text = prepare(
            corpus, folder, plan, workers=config.workers or None, progress=tell,
            replace=run is not None, check=None if run is None else partial(_check_text, run),
        )  # fmt: skip
    if show:
        describe(text, lines=corpus.lines)
    return text


def _check_text(run: Path, fingerprint: str) -> None:
    """Before the text of a run is replaced: its checkpoints must be of the same."""
    stages = (stage / "checkpoints" for stage in (run, run / "softmax"))  # fine-tuning may have two
    begun = next((stage for stage in stages if checkpoints(stage)), None)
    found = begun and load_checkpoint(begun, torch.device("cpu"))
    if found:
        check_text(found, fingerprint, run)


def _given_text(config: PretrainConfig, folder: Path, needs: TextNeeds) -> PreparedCorpus:
    text = PreparedCorpus.open(folder)
    found, own = text.vocabulary.words, needs.vocabulary.words if needs.vocabulary else ()
    most = (needs.words or len(own)) if own else config.vocab_size
    identity = text.manifest.identity
    made = len(found) if identity is None else identity["vocab_size"] or len(found)
    if len(found) > most or (identity is not None and made != most):
        asked = ("softmax_words" if needs.words else "the model") if own else "vocab_size"
        raise ConfigError(
            f"{folder}: was prepared with a vocabulary of {made:,} words, but {asked} has {most:,}; give the "
            "settings that it was prepared with, or prepare it again"
        )
    if found[: len(own)] != own:
        raise ConfigError(
            f"{folder}: its vocabulary does not begin with the words that the model predicts; prepare it for this model"
        )
    cut, tokenizer = text.tokenizer, needs.tokenizer
    if cut != (tokenizer.name, tokenizer.version):
        raise ConfigError(
            f"{folder}: was cut by the tokenizer {cut.name!r} version {cut.version}, but this run has "
            f"{tokenizer.name!r} version {tokenizer.version}; give the tokenizer that cut it, or prepare it again"
        )
    return text


def describe(text: PreparedCorpus, *, lines: str | None = None) -> None:
    r = text.report
    read = "" if lines is None else f"; {told_lines(lines)}"
    say(
        f"{r.sentences:,} sentences, {r.tokens:,} tokens, {r.types:,} word types; vocabulary {r.vocabulary:,} covers "
        f"{r.coverage:.2%}; held out {r.heldout_sentences:,} sentences, {r.heldout_tokens:,} tokens "
        f"({1 - r.heldout_coverage:.2%} <UNK>){read}"
    )
    odd = {"empty lines": r.empty_lines, "bad bytes": r.bad_bytes, "cut lines": r.cut_lines}
    odd["words over the character limit"] = r.overlong_tokens
    if any(odd.values()):
        say(", ".join(f"{n:,} {name}" for name, n in odd.items() if n), style="dim")


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
            "config": plain(config),
            "corpus": asdict(report),
            "heldout_perplexity": asdict(perplexity) if perplexity.predictions else None,
        }
    }
    bilm, softmax = objective.finished()
    return Pretrained.of(
        bilm,
        codec=codec,
        tokenizer=text.tokenizer,
        vocabulary=text.vocabulary.words,
        softmax=softmax_tensors(softmax),
        extra=extra,
    )


def softmax_tensors(softmax: Softmax | AdaptiveSoftmax) -> SoftmaxTensors | AdaptiveTensors:
    named = {name: values.detach() for name, values in softmax.state_dict().items()}
    if isinstance(softmax, Softmax):
        return SoftmaxTensors(**named)
    return AdaptiveTensors(softmax.inner.n_classes, softmax.inner.in_features, softmax.cutoffs, named)
