"""The resumable stream: what was committed stays, what was not goes, and another input or run is noticed."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.errors import FormatError, InputError
from elmokit.formats.atomic import write_text
from elmokit.formats.locks import BusyError, locked
from elmokit.formats.resumable import HEADER, Log, Position, open_log, read_chunks
from elmokit.text import Sentence

RUN = {"model": "a", "layers": "top"}


def sentences(n: int, *, begin: int = 0) -> list[Sentence]:
    return [Sentence.of([f"w{k}"] * (k % 4)) for k in range(begin, begin + n)]


def fill(log: Log, items: list[Sentence], *, stop: int | None = None) -> int:
    """Results are the tokens themselves; ends without a commit after so many sentences, as if killed."""
    made = 0
    for chunk in read_chunks(items, tokens=12, done=log.done, what="there is another run"):
        if chunk.done:
            continue
        for sentence in chunk.sentences:
            log.append(json.dumps(sentence.tokens).encode())
            made += 1
            if made == stop:
                return made
        log.commit(chunk.end)
    return made


def results(items: list[Sentence]) -> list[bytes]:
    return [json.dumps(sentence.tokens).encode() for sentence in items]


def test_a_stopped_run_continues_after_its_last_commit(tmp_path: Path) -> None:
    items = sentences(40)
    with open_log(tmp_path / "log", run=RUN, restart=False) as log:
        fill(log, items, stop=20)
        committed = log.done.sentences
        assert 0 < committed < 20
        assert list(log.payloads()) == results(items[:committed]), "what was not committed does not count"
    with open_log(tmp_path / "log", run=RUN, restart=False) as log:
        assert log.done.sentences == committed
        assert fill(log, items) == 40 - committed
        assert list(log.payloads()) == results(items)
        log.discard()
    assert not (tmp_path / "log").exists()


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept") / "log"
    with open_log(folder, run=RUN, restart=False) as log:
        fill(log, sentences(12))
    return folder


def test_any_flipped_byte_is_noticed(kept: Path, tmp_path: Path) -> None:
    data, items = (kept / "records.bin").read_bytes(), sentences(12)
    for at in range(len(data)):
        folder = Path(shutil.copytree(kept, tmp_path / str(at)))
        (folder / "records.bin").write_bytes(data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :])
        with open_log(folder, run=RUN, restart=False) as log:
            assert log.done.sentences < 12, f"byte {at}"
            fill(log, items)
            assert list(log.payloads()) == results(items)


@given(data=st.data())
def test_any_damage_to_the_log_is_made_again(data: st.DataObject, kept: Path) -> None:
    whole, items = (kept / "records.bin").read_bytes(), sentences(12)
    cut = data.draw(st.integers(0, len(whole)))
    added = data.draw(st.binary(max_size=40))
    folder = kept.with_name("damaged")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(kept, folder)
    (folder / "records.bin").write_bytes(whole[:cut] + added)
    with open_log(folder, run=RUN, restart=False) as log:
        fill(log, items)
        assert list(log.payloads()) == results(items)


def test_a_commit_that_does_not_fit_the_results_before_it(kept: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(kept, tmp_path / "log"))
    for payload in (b'[13, "digest"]', b"[1]", b"{}", b"[null, null]", b"nonsense"):
        with (folder / "records.bin").open("ab") as file:
            file.write(HEADER.pack(b"C", len(payload), zlib.crc32(payload)) + payload)
        with open_log(folder, run=RUN, restart=False) as log:
            assert log.done.sentences == 12


def test_damage_while_it_is_in_use_is_an_error_not_a_shorter_result(tmp_path: Path) -> None:
    with open_log(tmp_path / "log", run=RUN, restart=False) as log:
        fill(log, sentences(12))
        path = tmp_path / "log" / "records.bin"
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        with pytest.raises(FormatError, match="was damaged after result"):
            list(log.payloads())


@pytest.mark.parametrize(
    "other",
    [
        sentences(40, begin=4),  # as long, every one of them
        sentences(3) + sentences(37),
        sentences(5),
        [],
        [*sentences(2), Sentence(("w2", "w2"), "w2 w2"), *sentences(37, begin=3)],  # another text, the same tokens
    ],
)
def test_another_input_is_noticed(tmp_path: Path, other: list[Sentence]) -> None:
    with open_log(tmp_path / "log", run=RUN, restart=False) as log:
        fill(log, sentences(40), stop=20)
        before = log.done
    with open_log(tmp_path / "log", run=RUN, restart=False) as log:
        assert log.done == before
        with pytest.raises(InputError, match=r"^there is another run: the \d+ sentences done there are not those"):
            fill(log, other)


def test_an_input_that_ends_within_a_chunk_of_the_earlier_one() -> None:
    chunks = list(read_chunks(sentences(40), tokens=12, done=Position(), what=""))
    half = list(read_chunks(sentences(10), tokens=12, done=Position(), what=""))[-1].end
    assert half.sentences not in {chunk.end.sentences for chunk in chunks}
    with pytest.raises(InputError, match="not those given now"):
        list(read_chunks(sentences(40), tokens=12, done=half, what="it"))


def test_another_run_is_refused_unless_it_restarts(tmp_path: Path) -> None:
    with open_log(tmp_path / "log", run=RUN, restart=False) as log:
        fill(log, sentences(12))
    with (
        pytest.raises(InputError, match=r"other settings \(layers: 'top' then, '0' now\).*--restart"),
        open_log(tmp_path / "log", run={**RUN, "layers": "0"}, restart=False),
    ):
        pass
    with open_log(tmp_path / "log", run={**RUN, "layers": "0"}, restart=True) as log:
        assert log.done == Position()
    with open_log(tmp_path / "log", run={**RUN, "layers": "0"}, restart=False) as log:
        assert log.done == Position()


def test_a_run_that_stored_nothing_gives_way_to_another(tmp_path: Path) -> None:
    with open_log(tmp_path / "log", run=RUN, restart=False):
        pass
    with open_log(tmp_path / "log", run={**RUN, "layers": "0"}, restart=False) as log:
        fill(log, sentences(12))
    with (
        pytest.raises(InputError, match=r"other settings \(layers: '0' then, 'top' now\)"),
        open_log(tmp_path / "log", run=RUN, restart=False),
    ):
        pass


def test_a_setting_that_earlier_versions_did_not_record(tmp_path: Path) -> None:
    with open_log(tmp_path / "log", run=RUN, restart=False) as log:
        fill(log, sentences(12))
    later = {**RUN, "arithmetic": "int8"}
    with open_log(tmp_path / "log", run=later, restart=False, later=["arithmetic"]) as log:
        assert log.unrecorded == ("arithmetic",)
        assert log.done.sentences == 12
    with (
        pytest.raises(InputError, match="arithmetic: None then"),
        open_log(tmp_path / "log", run=later, restart=False),
    ):
        pass


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'"model"'])
def test_a_damaged_manifest(tmp_path: Path, content: bytes) -> None:
    with open_log(tmp_path / "log", run=RUN, restart=False) as log:
        fill(log, sentences(12))
    (tmp_path / "log" / "manifest.json").write_bytes(content)
    with (
        pytest.raises(FormatError, match=r"manifest.json: damaged.*--restart"),
        open_log(tmp_path / "log", run=RUN, restart=False),
    ):
        pass
    with open_log(tmp_path / "log", run=RUN, restart=True) as log:
        assert log.done == Position()


class TestOrder:
    """A commit is on the disk after what it stands for; a file is on the disk before it gets its name."""

    @pytest.fixture
    def calls(self, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
        """fsync with what the file held then, and renames."""
        seen: list[tuple[str, Any]] = []
        sync, replace = os.fsync, os.replace

        def fsync(descriptor: int) -> None:
            path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            seen.append(("sync", path if path.is_dir() else path.read_bytes()))
            sync(descriptor)

        def renamed(source: Any, target: Any) -> None:
            seen.append(("rename", Path(target)))
            replace(source, target)

        monkeypatch.setattr(os, "fsync", fsync)
        monkeypatch.setattr(os, "replace", renamed)
        return seen

    @pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")
    def test_commits(self, tmp_path: Path, calls: list[tuple[str, Any]]) -> None:
        with open_log(tmp_path / "log", run=RUN, restart=False) as log:
            calls.clear()
            log.append(b"first")
            log.append(b"second")
            log.commit(Position(2, "digest"))
            path = tmp_path / "log" / "records.bin"
            whole = path.read_bytes()
        commit = whole.index(b"C", whole.index(b"second"))
        assert calls == [("sync", whole[:commit]), ("sync", whole)]

    @pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")
    def test_files(self, tmp_path: Path, calls: list[tuple[str, Any]]) -> None:
        write_text(tmp_path / "a.txt", "content")
        kinds = [call for call in calls if call[0] == "rename" or call[1] in (b"content", tmp_path)]
        assert kinds == [("sync", b"content"), ("rename", tmp_path / "a.txt"), ("sync", tmp_path)]

    @pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")
    def test_old_results_are_gone_before_the_new_settings_are_there(
        self, tmp_path: Path, calls: list[tuple[str, Any]]
    ) -> None:
        with open_log(tmp_path / "log", run=RUN, restart=False) as log:
            fill(log, sentences(12))
        calls.clear()
        with open_log(tmp_path / "log", run={}, restart=True):
            assert calls[0] == ("sync", b"")
            assert ("rename", tmp_path / "log" / "manifest.json") in calls[1:]


class TestLocks:
    HOLD = "import sys, time; from pathlib import Path; from elmokit.formats.locks import locked\n"
    HOLD += "with locked(Path(sys.argv[1]), busy='busy'):\n    print('held', flush=True); time.sleep(60)"

    def test_another_process_and_a_dead_one(self, tmp_path: Path) -> None:
        path = tmp_path / "lock"
        with subprocess.Popen([sys.executable, "-c", self.HOLD, path], stdout=subprocess.PIPE) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == b"held\n"
            with pytest.raises(InputError, match="in use"), locked(path, busy="in use"):
                pass
            other.kill()
        with locked(path, busy="in use"):
            pass

    def test_within_one_process_too(self, tmp_path: Path) -> None:
        with (
            locked(tmp_path / "lock", busy="in use"),
            pytest.raises(InputError, match="in use"),
            locked(tmp_path / "lock", busy="in use"),
        ):
            pass

    def test_a_lock_on_a_file_that_was_removed_is_not_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The last owner removes the folder while another process has the old file open and waits for its lock."""
        import fcntl

        folder, flock = tmp_path / "log", fcntl.flock
        removals = iter([True, True, False])

        def late(file: Any, how: int) -> None:
            flock(file, how)
            if next(removals):
                shutil.rmtree(folder)

        monkeypatch.setattr(fcntl, "flock", late)
        with locked(folder / "lock", busy="in use"):
            assert (folder / "lock").exists()


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match="does not exist; create it first"),
        open_log(tmp_path / "no" / "log", run=RUN, restart=False),
    ):
        pass


