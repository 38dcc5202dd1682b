"""`TaskModel`: a trained network with what it needs to work on text, and the folder that it is saved in.

    config.json           what it is: task, settings, network, encoder, tokenizer; written last
    weights.safetensors   the network's weights; in fewer bytes as `elmokit.weights.storage` says
    words.txt             the words with vectors of their own
    training.json         how the training went, epoch by epoch
    encoder/              the encoder, if it was fine-tuned or is to be saved with the model

config.json has the fingerprints of encoder and tokenizer: with others the network would read vectors that it was not
trained on, so they are refused. It also has checksums of the other files and of itself, which are compared on loading;
models of 0.1.0 have one of the weights only.
"""

import hashlib
import json
import shutil
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar, overload

import torch

from elmokit.config import Positive, checksum_of, read_json, revive
from elmokit.encoders import Elmo, Encoder, load_encoder
from elmokit.encoders.changed import check_same_encoder
from elmokit.encoders.places import pick_device
from elmokit.errors import InputError, WeightsError
from elmokit.formats.atomic import atomic_folder, write_text
from elmokit.tasks._weights import read_weights, stored_type, write_weights
from elmokit.tasks.catalogue import load_task
from elmokit.tasks.feed import Feeder
from elmokit.tasks.layers import LayerSource, LiveLayers, Told
from elmokit.tasks.setup import Setup, read_setup
from elmokit.tasks.task import Network, Scores, Task
from elmokit.tasks.train import Epoch, Trained
from elmokit.tasks.words import SPECIAL, WordReader, WordVocabulary, describe_mixes
from elmokit.text import Tokenizer, load_tokenizer
from elmokit.weights.bundled import find_task_model, list_bundled
from elmokit.weights.load import BUNDLED, OURS
from elmokit.weights.pretrained import Unfilled
from elmokit.weights.storage import Dtype
from elmokit.weights.symbols import read_symbols, write_symbols

FORMAT, VERSION = "elmokit task", 1
CONFIG, WEIGHTS, WORDS, LOG, ENCODER = "config.json", "weights.safetensors", "words.txt", "training.json", "encoder"
DEFAULT_TOKENIZER = "english"  # of a model without an encoder
COPY = "save the model again, or copy it again"

Self = TypeVar("Self", bound="TaskModel[Any, Any]")
G = TypeVar("G")  # what `predict` takes: a text, a pair of texts
A = TypeVar("A")  # what it returns for one of them


@dataclass(frozen=True, slots=True)
class UsedEncoder:
    """The encoder that a model was trained with; `held`: it is in the model's folder."""

    source: str
    fingerprint: str
    layers: tuple[str, ...]
    width: Positive
    held: bool


@dataclass(frozen=True, slots=True)
class UsedTokenizer:
    name: str
    version: int


@dataclass(frozen=True, slots=True)
class LearnedMix:
    shares: tuple[float, ...]  # of each layer, after the softmax
    gamma: float


@dataclass(frozen=True, slots=True)
class Description:
    """config.json of a task model, besides its format and version."""

    task: str
    setup: dict[str, Any]
    network: dict[str, Any]
    encoder: UsedEncoder | None
    tokenizer: UsedTokenizer
    weights: str  # digest of the file
    identity: str = ""  # digest of the training that it comes from
    scores: dict[str, float] = field(default_factory=dict)
    mixes: dict[str, LearnedMix] = field(default_factory=dict)  # by place
    words: str = ""  # digest of the file; empty in models of 0.1.0
    training: str = ""  # digest of the file, where there is one
    checksum: str = ""  # of all other fields; empty in models of 0.1.0


