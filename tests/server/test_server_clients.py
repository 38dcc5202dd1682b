"""Clients that people use, unchanged, against the real server; and our own."""

import asyncio
import shutil
import socket
import subprocess
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from running import Process, Running, same, until
from world import World

from elmokit import Elmo
from elmokit.client import AsyncClient, Client, ServerError
from elmokit.errors import InputError
from elmokit.server import ServerSettings

TEXTS = ["The cat sat on the mat.", "A dog ran.", "the cat"]


@pytest.fixture(scope="module")
def elmo(world: World) -> Elmo:
    return Elmo.from_pretrained(world.model, device="cpu")


def test_openai(full: Running, elmo: Elmo) -> None:
    openai = pytest.importorskip("openai")
    expected = elmo.encode(TEXTS, normalise=True)
    with openai.OpenAI(base_url=f"{full.url}/v1", api_key="none") as client:
        found = client.embeddings.create(model="lm", input=TEXTS)  # base64 is the client's default
        assert same([row.embedding for row in found.data], expected)
        assert found.usage.total_tokens == sum(len(elmo.tokenizer.tokenize(text)) for text in TEXTS)
        plain = client.embeddings.create(model="lm", input=TEXTS[0], encoding_format="float")
        assert same(plain.data[0].embedding, expected[0])
        top = client.embeddings.create(model="lm", input=TEXTS, extra_body={"layers": "top", "normalize": False})
        assert same([row.embedding for row in top.data], elmo.encode(TEXTS, layers="top"))
        assert [model.id for model in client.models.list()] == ["lm"]
        with pytest.raises(openai.NotFoundError, match="this server has lm"):
            client.embeddings.create(model="text-embedding-3-small", input="a")
        with pytest.raises(openai.BadRequestError, match=r"vectors of lm with layers .* not a shorter embedding"):
            client.embeddings.create(model="lm", input="a", dimensions=4)

    async def asynchronously() -> None:
        async with openai.AsyncOpenAI(base_url=f"{full.url}/v1", api_key="none") as client:
            many = await asyncio.gather(*(client.embeddings.create(model="lm", input=text) for text in TEXTS * 5))
            assert same([one.data[0].embedding for one in many], np.concatenate([expected] * 5))

    asyncio.run(asynchronously())


def test_langchain(full: Running, elmo: Elmo) -> None:
    pytest.importorskip("langchain_openai")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from langchain_openai import OpenAIEmbeddings

        embeddings = OpenAIEmbeddings(
            model="lm", base_url=f"{full.url}/v1", api_key="none", check_embedding_ctx_length=False
        )
        found = embeddings.embed_documents(TEXTS)
        one = embeddings.embed_query(TEXTS[0])
    assert same(found, elmo.encode(TEXTS, normalise=True))
    assert same(one, elmo.encode(TEXTS[0], normalise=True))


def test_hugging_face(full: Running, elmo: Elmo) -> None:
    from huggingface_hub import InferenceClient, __version__

    client = InferenceClient(model=full.url)
    assert same(np.squeeze(client.feature_extraction(TEXTS[0])), elmo.encode(TEXTS[0], normalise=True))
    plain = client.feature_extraction(TEXTS[0], normalize=False)
    assert same(np.squeeze(plain), elmo.encode(TEXTS[0]))
    if __version__.startswith("0.30."):  # it sends the sentences outside of `inputs`, where no server looks for them
        return
    found = client.sentence_similarity(TEXTS[0], TEXTS[1:])
    assert found == pytest.approx(elmo.similarity(TEXTS[0], TEXTS[1:]).tolist(), abs=1e-6)


@pytest.mark.integration
def test_llama_index_as_text_embeddings_inference(full: Running, elmo: Elmo) -> None:
    pytest.importorskip("llama_index.embeddings.text_embeddings_inference")
    from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference

    client = TextEmbeddingsInference(model_name="lm", base_url=full.url, timeout=120)
    assert same(client.get_text_embedding_batch(TEXTS[:2]), elmo.encode(TEXTS[:2], normalise=True))
    found = asyncio.run(client.aget_query_embedding(TEXTS[0]))
    assert same(found, elmo.encode(TEXTS[0], normalise=True))


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here")
def test_curl(full: Running) -> None:
    body = '{"input": "The cat."}'
    command = ["curl", "-sS", "-H", "Content-Type: application/json", f"{full.url}/v1/embeddings", "-d", body]
    assert '"object":"list"' in subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    form = ["curl", "-sS", f"{full.url}/v1/embeddings", "-d", body]  # curl's own content type
    said = subprocess.run(form, capture_output=True, text=True, timeout=120, check=True).stdout
    assert "Content-Type: application/json" in said


