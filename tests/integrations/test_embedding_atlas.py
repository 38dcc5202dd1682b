"""The export of an index for embedding-atlas, and its own viewer over the file."""

import contextlib
import re
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest

import models
from elmokit import Elmo, Index
from elmokit.errors import InputError
from elmokit.integrations.embedding_atlas import export_atlas

pq = pytest.importorskip("pyarrow.parquet")

WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "one", "dog", "ran", "to", "it"]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    rng = np.random.default_rng(2)
    texts = [" ".join(rng.choice(WORDS, 7)) + "." for _ in range(60)]
    return Index.build(
        Elmo(models.tiny(seed=1).pretrained, device="cpu"), texts, tmp_path_factory.mktemp("atlas") / "index"
    )


def test_rows_are_those_of_the_index(index: Index, tmp_path: Path) -> None:
    done: list[int] = []
    table = pq.read_table(export_atlas(index, tmp_path / "atlas.parquet", neighbours=4, told=done.append)).to_pydict()
    assert sum(done) == len(index) == len(table["id"])
    assert table["id"] == list(range(len(index)))
    np.testing.assert_array_equal(np.array(table["vector"], dtype=np.float32), index.vectors(range(len(index))))
    for row in (0, 17, len(index) - 1):
        found = index.occurrence(row)
        assert table["word"][row] == found.word == table["text"][row][table["start"][row] : table["end"][row]]
        assert table["text"][row] == found.text
        assert re.search(r"\*(.+)\*", table["marked"][row])[1] == found.word  # type: ignore[index]


def test_neighbours_are_the_nearest_others(index: Index, tmp_path: Path) -> None:
    table = pq.read_table(export_atlas(index, tmp_path / "atlas.parquet", neighbours=4)).to_pydict()
    vectors = index.vectors(range(len(index))) - index.mean
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -2)
    for row in range(0, len(index), 29):
        near = table["neighbors"][row]
        assert row not in near["ids"]
        assert len(near["ids"]) == 4
        expected = np.sort(cosines[row])[::-1][:4]
        np.testing.assert_allclose(1 - np.array(near["distances"]), expected, atol=1e-4)
        np.testing.assert_allclose(cosines[row, near["ids"]], expected, atol=1e-4)


def test_places_keep_as_much_of_the_spread_as_two_axes_can(index: Index, tmp_path: Path) -> None:
    table = pq.read_table(export_atlas(index, tmp_path / "atlas.parquet")).to_pydict()
    vectors = (index.vectors(range(len(index))) - index.mean).astype(np.float64)
    values = np.linalg.svd(vectors, compute_uv=False) ** 2
    spread = [float(np.square(table[f"projection_{axis}"]).sum()) for axis in "xy"]
    np.testing.assert_allclose(spread, values[:2], rtol=1e-3)


def test_what_cannot_be_exported_is_said(index: Index, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ends in \.parquet"):
        export_atlas(index, tmp_path / "atlas.csv")
    assert not list(tmp_path.iterdir())


@pytest.mark.integration
def test_its_viewer_serves_the_file(index: Index, tmp_path: Path) -> None:
    pytest.importorskip("embedding_atlas")
    path = export_atlas(index, tmp_path / "atlas.parquet")
    command = [str(Path(sys.executable).parent / "embedding-atlas"), str(path), "--text", "marked"]
    command += ["--x", "projection_x", "--y", "projection_y", "--neighbors", "neighbors"]
    log = tmp_path / "log.txt"
    with log.open("w") as out:
        viewer = subprocess.Popen([*command, "--port", str(free_port()), "--auto-port"], stdout=out, stderr=out)
    try:
        stated = wait_for(viewer, log)
        assert "projection_x" in stated
        assert "neighbors" in stated
    finally:
        viewer.terminate()
        viewer.wait(60)


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def wait_for(viewer: "subprocess.Popen[bytes]", log: Path) -> str:
    """What the viewer says of its data, as soon as it answers."""
    deadline = time.monotonic() + 300
    while viewer.poll() is None and time.monotonic() < deadline:
        found = re.search(r"https?://[\w.]+:\d+", log.read_text())
        if found:
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(f"{found[0]}/data/metadata.json", timeout=60) as it,
            ):
                return str(it.read(), "utf-8")
        time.sleep(0.5)
    raise AssertionError(log.read_text())