@contextlib.contextmanager
def small_files() -> Iterator[None]:
    """No file may grow beyond 2,000 bytes: what a full disk is like."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_keeps_what_was_committed(tmp_path: Path) -> None:
    with small_files(), open_log(tmp_path / "log", run=RUN, restart=False) as log:
        log.append(b"small")
        log.commit(Position(1, "one"))
        log.append(bytes(3_000))
        with pytest.raises(InputError, match=r"log: cannot be written: File too large; what is finished is kept"):
            log.commit(Position(2, "two"))
    with open_log(tmp_path / "log", run=RUN, restart=False) as log:
        assert log.done == Position(1, "one")
        assert list(log.payloads()) == [b"small"]


@pytest.mark.skipif(sys.platform == "win32", reason="locks of Unix")
def test_owners_may_remove_the_folder_of_their_lock(tmp_path: Path) -> None:
    """Whoever comes while the last owner removes it gets a new one; nobody is ever inside with another."""
    inside: list[int] = []

    def work(number: int) -> int:
        done = 0
        end = time.monotonic() + 1
        while time.monotonic() < end:
            try:
                with locked(tmp_path / "folder" / "lock", busy="in use"):
                    inside.append(number)
                    assert inside == [number]
                    inside.remove(number)
                    shutil.rmtree(tmp_path / "folder", ignore_errors=True)
                    done += 1
            except BusyError:
                continue
        return done

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(work, range(4))) > 4
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"), locked(tmp_path / "file" / "lock", busy="in use"):
        pass


@pytest.mark.skipif(sys.platform == "win32", reason="locks of Unix")
def test_a_run_may_begin_where_another_is_just_discarded(tmp_path: Path) -> None:
    def work(number: int) -> int:
        done, end = 0, time.monotonic() + 1
        while time.monotonic() < end:
            with contextlib.suppress(BusyError), open_log(tmp_path / "run", run={"a": 1}, restart=False) as log:
                assert log.done.sentences == 0
                log.append(b"x")
                log.commit(Position(1, "one"))
                assert list(log.payloads()) == [b"x"]
                log.discard()
                done += 1
        return done

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(work, range(4))) > 4
    assert list(tmp_path.iterdir()) == []
