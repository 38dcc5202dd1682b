"""Published models by name, from a server that has archives in the layouts of the real ones."""

import io
import json
import os
import re
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from model_files import WORDS, write_model
from web_server import Web, serving

import elmokit.weights.download as module
from elmokit import Elmo, load_encoder
from elmokit.errors import WeightsError
from elmokit.weights import load_pretrained
from elmokit.weights.bundled import bundled_task, card_header, list_bundled
from elmokit.weights.catalogue import LISTING, TABLE, Entry, find, is_name, places_of, read_listing
from elmokit.weights.fetch import fetch_listing

MANYLANGS = Path(__file__).parents[1] / "data" / "manylangs" / "both"
FIELDS = {
    "algorithms": [{"id": 0, "name": "Gensim Continuous Skipgram"}, {"id": 7, "name": "Embeddings (ELMo)"}],
    "corpora": [
        {"id": 5, "description": "Icelandic Wikipedia", "language": "isl", "lemmatized": True},
        {"id": 6, "description": "Web", "language": "xyz", "lemmatized": False},
    ],
    "models": [
        {"id": 1, "algorithm": 0, "corpus": [5]},
        {"id": 209, "algorithm": 7, "corpus": [5]},
        {"id": 301, "algorithm": 7, "corpus": [5]},
        {"id": 302, "algorithm": 7, "corpus": [5, 6]},
        {"id": 303, "algorithm": 7},
        {"algorithm": 7},
        "nonsense",
    ],
}  # fmt: skip


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Web]:
    """A server that is everybody's proxy, and an empty cache."""
    monkeypatch.setattr(module, "PAUSE", 0.01)
    monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path / "cache"))
    for name in ("https_proxy", "HTTPS_PROXY", "HTTP_PROXY", *module.OFFLINE):
        monkeypatch.delenv(name, raising=False)
    with serving(Web()) as web:
        monkeypatch.setenv("http_proxy", web.at(""))
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.setenv(name, "")
        yield web


def zipped(folder: Path, *, inside: str = "", names: dict[str, str] | None = None) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(f"{inside}meta.json", "{}")
        for path in sorted(folder.iterdir()):
            archive.write(path, inside + (names or {}).get(path.name, path.name))
    return made.getvalue()


def tarred(folder: Path) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:xz") as archive:
        archive.add(folder, "zhs.model")
    return made.getvalue()


def home(tmp_path: Path, name: str) -> Path:
    return tmp_path / "cache" / "hub" / f"models--{name.replace(':', '--')}"


def test_the_table() -> None:
    assert len(TABLE) == 6 + 11 + 44
    for name, entry in TABLE.items():
        assert (entry.name, find(name)) == (name, entry)
        assert entry.source
        assert entry.cite
        assert entry.licence
        assert re.fullmatch("[a-z]{2,3}", entry.language)
        for places in entry.files:
            assert len({place.rpartition("/")[2] for place in places}) == 1
            assert all(re.fullmatch(r"https?://[\w.-]+/[\w./-]+\.(zip|json|hdf5)", place) for place in places)
    assert find("nlpl:144").files[0][0].endswith("/144.zip")
    assert (
        "2x4096_512_2048cnn_2xhighway_5.5B/elmo_2x4096_512_2048cnn_2xhighway_5.5B_weights.hdf5"
        in find("allennlp:5.5B").files[1][0]
    )


def test_names() -> None:
    assert [is_name(name) for name in ("allennlp:original", "nlpl:7", "bert:x", "allennlp", "C:/x")] == [True, True] + [
        False
    ] * 3
    with pytest.raises(WeightsError, match=r"no model 'allennlp:orignal'.*did you mean allennlp:original\?"):
        load_pretrained("allennlp:orignal")
    with pytest.raises(WeightsError, match="elmokit models --remote"):
        load_encoder("manylangs:xx")
    for strange in ("nlpl:", "nlpl:-1", "nlpl:²", "nlpl:../x"):
        with pytest.raises(WeightsError, match="no model"):
            find(strange)


