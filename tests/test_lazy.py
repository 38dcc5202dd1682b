"""Names of packages come on first use, and no garbage is collected meanwhile."""

import gc
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

import elmokit
from elmokit._lazy import without_collection


def test_collection_is_off_meanwhile_and_then_as_it_was() -> None:
    assert gc.isenabled()
    with without_collection():
        assert not gc.isenabled()
        with without_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with without_collection():
            assert not gc.isenabled()
        assert not gc.isenabled(), "whoever switched it off keeps it off"
    finally:
        gc.enable()


def test_it_is_on_again_after_an_error_and_after_many_threads() -> None:
    def fail(k: int) -> None:
        with pytest.raises(KeyError), without_collection():
            raise KeyError(k)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(fail, range(200)))
    assert gc.isenabled()
    with pytest.raises(AttributeError, match="no attribute 'nothing'; it offers"):
        elmokit.nothing  # noqa: B018
    assert gc.isenabled()


def test_importing_collects_nothing_old() -> None:
    script = (
        "import gc; seen = []; gc.callbacks.append(lambda phase, info: seen.append(info['generation']))\n"
        "import elmokit; seen.clear(); elmokit.Elmo; print(2 in seen, gc.isenabled())"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "True"]
