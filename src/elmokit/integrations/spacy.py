"""ELMo in spaCy pipelines; spaCy finds the factories by itself once elmokit is installed.

nlp = spacy.blank("en")
nlp.add_pipe("elmokit")
doc = nlp("He sat on the bank of the river.")
doc.tensor                         # (9, D): a vector per token of spaCy's
doc[4].vector, doc[3:5].vector     # (D,), (D,)
doc._.elmo                         # (3, 9, D): every layer
"""

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from elmokit.encoders import Elmo, Encoder
from elmokit.errors import InputError, MissingExtraError, WeightsError
from elmokit.integrations.models import Model, encoder_for, name_of
from elmokit.layers import LayerChoice, cosine
from elmokit.tasks import Tagger
from elmokit.tasks.labels import read_spans
from elmokit.tasks.tagging.network import TaggedExample, TaggedSentence
from elmokit.text import Sentence, Tokenizer

try:
    import srsly
    from spacy.language import Language
    from spacy.parts_of_speech import IDS as POS_TAGS
    from spacy.tokens import Doc, Span, Token
    from spacy.util import minibatch
except ImportError as error:
    raise MissingExtraError(f"spaCy is needed ({error})", extra="spacy") from error

__all__ = ["ElmoNer", "ElmoPipe", "ElmoPos", "set_hooks"]

Vectors = NDArray[np.float32]
Spanned = Any  # a Doc, a Span or a Token

if not Doc.has_extension("elmo"):
    Doc.set_extension("elmo", default=None)


def set_hooks(doc: Doc) -> Doc:
    """`vector` and `similarity` of the doc, its spans and its tokens are made from `doc.tensor`, whatever vectors the
    pipeline has. The component does this; docs that come from bytes, files or other processes have lost it."""
    for hooks, vector in (
        (doc.user_hooks, _mean_vector),
        (doc.user_span_hooks, _mean_vector),
        (doc.user_token_hooks, _token_vector),
    ):
        hooks.update(vector=vector, vector_norm=_norm, has_vector=_has_vector, similarity=_similarity)
    return doc


class _Pipe:
    """What the components share: docs in batches, models saved with the pipeline."""

    name: str
    batch_docs = 64
    folder = "model"

    def __call__(self, doc: Doc) -> Doc:
        return self.annotate([doc])[0]

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = batch_docs) -> Iterator[Doc]:
        """The docs in their order; the model runs over all sentences of `batch_size` docs at once."""
        for docs in minibatch(stream, batch_size):
            yield from self.annotate(docs)

    def annotate(self, docs: list[Doc]) -> list[Doc]:
        """The docs themselves, with what this component knows of them."""
        if self.in_worker and not self._calm:  # spaCy forks its workers; torch's threads do not survive that
            torch.set_num_threads(1)
            self._calm = True
        self._annotate(docs)
        return docs

    _process, _calm = 0, False  # where it was made; whether torch keeps to one thread

    @property
    def in_worker(self) -> bool:
        """Whether this is a copy in one of the processes of `nlp.pipe`."""
        return os.getpid() != self._process

    def _annotate(self, docs: list[Doc]) -> None:
        raise NotImplementedError

    def save(self, folder: Path) -> None:
        raise NotImplementedError

    def load(self, folder: Path) -> None:
        raise NotImplementedError

    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> None:
        """Writes the model into this folder."""
        if self.folder not in exclude:
            self.save(Path(path))

    def from_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> "_Pipe":
        """Takes the model that `to_disk` wrote."""
        if self.folder not in exclude:
            self.load(Path(path))
        return self

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        """What `to_disk` writes, as bytes."""
        with tempfile.TemporaryDirectory() as folder:
            self.to_disk(folder, exclude=exclude)
            files = {p.relative_to(folder).as_posix(): p.read_bytes() for p in Path(folder).rglob("*") if p.is_file()}
        packed: bytes = srsly.msgpack_dumps(files)
        return packed

    def from_bytes(self, data: bytes, *, exclude: Iterable[str] = ()) -> "_Pipe":
        """Takes the model that `to_bytes` packed."""
        with tempfile.TemporaryDirectory() as folder:
            for name, content in srsly.msgpack_loads(data).items():
                if Path(name).is_absolute() or ".." in Path(name).parts:
                    raise InputError(f"{name!r} is no name of a file inside a model; these bytes are not of to_bytes")
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            return self.from_disk(folder, exclude=exclude)