def test_two_files_as_allennlp_has_them(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_model(tmp_path / "model")
    entry = TABLE["allennlp:original"]
    for places, file in zip(entry.files, ("options.json", "lm_weights.hdf5"), strict=True):
        web.files["/" + places[0].rpartition("/")[2]] = (model / file).read_bytes()
    # Without a certificate for that host, its files come by http.
    plain = tuple(tuple(place.replace("https://", "http://") for place in places) for places in entry.files)
    monkeypatch.setitem(TABLE, entry.name, replace(entry, files=tuple((p[0].rpartition("/")[2],) for p in plain)))
    with pytest.raises(WeightsError, match="expected http"):
        load_pretrained("allennlp:original")
    at = tuple((web.at("/" + places[0].rpartition("/")[2]),) for places in plain)
    monkeypatch.setitem(TABLE, entry.name, replace(entry, files=at))
    found, wanted = load_pretrained("allennlp:original"), load_pretrained(model)
    assert all(torch.equal(found.tensors[name], values) for name, values in wanted.tensors.items())
    kept = json.loads((home(tmp_path, "allennlp:original") / "source.json").read_text())
    assert [value["address"] for value in kept.values()] == [places[0] for places in at]
    assert sorted(path.name for path in home(tmp_path, entry.name).iterdir()) == ["snapshot", "source.json"]
    web.asked.clear()
    assert isinstance(load_encoder("allennlp:original"), Elmo)
    assert Elmo.from_pretrained("allennlp:original", local_files_only=True).encode("the cat").shape
    assert not web.asked, "the cache has it"


@pytest.mark.parametrize("layout", ["zip", "in a folder", "weights of another name", "tar.xz"])
def test_archives_as_nlpl_has_them(web: Web, tmp_path: Path, layout: str) -> None:
    model = write_model(tmp_path / "model", vocabulary=WORDS)
    web.files["/repository/20/209.zip"] = {
        "zip": lambda: zipped(model),
        "in a folder": lambda: zipped(model, inside="209/"),
        "weights of another name": lambda: zipped(model, names={"lm_weights.hdf5": "model.hdf5"}),
        "tar.xz": lambda: tarred(model),
    }[layout]()
    found = load_pretrained("nlpl:209")
    assert found.config == load_pretrained(model).config
    assert web.asked == [("http://vectors.nlpl.eu/repository/20/209.zip", None)]
    kept = home(tmp_path, "nlpl:209") / "snapshot"
    assert not list(kept.rglob("*.zip"))


def test_manylangs(web: Web) -> None:
    web.files["/repository/11/149.zip"] = zipped(MANYLANGS)
    assert load_pretrained("manylangs:fi").origin == "manylangs"


def test_the_other_place_of_a_model(web: Web, tmp_path: Path) -> None:
    web.files["/repository/11/209.zip"] = zipped(write_model(tmp_path / "model"))
    load_pretrained("nlpl:209")
    assert [path for path, _ in web.asked] == [f"http://vectors.nlpl.eu/repository/{k}/209.zip" for k in (20, 11)]


def test_a_broken_download_is_continued_by_the_next_call(web: Web, tmp_path: Path) -> None:
    web.files["/repository/20/209.zip"] = zipped(write_model(tmp_path / "model"))
    web.broken = [1000, *[0] * module.ATTEMPTS]
    with pytest.raises(WeightsError, match="1,000 bytes are kept"):
        load_pretrained("nlpl:209")
    web.asked.clear()
    load_pretrained("nlpl:209")
    assert [asked for _, asked in web.asked] == ["bytes=1000-"]


@pytest.mark.parametrize(
    ("data", "kind", "said"),
    [
        (b"<html>moved</html>", "text/html", "a web page came instead"),
        (b"<html>moved</html>", "application/octet-stream", "is not a model that can be read"),
        (b"PK\x03\x04 and nothing", "application/zip", "is not a model that can be read"),
        (None, "application/zip", "no model in this folder"),
    ],
)
def test_what_is_no_model_is_not_kept(web: Web, tmp_path: Path, data: bytes | None, kind: str, said: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "word2vec.txt").write_text("1 2\na 1 2\n")
    web.files["/repository/20/209.zip"] = data or zipped(tmp_path / "empty")
    web.types["/repository/20/209.zip"] = kind
    with pytest.raises(WeightsError, match=said):
        load_pretrained("nlpl:209")
    assert not list(home(tmp_path, "nlpl:209").iterdir())
    web.files["/repository/20/209.zip"] = zipped(write_model(tmp_path / "model"))
    web.types.clear()
    load_pretrained("nlpl:209")


def test_offline(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    web.files["/repository/20/209.zip"] = zipped(write_model(tmp_path / "model"))
    with pytest.raises(WeightsError, match=r"nlpl:209: not in the cache .* only local files were asked for"):
        load_pretrained("nlpl:209", local_files_only=True)
    monkeypatch.setenv("ELMOKIT_OFFLINE", "1")
    with pytest.raises(WeightsError, match=r"ELMOKIT_OFFLINE is set; fetch it once while online"):
        load_pretrained("nlpl:209")
    with pytest.raises(WeightsError, match=r"not in the hub's cache.*ELMOKIT_OFFLINE is set"):
        load_pretrained("someone/elmo")
    assert not web.asked
    monkeypatch.delenv("ELMOKIT_OFFLINE")
    load_pretrained("nlpl:209")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    load_pretrained("nlpl:209")


def test_many_who_want_it_fetch_it_once(web: Web, tmp_path: Path) -> None:
    web.files["/repository/20/209.zip"] = zipped(write_model(tmp_path / "model"))
    found: list[object] = []
    workers = [threading.Thread(target=lambda: found.append(load_pretrained("nlpl:209").config)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(found) == 4
    assert len(web.asked) == 1


def test_a_file_of_that_name_wins(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model(tmp_path / "nlpl:209")
    monkeypatch.chdir(tmp_path)
    assert load_pretrained("nlpl:209").source == "nlpl:209"
    assert not web.asked


def test_the_listing(web: Web) -> None:
    web.files["/repository/20.json"] = json.dumps(FIELDS).encode()
    found = {entry.name: entry for entry in fetch_listing()}
    assert list(found) == ["nlpl:301", "nlpl:302", "nlpl:303"]
    assert (found["nlpl:301"].language, found["nlpl:301"].input, found["nlpl:301"].about) == (
        "is",
        "lemmas",
        "Icelandic Wikipedia",
    )
    assert (found["nlpl:302"].input, found["nlpl:302"].about) == ("not stated", "Icelandic Wikipedia and Web")
    assert found["nlpl:303"].about == "no description"
    assert found["nlpl:301"].source == LISTING
    for wrong in (b"[", b"[]", b"3"):
        web.files["/repository/20.json"] = wrong
        with pytest.raises(WeightsError, match=r"20\.json"):
            fetch_listing()
    assert read_listing({}) == read_listing({"models": 3, "algorithms": [1]}) == []


def test_addresses_of_older_programs() -> None:
    old = "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo/2x1024_128_2048cnn_1xhighway/elmo_2x1024_128_2048cnn_1xhighway_options.json"
    assert places_of(old)[0] == old
    assert places_of(old)[1].startswith("https://allennlp.s3.amazonaws.com/")
    assert places_of("http://example.org/x") == ("http://example.org/x",)


def command(*args: str) -> "subprocess.CompletedProcess[str]":
    line = [sys.executable, "-m", "elmokit", "models", *args]
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
    return subprocess.run(line, capture_output=True, text=True, env=environment, check=False)


def test_the_command(web: Web) -> None:
    web.files["/repository/20.json"] = json.dumps(FIELDS).encode()
    ran = command()
    assert (ran.returncode, ran.stderr) == (0, "")
    assert re.search(r"^en +model, en, \d+\.\d MB, licence: \S+\n +.*Wikipedia.*\n +.*perplexity", ran.stdout, re.M)
    assert not web.asked
    ran = command("--remote", "--language", "is", "--json")
    assert ran.stderr == ""
    row, other = map(json.loads, ran.stdout.splitlines())
    assert (row["name"], other["name"]) == ("nlpl:301", "nlpl:302")
    assert row["files"][0][0] == "http://vectors.nlpl.eu/repository/20/301.zip"
    web.files.clear()
    ran = command("--remote", "--language", "fi")
    assert ran.returncode == 0
    assert "NLPL's own listing was not read" in ran.stderr
    assert [line.split()[0] for line in ran.stdout.splitlines()] == ["manylangs:fi", "Finnish,"]
    ran = command("--language", "xx")
    assert (ran.stdout, ran.returncode) == ("", 0)
    assert "no model of language 'xx'" in ran.stderr


def test_cards_of_the_package() -> None:
    """What the list shows of a model stands in its card, number by number."""
    found = list_bundled()
    assert "en" in [model.name for model in found]
    for model in found:
        assert model.licence
        assert model.data
        assert model.scores
        assert model.size > 10_000
        body = (model.folder / "README.md").read_text().split("---", 2)[2]
        for number in re.findall(r"\d+\.\d+", f"{model.data} {model.scores}"):
            assert number in body, f"{model.name}: {number}"


def test_task_models_appear_by_themselves(tmp_path: Path) -> None:
    folder = tmp_path / "tasks" / "ner"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"format": "elmokit task", "task": "ner", "scores": {"f1": 0.9413}}')
    (folder / "README.md").write_text('---\nlicense: "mit"\ndata: CoNLL-2003\ntags:\n- ner\n---\n# ner\n')
    (model,) = list_bundled(tmp_path)
    assert (model.name, model.kind, model.licence, model.data, model.scores) == (
        "ner",
        "ner",
        "mit",
        "CoNLL-2003",
        "f1 94.13",
    )
    assert bundled_task("ner", tmp_path) == folder
    assert bundled_task("pos", tmp_path) is None
    assert bundled_task("../tasks/ner", tmp_path) is None
    assert card_header(tmp_path / "none.md") == {}


def test_entries_are_plain() -> None:
    assert isinstance(hash(next(iter(TABLE.values()))), int)
    assert Entry("a:b", "en", "", (), "").cite
