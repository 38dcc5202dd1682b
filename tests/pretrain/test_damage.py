"""Files of a run that were damaged, cut or written by someone else: a clear error or a note, nothing else."""

import json
import os
import random
import re
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
import small_runs as runs
import torch

from elmokit.errors import ElmokitError, ElmokitWarning, FormatError
from elmokit.pretrain.checkpoint import load_checkpoint, save_checkpoint
from elmokit.pretrain.corpus.manifest import PreparedCorpus
from elmokit.pretrain.journal import Journal

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.write_text(tmp_path_factory.mktemp("text") / "text.txt", sentences=120)


@pytest.fixture(scope="module")
def begun(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with two checkpoints, not finished: it was given fewer steps than it is given later."""
    folder = tmp_path_factory.mktemp("begun") / "run"
    assert runs.run_here(runs.pretraining(text, output=folder, steps=40)).status == 0
    return folder


@pytest.fixture
def folder(begun: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(begun, tmp_path / "run"))


def mutated(content: bytes, dice: random.Random) -> bytes:
    """One of the ways in which files go wrong: bits, cuts, holes, numbers and words that are others."""
    data = bytearray(content)
    at = dice.randrange(len(data))
    match dice.randrange(6):
        case 0:
            data[at] ^= 1 << dice.randrange(8)
        case 1:
            del data[at:]
        case 2:
            del data[at : at + dice.randrange(1, 30)]
        case 3:
            data[at:at] = dice.choice([b"null", b"-1", b"1e999", b"[", b'{"a":', b"9" * 30, b"\xff\xfe"])
        case 4:
            digits = [k for k, c in enumerate(data) if chr(c).isdigit()] or [at]
            data[(k := dice.choice(digits)) : k + 1] = dice.choice(
                [b"-7", b"0", b"99999999999999999999", b"1.5", b'"x"']
            )
        case _:
            data[at : at + 4] = bytes(4)
    return bytes(data)


def test_manifests(folder: Path) -> None:
    path, dice = folder / "corpus" / "manifest.json", random.Random(3)
    whole = path.read_bytes()
    refused = 0
    for _ in range(400):
        path.write_bytes(mutated(whole, dice))
        try:
            prepared = PreparedCorpus.open(path.parent)
            _ = prepared.lexicon, prepared.vocabulary, prepared.train[0], prepared.heldout[0], prepared.fingerprint
        except ElmokitError:
            refused += 1
    assert refused > 200


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.pop("report"), "report is missing"),
        (lambda m: m["report"].pop("tokens"), "report.tokens is missing"),
        (lambda m: m["report"].update(coverage=1.5), "report.coverage is 1.5; expected a number from 0 to 1"),
        (lambda m: m["files"].pop("lexicon.text"), "files lacks lexicon.text"),
        (lambda m: m["files"].pop("train-00000.starts"), "files lacks train-00000.starts"),
        (lambda m: m["files"].update({"../x": {"bytes": 1, "crc32": 1}}), "files names '../x'"),
        (lambda m: m["train"][0].update(tokens=7), "files.train-00000.tokens.bytes is .*; expected 28"),
        (lambda m: m["train"].append(3), "train.1. is 3; expected an object"),
        (lambda m: m["tokenizer"].update(version="1"), 'tokenizer.version is "1"; expected a whole number'),
        (lambda m: m.update(format_version=2), "format_version is 2; expected 1"),
    ],
)
def test_what_is_wrong_with_a_manifest_is_told(folder: Path, change: Any, message: str) -> None:
    path = folder / "corpus" / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))
    with pytest.raises(
        FormatError, match=rf"manifest.json: .*{message}.*; delete the folder .* prepare the corpus again"
    ):
        PreparedCorpus.open(path.parent)


def test_a_run_makes_a_damaged_manifest_again(text: Path, folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in (folder / "corpus").iterdir()}
    (folder / "corpus" / "manifest.json").write_text("{}")
    shutil.rmtree(folder / "model")
    assert runs.run_here(runs.pretraining(text, output=folder, steps=40)).status == 0
    assert {path.name: path.read_bytes() for path in (folder / "corpus").iterdir()} == before


@pytest.mark.parametrize(
    "line",
    [b"{", b"[]", b"3", b"{}", b'{"step": "x"}', b'{"step": null}', b"\xff\xfe", b'{"step": 1e999}', b"[" * 99999],
)
def test_a_damaged_log_loses_that_line_only(folder: Path, line: bytes) -> None:
    path = folder / "log.jsonl"
    good = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*good[:2], line + b"\n", *good[2:], line[: len(line) // 2]]))
    with Journal(folder, "again", step=40, show=False) as journal:
        journal.record(41, loss=1.0)
    now = path.read_bytes().splitlines(keepends=True)
    assert now[:-1] == good
    assert json.loads(now[-1])["loss"] == 1.0


def test_every_damaged_byte_of_a_checkpoint_is_noticed(tmp_path: Path) -> None:
    content: dict[str, Any] = {"fingerprint": "abc", "progress": {"step": 1}, "objective": {"w": torch.arange(900.0)}}
    content |= {"optimizer": {"state": {}}, "state": [[torch.ones(3), torch.ones(3)]]}
    path = save_checkpoint(tmp_path, 1, content, keep=2)
    save_checkpoint(tmp_path, 2, {**content, "fingerprint": "newer"}, keep=2)
    newest, dice = tmp_path / "step-000000002.pt", random.Random(5)
    whole = newest.read_bytes()
    fell_back = 0
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[dice.randrange(len(damaged))] ^= 1 << dice.randrange(8)
        newest.write_bytes(damaged)
        try:
            found = load_checkpoint(tmp_path, CPU)
        except ElmokitWarning as note:
            assert str(note).startswith(f"{newest}: is damaged (")  # noqa: PT017  warnings are errors here
            fell_back += 1
            continue
        assert found is not None
        runs.assert_identical(found.content, {**content, "fingerprint": "newer"})  # between the numbers
    assert fell_back > 150
    with pytest.warns(ElmokitWarning, match="is damaged"):
        found = load_checkpoint(tmp_path, CPU)
    assert found is not None
    assert found.path == path
    runs.assert_identical(found.content, content)


@pytest.mark.parametrize("part", ["fingerprint", "progress", "objective", "optimizer", "state"])
def test_a_checkpoint_without_one_of_its_parts_is_passed_over(text: Path, folder: Path, part: str) -> None:
    newest = max((folder / "checkpoints").glob("step-*.pt"))
    content = torch.load(newest, weights_only=True)
    del content[part]
    torch.save(content, newest)
    ended = runs.run_here(runs.pretraining(text, output=folder, steps=40))
    assert ended.status == 0
    assert f"{newest}: is damaged (its part '{part}' is missing); trying an older checkpoint" in ended.said


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["progress"].update(step=-3), "step is -3; expected a whole number of at least 0"),
        (lambda c: c["progress"].update(position=(0, 1)), "position is .0, 1.; expected"),
        (lambda c: c["progress"].update(unheard=1), "unknown field 'unheard'"),
        (lambda c: c["objective"].popitem(), "is of another model .*; choose another output folder"),
        (lambda c: c["optimizer"].pop("param_groups"), "is of another model .*; choose another output folder"),
        (lambda c: c["state"].append(3), "is of another model .*; choose another output folder"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(text: Path, folder: Path, change: Any, message: str) -> None:
    newest = max((folder / "checkpoints").glob("step-*.pt"))
    content = torch.load(newest, weights_only=True)
    change(content)
    torch.save(content, newest)
    ended = runs.run_here(runs.pretraining(text, output=folder, steps=40))
    assert (ended.status, ended.said.count("\n")) == (2, 1), ended.said
    assert str(newest) in ended.said
    assert re.search(message, ended.said), ended.said


def test_settings_of_a_run(text: Path, folder: Path) -> None:
    path, dice = folder / "config.json", random.Random(9)
    whole = path.read_bytes()
    for _ in range(40):
        path.write_bytes(mutated(whole, dice))
        ended = runs.run_here(runs.pretraining(text, output=folder, steps=40))
        assert ended.status in (0, 2), ended.said
        assert ended.said.count("\n") == (1 if ended.status else 2), ended.said


def test_a_checkpoint_is_on_the_disk_before_the_older_one_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of the calls that make files survive a power failure."""
    calls: list[str] = []
    sync, replace, unlink = os.fsync, os.replace, os.unlink

    def synced(descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        calls.append("sync folder" if is_folder else "sync file")
        sync(descriptor)

    def replaced(source: Any, target: Any) -> None:
        calls.append(f"move {Path(target).name}")
        replace(source, target)

    def unlinked(path: Any, **options: Any) -> None:
        if Path(path).suffix == ".pt":
            calls.append(f"remove {Path(path).name}")
        unlink(path, **options)

    save_checkpoint(tmp_path, 1, {"a": 1}, keep=1)
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    monkeypatch.setattr(os, "unlink", unlinked)
    save_checkpoint(tmp_path, 2, {"a": 2}, keep=1)
    assert calls == ["sync file", "move step-000000002.pt", "sync folder", "remove step-000000001.pt"]