class ElmoPipe(_Pipe):
    """The component "elmokit": vectors for spaCy's own tokens.

    Sentences are those of the pipeline where it cuts the doc into sentences, else those that the model's own tokenizer
    finds in the text. Tokens of white space are not shown to the model; their vectors are zero.
    """

    def __init__(
        self,
        model: Model = None,
        *,
        name: str = "elmokit",
        layers: str = "average",
        keep_layers: bool = True,
        device: str = "auto",
    ) -> None:
        self.name, self.model, self.layers, self.keep_layers, self.device = name, model, layers, keep_layers, device
        self._process = os.getpid()
        if self.choice.kind == "all":
            raise InputError("layers 'all' keep the layers apart, expected a choice that makes one vector of them")

    @property
    def encoder(self) -> Encoder:
        """The model, loaded when it is first needed: a saved pipeline brings its own."""
        if not isinstance(self.model, Encoder):
            self.model = encoder_for(self.model, device=self.device)
            self.choice.indices(self.model.depth)
        return self.model

    @property
    def choice(self) -> LayerChoice:
        return LayerChoice.parse(self.layers)

    def _annotate(self, docs: list[Doc]) -> None:
        cut = [sentences_of(doc, self.encoder.tokenizer) for doc in docs]
        sentences = [
            Sentence.of(doc[k].text for k in places) for doc, parts in zip(docs, cut, strict=True) for places in parts
        ]
        found = iter(self.encoder.encode_layers(sentences, layers="all" if self.keep_layers else self.layers))
        for doc, parts in zip(docs, cut, strict=True):
            made = [next(found) for _ in parts]  # each (L, T, D)
            depth, width = (self.encoder.depth, self.encoder.width) if self.keep_layers else (1, self.width)
            layers = np.zeros((depth, len(doc), width), dtype=np.float32)
            for places, vectors in zip(parts, made, strict=True):
                layers[:, places] = vectors
            if self.keep_layers:
                doc._.elmo = layers
            doc.tensor = self.choice.apply(layers) if self.keep_layers else layers[0]
            if not self.in_worker:  # they would not get out of it, and spaCy would say so for each doc
                set_hooks(doc)

    @property
    def width(self) -> int:
        """The width of `doc.tensor`."""
        return self.choice.width(self.encoder.depth, self.encoder.width)

    def save(self, folder: Path) -> None:
        """An ELMo's files; of a bundled model, and of other encoders, the name and a fingerprint."""
        folder.mkdir(parents=True, exist_ok=True)
        name = name_of(self.encoder)
        held = isinstance(self.encoder, Elmo) and name == self.encoder.source
        if held:
            assert isinstance(self.encoder, Elmo)
            self.encoder.save_pretrained(folder / self.folder)
        stated = {"source": name, "held": held, "fingerprint": self.encoder.fingerprint}
        srsly.write_json(folder / "elmokit.json", stated)

    def load(self, folder: Path) -> None:
        stated = srsly.read_json(folder / "elmokit.json")
        # What is held is not shared: the folder may be gone soon, or hold another model by then.
        held = Elmo.from_pretrained(folder / self.folder, device=self.device) if stated["held"] else None
        self.model = held or encoder_for(stated["source"], device=self.device)
        if self.encoder.fingerprint != stated["fingerprint"]:
            raise WeightsError(
                f"{folder}: saved with another {stated['source']} than the one that is here now; load it with the "
                "version of elmokit that it was made with"
            )


class _TaskPipe(_Pipe):
    """A tagger of elmokit over spaCy's tokens."""

    def __init__(self, model: str | Path | Tagger | None = None, *, name: str, device: str = "auto") -> None:
        self.name, self.model, self.device = name, model, device
        self._process = os.getpid()

    @property
    def tagger(self) -> Tagger:
        """The model, loaded when it is first needed: a saved pipeline brings its own."""
        if self.model is None:
            raise InputError(
                f"{self.name} has no model; add it with config={{'model': FOLDER}}, a folder that `elmokit train` "
                "made, or the name of one that comes with elmokit"
            )
        if not isinstance(self.model, Tagger):
            self.model = Tagger.from_pretrained(self.model, device=self.device)
        return self.model

    def _annotate(self, docs: list[Doc]) -> None:
        tagger = self.tagger
        cut = [sentences_of(doc, tagger.tokenizer) for doc in docs]
        examples = [
            TaggedExample(Sentence.of(doc[k].text for k in places))
            for doc, parts in zip(docs, cut, strict=True)
            for places in parts
        ]
        found = iter(tagger.predict_examples(examples))
        for doc, parts in zip(docs, cut, strict=True):
            self.put(doc, [(places, next(found)) for places in parts])

    def put(self, doc: Doc, found: Sequence[tuple[list[int], TaggedSentence]]) -> None:
        raise NotImplementedError

    def save(self, folder: Path) -> None:
        """The model; its encoder too, unless it is bundled with elmokit."""
        encoder = self.tagger.encoder
        held = isinstance(encoder, Elmo) and name_of(encoder) == encoder.source
        self.tagger.save(folder / self.folder, with_encoder=held)

    def load(self, folder: Path) -> None:
        self.model = Tagger.from_pretrained(folder / self.folder, device=self.device)


