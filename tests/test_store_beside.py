"""Files made by a process beside the one that embeds: the same bytes, also after a kill of either process."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

import models
from elmokit import Elmo
from elmokit.store import StoreOptions, read_provenance, verify_vectors, write_vectors
from elmokit.store import write as writing
from elmokit.store._finish import Follower
from elmokit.store._parquet import write_parquet
from elmokit.store._records import Record, RecordBlock

OPTIONS = StoreOptions(batch_tokens=16)
SUFFIXES = [".h5", ".npz", ".parquet", ".safetensors"]


def many(n: int) -> list[list[str]]:
    return [[f"w{k * j % 17}" for j in range(k % 7)] for k in range(n)]


@pytest.fixture(scope="module")
def elmo() -> Elmo:
    return Elmo(models.tiny().pretrained, device="cpu")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_same_file(elmo: Elmo, tmp_path: Path, suffix: str) -> None:
    write_vectors(elmo, many(90), tmp_path / f"a{suffix}", options=OPTIONS)
    report = write_vectors(elmo, many(90), tmp_path / f"b{suffix}", options=OPTIONS, beside=True)
    assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()
    assert (report.sentences, report.duplicates > 0) == (90, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"a{suffix}", f"b{suffix}"]
    assert verify_vectors(tmp_path / f"b{suffix}")


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_resumed_beside(elmo: Elmo, tmp_path: Path, suffix: str) -> None:
    def dying() -> Any:
        yield from many(100)
        raise KeyboardInterrupt

    write_vectors(elmo, many(150), tmp_path / f"a{suffix}", options=OPTIONS)
    with pytest.raises(KeyboardInterrupt):
        write_vectors(elmo, dying(), tmp_path / f"b{suffix}", options=OPTIONS, beside=True)
    report = write_vectors(elmo, many(150), tmp_path / f"b{suffix}", options=OPTIONS, beside=True)
    assert report.resumed_at > 0
    assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


def test_the_file_is_made_afterwards_where_the_other_process_dies(
    elmo: Elmo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = Follower.tell

    def tell(self: Follower, end: int) -> None:
        self._process.kill()
        self._process.join()
        usual(self, end)

    write_vectors(elmo, many(90), tmp_path / "a.npz", options=OPTIONS)
    monkeypatch.setattr(writing.Follower, "tell", tell)
    write_vectors(elmo, many(90), tmp_path / "b.npz", options=OPTIONS, beside=True)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_killed_on_the_command_line_and_resumed(elmo: Elmo, tmp_path: Path) -> None:
    elmo.save_pretrained(tmp_path / "model")
    (tmp_path / "t.txt").write_text("".join(f"The cat number {k} sat on mat {k % 9}.\n" for k in range(1500)))
    command = [sys.executable, "-m", "elmokit", "embed", tmp_path / "t.txt", "-m", tmp_path / "model"]
    command += ["--device", "cpu", "--batch-tokens", "64"]
    subprocess.run([*command, "-o", tmp_path / "a.parquet", "--workers", "0"], check=True, capture_output=True)
    running = subprocess.Popen(
        [*command, "-o", tmp_path / "b.parquet", "--workers", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    log = tmp_path / "b.parquet.partial" / "records.bin"
    end = time.monotonic() + 120
    while running.poll() is None and time.monotonic() < end:
        if log.exists() and log.stat().st_size > 500:  # some chunks are there
            running.send_signal(signal.SIGKILL)
            break
        time.sleep(0.01)
    running.communicate(timeout=120)  # the pipes close when its other processes are gone, too
    subprocess.run([*command, "-o", tmp_path / "b.parquet", "--workers", "1"], check=True, capture_output=True)
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    assert not (tmp_path / "b.parquet.partial").exists()


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("layers", ["average", "all"])
def test_half_precision(elmo: Elmo, tmp_path: Path, suffix: str, layers: str) -> None:
    path, sentences = tmp_path / f"a{suffix}", [["a", "b", "c"], [], ["d"]]
    write_vectors(elmo, sentences, path, options=StoreOptions(layers=layers, vectors="float16"))
    exact = [e.vectors.astype(np.float16) for e in elmo.stream(sentences, layers=layers)]
    if suffix == ".h5":
        import h5py

        with h5py.File(path) as file:
            found = [file[str(k)][()] for k in range(3)]
    elif suffix == ".npz":
        found = [np.load(path)[str(k)] for k in range(3)]
    elif suffix == ".safetensors":
        stored = load_file(path)
        ends = stored["offsets"]
        parts = [stored["vectors"][ends[k] : ends[k + 1]] for k in range(3)]
        found = [part if layers == "average" else part.swapaxes(0, 1) for part in parts]
    else:
        table = pq.read_table(path)
        names = ["vector"] if layers == "average" else [f"layer{k}" for k in range(elmo.depth)]
        columns = np.stack([np.stack(table[name].to_numpy()) for name in names])
        found = [columns[:, :3], columns[:, 3:3], columns[:, 3:]]
        found = [part[0] for part in found] if layers == "average" else found
    for one, other in zip(found, exact, strict=True):
        assert one.dtype == np.float16
        np.testing.assert_array_equal(one, other)
    made = read_provenance(path)
    assert made is not None
    assert made.vectors == "float16"


@pytest.mark.parametrize(("layers", "width"), [((), 1), ((), 7), ((3,), 130)])
@pytest.mark.parametrize("half", [False, True])
def test_parquet_holds_what_it_was_given(tmp_path: Path, layers: tuple[int, ...], width: int, half: bool) -> None:
    """Read by Arrow; over several row groups, with words of all kinds."""
    draw = np.random.default_rng(0)
    words = ["a", "", "naïve", "\u2028", "x" * 300, "\ud800", "日本語"]
    tokens = [tuple(draw.choice(words, n).tolist()) for n in draw.integers(0, 60, 400)]
    kind = np.float16 if half else np.float32
    records = [Record("", t, draw.standard_normal((*layers, len(t), width)).astype(kind)) for t in tokens]
    blocks: list[Any] = [records[0], RecordBlock.of(records[1:100]), *records[100:110], RecordBlock.of(records[110:])]
    path = tmp_path / "a.parquet"
    write_parquet(path, blocks, axes=(*layers, width), metadata={"key": "välue"}, numbers=range(5, 405), half=half)
    table = pq.read_table(path)
    assert table.schema.metadata[b"key"].decode() == "välue"
    flat = [(5 + k, at, word) for k, t in enumerate(tokens) for at, word in enumerate(t)]
    assert table["sentence"].to_pylist() == [s for s, _, _ in flat]
    assert table["position"].to_pylist() == [at for _, at, _ in flat]
    assert table["token"].to_pylist() == [word.encode("utf-8", "replace").decode() for _, _, word in flat]
    for k, name in enumerate(table.column_names[3:]):
        expected = np.concatenate([record.vectors[k] if layers else record.vectors for record in records])
        assert table[name].type.list_size == width
        np.testing.assert_array_equal(np.stack(table[name].to_numpy()), expected)
    meta = pq.ParquetFile(path).metadata
    limits = meta.row_group(0).column(0).statistics
    assert (limits.min, limits.null_count) == (flat[0][0], 0)
    assert sum(meta.row_group(k).num_rows for k in range(meta.num_row_groups)) == len(flat)