class TaskModel(Generic[G, A]):
    """A task's network with what it needs to work on text.

        model = TaskModel.from_pretrained("model")
        model.predict("Jane lives in Paris.")           # the answer for one text
        model.predict(["Jane left.", "Bob did not."])   # a list of answers

    What an answer holds depends on the task; places in it are character offsets into the text given.
    """

    task_class: ClassVar[str] = ""  # for subclasses: "module:Class" of the tasks they take; empty: any

    def __init__(
        self,
        task: Task[Any, Any],
        network: Network[Any, Any],
        reader: WordReader,
        setup: Setup,
        *,
        encoder: Encoder | None = None,
        device: torch.device | str = "auto",
        trained: Trained | None = None,
    ) -> None:
        self.task, self.reader, self.setup, self.encoder, self.trained = task, reader, setup, encoder, trained
        self.device = pick_device(device)
        self.network = network.to(self.device).eval()
        self.source = ""

    @classmethod
    def from_pretrained(
        cls: type[Self],
        folder: str | Path,
        *,
        encoder: Encoder | str | Path | None = None,
        device: str | torch.device = "auto",
        allow_other_encoder: bool = False,
    ) -> Self:
        """A saved model: its folder, or the name of one that comes with elmokit.

        `encoder` is needed where the one it was trained with is no longer where it was. Another one is refused, or with
        `allow_other_encoder` taken with a warning, if its vectors have the same form.
        """
        folder, device = find_task_model(folder), pick_device(device)
        stated = read_description(folder)
        task = load_task(stated.task)
        if cls.task_class:
            module, _, name = cls.task_class.partition(":")
            if not isinstance(task, getattr(import_module(module), name)):
                raise InputError(f"{folder}: a model of the task {task.name!r}, not for {cls.__name__}; use TaskModel")
        setup = read_setup(task, stated.setup, source=f"{folder / CONFIG}: setup", error=WeightsError)
        network = load_network(task, folder, stated)
        reader = WordReader(load_words(folder, stated, network), network.features.config)
        trained = _load_log(folder, stated)
        used = _find_encoder(folder, stated, encoder, device, allow_other=allow_other_encoder)
        model = cls(task, network, reader, setup, encoder=used, device=device, trained=trained)
        named, mine = stated.tokenizer, model.tokenizer
        if (mine.name, mine.version) != (named.name, named.version):
            raise WeightsError(
                f"{folder}: trained with tokenizer {named.name!r} version {named.version}, but the encoder given "
                f"cuts text with {mine.name!r} version {mine.version}; give one with the same"
            )
        model.source = str(folder)
        return model

    @property
    def tokenizer(self) -> Tokenizer:
        """What cuts text into words: the encoder's, or the one that the task's settings name."""
        named = getattr(self.setup.settings, "tokenizer", None)
        if self.encoder is not None and named in (None, self.encoder.tokenizer.name):
            return self.encoder.tokenizer
        return load_tokenizer(named or DEFAULT_TOKENIZER)

    @overload
    def predict(self, given: G) -> A: ...
    @overload
    def predict(self, given: Sequence[G]) -> list[A]: ...
    def predict(self, given: Any, *second: str) -> Any:
        """The answer for one thing, or the list of answers for a list of things.

        | task | one thing | its answer |
        | --- | --- | --- |
        | tagging | text | list of `TaggedSentence` |
        | classification | text | `ClassPrediction` |
        | pair classification | (first, second) | `ClassPrediction` |
        | question answering | (passage, question) | `Answer` |
        | semantic roles | text with *marked* predicates | list of `Roles` |
        | coreference | text | `Resolved` |
        """
        if second:
            warnings.warn("predict(a, b) is now predict((a, b))", DeprecationWarning, stacklevel=2)
            given = (given, *second)
        if isinstance(given, str) or (self.task.pairs and isinstance(given, tuple)):
            return self._answers([given])[0]
        if not isinstance(given, Sequence) or isinstance(given, bytes):
            raise InputError(
                f"predict got {given!r:.40} ({type(given).__name__}); expected one thing or a list of them"
            )
        return self._answers(given)

    def _answers(self, given: Sequence[Any]) -> list[Any]:
        parts = [self.task.examples(one, self.tokenizer) for one in given]
        found = iter(self.predict_examples([example for part in parts for example in part]))
        return [self.task.answer([next(found) for _ in part]) for part in parts]

    def predict_examples(
        self, examples: Sequence[Any], *, layers: LayerSource | None = None, told: Told | None = None
    ) -> list[Any]:
        """A prediction for each example; `layers` computed before, where there are such; `told` hears how far it is."""
        if layers is None and self.encoder is not None:
            layers = LiveLayers(self.encoder, rounded=not self.setup.training.fine_tune)
        feeder = Feeder(self.task, self.reader, layers, device=self.device)
        return feeder.predict(self.network, examples, told=told)

    def evaluate(
        self, data: str | Path | Sequence[Any], *, layers: LayerSource | None = None, told: Told | None = None
    ) -> Scores:
        """The scores on a labelled file, or on examples; the options are those of `predict_examples`."""
        examples = self.task.read(data, self.setup.settings) if isinstance(data, str | Path) else data
        return self.task.score(examples, self.predict_examples(examples, layers=layers, told=told))

    @property
    def mixes(self) -> dict[str, Any]:
        """Layer weights and gamma of each learnt mix, by place."""
        return describe_mixes(self.network.features.mixes)

    def save(
        self,
        folder: str | Path,
        *,
        with_encoder: bool = False,
        encoder_source: str | None = None,
        identity: str = "",
        dtype: Dtype | None = None,
    ) -> Path:
        """Writes the model, and the encoder with it if `with_encoder` says so or it was fine-tuned.

        `encoder_source` is where the encoder is found on loading, `identity` a digest of the training. `dtype` is the
        type of the network's stored numbers; without it they are float32, as the network computes.
        """
        folder = Path(folder).expanduser()
        held = self.encoder is not None and (with_encoder or self.setup.training.fine_tune)
        if self.encoder is not None and held and not isinstance(self.encoder, Elmo):
            raise InputError(f"{self.encoder.source}: only an ELMo can be saved with a model")
        replaces = (LOG, *(f"{ENCODER}/{name}" for name in OURS if held))
        with atomic_folder(folder, last=CONFIG, replaces=replaces) as draft:
            if isinstance(self.encoder, Elmo) and held:
                (draft / ENCODER).mkdir()
                if (card := folder / ENCODER / "README.md").is_file():  # stays, if elmokit did not write it
                    shutil.copyfile(card, draft / ENCODER / card.name)
                self.encoder.save_pretrained(draft / ENCODER)
            write_weights(draft / WEIGHTS, self.network.state_dict(), dtype=dtype)
            write_text(draft / WORDS, write_symbols(self.reader.vocabulary.words))
            if self.trained is not None:
                write_text(draft / LOG, json.dumps([asdict(epoch) for epoch in self.trained.epochs], indent=1) + "\n")
            config = {
                "format": FORMAT,
                "version": VERSION,
                "task": self.task.name,
                "setup": self.setup.plain(),
                "network": self.task.describe(self.network),
                "encoder": self._describe_encoder(encoder_source, held=held),
                "tokenizer": {"name": self.tokenizer.name, "version": self.tokenizer.version},
                "weights": _digest(draft / WEIGHTS),
                "words": _digest(draft / WORDS),
                "training": "" if self.trained is None else _digest(draft / LOG),
                "identity": identity,
                "scores": self.trained.best.scores if self.trained else {},
                "mixes": self.mixes,
            }
            write_text(draft / CONFIG, json.dumps(config | {"checksum": checksum_of(config)}, indent=2) + "\n")
        return folder

    def _describe_encoder(self, source: str | None, *, held: bool) -> dict[str, Any] | None:
        if self.encoder is None:
            return None
        name = source or self.encoder.source
        if Path(name).parent == BUNDLED:  # wherever the package is installed
            name = Path(name).name
        return {
            "source": name,
            "fingerprint": self.encoder.fingerprint,
            "layers": list(self.encoder.layer_names),
            "width": self.encoder.width,
            "held": held,
        }


