"""Memory while files of vectors are written, and the files that hold what is not in it."""

import subprocess
import sys
from pathlib import Path

import pytest

from elmokit.store import StoreReport
from elmokit.store._records import SentenceIndex
from elmokit.store.hdf5 import _Draft


def peak_memory(target: Path, lines: int) -> int:
    program = Path(__file__).with_name("store_memory.py")
    done = subprocess.run([sys.executable, program, target, str(lines)], capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_memory_does_not_grow_with_the_input(tmp_path: Path) -> None:
    few, many_lines = (peak_memory(tmp_path / "out.safetensors", n) for n in (2_000, 16_000))
    assert many_lines <= 1.1 * few


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".h5", ".parquet", ".safetensors"])
def test_memory_is_flat_from_twenty_thousand_lines_to_two_hundred_thousand(tmp_path: Path, suffix: str) -> None:
    few, many_lines = (peak_memory(tmp_path / f"out{suffix}", n) for n in (20_000, 200_000))
    assert many_lines <= 1.1 * few


class TestDraft:
    def test_what_was_written_is_read_back_and_the_rest_is_zeros(self, tmp_path: Path) -> None:
        with _Draft(tmp_path / "draft", "w+b") as draft:
            assert draft.write(b"abcd") == 4
            draft.seek(1)
            found = bytearray(b"......")
            assert draft.readinto(found) == 6
            assert found == b"bcd\0\0\0"


def test_a_report_of_nothing_done() -> None:
    assert StoreReport() == StoreReport(
        sentences=0, tokens=0, empty=0, overlong_words=0, unknown_words=0, longest=0, duplicates=0, resumed_at=0
    )


def test_an_index_of_sentences_is_gone_when_it_is_closed(tmp_path: Path) -> None:
    index = SentenceIndex(tmp_path / "sentences")
    index.add_all(["a b"], 1)
    assert (tmp_path / "sentences").exists()
    index.close()
    assert not (tmp_path / "sentences").exists()
