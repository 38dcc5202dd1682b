"""gensim, LangChain, LlamaIndex, Chroma and LanceDB: the real packages over a small model."""

import asyncio
import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import models
from elmokit import Elmo, Index
from elmokit.encoders import distil_words
from elmokit.errors import MissingExtraError

pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
TEXTS = ["The cat sat on the mat.", "A dog ran away!", "One more text, about nothing."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("stores") / "model"
    Elmo(models.tiny(seed=5).pretrained, device="cpu").save_pretrained(place)
    return str(place)


@pytest.fixture(scope="module")
def elmo(folder: str) -> Elmo:
    return Elmo.from_pretrained(folder, device="cpu")


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("gensim", "gensim", "gensim"),
        ("langchain", "langchain_core", "langchain"),
        ("llama_index", "llama_index", "llama-index"),
        ("chromadb", "chromadb", "chromadb"),
        ("lancedb", "lancedb", "lancedb"),
        ("sentence_transformers", "sentence_transformers", "sentence-transformers"),
        ("flair", "flair", "flair"),
    ],
)
def test_without_the_package_the_line_that_installs_it_is_told(
    module: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(f"{package}.")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"elmokit.integrations.{module}", raising=False)
    with pytest.raises(MissingExtraError, match=rf"pip install 'elmokit\[{extra}\]'"):
        importlib.import_module(f"elmokit.integrations.{module}")


def test_gensim_both_ways(elmo: Elmo) -> None:
    pytest.importorskip("gensim")
    from elmokit.integrations.gensim import keyed_vectors, static_vectors

    table = distil_words(elmo, ["cat", "mat", "dog", "New York"])
    keyed = keyed_vectors(table)
    assert keyed.index_to_key == ["cat", "mat", "dog", "New York"]
    assert_allclose(keyed["mat"], table.vector("mat"))
    unit = table.vectors / np.linalg.norm(table.vectors, axis=1, keepdims=True)
    word, score = keyed.most_similar("cat", topn=1)[0]
    others = unit[1:] @ unit[0]
    assert word == table.words[1 + int(others.argmax())]
    assert score == pytest.approx(float(others.max()), abs=1e-5)
    back = static_vectors(keyed, unknown="error")
    assert_allclose(back.encode_tokens([["dog", "cat"]])[0], table.vectors[[2, 0]])
    assert_allclose(keyed_vectors(back)["dog"], keyed["dog"])


def test_gensim_means_of_an_index(elmo: Elmo, tmp_path: Path) -> None:
    pytest.importorskip("gensim")
    from elmokit.integrations.gensim import keyed_vectors

    texts = ["the cat sat", "a cat ran", "the dog"]
    index = Index.build(elmo, texts, tmp_path / "index")
    keyed = keyed_vectors(index)
    vectors = elmo.encode_tokens(texts, layers="top")
    assert_allclose(keyed["cat"], (vectors[0][1] + vectors[1][1]) / 2, atol=0.02)  # the index keeps 8 bits
    assert keyed.get_vecattr("cat", "count") == 2
    assert "dog" not in keyed_vectors(index, min_count=2)


def test_langchain(folder: str, elmo: Elmo) -> None:
    pytest.importorskip("langchain_core")
    from langchain_core.vectorstores import InMemoryVectorStore

    from elmokit.integrations.langchain import ElmoEmbeddings

    made = ElmoEmbeddings(folder, device="cpu")
    assert_allclose(made.embed_documents(TEXTS), elmo.encode(TEXTS, normalise=True), atol=1e-5)
    assert_allclose(asyncio.run(made.aembed_query(TEXTS[0])), made.embed_query(TEXTS[0]))
    store = InMemoryVectorStore.from_texts(TEXTS, made)
    for text in TEXTS:
        assert store.similarity_search(text, k=1)[0].page_content == text


def test_llama_index(folder: str, elmo: Elmo) -> None:
    pytest.importorskip("llama_index.core")
    from llama_index.core import Document, VectorStoreIndex

    from elmokit.integrations.llama_index import ElmoEmbedding

    made = ElmoEmbedding(folder, layers="top", device="cpu")
    assert_allclose(made.get_text_embedding_batch(TEXTS), elmo.encode(TEXTS, layers="top", normalise=True), atol=1e-5)
    assert_allclose(asyncio.run(made.aget_query_embedding(TEXTS[0])), made.get_query_embedding(TEXTS[0]))
    documents = [Document(text=text) for text in TEXTS]
    found = VectorStoreIndex.from_documents(documents, embed_model=made).as_retriever(similarity_top_k=1)
    assert found.retrieve(TEXTS[1])[0].node.get_content() == TEXTS[1]
    stored = made.to_dict()
    stored.pop("class_name", None)
    again = ElmoEmbedding(**stored)
    assert again.layers == "top"
    assert_allclose(again.get_text_embedding(TEXTS[0]), made.get_text_embedding(TEXTS[0]), atol=1e-6)


def test_chromadb(folder: str, elmo: Elmo, tmp_path: Path) -> None:
    chromadb = pytest.importorskip("chromadb")
    from chromadb.config import Settings

    from elmokit.integrations.chromadb import ElmoEmbeddingFunction

    settings = Settings(anonymized_telemetry=False)
    client = chromadb.PersistentClient(str(tmp_path / "db"), settings=settings)
    made = ElmoEmbeddingFunction(folder, device="cpu")
    assert_allclose(np.stack(made(TEXTS)), elmo.encode(TEXTS, normalise=True), atol=1e-5)
    collection = client.create_collection("texts", embedding_function=made)
    collection.add(ids=["0", "1", "2"], documents=TEXTS)
    assert collection.query(query_texts=[TEXTS[1]], n_results=1)["ids"] == [["1"]]
    again = client.get_collection("texts")  # the function is found by its name and configuration
    assert again.query(query_texts=[TEXTS[2]], n_results=1)["ids"] == [["2"]]
    with pytest.raises(ValueError, match="layers was 'average', now 'top'; make a new collection"):
        made.validate_config_update(made.get_config(), ElmoEmbeddingFunction(folder, layers="top").get_config())


def test_lancedb(folder: str, elmo: Elmo, tmp_path: Path) -> None:
    lancedb: Any = pytest.importorskip("lancedb")
    from lancedb.embeddings import get_registry
    from lancedb.pydantic import LanceModel, Vector

    import elmokit.integrations.lancedb  # noqa: F401

    made = get_registry().get("elmokit").create(name=folder, device="cpu")
    assert made.ndims() == elmo.width

    class Note(LanceModel):  # type: ignore[misc]
        text: str = made.SourceField()
        vector: Vector(made.ndims()) = made.VectorField()  # type: ignore[valid-type]

    table = lancedb.connect(str(tmp_path / "db")).create_table("notes", schema=Note)
    table.add([{"text": text} for text in TEXTS])
    rows = {row["text"]: row["vector"] for row in table.to_arrow().to_pylist()}
    assert_allclose([rows[text] for text in TEXTS], elmo.encode(TEXTS, normalise=True), atol=1e-5)
    assert table.search(TEXTS[1]).limit(1).to_list()[0]["text"] == TEXTS[1]
    again = lancedb.connect(str(tmp_path / "db")).open_table("notes")  # the function is found by its name and fields
    assert again.search(TEXTS[2]).limit(1).to_list()[0]["text"] == TEXTS[2]