def convert_task_model(folder: Path, output: Path, *, dtype: Dtype | None) -> None:
    """The same model, its numbers in this type or as they are stored; its encoder is named, or held, as before."""
    stated, dtype = read_description(folder), dtype or stored_type(folder / WEIGHTS)
    model, used = TaskModel[Any, Any].from_pretrained(folder, device="cpu"), stated.encoder
    source, held = (used.source, used.held) if used else (None, False)
    model.save(output, with_encoder=held, encoder_source=source, identity=stated.identity, dtype=dtype)


def is_task_model(folder: Path) -> bool:
    """Whether a task model was saved in this folder."""
    config = folder / CONFIG
    return config.is_file() and f'"format": "{FORMAT}"'.encode() in config.read_bytes()[:200]


def read_description(folder: Path) -> Description:
    """What a folder of a task model says of itself."""
    path = folder / CONFIG
    if not path.is_file():
        ready = ", ".join(model.name for model in list_bundled() if model.kind != "model") or "none"
        raise WeightsError(
            f"{folder}: no task model, {CONFIG} is missing; `elmokit train` makes one. By name come with elmokit: "
            f"{ready}"
        )
    values = read_json(path, dict[str, Any], what="the description of a task model", advice=COPY, error=WeightsError)
    if values.get("format") != FORMAT:
        raise WeightsError(f"{path}: not a task model ('format' is {values.get('format')!r}, expected {FORMAT!r})")
    version = values.get("version")
    if isinstance(version, int) and version > VERSION:
        raise WeightsError(f"{path}: version {version}, this elmokit reads up to {VERSION}; install a newer one")
    if values.get("checksum") and values["checksum"] != checksum_of(values):
        raise WeightsError(
            f"{path}: not as it was saved (its checksum does not fit); {COPY}. If you changed it yourself, remove the "
            "field 'checksum'"
        )
    stated = {name: value for name, value in values.items() if name not in ("format", "version")}
    return revive(Description, stated, source=str(path), error=WeightsError)


