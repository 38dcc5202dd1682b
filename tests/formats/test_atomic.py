import os
from pathlib import Path

import pytest

from elmokit.errors import InputError
from elmokit.formats import atomic_path, atomic_write, write_text


def test_replaces_when_done(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with atomic_write(path) as stream:
        stream.write(b"new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_error_leaves_the_old_file_and_nothing_else(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(error), atomic_write(path) as stream:
        raise error(stream.write(b"half"))
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_block_that_writes_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), atomic_path(tmp_path / "a"):
        pass
    assert os.listdir(tmp_path) == []


def test_permissions_and_long_names(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 250)
    write_text(path, "é\n")
    assert path.read_bytes() == "é\n".encode()
    (tmp_path / "plain").touch()
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_devices_are_written_through() -> None:
    write_text(os.devnull, "gone")
    assert not Path(os.devnull).is_file()


def test_wrong_targets(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"), atomic_write(tmp_path):
        pass
    with pytest.raises(InputError, match="does not exist; create it"), atomic_write(tmp_path / "no" / "a"):
        pass
