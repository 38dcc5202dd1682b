"""A build that is killed, really and often, goes on where it was and ends as if nothing had happened."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import kill_program
import pytest

import models
from elmokit.encoders import Elmo
from elmokit.errors import InputError
from elmokit.index import Index

pytest.importorskip("usearch", reason="usearch is not installed: pip install 'elmokit[neighbours]'")
HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def _small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elmokit.index.growth.CHUNK_TOKENS", 64)
    monkeypatch.setattr("elmokit.index.growth.SEGMENT_ROWS", 100)


@pytest.fixture
def elmo() -> Elmo:
    return Elmo(models.tiny().pretrained, device="cpu")


class KilledError(Exception):
    pass


def dying(sentences: list[list[str]], after: int) -> Iterator[list[str]]:
    yield from sentences[:after]
    raise KilledError


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked children")
def test_sigkill_over_and_over(tmp_path: Path) -> None:
    whole = kill_program.build(tmp_path / "whole")
    program = [sys.executable, "-W", "ignore", str(HERE / "kill_program.py"), str(tmp_path / "killed")]
    paths = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(program, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths}, timeout=300)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["whole"] == len(whole)
    assert all(a <= b for a, b in pairwise(seen["rows"])), "what is there stays"
    assert len({*seen["rows"]} - {0, len(whole)}) > 1, "some kills met it in the middle"
    killed = Index.open(tmp_path / "killed")
    assert killed.finished
    for one, other in zip(whole.segments, killed.segments, strict=True):
        assert one.path.read_bytes() == other.path.read_bytes()
    kept = {p.name for p in killed.folder.iterdir()} - {s.path.name for s in killed.segments}
    assert kept == {"index.json", "lock", "graph.json", f"graph-{len(whole)}.usearch"}


def test_an_unfinished_text_is_not_mixed_with_another(elmo: Elmo, tmp_path: Path) -> None:
    folder, sentences = tmp_path / "index", kill_program.sentences()
    with pytest.raises(KilledError):
        Index.build(elmo, dying(sentences, 150), folder, name="a text")
    index = Index.open(folder)
    assert not index.finished
    part = len(index)
    assert part > 0
    others = (sentences[5:], [["short"]], [["other"], *sentences[1:]])
    for other in others:
        with pytest.raises(InputError, match=r"adding a text was not finished.*--restart"):
            index.grow(elmo, other)
    assert len(Index.open(folder)) == part
    assert index.grow(elmo, others[0], restart=True).resumed_at == 0
    assert index.finished
    assert index.occurrence(0).text == " ".join(sentences[5])


def test_a_second_text_that_was_killed_leaves_the_first_alone(elmo: Elmo, tmp_path: Path) -> None:
    folder, sentences = tmp_path / "index", kill_program.sentences()
    index = Index.build(elmo, sentences[:150], folder)
    first = len(index)
    with pytest.raises(KilledError):
        index.grow(elmo, dying(sentences[150:], 150))
    part = len(Index.open(folder))
    assert first < part
    again = Index.open(folder)
    report = again.grow(elmo, [["another"]], restart=True)
    assert (len(again), report.resumed_at) == (first + 1, 0)
    with pytest.raises(KilledError):
        again.grow(elmo, dying(sentences[150:], 150))
    report = again.grow(elmo, sentences[150:])
    assert report.resumed_at > 0
    assert report.sentences == 250
    assert again.finished
    assert len(again) == len(Index.build(elmo, sentences, tmp_path / "whole")) + 1