def load_network(task: Task[Any, Any], folder: Path, stated: Description) -> Network[Any, Any]:
    path, source = folder / WEIGHTS, f"{folder / CONFIG}: network"
    _compare(path, stated.weights)
    with torch.device("meta"), Unfilled():  # shapes alone: a damaged width must not take all memory
        outline = task.network.from_plain(stated.network, source=source, error=WeightsError).state_dict()
    weights = read_weights(path, outline, described=CONFIG, advice=COPY)
    with Unfilled():
        network = task.network.from_plain(stated.network, source=source, error=WeightsError)
    network.load_state_dict(weights)
    return network


def load_words(folder: Path, stated: Description, network: Network[Any, Any]) -> WordVocabulary:
    path = folder / WORDS
    if stated.words:
        _compare(path, stated.words)
    words, expected = read_symbols(path), network.features.config.n_words
    if len(set(words)) != len(words) or len(words) + SPECIAL != expected:
        raise WeightsError(
            f"{path}: {len(words)} words, {len(set(words))} of them different, but {CONFIG} describes "
            f"{expected - SPECIAL}; {COPY}"
        )
    return WordVocabulary(words)


def _load_log(folder: Path, stated: Description) -> Trained | None:
    path = folder / LOG
    if stated.training:
        _compare(path, stated.training)
    elif not path.is_file():
        return None
    epochs = read_json(path, list[Epoch], what="the epochs of a training", advice=COPY, error=WeightsError)
    return Trained(tuple(epochs)) if epochs else None


def _find_encoder(
    folder: Path,
    model: Description,
    given: Encoder | str | Path | None,
    device: str | torch.device,
    *,
    allow_other: bool,
) -> Encoder | None:
    """The encoder that the model was trained with, from where it is; another is refused unless `allow_other`."""
    stated = model.encoder
    if stated is None:
        return None
    source = given if given is not None else folder / ENCODER if stated.held else stated.source
    if isinstance(source, Encoder):
        encoder = source
    else:
        try:
            encoder = load_encoder(source, device=device)
        except (InputError, WeightsError) as error:
            raise WeightsError(
                f"{folder}: trained on the layers of {stated.source!r}, which cannot be loaded ({error}); say where "
                "that encoder is"
            ) from error
    check_same_encoder(
        encoder,
        fingerprint=stated.fingerprint,
        source=stated.source,
        holder=str(folder),
        allow_other=allow_other,
        fits=(len(encoder.layer_names), encoder.width) == (len(stated.layers), stated.width),
        error=WeightsError,
    )
    return encoder


def _compare(path: Path, digest: str) -> None:
    if not path.is_file() or _digest(path) != digest:
        raise WeightsError(f"{path}: missing, or not the file that {CONFIG} was written for; {COPY}")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