class ElmoNer(_TaskPipe):
    """The component "elmokit_ner": spans that a tagger finds, as `doc.ents`. Entities that were there before stay where
    the new ones do not overlap them."""

    def put(self, doc: Doc, found: Sequence[tuple[list[int], TaggedSentence]]) -> None:
        ents = []
        for places, tagged in found:
            if tagged.scheme is None:
                raise InputError(
                    f"{self.tagger.source}: labels words, not spans; elmokit_ner needs a tagger of spans, "
                    "elmokit_pos takes this one"
                )
            for span in read_spans(tagged.tags):
                ents.append(Span(doc, places[span.start], places[span.end - 1] + 1, label=span.type))
        taken = {k for ent in ents for k in range(ent.start, ent.end)}
        before = [ent for ent in doc.ents if not taken.intersection(range(ent.start, ent.end))]
        doc.set_ents(sorted([*ents, *before], key=lambda ent: ent.start))


class ElmoPos(_TaskPipe):
    """The component "elmokit_pos": a label for each token, as `token.pos_` where the tagger was trained on universal
    parts of speech, else as `token.tag_`."""

    def put(self, doc: Doc, found: Sequence[tuple[list[int], TaggedSentence]]) -> None:
        universal = set(self.tagger.network.config.labels) <= POS_TAGS.keys()
        for token in doc:
            if token.is_space and universal:
                token.pos_ = "SPACE"
        for places, tagged in found:
            for k, tag in zip(places, tagged.tags, strict=True):
                if universal:
                    doc[k].pos_ = tag
                else:
                    doc[k].tag_ = tag


def sentences_of(doc: Doc, tokenizer: Tokenizer) -> list[list[int]]:
    """The numbers of the tokens of each sentence, without white space; sentences without tokens are left out."""
    if doc.has_annotation("SENT_START"):
        parts = [[token.i for token in sentence if not token.is_space] for sentence in doc.sents]
    else:
        starts = np.array([sentence.start for sentence in tokenizer.split(doc.text)])
        words = [token for token in doc if not token.is_space]
        homes = np.searchsorted(starts, [token.idx for token in words], side="right")  # a token is where it begins
        grouped = groupby(zip(homes, words, strict=True), key=itemgetter(0))
        parts = [[token.i for _, token in group] for _, group in grouped]
    return [part for part in parts if part]


@Language.factory(  # type: ignore[untyped-decorator]
    "elmokit",
    assigns=["doc.tensor", "doc._.elmo"],
    default_config={"model": None, "layers": "average", "keep_layers": True, "device": "auto"},
)
def make_elmokit(nlp: Language, name: str, model: str | None, layers: str, keep_layers: bool, device: str) -> ElmoPipe:
    """spaCy's factory."""
    return ElmoPipe(model, name=name, layers=layers, keep_layers=keep_layers, device=device)


@Language.factory("elmokit_ner", assigns=["doc.ents"], default_config={"model": None, "device": "auto"})  # type: ignore[untyped-decorator]
def make_elmokit_ner(nlp: Language, name: str, model: str | None, device: str) -> ElmoNer:
    """spaCy's factory."""
    return ElmoNer(model, name=name, device=device)


@Language.factory("elmokit_pos", assigns=["token.pos"], default_config={"model": None, "device": "auto"})  # type: ignore[untyped-decorator]
def make_elmokit_pos(nlp: Language, name: str, model: str | None, device: str) -> ElmoPos:
    """spaCy's factory."""
    return ElmoPos(model, name=name, device=device)


def _token_vector(token: Token) -> Vectors:
    vector: Vectors = token.doc.tensor[token.i]
    return vector


def _mean_vector(part: Doc | Span) -> Vectors:
    """The mean over its tokens but white space; zero without any."""
    doc = part if isinstance(part, Doc) else part.doc
    places = [token.i for token in part if not token.is_space]
    mean: Vectors = doc.tensor[places].sum(axis=0) / max(len(places), 1)
    return mean


def _norm(part: Spanned) -> float:
    return float(np.linalg.norm(part.vector))


def _has_vector(part: Spanned) -> bool:
    return bool(np.any(part.vector))


def _similarity(one: Spanned, other: Any) -> float:
    """The cosine; 0 where one has no vector."""
    return cosine(one.vector, other.vector)
