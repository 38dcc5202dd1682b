"""Our own routes and those of text-embeddings-inference give what the local objects give."""

import base64
import io
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from running import Running, same
from safetensors.numpy import load
from world import World

from elmokit import Elmo, Index, LanguageModel, TaskModel
from elmokit.analysis import find_neighbours, measure_drift
from elmokit.errors import InputError
from elmokit.server import ServerSettings, Service, current_job
from elmokit.server.errors import GoneError
from elmokit.server.jobs import Call
from elmokit.server.sources import ready_tasks
from elmokit.server.tasks import apply_task
from elmokit.server.words import _scores
from elmokit.text import Sentence
from elmokit.weights import bundled

TEXTS = ["The cat sat on the mat.", "A dog ran.", ""]


@pytest.fixture(scope="module")
def elmo(world: World) -> Elmo:
    return Elmo.from_pretrained(world.model, device="cpu")


def ok(server: Running, path: str, **body: object) -> dict:
    answer = server.http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_word_vectors_in_every_encoding(full: Running, elmo: Elmo) -> None:
    expected = elmo.encode_layers(TEXTS)
    told = ok(full, "/v1/tokens", input=TEXTS, layers="all")
    for row, vectors, text in zip(told["data"], expected, TEXTS, strict=True):
        assert same(np.array(row["vectors"], np.float32).reshape(row["shape"]), vectors)
        assert [text[a:b] for a, b in row["offsets"]] == row["tokens"]
    told = ok(full, "/v1/tokens", input=TEXTS, layers="all", encoding_format="base64")
    for row, vectors in zip(told["data"], expected, strict=True):
        assert same(np.frombuffer(base64.b64decode(row["vectors"]), "<f4").reshape(row["shape"]), vectors)
    content = full.http.post("/v1/tokens", json={"input": TEXTS, "layers": "all", "encoding_format": "safetensors"})
    tensors = load(content.content)
    assert all(same(tensors[str(k)], vectors) for k, vectors in enumerate(expected))
    pa = pytest.importorskip("pyarrow")
    content = full.http.post("/v1/tokens", json={"input": TEXTS, "layers": "all", "encoding_format": "arrow"})
    rows = pa.ipc.open_stream(io.BytesIO(content.content)).read_all().to_pylist()
    for row, vectors in zip(rows, expected, strict=True):
        assert same(np.array(row["vectors"], np.float32).reshape(row["shape"]), vectors)


def test_words_already_cut(full: Running, elmo: Elmo) -> None:
    told = ok(full, "/v1/tokens", tokens=[["the", "cat"]], layers="top", normalize=True)
    expected = elmo.encode_tokens([["the", "cat"]], layers="top", normalise=True)[0]
    assert same(np.array(told["data"][0]["vectors"], np.float32), expected)


def test_the_language_model(full: Running, world: World) -> None:
    lm = LanguageModel.from_pretrained(world.model, device="cpu")
    told = ok(full, "/v1/predict", input="the cat sat on the ___ .", top=3)
    found = lm.fill("the cat sat on the ___ .", n=3)
    for side in ("forward", "backward", "both"):
        assert [(w["word"], pytest.approx(w["probability"])) for w in told[side]] == list(getattr(found, side))
    assert told["position"] == 5
    told = ok(full, "/v1/predict", tokens=["the", "cat"], top=2)
    assert [w["word"] for w in told["next"]] == [w.word for w in lm.next_words(["the", "cat"], n=2)]
    report = lm.perplexity(TEXTS)
    told = ok(full, "/v1/perplexity", input=TEXTS, per_sentence=True)
    assert told["mean"] == pytest.approx(report.mean)
    assert told["words"] == report.words
    assert len(told["per_sentence"]) == 2


def test_a_word_in_two_contexts(full: Running) -> None:
    told = ok(full, "/v1/compare", input=["A bank ran.", "The bank of the river."], word="bank")
    assert told["data"][0]["position"] == [1, 1]
    assert told["data"][0]["cosines"]["token"] == pytest.approx(1)
    assert full.http.post("/v1/compare", json={"input": ["A cat."], "word": "dog"}).status_code == 400
    assert len(ok(full, "/v1/compare", input=["Bank on a bank.", "A bank."], word="bank")["data"]) == 3
    assert len(ok(full, "/v1/compare", input=["Bank on a bank.", "A bank."], word="bank", match_case=True)["data"]) == 1


