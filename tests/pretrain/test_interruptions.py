"""Runs that are killed, stopped, out of disk or out of their minds: the real command, in processes of its own."""

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import small_runs as runs
import torch

from elmokit.errors import InputError
from elmokit.formats.locks import locked
from elmokit.pretrain.corpus.text import Corpus, read_blocks
from elmokit.pretrain.processes import StopSignals
from elmokit.text import load_tokenizer

STEPS = 240
# State carried, a fresh order every epoch, dropout and negatives: all that a checkpoint has to bring back.
SETTINGS = {"steps": STEPS, "state": "carry", "dropout": 0.1}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.write_text(tmp_path_factory.mktemp("text") / "text.txt")


@pytest.fixture(scope="module")
def undisturbed(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run, never disturbed."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    assert runs.end(runs.start(runs.pretraining(text, output=folder, **SETTINGS))).status == 0
    return folder


@pytest.fixture(scope="module")
def stopped_run(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped after its first checkpoint; long enough never to be finished here."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    process = runs.start(runs.pretraining(text, output=folder, steps=100_000))
    runs.wait_for_step(folder, 25, process)
    process.send_signal(signal.SIGTERM)
    assert runs.end(process).status == 143
    return folder


@pytest.fixture
def unfinished(stopped_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped_run, tmp_path / "run"))


def test_killed_at_random_points_it_ends_with_the_same_weights(text: Path, undisturbed: Path, tmp_path: Path) -> None:
    folder, dice = tmp_path / "run", random.Random(11)
    command = runs.pretraining(text, output=folder, **SETTINGS)
    for least in sorted(dice.sample(range(5, STEPS - 40), 3)):
        process = runs.start(command)
        runs.wait_for_step(folder, least, process)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(dice.uniform(0, 0.03))  # between log lines, too: in a step, a validation, a checkpoint
        process.kill()
        assert runs.end(process).status == -signal.SIGKILL
    assert runs.end(runs.start(command)).status == 0
    runs.assert_same_run(folder, undisturbed)
    assert runs.losses_of(folder) == runs.losses_of(undisturbed)
    assert runs.perplexities_of(folder) == runs.perplexities_of(undisturbed)
    assert not list(folder.rglob("*.tmp"))


def test_sigterm_saves_and_the_run_goes_on(text: Path, undisturbed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = runs.pretraining(text, output=folder, **SETTINGS)
    process = runs.start(command)
    runs.wait_for_step(folder, 120, process)
    process.send_signal(signal.SIGTERM)
    stopped = runs.end(process)
    assert stopped.status == 143
    step = runs.checkpoint_of(folder)["progress"]["step"]
    assert stopped.said.splitlines() == [
        "SIGTERM: stopping after this step; again to stop at once",
        f"stopped at step {step}; the same command resumes there",
    ]
    assert max(runs.losses_of(folder)) == step
    gone_on = runs.run_here(command)
    assert gone_on.status == 0
    assert f"finished after {STEPS} steps" in gone_on.said
    runs.assert_same_run(folder, undisturbed)
    checkpoints = sorted(path.name for path in (folder / "checkpoints").iterdir())
    assert checkpoints == [f"step-{STEPS - 20:09d}.pt", f"step-{STEPS:09d}.pt"]  # rotated
    again = runs.run_here(command)  # a finished run says so and does nothing
    assert again == gone_on
    runs.assert_same_run(folder, undisturbed)


def test_a_file_that_cannot_grow_stops_it_clearly(text: Path, unfinished: Path) -> None:
    before = runs.checkpoint_of(unfinished)
    command = runs.pretraining(text, output=unfinished, steps=100_000)
    allowed = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (32 * 1024, allowed[1]))
    try:
        ended = runs.run_here(command)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, allowed)
    assert ended.status == 2
    assert ended.said.count("\n") == 1
    assert "cannot be written: File too large" in ended.said
    assert f"the last good checkpoint is step-{before['progress']['step']:09d}.pt" in ended.said
    runs.assert_identical(runs.checkpoint_of(unfinished), before)
    assert not list(unfinished.rglob("*.tmp"))


