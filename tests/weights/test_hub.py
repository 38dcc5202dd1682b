"""The hub, as far as it can be reached without a network: a real cache, and clear words where nothing is reached."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from model_files import write_model

from elmokit.errors import WeightsError
from elmokit.weights import Pretrained, load_pretrained, save_pretrained
from elmokit.weights.hub import push_to_hub, why_local

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CLOSED = "http://127.0.0.1:9"  # nothing listens there


@pytest.fixture
def model(tmp_path) -> Pretrained:
    return load_pretrained(write_model(tmp_path / "model"))


@pytest.fixture
def home(tmp_path, model) -> Path:
    """A cache as the hub's library lays it out: blobs, links to them from a snapshot, and a branch that names it."""
    saved = save_pretrained(model, tmp_path / "saved")
    repository = tmp_path / "home" / "hub" / "models--someone--elmo-xx"
    snapshot = repository / "snapshots" / COMMIT
    for folder in (snapshot, repository / "blobs", repository / "refs"):
        folder.mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    for path in saved.iterdir():
        (repository / "blobs" / path.name).write_bytes(path.read_bytes())
        (snapshot / path.name).symlink_to(f"../../blobs/{path.name}")
    return tmp_path / "home"


@pytest.fixture
def cached(home, monkeypatch) -> Path:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
    return home


@pytest.mark.parametrize("revision", [None, "main", COMMIT])
def test_cached_models_need_no_network(cached, model, revision):
    found = load_pretrained("someone/elmo-xx", revision=revision, local_files_only=True)
    assert found.config == model.config
    assert all(torch.equal(found.tensors[name], values) for name, values in model.tensors.items())


def test_what_is_not_cached(cached):
    for arguments in ({"source": "someone/other"}, {"source": "someone/elmo-xx", "revision": "v2"}):
        with pytest.raises(WeightsError, match=r"not in the hub's cache.*only local files were asked for"):
            load_pretrained(**arguments, local_files_only=True)


def test_offline_mode(home):
    """In a process of its own: the library reads its settings once, at import."""
    code = "from elmokit.weights import load_pretrained; print(load_pretrained('someone/elmo-xx').config.n_layers)"
    environment = os.environ | {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "2"


def test_unreachable_hub(cached, model, monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", CLOSED)
    with pytest.raises(WeightsError, match=r"^someone/other: .*the hub was not reached \(no connection\)"):
        load_pretrained("someone/other")
    assert load_pretrained("someone/elmo-xx").config == model.config  # the cache still serves


def test_push_needs_a_saved_model(tmp_path):
    with pytest.raises(WeightsError, match="no saved elmokit model"):
        push_to_hub(tmp_path, "someone/elmo-xx")


def test_push_without_a_hub(tmp_path, model, monkeypatch):
    folder = save_pretrained(model, tmp_path / "saved")
    monkeypatch.setattr(constants, "ENDPOINT", CLOSED)
    with pytest.raises(WeightsError, match=r"could not be uploaded to someone/elmo-xx .*hf auth login"):
        push_to_hub(folder, "someone/elmo-xx")


def test_a_transformers_model_without_a_hub(monkeypatch):
    pytest.importorskip("transformers")
    from elmokit.encoders import load_encoder

    monkeypatch.setattr(constants, "ENDPOINT", CLOSED)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(WeightsError, match=r"^someone/bert-other: .*the hub was not reached \(no connection\)"):
        load_encoder("bert:someone/bert-other")
    monkeypatch.setenv("ELMOKIT_OFFLINE", "1")
    with pytest.raises(WeightsError, match=r"^someone/bert-other: .*not reached \(ELMOKIT_OFFLINE is set\)"):
        load_encoder("bert:someone/bert-other")


def test_a_proxy_counts_as_the_hub(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        address = f"127.0.0.1:{proxy.getsockname()[1]}"
        monkeypatch.setattr(constants, "ENDPOINT", "http://hub.invalid")
        for name in ("NO_PROXY", "no_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.delenv(name, raising=False)
        assert why_local(local_files_only=False) == "no connection"
        for given in (address, f"http://{address}"):
            monkeypatch.setenv("http_proxy", given)
            assert why_local(local_files_only=False) is None
        monkeypatch.setenv("no_proxy", "hub.invalid")
        assert why_local(local_files_only=False) == "no connection"