def test_task_models(full: Running, world: World) -> None:
    tagger = TaskModel.from_pretrained(world.tagger, device="cpu")
    assert full.http.get("/v1/tasks").json()["data"] == [{"id": "tagger", "task": "ner", "pairs": False}]
    text = "Ann sees the cat. Bob sees New York."
    told = ok(full, "/v1/tasks/tagger", input=[text, "the cat"])
    examples = tagger.task.examples(text, tagger.tokenizer)
    expected = [tagger.task.record(e, p) for e, p in zip(examples, tagger.predict_examples(examples), strict=True)]
    assert told["data"][0] == json.loads(json.dumps(expected))
    assert len(told["data"]) == 2
    assert full.http.post("/v1/tasks/other", json={"input": text}).status_code == 404
    assert full.http.post("/v1/tasks/tagger", json={"input": [["a", "b"]]}).status_code == 400


def test_indexes(full: Running, world: World, elmo: Elmo) -> None:
    listed = full.http.get("/v1/indexes").json()["data"]
    assert [row["id"] for row in listed] == ["before", "new"]
    assert listed[0]["model"] == "lm"
    old, new = Index.open(world.old), Index.open(world.new)
    text = "A dog ran on the bank ."
    told = ok(full, "/v1/neighbours/before", input=text, word="bank", number=3)
    found = find_neighbours(old, elmo, text, word="bank", k=3)
    assert [c["text"] for c in told["contexts"]] == [c.occurrence.text for c in found.contexts]
    senses = ok(full, "/v1/senses/new", word="bank", clusters=2)
    assert sum(group["size"] for group in senses["groups"]) == senses["uses"] == new.words["bank"]
    assert all(e["text"][e["start"] : e["end"]] == "bank" for g in senses["groups"] for e in g["examples"])
    drift = ok(full, "/v1/drift", first="before", second="new", words=["bank"])
    assert drift["data"][0]["prt"] == pytest.approx(measure_drift(old, new, words=["bank"])[0].prt)
    assert drift == ok(full, "/v1/drift", first="before", second="new", words=["bank"])
    assert full.http.post("/v1/senses/new", json={"word": "zebra"}).status_code == 400
    assert full.http.post("/v1/senses/none", json={"word": "bank"}).status_code == 404


def test_the_shapes_of_text_embeddings_inference(full: Running, elmo: Elmo) -> None:
    assert same(np.array(ok(full, "/embed", inputs=TEXTS), np.float32), elmo.encode(TEXTS, normalise=True))
    plain = ok(full, "/embed", inputs=TEXTS, parameters={"normalize": False, "truncate": None})  # older clients
    assert same(np.array(plain, np.float32), elmo.encode(TEXTS))
    assert same(np.array(ok(full, "/", inputs=TEXTS[0]), np.float32), elmo.encode(TEXTS[:1], normalise=True))
    per_word = ok(full, "/embed_all", inputs=TEXTS[:2])
    for found, expected in zip(per_word, elmo.encode_tokens(TEXTS[:2]), strict=True):
        assert same(np.array(found, np.float32), expected)
    pair = {"source_sentence": TEXTS[0], "sentences": TEXTS[:2]}
    for path in ("/", "/similarity"):
        assert ok(full, path, inputs=pair) == pytest.approx(elmo.similarity(TEXTS[0], TEXTS[:2]).tolist(), abs=1e-6)
    words = ok(full, "/tokenize", inputs="A cat.")[0]
    assert [(w["text"], w["start"], w["stop"]) for w in words] == [("A", 0, 1), ("cat", 2, 5), (".", 5, 6)]
    info = full.http.get("/info").json()
    assert info["model_id"] == "lm"
    assert info["model_sha"] == elmo.fingerprint
    long = "cat " * 8193
    assert len(ok(full, "/embed", inputs=long, truncate=True)) == 1
    for body, status, kind in (
        ({"inputs": []}, 400, "empty"),
        ({"inputs": long}, 413, "validation"),
        ({"inputs": ["a"] * 2049}, 413, "validation"),
        ({"inputs": [[1]]}, 422, "validation"),
        ({"inputs": 3}, 422, "validation"),
        ({"inputs": "a", "prompt_name": "query"}, 422, "validation"),
    ):
        answer = full.http.post("/embed", json=body)
        assert (answer.status_code, answer.json()["error_type"]) == (status, kind), answer.text