def test_our_client_gives_what_the_local_objects_give(full: Running, elmo: Elmo) -> None:
    with Client(full.url) as client:
        assert same(client.encode(TEXTS), elmo.encode(TEXTS))
        assert same(
            client.encode(TEXTS[0], layers="top", normalise=True), elmo.encode(TEXTS[0], layers="top", normalise=True)
        )
        assert same(client.encode([["the", "cat"]]), elmo.encode([["the", "cat"]]))
        for given in (TEXTS, TEXTS[0]):
            assert same(client.encode(given, layers="all"), elmo.encode(given, layers="all"))
        many = [f"the cat {k}" for k in range(300)]
        assert same(client.encode(many), elmo.encode(many))
        for found, expected in zip(client.encode_tokens(TEXTS), elmo.encode_tokens(TEXTS), strict=True):
            assert same(found, expected)
        for found, expected in zip(client.encode_layers(TEXTS), elmo.encode_layers(TEXTS), strict=True):
            assert same(found, expected)
        assert client.encode_layers(TEXTS[0], layers="top").shape[0] == 1
        assert len(client.predict("the cat ___ .", n=3)["both"]) == 3
        assert client.perplexity(TEXTS)["sentences"] == 3
        with pytest.raises(InputError, match="300 texts were given; expected 1 to 256"):
            client.perplexity(text for text in many)
        with pytest.raises(InputError, match="0 texts were given"):
            client.perplexity([])
        assert client.apply("tagger", "Ann sees Bob.") == client.apply("tagger", ["Ann sees Bob."])[0]
        assert client.apply("tagger", many)[299] == client.apply("tagger", many[299])
        assert client.apply("tagger", []) == []
        assert client.models() == ["lm"]
        with pytest.raises(ServerError, match="404") as wrong:
            client.apply("none", "a")
        assert wrong.value.status == 404

    async def asynchronously() -> None:
        async with AsyncClient(full.url, model="lm") as client:
            assert same(await client.encode(TEXTS), elmo.encode(TEXTS))
            assert same((await client.encode_layers(TEXTS))[1], elmo.encode_layers(TEXTS)[1])
            assert (await client.predict(["the", "___"], n=2))["position"] == 1
            assert (await client.perplexity(TEXTS[0]))["words"] == 7
            assert len(await client.apply("tagger", TEXTS)) == 3
            assert await client.models() == ["lm"]

    asyncio.run(asynchronously())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "cannot send NoneType None; expected a string, a list of strings"),
        (b"the cat", "cannot send bytes b'the cat'"),
        ({"text": "the cat"}, "cannot send dict"),
        (["the cat", 3], "text 1 is int 3"),
        (["the cat", ["the", "cat"]], "text 1 is a list, those before it are not"),
        ("the \ud83d cat", r"a text holds '\\ud83d', half a character"),
    ],
)
def test_what_our_client_does_not_send(given: Any, said: str) -> None:
    with Client("http://127.0.0.1:1", retries=0) as client, pytest.raises(InputError, match=said):
        client.encode(given)


def test_our_client_comes_again_when_the_server_is_busy(start: Callable[..., Running]) -> None:
    import threading

    server = start(settings=ServerSettings(max_queue_tokens=10))
    release = threading.Event()

    async def wait() -> None:
        await server.service.run(lambda: release.wait(60), tokens=9)

    thread = threading.Thread(target=lambda: asyncio.run(wait()))
    thread.start()
    until(lambda: server.service.model.held == 9)
    with Client(server.url, retries=0) as hasty, pytest.raises(ServerError, match="429"):
        hasty.encode("the cat sat")
    threading.Timer(0.5, release.set).start()
    with Client(server.url, retries=20) as patient:
        assert patient.encode("the cat sat").ndim == 1
    thread.join(60)
    with (
        Client("http://127.0.0.1:1", retries=1) as lost,
        pytest.raises(ServerError, match=r"^no answer from http://127"),
    ):
        lost.encode("a")
    with pytest.raises(InputError):
        Client("localhost:8000")


def test_a_server_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with Client(url, timeout=0.2) as client, pytest.raises(ServerError, match="timed out"):
            client.models()


def test_keys(process: Callable[..., Process], tmp_path_factory: pytest.TempPathFactory) -> None:
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("\ufefffirst-key\n# ours\n\nsecond-key\nключ\n", encoding="utf-8")
    server = process("--api-key-file", keys, "--cors", "https://example.org")
    for key in ("first-key", "ключ", "second-key\n"):
        with Client(server.url, key=key) as client:
            client.models()
    with Client(server.url, key="second-key") as client:
        assert client.encode("the cat").ndim == 1
    for key in (None, "first", "first-key2", "# ours"):
        with Client(server.url, key=key) as client, pytest.raises(ServerError, match="401"):
            client.encode("the cat")
    with Client(server.url) as client:
        assert client.http.get("/health").status_code == 200
        assert client.http.get("/metrics").status_code == 401
        asked = client.http.options(
            "/v1/embeddings",
            headers={
                "Origin": "https://example.org",
                "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "authorization,content-type",
            },
        )
        assert asked.headers["access-control-allow-origin"] == "https://example.org"
        assert "Authorization" in asked.headers["access-control-allow-headers"]
    assert "key" not in server.said.replace("--api-key-file", "").replace("api_key", "")
