"""`TaskModel`: a trained network at work, and the folder that it is saved in.

    config.json           what it is: task, settings, network, encoder, tokenizer; written last
    weights.safetensors   the network's weights
    words.txt             the words with vectors of their own
    training.json         how the training went, epoch by epoch
    encoder/              the encoder, where it was asked for or was fine-tuned

config.json names the encoder and the tokenizer with their fingerprints: with others the network would read vectors it
never met, so they are refused.
"""

import hashlib
import json
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar, overload

import safetensors
import safetensors.torch
import torch

from elmokit.encoders import Elmo, Encoder, load_encoder
from elmokit.encoders.places import pick_device
from elmokit.errors import InputError, WeightsError
from elmokit.formats import write_text
from elmokit.formats.tensors import write_tensors
from elmokit.tasks.catalogue import load_task
from elmokit.tasks.feed import Feeder
from elmokit.tasks.layers import LayerSource, LiveLayers, Told
from elmokit.tasks.setup import Setup, read_setup
from elmokit.tasks.task import Network, Scores, Task
from elmokit.tasks.train import Epoch, Trained
from elmokit.tasks.words import WordReader, WordVocabulary, describe_mixes
from elmokit.text import Tokenizer, load_tokenizer
from elmokit.weights.load import BUNDLED
from elmokit.weights.storage import stored
from elmokit.weights.symbols import read_symbols, write_symbols

FORMAT, VERSION = "elmokit task", 1
CONFIG, WEIGHTS, WORDS, LOG, ENCODER = "config.json", "weights.safetensors", "words.txt", "training.json", "encoder"
DEFAULT_TOKENIZER = "english"  # of a model without an encoder

Self = TypeVar("Self", bound="TaskModel[Any, Any]")
G = TypeVar("G")  # what `predict` takes: a text, a pair of texts
A = TypeVar("A")  # what it returns for one of them


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
    ) -> Self:
        """A saved model. `encoder` is needed where the one it was trained with is no longer where it was."""
        folder = Path(folder).expanduser()
        config = read_config(folder)
        task = load_task(config["task"])
        if cls.task_class:
            module, _, name = cls.task_class.partition(":")
            if not isinstance(task, getattr(import_module(module), name)):
                raise InputError(f"{folder}: a model of the task {task.name!r}, not for {cls.__name__}; use TaskModel")
        vocabulary = WordVocabulary(read_symbols(folder / WORDS))
        network = task.network.from_plain(config["network"])
        _load_weights(network, folder / WEIGHTS, config["weights"])
        reader = WordReader(vocabulary, network.features.config)
        used = _find_encoder(folder, config, encoder, device)
        setup = read_setup(task, config["setup"])
        epochs = json.loads((folder / LOG).read_text(encoding="utf-8")) if (folder / LOG).is_file() else []
        trained = Trained(tuple(Epoch(**epoch) for epoch in epochs)) if epochs else None
        model = cls(task, network, reader, setup, encoder=used, device=device, trained=trained)
        named = config["tokenizer"]
        if (model.tokenizer.name, model.tokenizer.version) != (named["name"], named["version"]):
            raise WeightsError(
                f"{folder}: trained with tokenizer {named['name']!r} version {named['version']}, but the encoder given "
                f"cuts text with {model.tokenizer.name!r} version {model.tokenizer.version}; give one with the same"
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
            raise InputError(f"predict got a {type(given).__name__}; expected one thing or a list of them")
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
    ) -> Path:
        """Writes the model; `with_encoder` puts the encoder in, too.

        `encoder_source` is how the encoder is found again, `identity` a digest of the training it comes from.
        """
        folder = Path(folder).expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        write_tensors(folder / WEIGHTS, {name: stored(values) for name, values in self.network.state_dict().items()})
        write_text(folder / WORDS, write_symbols(self.reader.vocabulary.words))
        if self.trained is not None:
            write_text(folder / LOG, json.dumps([asdict(epoch) for epoch in self.trained.epochs], indent=1) + "\n")
        held = self.encoder is not None and (with_encoder or self.setup.training.fine_tune)
        if held:
            if not isinstance(self.encoder, Elmo):
                raise InputError(
                    f"{self.encoder.source if self.encoder else ''}: only an ELMo can be saved with a model"
                )
            self.encoder.save_pretrained(folder / ENCODER)
        config = {
            "format": FORMAT,
            "version": VERSION,
            "task": self.task.name,
            "setup": self.setup.plain(),
            "network": self.task.describe(self.network),
            "encoder": self._describe_encoder(encoder_source, held=held),
            "tokenizer": {"name": self.tokenizer.name, "version": self.tokenizer.version},
            "weights": _digest(folder / WEIGHTS),
            "identity": identity,
            "scores": self.trained.best.scores if self.trained else {},
            "mixes": self.mixes,
        }
        write_text(folder / CONFIG, json.dumps(config, indent=2) + "\n")
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


def is_task_model(folder: Path) -> bool:
    """Whether a task model was saved in this folder."""
    config = folder / CONFIG
    return config.is_file() and f'"format": "{FORMAT}"' in config.read_text(encoding="utf-8")[:200]


def read_config(folder: Path) -> dict[str, Any]:
    """What a folder of a task model says of itself."""
    path = folder / CONFIG
    if not path.is_file():
        raise WeightsError(f"{folder}: no task model, {CONFIG} is missing; `elmokit train` makes one")
    try:
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise WeightsError(f"{path}: not valid JSON ({error}); save the model again") from None
    if config.get("format") != FORMAT:
        raise WeightsError(f"{path}: not a task model ('format' is {config.get('format')!r}, expected {FORMAT!r})")
    if config["version"] > VERSION:
        raise WeightsError(f"{path}: version {config['version']}, this elmokit reads up to {VERSION}; install a newer")
    return config


def _load_weights(network: Network[Any, Any], path: Path, digest: str) -> None:
    if not path.is_file() or _digest(path) != digest:
        raise WeightsError(f"{path}: missing, or not the weights that {CONFIG} was written for; save or copy it again")
    try:
        network.load_state_dict(safetensors.torch.load_file(path))
    except (safetensors.SafetensorError, RuntimeError) as error:
        raise WeightsError(f"{path}: does not fit the network of {CONFIG} ({str(error)[:200]})") from None


def _find_encoder(
    folder: Path, config: dict[str, Any], given: Encoder | str | Path | None, device: str | torch.device
) -> Encoder | None:
    """The encoder that the model was trained with, from where it is; another is refused."""
    stated = config["encoder"]
    if stated is None:
        return None
    tokenizer = config["tokenizer"]["name"]
    source = given if given is not None else folder / ENCODER if stated["held"] else stated["source"]
    if isinstance(source, Encoder):
        encoder = source
    else:
        try:
            encoder = load_encoder(source, device=device)
        except (InputError, WeightsError) as error:
            raise WeightsError(
                f"{folder}: trained on the layers of {stated['source']!r}, which cannot be loaded ({error}); say where "
                "that encoder is"
            ) from error
    if encoder.fingerprint != stated["fingerprint"]:
        raise WeightsError(
            f"{folder}: trained on the layers of {stated['source']!r} (fingerprint {stated['fingerprint']}, tokenizer "
            f"{tokenizer}), but {encoder.source!r} is another encoder (fingerprint {encoder.fingerprint}), whose "
            "vectors it never met; give the one it was trained with, or train again"
        )
    return encoder


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
