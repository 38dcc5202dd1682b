"""`ELMoEmbeddings` in real flair: vectors, a trained tagger, save and load."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import models
from elmokit import Elmo
from elmokit.errors import ElmokitError, InputError

pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
flair = pytest.importorskip("flair")

WORDS = [["The", "cat", "sat"], ["One"]]


@pytest.fixture(autouse=True)
def _cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flair, "device", torch.device("cpu"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("flair") / "model"
    Elmo(models.tiny(seed=5).pretrained, device="cpu").save_pretrained(place)
    return str(place)


@pytest.mark.parametrize(("mode", "layers"), [("all", "concat:0,1,2"), ("top", "top"), ("average", "average")])
def test_tokens_have_the_encoders_vectors(folder: str, mode: str, layers: str) -> None:
    from flair.data import Sentence
    from flair.embeddings import StackedEmbeddings

    from elmokit.integrations.flair import ELMoEmbeddings

    made = ELMoEmbeddings(folder, embedding_mode=mode)  # type: ignore[arg-type]
    sentences = [Sentence(words) for words in WORDS]
    made.embed(sentences)
    expected = Elmo.from_pretrained(folder, device="cpu").encode_tokens(WORDS, layers=layers)
    for sentence, vectors in zip(sentences, expected, strict=True):
        assert_allclose(np.stack([token.embedding.numpy() for token in sentence]), vectors, atol=1e-5)
    assert made.embedding_length == expected[0].shape[1]
    stacked = StackedEmbeddings([made, ELMoEmbeddings(folder, embedding_mode="top")])
    assert stacked.embedding_length == made.embedding_length + 12


def test_the_two_files_of_a_model(tmp_path: Path) -> None:
    from flair.data import Sentence

    from elmokit.integrations.flair import ELMoEmbeddings

    tiny = models.tiny(seed=7)
    options, weights = tmp_path / "options.json", tmp_path / "weights.hdf5"
    options.write_text(json.dumps(tiny.options))
    with h5py.File(weights, "w") as file:
        for name, array in tiny.weights.items():
            file[name] = array
    made = ELMoEmbeddings(options_file=str(options), weight_file=str(weights), embedding_mode="top")
    sentence = Sentence(WORDS[0])
    made.embed(sentence)
    assert made.name == "elmo-original-top"
    assert_allclose(np.stack([token.embedding.numpy() for token in sentence]), tiny.embed(WORDS[0])[-1], atol=1e-5)


def test_a_tagger_is_trained_saved_and_loaded(tmp_path: Path) -> None:
    from flair.data import Corpus, Sentence
    from flair.datasets import FlairDatapointDataset
    from flair.models import SequenceTagger
    from flair.trainers import ModelTrainer

    from elmokit.integrations.flair import ELMoEmbeddings

    def example(words: list[str]) -> Sentence:
        sentence = Sentence(words)
        for token in sentence:
            token.add_label("kind", "UP" if token.text[0].isupper() else "LOW")
        return sentence

    flair.set_seed(1)
    rng = np.random.default_rng(0)
    data = [example(rng.choice(["Ann", "sees", "Bob", "cats", "Delhi", "and"], 5).tolist()) for _ in range(60)]
    corpus = Corpus(FlairDatapointDataset(data), FlairDatapointDataset(data[:10]), FlairDatapointDataset(data[:10]))
    labels = corpus.make_label_dictionary("kind")
    tagger = SequenceTagger(
        hidden_size=16,
        embeddings=ELMoEmbeddings("en", embedding_mode="average"),
        tag_dictionary=labels,
        tag_type="kind",
        use_crf=False,
    )
    ModelTrainer(tagger, corpus).train(
        str(tmp_path / "run"), learning_rate=0.02, mini_batch_size=8, max_epochs=5, optimizer=torch.optim.Adam
    )
    tagger.save(tmp_path / "tagger.pt")
    again = SequenceTagger.load(str(tmp_path / "tagger.pt"))
    for model in (tagger, again):
        sentence = Sentence(["Bob", "sees", "Delhi"])
        model.predict(sentence)
        assert [token.get_label("kind").value for token in sentence] == ["UP", "LOW", "UP"]


def test_what_cannot_be_used_is_said(folder: str) -> None:
    from elmokit.integrations.flair import ELMoEmbeddings

    with pytest.raises(InputError, match="embedding_mode 'sum' not known"):
        ELMoEmbeddings(folder, embedding_mode="sum")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="give both, or neither"):
        ELMoEmbeddings(options_file="options.json")
    with pytest.raises(ElmokitError):
        ELMoEmbeddings("no-such-model")