@pytest.fixture
def little_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2 MiB, where the system lets us have one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("a small disk cannot be mounted here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.parametrize("left", [0, 8, 40])  # KiB: not even the log can be written; the log; but no checkpoint
def test_a_full_disk_stops_it_clearly(text: Path, unfinished: Path, little_disk: Path, left: int) -> None:
    folder = little_disk / "run"
    shutil.copytree(unfinished, folder)
    before = runs.checkpoint_of(folder)
    free = int(subprocess.check_output(["df", "--output=avail", "-k", little_disk], text=True).split()[-1])
    (little_disk / "filling").write_bytes(bytes(1024 * (free - left)))
    command = runs.pretraining(text, output=folder, steps=100_000)
    ended = runs.run_here(command)
    assert ended.status == 2
    assert "cannot be written: the disk is full (0 MiB free)" in ended.said
    assert "Make room and run the same command again" in ended.said
    assert f"the last good checkpoint is step-{before['progress']['step']:09d}.pt" in ended.said
    runs.assert_identical(runs.checkpoint_of(folder), before)
    (little_disk / "filling").unlink()


def test_two_processes_in_one_folder(text: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = runs.pretraining(text, output=folder, steps=100_000)
    first = runs.start(command)
    runs.wait_for_step(folder, 10, first)
    second = runs.run_here(command)
    assert (second.status, second.said.count("\n")) == (2, 1)
    assert f"{folder}: another process trains there; wait until it ends" in second.said
    runs.wait_for_step(folder, max(*runs.losses_of(folder), 30) + 10, first)  # the first goes on, past a checkpoint
    first.kill()
    runs.end(first)
    changed = runs.run_here(runs.pretraining(text, output=folder, steps=100_000, seed=2))
    assert "another process" not in changed.said  # the lock ends with its process
    assert changed.status == 2  # the run that lies there has another seed


def test_two_processes_prepare_one_text(text: Path, tmp_path: Path) -> None:
    with locked(tmp_path / "building" / "lock", busy=""):
        ended = runs.run_here([*runs.pretraining(text, output=tmp_path / "run", steps=5), "--prepared", str(tmp_path)])
    assert ended.status == 2
    assert f"{tmp_path}: another process prepares text there" in ended.said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_while_training(text: Path, tmp_path: Path, number: signal.Signals) -> None:
    folder = tmp_path / "run"
    process = runs.start(runs.pretraining(text, output=folder, steps=100_000))
    runs.wait_for_step(folder, 25, process)
    process.send_signal(number)
    ended = runs.end(process)
    assert ended.status == 128 + number
    name = "Ctrl-C" if number == signal.SIGINT else number.name
    first, last = ended.said.splitlines()
    assert first == f"{name}: stopping after this step; again to stop at once"
    assert last == f"stopped at step {runs.checkpoint_of(folder)['progress']['step']:,}; the same command resumes there"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_while_text_is_read(tmp_path: Path, number: signal.Signals) -> None:
    fifo, folder = tmp_path / "text.txt", tmp_path / "run"
    os.mkfifo(fifo)
    process = runs.start(runs.pretraining(fifo, output=folder, steps=10))
    with fifo.open("w") as stream:
        stream.write("a few words\n" * 100)
        stream.flush()
        deadline = time.monotonic() + 60
        while not list(folder.glob("corpus/building/*")):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(number)
        ended = runs.end(process)
    assert ended.status == 128 + number
    assert ended.said.count("\n") == 1, ended.said
    assert not list(folder.rglob("*.pt"))
    assert not (folder / "corpus" / "building").exists()


def test_the_second_signal_stops_at_once() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with StopSignals() as signals:
            signal.raise_signal(signal.SIGINT)
            assert signals.number == signal.SIGINT
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) == signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_text_that_vanishes(tmp_path: Path) -> None:
    texts = [runs.write_text(tmp_path / f"{k}.txt", sentences=20) for k in range(3)]
    corpus = Corpus(paths=texts, tokenizer=load_tokenizer("whitespace"))
    blocks = read_blocks(corpus)
    next(blocks)
    texts[0].unlink()
    with pytest.raises(InputError, match=r"0\.txt: .*moved or deleted"):
        next(blocks)
    texts[1].unlink()
    ended = runs.run_here(runs.pretraining(texts[2], texts[1], output=tmp_path / "run", steps=5))
    assert (ended.status, ended.said.count("\n")) == (2, 1)
    assert "1.txt: no such file" in ended.said


def test_an_output_that_cannot_be(text: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = runs.run_here(runs.pretraining(text, output=tmp_path / "file" / "run", steps=5))
    assert (ended.status, ended.said.count("\n")) == (2, 1)
    assert "run: cannot be written: Not a directory; there is no earlier checkpoint. Put that right" in ended.said
    assert "Make room" not in ended.said


def test_a_read_only_output(text: Path, unfinished: Path, little_disk: Path) -> None:
    folder = little_disk / "run"
    shutil.copytree(unfinished, folder)
    subprocess.run(["mount", "-o", "remount,ro", little_disk], check=True)
    for place in (folder, little_disk / "new"):
        ended = runs.run_here(runs.pretraining(text, output=place, steps=100_000))
        assert (ended.status, ended.said.count("\n")) == (2, 1)
        assert f"{place}: cannot be written: Read-only file system" in ended.said


def test_too_little_memory(text: Path, tmp_path: Path) -> None:
    command = runs.pretraining(text, output=tmp_path / "run", steps=5, cell_dim=1_000_000)
    limit = "import resource; resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))"
    code = f"{limit}; from elmokit.__main__ import main; main()"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, env=environment)
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.count("\n") == 1
    assert "the memory of cpu does not suffice; use accumulate 2 or more" in ended.stderr


def test_a_loss_that_is_no_number_stops_it_clearly(text: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = runs.pretraining(text, output=folder, learning_rate=1e20, checkpoint_every=1, log_every=10, steps=200)
    ended = runs.run_here(command)
    assert ended.status == 2
    assert "training has diverged" in ended.said
    assert "with learning_rate 1e+20" in ended.said
    assert "start in a new folder with a lower learning_rate" in ended.said
    content = runs.checkpoint_of(folder)
    for values in content["objective"].values():
        assert bool(torch.isfinite(values).all())
    again = runs.run_here(command)  # goes on from there, and meets the same end
    assert again == ended


def test_damaged_text_stops_it_clearly(text: Path, unfinished: Path) -> None:
    shard = unfinished / "corpus" / "train-00000.tokens"
    contents = bytearray(shard.read_bytes())
    contents[len(contents) // 2] ^= 1
    shard.write_bytes(contents)
    before = runs.checkpoint_of(unfinished)
    ended = runs.run_here(runs.pretraining(text, output=unfinished, steps=100_000))
    assert ended.status == 2
    assert "train-00000.tokens: has CRC-32" in ended.said
    assert "it is damaged" in ended.said
    runs.assert_identical(runs.checkpoint_of(unfinished), before)


def flip(path: Path, at: float) -> None:
    """Changes one bit, `at` a share of the file."""
    content = bytearray(path.read_bytes())
    content[int(at * len(content))] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_damaged_checkpoint_is_passed_over(text: Path, undisturbed: Path, tmp_path: Path, damage: str) -> None:
    folder = Path(shutil.copytree(undisturbed, tmp_path / "run"))
    newest = max((folder / "checkpoints").glob("step-*.pt"))
    if damage == "cut":
        newest.write_bytes(newest.read_bytes()[:-500])
    else:
        flip(newest, 0.5)  # inside the numbers: torch reads them all the same
        torch.load(newest, weights_only=True)
    ended = runs.run_here(runs.pretraining(text, output=folder, **SETTINGS))
    assert ended.status == 0
    assert f"{newest}: is damaged (" in ended.said
    assert "trying an older checkpoint" in ended.said
    runs.assert_same_run(folder, undisturbed)
    for path in (folder / "checkpoints").glob("step-*.pt"):
        path.write_bytes(b"")
    ended = runs.run_here(runs.pretraining(text, output=folder, **SETTINGS))
    assert ended.status == 2
    assert "all checkpoints are damaged" in ended.said


def test_another_configuration_or_text_in_the_same_folder_is_refused(text: Path, unfinished: Path) -> None:
    other = runs.pretraining(text, output=unfinished, steps=100_000, dropout=0.3, seed=2, log_every=7)
    ended = runs.run_here(other)
    assert ended.status == 2
    assert "holds a run of another configuration (dropout: 0.1 there, 0.3 here; seed: 1 there, 2 here)" in ended.said
    before = shutil.copy2(text, unfinished.parent / "text before")  # with its time, by which text is known again
    prepared = runs.files_of(unfinished / "corpus")
    try:
        runs.write_text(text, seed=1)
        ended = runs.run_here(runs.pretraining(text, output=unfinished, steps=100_000))
    finally:
        shutil.copy2(before, text)
    assert ended.status == 2
    assert f"{unfinished}: holds a run on other text" in ended.said
    assert runs.files_of(unfinished / "corpus") == prepared


def test_text_of_another_date_resumes(text: Path, tmp_path: Path) -> None:
    again = Path(shutil.copy2(text, tmp_path / "text.txt"))
    command = runs.pretraining(again, output=tmp_path / "run", steps=20)
    ended = runs.run_here(command)
    for kept in (True, False):
        os.utime(again, (1, 1 + kept))
        if not kept:  # as after damage: the text is then compared with that of the checkpoints
            shutil.rmtree(tmp_path / "run" / "corpus")
        assert runs.run_here(command) == ended


def test_a_folder_of_something_else_is_refused(text: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"format": "elmokit"}')
    ended = runs.run_here(runs.pretraining(text, output=tmp_path, steps=5))
    assert ended.status == 2
    assert "holds something other than such a run" in ended.said


def test_settings_may_change_until_something_depends_on_them(text: Path, tmp_path: Path) -> None:
    never_begun = runs.pretraining(text, output=tmp_path / "run", steps=5, rows=100_000, window=500)
    assert "too few for" in runs.run_here(never_begun).said
    ended = runs.run_here(runs.pretraining(text, output=tmp_path / "run", steps=5))
    assert ended.status == 0, ended.said
