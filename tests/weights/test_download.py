"""Downloads against a real server: resumed, checked for length, whole or not at all."""

import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from web_server import Web, serving

from elmokit.errors import WeightsError
from elmokit.weights import download as module
from elmokit.weights.download import download

DATA = b"".join(hashlib.sha256(bytes([k])).digest() for k in range(256)) * 100  # 819,200 bytes


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setattr(module, "PAUSE", 0.01)
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", *module.OFFLINE):
        monkeypatch.delenv(name, raising=False)
    with serving(Web(files={"/a.bin": DATA})) as web:
        yield web


def parts(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_whole(web: Web, tmp_path: Path) -> None:
    heard: list[tuple[int, int | None]] = []
    found = download([web.at("/a.bin")], tmp_path / "a.bin", told=lambda *at: heard.append(at))
    assert (tmp_path / "a.bin").read_bytes() == DATA
    assert (found.address, found.length) == (web.at("/a.bin"), len(DATA))
    assert heard[0] == (0, len(DATA))
    assert heard[-1] == (len(DATA), len(DATA))
    assert parts(tmp_path) == ["a.bin"]


def test_a_broken_connection_is_resumed_within_a_call(web: Web, tmp_path: Path) -> None:
    web.broken = [300_000, 200_000]
    download([web.at("/a.bin")], tmp_path / "a.bin")
    assert (tmp_path / "a.bin").read_bytes() == DATA
    assert [asked for _, asked in web.asked] == [None, "bytes=300000-", "bytes=500000-"]


def test_the_next_call_resumes(web: Web, tmp_path: Path) -> None:
    web.broken = [400_000, *[0] * module.ATTEMPTS]
    with pytest.raises(WeightsError, match=r"ended before the file did; 400,000 bytes are kept and the next call"):
        download([web.at("/a.bin")], tmp_path / "a.bin")
    assert parts(tmp_path) == ["a.bin.incomplete", "a.bin.incomplete.json"]
    web.asked.clear()
    download([web.at("/a.bin")], tmp_path / "a.bin")
    assert web.asked == [("/a.bin", "bytes=400000-")]
    assert (tmp_path / "a.bin").read_bytes() == DATA
    assert parts(tmp_path) == ["a.bin"]


@pytest.mark.parametrize("how", ["another file now", "no ranges", "no marks", "another address", "note lost"])
def test_what_cannot_be_resumed_begins_again(web: Web, tmp_path: Path, how: str) -> None:
    web.etags = how != "no marks"
    web.broken = [400_000, *[0] * module.ATTEMPTS]
    with pytest.raises(WeightsError, match="ended before the file did"):
        download([web.at("/a.bin")], tmp_path / "a.bin")
    web.broken.clear()
    wanted, path = DATA, "/a.bin"
    if how == "another file now":
        wanted = web.files["/a.bin"] = DATA[::-1]
    elif how == "no ranges":
        web.ranges = False
    elif how == "another address":
        path = "/b.bin"
        wanted = web.files[path] = DATA[::-1]
    elif how == "note lost":
        (tmp_path / "a.bin.incomplete.json").write_text("{")
    download([web.at(path)], tmp_path / "a.bin")
    assert (tmp_path / "a.bin").read_bytes() == wanted


def test_a_file_that_became_shorter_begins_again(web: Web, tmp_path: Path) -> None:
    web.broken = [400_000, *[0] * module.ATTEMPTS]
    with pytest.raises(WeightsError, match="ended before"):
        download([web.at("/a.bin")], tmp_path / "a.bin")
    web.errors = [416]
    download([web.at("/a.bin")], tmp_path / "a.bin")
    assert (tmp_path / "a.bin").read_bytes() == DATA


def test_redirects(web: Web, tmp_path: Path) -> None:
    web.moved = {
        "/old.bin": "/newer.bin",
        "/newer.bin": web.at("/a.bin"),
        "/round": "/round",
        "/out": "file:///etc/hosts",
    }
    download([web.at("/old.bin")], tmp_path / "a.bin")
    assert (tmp_path / "a.bin").read_bytes() == DATA
    for path in ("/round", "/out"):
        with pytest.raises(WeightsError, match="the server says 302"):
            download([web.at(path)], tmp_path / "b.bin")


def test_other_places_are_tried(web: Web, tmp_path: Path) -> None:
    web.types = {"/page.bin": "text/html; charset=utf-8"}
    web.files["/page.bin"] = b"<html>"
    found = download([web.at("/gone.bin"), web.at("/page.bin"), web.at("/a.bin")], tmp_path / "a.bin")
    assert found.address == web.at("/a.bin")
    with pytest.raises(WeightsError, match=r"gone.bin: the server says 404 .*page.bin: a web page came instead"):
        download([web.at("/gone.bin"), web.at("/page.bin")], tmp_path / "b.bin")
    assert parts(tmp_path) == ["a.bin"]


def test_a_server_in_trouble_is_asked_again(web: Web, tmp_path: Path) -> None:
    web.errors = [503, 429, 500]
    download([web.at("/a.bin")], tmp_path / "a.bin")
    assert len(web.asked) == 4
    web.errors = [503] * module.ATTEMPTS
    with pytest.raises(WeightsError, match="Service Unavailable"):
        download([web.at("/a.bin")], tmp_path / "b.bin")


def test_no_server_and_no_address(tmp_path: Path, web: Web) -> None:
    with pytest.raises(WeightsError, match=r"refused; nothing was fetched; get the file elsewhere"):
        download(["http://127.0.0.1:9/a.bin"], tmp_path / "a.bin")
    with pytest.raises(WeightsError, match=r"expected http:// or https://"):
        download(["file:///etc/hosts"], tmp_path / "a.bin")
    assert not parts(tmp_path)


@pytest.mark.parametrize("name", module.OFFLINE)
def test_offline(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "1")
    with pytest.raises(WeightsError, match=f"because {name} is set"):
        download([web.at("/a.bin")], tmp_path / "a.bin")
    assert not web.asked
    monkeypatch.setenv(name, "0")
    download([web.at("/a.bin")], tmp_path / "a.bin")


def test_proxies(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", web.at(""))
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("NO_PROXY", "")
    download(["http://nowhere.example/a.bin"], tmp_path / "a.bin")
    assert web.asked == [("http://nowhere.example/a.bin", None)]
    assert (tmp_path / "a.bin").read_bytes() == DATA


def test_a_disk_that_cannot_be_written(web: Web, tmp_path: Path) -> None:
    (tmp_path / "a.bin.incomplete").mkdir()
    with pytest.raises(WeightsError, match="cannot be written"):
        download([web.at("/a.bin")], tmp_path / "a.bin")


def test_without_a_length_the_end_is_the_end(web: Web, tmp_path: Path) -> None:
    web.lengths = False
    assert download([web.at("/a.bin")], tmp_path / "a.bin").length == len(DATA)


def test_threads_have_files_of_their_own(web: Web, tmp_path: Path) -> None:
    workers = [threading.Thread(target=download, args=([web.at("/a.bin")], tmp_path / f"{k}.bin")) for k in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert all((tmp_path / f"{k}.bin").read_bytes() == DATA for k in range(4))