def test_task_models_that_come_with_elmokit(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundled, "BUNDLED", tmp_path / "models")
    shutil.copytree(world.tagger, tmp_path / "models" / "tasks" / "ready")
    monkeypatch.chdir(tmp_path)  # where no folder is called so
    service = Service.load(ServerSettings(task=("ready", "names=ready")), model=[str(world.model)])
    assert list(service.tasks) == ["ready", "names"]
    assert service.task("ready").encoder is service.encoder()  # loaded once
    assert ready_tasks() == {"ready": tmp_path / "models" / "tasks" / "ready"}


def test_the_model_of_an_index_is_found(
    world: World, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def serve(source: str) -> Service:
        stored = json.loads((world.old / "index.json").read_text())
        (index / "index.json").write_text(json.dumps(stored | {"source": source}))
        return Service.load(ServerSettings(index=(str(index),)), model=[str(model_folder)])

    index = tmp_path / "index"
    shutil.copytree(world.old, index)
    (tmp_path / "a=b").symlink_to(world.model)
    monkeypatch.chdir(tmp_path)
    assert serve("a=b").model_of("index") == "a"
    monkeypatch.setattr("elmokit.weights.described.BUNDLED", tmp_path / "models")
    monkeypatch.setattr("elmokit.weights.load.BUNDLED", tmp_path / "models")
    shutil.copytree(world.model, tmp_path / "models" / "lm")
    assert serve("/gone/site-packages/elmokit/models/lm").model_of("index") == "lm"  # of another installation
    with pytest.raises(InputError, match=r"its model cannot be loaded .*; give it with -m$"):
        serve("/gone/models/lm")
    with pytest.raises(InputError, match=r"is another encoder .*; or make .* again with '[^']*'$"):
        serve(str(model_folder))


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/tokens", {"input": "the cat", "normalise": True}),
        ("/v1/predict", {"input": "the ___", "n": 3}),
        ("/v1/perplexity", {"input": "the cat", "per-sentence": True}),
        ("/v1/compare", {"input": ["the cat", "a cat"], "word": "cat", "case": True}),
        ("/v1/tasks/tagger", {"input": "the cat", "models": "lm"}),
        ("/v1/neighbours/corpus", {"input": "the cat", "word": "cat", "k": 2}),
        ("/v1/senses/corpus", {"word": "cat", "k": 2}),
        ("/v1/drift", {"first": "corpus", "second": "corpus", "k": 2}),
    ],
)
def test_a_field_that_does_not_exist(full: Running, path: str, body: dict[str, Any]) -> None:
    answer = full.http.post(path, json=body)
    assert answer.status_code == 400
    wrong = list(body)[-1]
    assert answer.json()["error"]["message"] == f"{wrong}: there is no such field; /docs lists them"
    assert answer.json()["error"]["param"] == wrong


def test_work_that_cannot_be_cut_into_turns_is_bounded(start: Callable[..., Running], world: World) -> None:
    tagger = TaskModel.from_pretrained(world.tagger, device="cpu")
    server = start(settings=ServerSettings(max_queue_tokens=50))
    server.service.tasks["tagger"] = tagger
    few, many = "Ann sees Bob. " * 5, "Ann sees Bob. " * 20
    assert len(ok(server, "/v1/tasks/tagger", input=few)["data"][0]) == 5
    answer = server.http.post("/v1/tasks/tagger", json={"input": many})
    assert answer.status_code == 413
    assert "82 tokens in one request; at most 50" in answer.json()["error"]["message"]


def test_work_that_nobody_waits_for_ends(world: World) -> None:
    tagger, lm = TaskModel.from_pretrained(world.tagger, device="cpu"), LanguageModel.from_pretrained(world.model)
    service = Service({"lm": Elmo.from_pretrained(world.model, device="cpu")})
    service.start()
    ran: list[str] = []

    def work(name: str, call: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            job = current_job()
            assert job is not None
            job.future.cancel()
            with pytest.raises(GoneError):
                call()
            ran.append(name)

        return run

    calls = {"apply": lambda: apply_task(tagger, ["Ann sees Bob."]), "score": lambda: _scores(lm, [Sentence.of("a")])}
    for name, call in calls.items():
        service.model.submit(Call(work(name, call), 1, deadline=math.inf, patience=math.inf))
    service.close()
    service.model.thread.join(120)
    assert ran == ["apply", "score"]
