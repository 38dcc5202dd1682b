"""train and ablate when something goes wrong: two at once, signals, a full disk, files that are gone."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_task_commands import command, data, options

from elmokit.formats.resumable import check_log

Cli = Callable[..., Any]
Process = Callable[..., "subprocess.Popen[bytes]"]
LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
sys.argv = ["elmokit", *sys.argv[2:]]
from elmokit.__main__ import main
main()
"""
__all__ = ["data"]  # a fixture

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals, locks and limits of Unix")


def wait_for(path: Path, running: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + 120
    while not path.exists() and running.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    assert path.exists(), running.communicate()


def stopped(running: "subprocess.Popen[bytes]", number: signal.Signals) -> list[str]:
    """Ends a process with a signal; its last lines."""
    running.send_signal(number)
    _, said = running.communicate(timeout=180)
    assert running.returncode == 128 + number, said
    return said.decode().splitlines()


def on_a_full_disk(size: int, *arguments: object) -> "subprocess.CompletedProcess[str]":
    """`elmokit ARGUMENTS...` where no file can be larger than `size` bytes."""
    called = [sys.executable, "-c", LIMITED, str(size), *map(str, arguments)]
    return subprocess.run(called, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_training_is_stopped_and_resumed(
    cli: Cli, process: Process, data: Path, model_folder: Path, number: signal.Signals
) -> None:
    output = data / "model"
    arguments = command(data, model_folder, output, *options(epochs=30, patience=30))
    running = process(*arguments)
    wait_for(output / "checkpoint.pt", running)
    second = cli(*arguments)
    assert (second.code, "another process is training into it" in second.err) == (2, True), second.err
    other = cli(*arguments, "--restart")
    assert (other.code, "another process is training into it" in other.err) == (2, True), other.err
    assert (output / "checkpoint.pt").exists()
    lines = stopped(running, number)
    assert [line for line in lines if line.startswith("elmokit: ")] == lines[-1:]
    assert "the same command resumes an unfinished run" in lines[-1]
    finished = cli(*arguments)
    assert finished.code == 0, finished.err
    assert "resuming after epoch" in finished.err
    assert {path.name for path in output.iterdir()} == {
        *("config.json", "training.json", "weights.safetensors", "words.txt"),
    }


def test_restart_deletes_no_model_of_another_kind(cli: Cli, data: Path, model_folder: Path) -> None:
    before = (model_folder / "config.json").read_bytes()
    for more in ((), ("--restart",)):
        done = cli(*command(data, model_folder, model_folder, *options(epochs=1), *more))
        assert (done.code, "holds something else; choose another folder" in done.err) == (2, True), done.err
        assert (model_folder / "config.json").read_bytes() == before


def test_a_full_disk_leaves_the_last_good_state(cli: Cli, process: Process, data: Path, model_folder: Path) -> None:
    output = data / "model"
    arguments = command(data, model_folder, output, *options(epochs=30, patience=30))
    full = on_a_full_disk(1000, *arguments)  # the layers do not fit
    assert full.returncode == 2, full.stderr
    assert full.stderr.splitlines()[-1].startswith(f"elmokit: {data / 'cache' / 'layers'}: cannot be written")
    assert "Traceback" not in full.stderr
    assert not list((data / "cache" / "layers").iterdir())
    running = process(*arguments)
    wait_for(output / "checkpoint.pt", running)
    stopped(running, signal.SIGTERM)
    before = (output / "checkpoint.pt").read_bytes()
    full = on_a_full_disk(10_000, *arguments)  # the next checkpoint does not fit
    assert full.returncode == 2, full.stderr
    assert "checkpoint.pt: cannot be written: " in full.stderr.splitlines()[-1]
    assert "Traceback" not in full.stderr
    assert (output / "checkpoint.pt").read_bytes() == before
    assert cli(*arguments).code == 0


def test_a_full_disk_when_a_model_is_saved(cli: Cli, data: Path, model_folder: Path) -> None:
    output = data / "model"
    arguments = command(data, model_folder, output, *options(epochs=1))
    assert cli(*arguments).code == 0
    size = (output / "weights.safetensors").stat().st_size
    whole = {path.name: path.read_bytes() for path in output.iterdir()}
    other = command(data, model_folder, data / "other", *options(epochs=1, hidden=9))
    full = on_a_full_disk(size // 2, *other)
    assert (full.returncode, full.stderr.count("cannot be written")) == (2, 1), full.stderr
    assert not (data / "other" / "config.json").exists()
    assert {path.name: path.read_bytes() for path in output.iterdir()} == whole
    for room in (100, 1000):  # too little for what the run says of itself, and for what it finds
        full = on_a_full_disk(room, "apply", output, data / "train.txt", "-o", data / "found.jsonl")
        assert full.returncode == 2, full.stderr
        assert f"{data / 'found.jsonl.partial'}: cannot be written" in full.stderr
        assert not (data / "found.jsonl").exists()
    assert cli("apply", output, data / "train.txt", "-o", data / "found.jsonl").code == 0
    assert not (data / "found.jsonl.partial").exists()


def test_a_model_at_work_is_stopped_and_resumed(cli: Cli, process: Process, data: Path, model_folder: Path) -> None:
    model, text, output = data / "model", data / "text.txt", data / "found.jsonl"
    assert cli(*command(data, model_folder, model, *options(epochs=1))).code == 0
    text.write_text("Ann sees the cat and Bob .\n" * 60_000, encoding="utf-8")
    running = process("apply", model, text, "-o", output)
    unfinished = data / "found.jsonl.partial"
    wait_for(unfinished / "manifest.json", running)
    end = time.monotonic() + 120
    while "up to sentence 0" in check_log(unfinished):
        assert time.monotonic() < end
        time.sleep(0.05)
    assert "resumes an unfinished run" in stopped(running, signal.SIGTERM)[-1]
    assert not output.exists()
    done = cli("apply", model, text, "-o", output)
    assert done.code == 0, done.err
    assert f"{output}: resuming after " in done.err
    assert output.read_text(encoding="utf-8").count("\n") == 60_000


def test_tables_that_are_not_there_are_no_text(cli: Cli, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(data)
    for name in ("revews.csv", "revews.tsv", "sqaud.json", "nothing/*.csv"):
        gone = cli("apply", "sentiment", name)
        assert (gone.code, gone.out) == (2, ""), gone.out
        assert name in gone.err
        assert "no such file" in gone.err or "no file matches" in gone.err
    (data / "tables").mkdir()
    (data / "tables" / "a.csv").write_text("text\nA fine film.\n", encoding="utf-8")
    for given in ("tables", "tables/*.csv"):
        found = cli("apply", "sentiment", given, "--json")
        assert json.loads(found.out)["text"] == "A fine film."
        assert cli("apply", "sentiment", given, "-o", "found.jsonl").code == 0


def test_a_folder_of_many_things(cli: Cli, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The output may be in it, and what unfinished runs left; a task takes the tables that it reads, and no others."""
    monkeypatch.chdir(data)
    folder = Path("many")
    (folder / "gone.jsonl.partial").mkdir(parents=True)
    (folder / "gone.jsonl.partial" / "manifest.json").write_text("{}", encoding="utf-8")
    (folder / "a.txt").write_text("Ann left.\n", encoding="utf-8")
    (folder / "table.csv").write_text("text\nBob left.\n", encoding="utf-8")
    (folder / "other.json").write_text("{}", encoding="utf-8")
    for given in ("many", "many/*.txt", "many/**/*.txt"):
        output = folder / "found.jsonl"
        found = cli("apply", "ner", given, "-o", output)
        assert (found.code, output.exists()) == (0, True), found.err
        assert json.loads(output.read_text(encoding="utf-8"))["text"] == "Ann left."
        output.unlink()
    left = cli("apply", "ner", "many/**")  # names the table, and other.json
    assert (left.code, left.out) == (2, "")
    assert "many/other.json: is named as a table or a JSON file, which this task does not read" in left.err
    assert [json.loads(line)["text"] for line in cli("apply", "sentiment", "many", "--json").out.splitlines()] == [
        "Ann left.",
        "Bob left.",
    ]


def test_a_field_is_not_passed_over(cli: Cli, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(data)
    Path("b.jsonl").write_text('{"body": "Ann left."}\n', encoding="utf-8")
    assert cli("apply", "ner", "b.jsonl", "--field", "body").out == "[PER Ann] left.\n"
    for given in ("dev.txt", "Ann left.", "-"):
        wrong = cli("apply", "ner", given, "--field", "body")
        assert (wrong.code, wrong.out) == (2, "")
        assert "has no fields to choose 'body' from; --field is for files" in wrong.err


def test_links_to_nowhere_and_files_in_the_way(cli: Cli, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(data)
    Path("found.jsonl.partial").symlink_to("nowhere")
    wrong = cli("apply", "ner", "Ann left.", "-o", "found.jsonl")
    assert (wrong.code, "found.jsonl.partial: is a link to what is not there" in wrong.err) == (2, True), wrong.err
    Path("other.jsonl.partial").touch()
    wrong = cli("apply", "ner", "Ann left.", "-o", "other.jsonl")
    assert (wrong.code, "other.jsonl.partial: is a file, but a folder is needed" in wrong.err) == (2, True), wrong.err


def test_roles_find_verbs_by_the_ready_made_model(cli: Cli, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(data)
    Path("pos").mkdir()
    Path("pos/config.json").write_text('{"format": "elmokit task"}', encoding="utf-8")
    assert cli("apply", "pos", "Mary sold her car.").code == 2
    assert cli("apply", "roles", "Mary sold her car.").out == "sold: [ARG0 Mary] [V sold] [ARG1 her car].\n"
    Path("pos/config.json").write_text("{}", encoding="utf-8")  # of something else
    assert cli("apply", "pos", "Dogs bark.").out == "Dogs/NOUN bark/VERB ./PUNCT\n"


@pytest.mark.parametrize(
    ("task", "text", "shown"),
    [
        ("ner", ":heart: of \\\\Paris\\ [bold]here", ":heart: of \\\\[LOC Paris]\\ [bold]here"),
        ("ner", "Ann Lee\rleft\tParis.", "[PER Ann Lee]\rleft\t[LOC Paris]."),
        ("pos", "a \\\\\\ b", None),
        ("coref", "Ann :car: saw her dog.", "[1 Ann] :car: saw [1 her] dog.\n\n  1  Ann; her"),
    ],
)
def test_what_is_printed_is_the_text(cli: Cli, task: str, text: str, shown: str | None) -> None:
    done = cli("apply", task, text)
    assert (done.code, done.err) == (0, "")
    if shown is None:  # words with labels
        assert re.sub("/[A-Z]+", "", done.out).replace(" ", "") == text.replace(" ", "") + "\n"
    else:
        assert done.out == shown + "\n"


def test_files_without_examples_have_no_score(cli: Cli, data: Path) -> None:
    (data / "empty.txt").write_text("\n", encoding="utf-8")
    for task in ("ner", "coref"):
        wrong = cli("evaluate", task, data / "empty.txt")
        assert (wrong.code, "empty.txt: holds no examples to score on" in wrong.err) == (2, True), wrong.err


def test_every_row_has_an_answer(cli: Cli, data: Path) -> None:
    pandas = pytest.importorskip("pandas")
    texts = ["A lovely film.", "", "A bad one."]
    pandas.DataFrame({"text": texts}).to_parquet(data / "texts.parquet")
    (data / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    for name in ("texts.parquet", "texts.jsonl"):
        found = list(map(json.loads, cli("apply", "sentiment", data / name, "--json").out.splitlines()))
        assert [one["text"] for one in found] == texts


def test_what_is_there_is_not_written_over(cli: Cli, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(data)
    Path("in.jsonl").write_text('{"id": 1, "text": "Ann left."}\n', encoding="utf-8")
    same = cli("apply", "ner", "in.jsonl", "-o", data / "in.jsonl")
    assert (same.code, "is among the files to read" in same.err) == (2, True), same.err
    Path("empty.txt").write_text("\n", encoding="utf-8")
    nothing = cli("apply", "ner", "empty.txt", "-o", "in.jsonl")
    assert (nothing.code, "the input held no sentences; in.jsonl stays as it was" in nothing.err) == (0, True), (
        nothing.err
    )
    assert json.loads(Path("in.jsonl").read_text(encoding="utf-8"))["id"] == 1
    assert cli("apply", "ner", "empty.txt", "-o", "new.jsonl").code == 0
    assert Path("new.jsonl").read_bytes() == b""


def test_folders_and_devices_that_do_not_fit(cli: Cli, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(data)
    Path("ner").mkdir()  # of data, not a model
    found = cli("apply", "ner", "Ann left.")
    assert (found.code, found.out) == (0, "[PER Ann] left.\n")
    assert "the folder ner here holds no model; the one that comes with elmokit is taken" in found.err
    assert cli("info", "ner").code == 0
    wrong = cli("apply", "ner", "Ann left.", "--device", "gpu")
    said = "elmokit: device 'gpu' not understood; expected auto, cpu, cuda or cuda:N"
    assert (wrong.code, wrong.err.splitlines()[-1]) == (2, said)
    Path("letters").mkdir()
    gone = cli("apply", "ner", "letters/ann.md")
    assert (gone.code, "letters/ann.md: no such file" in gone.err) == (2, True)
    assert cli("apply", "ner", "and/or").out == "and/or\n"


def test_files_that_are_gone_are_told(cli: Cli, data: Path, model_folder: Path) -> None:
    (data / "dev.txt").unlink()
    gone = cli(*command(data, model_folder, data / "model"))
    assert (gone.code, f"{data / 'dev.txt'}: no such file" in gone.err) == (2, True), gone.err
    assert not (data / "model").exists()


def test_two_ablations_share_a_folder(process: Process, data: Path, model_folder: Path) -> None:
    output = data / "ablation"
    more = ["--variants", "none", "--seeds", 2, "--shares", 100, *options(epochs=30, patience=30)]
    arguments = ["ablate", *command(data, model_folder, output, *more)[1:]]
    first = process(*arguments)
    wait_for(output / "running" / "none-100pct-seed1" / "checkpoint.pt", first)
    first.send_signal(signal.SIGSTOP)  # it holds its cell and does nothing
    second = process(*arguments)
    wait_for(output / "cells" / "none-100pct-seed2.json", second)
    first.kill()
    first.communicate()
    _, said = second.communicate(timeout=180)
    assert second.returncode == 0, said
    told = said.decode()
    assert "cell 2 of 2: none, 100% of the data, seed 2" in told.split("cell 1 of 2")[0]
    assert "resuming after epoch" in told.split("cell 1 of 2")[1]  # what the other had trained is not lost
    assert sorted(path.name for path in (output / "cells").iterdir()) == [
        *("none-100pct-seed1.json", "none-100pct-seed2.json"),
    ]
    assert not list((output / "running").iterdir())
