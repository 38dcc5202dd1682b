"""`elmokit embed`: to a file, to the screen, through a kill, and with whatever is wrong told in one line."""

import gzip
import io
import json
import lzma
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zstandard
from rich.cells import cell_len

import elmokit
from elmokit import Elmo
from elmokit.cli.progress import describe_pace

Cli = Callable[..., Any]
TEXT = b"The cat sat.\n\nand/or\nThe cat sat.\nbad \xff byte\n" + b"a" * 60 + b" x\n"


@pytest.fixture(scope="module")
def elmo(model_folder: Path) -> Elmo:
    return Elmo.from_pretrained(model_folder, device="cpu")


def test_a_file_to_hdf5_counts_what_it_met(cli: Cli, model_folder: Path, elmo: Elmo, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes(TEXT)
    done = cli("embed", tmp_path / "in.txt", "-o", tmp_path / "out.h5", "-m", model_folder, "--layers", "all")
    assert done.code == 0, done.err
    assert done.out == ""
    assert done.err.splitlines() == [
        f"{tmp_path / 'out.h5'}: 6 sentences, 16 tokens",
        "  lines read as sentences",
        "  empty sentences, blank lines among them: 1 (kept without vectors)",
        "  repeated sentences: 1 (written each time)",
        "  words over 48 characters or bytes: 1 (cut there, as in training)",
        "  bytes that are not UTF-8: 1 (read as U+FFFD)",
    ]
    with h5py.File(tmp_path / "out.h5") as file:
        np.testing.assert_allclose(file["0"][...], elmo.encode_layers("The cat sat."), atol=1e-6)
        assert file["1"].shape == (3, 0, 12)
        assert json.loads(file["sentence_to_index"][0])["The cat sat."] == "3"


@pytest.mark.parametrize("suffix", ["gz", "xz", "zst"])
def test_compressed_input(cli: Cli, model_folder: Path, tmp_path: Path, suffix: str) -> None:
    press = {"gz": gzip.compress, "xz": lzma.compress, "zst": zstandard.ZstdCompressor().compress}[suffix]
    (tmp_path / f"in.txt.{suffix}").write_bytes(press(TEXT))
    done = cli("embed", tmp_path / f"in.txt.{suffix}", "-o", tmp_path / "out.npz", "-m", model_folder)
    assert "6 sentences, 16 tokens" in done.err


def test_standard_input_and_text_and_options(
    cli: Cli, model_folder: Path, elmo: Elmo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a cat.\n")))
    done = cli(
        "embed", "-", "don't stop.", "", "-m", model_folder, "-o", tmp_path / "out.h5", "--tokenized", "--normalise"
    )
    assert "3 sentences, 4 tokens" in done.err
    with h5py.File(tmp_path / "out.h5") as file:
        want = elmo.encode_tokens([["a", "cat."], ["don't", "stop."], []], normalise=True)
        for k in range(3):
            np.testing.assert_allclose(file[str(k)][...], want[k], atol=1e-6)


def test_jsonl_and_conllu(cli: Cli, model_folder: Path, elmo: Elmo, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"body": "A cat."}\n{"body": ["two", "tokens"]}\n')
    rows = "\n".join(f"{k}\t{w}" + "\t_" * 8 for k, w in enumerate(["It", "works"], 1))
    (tmp_path / "in.conllu").write_text(f"# text = It works\n{rows}\n\n")
    inputs = [tmp_path / "in.jsonl", tmp_path / "in.conllu"]
    done = cli("embed", *inputs, "--field", "body", "-m", model_folder, "-o", tmp_path / "out.npz")
    assert done.code == 0, done.err
    with np.load(tmp_path / "out.npz") as file:
        want = elmo.encode_tokens([["A", "cat", "."], ["two", "tokens"], ["It", "works"]])
        for k in range(3):
            np.testing.assert_allclose(file[str(k)], want[k], atol=1e-6)


def test_sentence_keys(cli: Cli, model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes(TEXT)
    done = cli("embed", tmp_path / "in.txt", "-o", tmp_path / "out.h5", "-m", model_folder, "--use-sentence-keys")
    assert "U+2215 for slashes" in done.err
    assert "left out" in done.err
    with h5py.File(tmp_path / "out.h5") as file:
        assert "and\u2215or" in file
        assert len(file) == 4


def test_a_line_of_35000_tokens(cli: Cli, model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("word " * 35_000 + "\nshort\n")
    done = cli("embed", tmp_path / "in.txt", "-o", tmp_path / "out.safetensors", "-m", model_folder)
    assert "2 sentences, 35,001 tokens" in done.err


@pytest.mark.parametrize("given", [["in.parquet"], ["more.txt", "*.parquet"], ["."]])
def test_a_file_that_is_read_is_not_written_over(
    cli: Cli, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[str]
) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    pandas.DataFrame({"text": ["A cat."]}).to_parquet("in.parquet")
    Path("more.txt").write_text("It works.\n")
    Path("out.parquet").symlink_to("in.parquet")
    for output in ("in.parquet", "out.parquet"):
        same = cli("embed", *given, "-o", output, "-m", model_folder, "--overwrite")
        assert (same.code, "is among the files to read; write to another" in same.err) == (2, True), same.err
    assert list(pandas.read_parquet("in.parquet")["text"]) == ["A cat."]


def test_empty_input(cli: Cli, model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes(b"")
    done = cli("embed", tmp_path / "in.txt", "-o", tmp_path / "out.h5", "-m", model_folder)
    assert done.code == 0
    assert "the input held no sentences" in done.err
    assert "the input held no sentences" in cli("embed", tmp_path / "in.txt", "-m", model_folder).err


def test_without_output_it_is_readable(cli: Cli, model_folder: Path) -> None:
    done = cli("embed", "He sat on the [bank].", "She went to the bank.", "-m", model_folder)
    assert done.code == 0, done.err
    assert "He sat on the [ bank ] ." in done.out
    assert "nearest other word" in done.out
    assert "how alike the sentences are" in done.out
    many = cli("embed", *[f"sentence {k}" for k in range(20)], "word " * 100, "-m", model_folder, "--layers", "all")
    assert "these were the first 8" in many.out


@pytest.mark.parametrize(
    ("content", "name", "said"),
    [
        (b"{not json}\n", "in.jsonl", "in.jsonl, line 1: not valid JSON"),
        (b'{"other": "x"}\n', "in.jsonl", "has no field 'text'; its fields are 'other'"),
        (b"1\tonly two\n\n", "in.conllu", "in.conllu, line 1: has 2 columns"),
        (b"not gzip at all", "in.txt.gz", "does not begin like it"),
        (gzip.compress(b"text\n" * 99)[:-12], "in.txt.gz", "damaged or cut short"),
        ("a\n".encode("utf-16"), "in.txt", "UTF-16"),
        ("a text\n".encode("utf-16-le"), "in.txt", "in.txt: has zero bytes at its beginning"),
        (b"\x89HDF\r\n\x1a\n\x00\x00", "in.h5", "in.h5: is an HDF5 file, expected text"),
        (b"PAR1\x15\x04", "in.table", "in.table: is a Parquet file (read by its name, .parquet"),
        (gzip.compress(b"PK\x03\x04\x14\x00"), "in.gz", "in.gz: is a zip archive, such as .npz or .docx"),
    ],
)
def test_malformed_input_is_one_line(
    cli: Cli, model_folder: Path, tmp_path: Path, content: bytes, name: str, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    done = cli("embed", tmp_path / name, "-m", model_folder, "-o", tmp_path / "out.h5")
    assert done.code == 2
    assert said in done.err
    assert done.err.startswith("elmokit: ")
    assert done.err.count("\n") == 1
    assert not (tmp_path / "out.h5").exists()
    again = cli("embed", "text", "-m", model_folder, "-o", tmp_path / "out.h5", "--layers", "top")
    assert again.code == 0  # a run that stored nothing does not stand in the way of another
    assert again.err.startswith(f"{tmp_path / 'out.h5'}: 1 sentence, 1 token\n")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["missing.txt"], "missing.txt: no such file"),
        (["text", "--layers", "bottom"], "layers 'bottom' not understood"),
        (["text", "--layers", "weights:1,2", "-o", "out.h5"], "2 layer weights given, but the model has 3 layers"),
        (["text", "--layers", "9", "-o", "out.h5"], "layer 9, but the model has layers 0 to 2"),
        (["text", "-o", "out.txt"], "expected one of .h5, .hdf5"),
        (["text", "-o", "no/such/folder/out.h5"], "does not exist; create it first"),
        (["text", "--device", "abacus"], "device 'abacus' not understood"),
        (["text", "--dtype", "int4"], "dtype 'int4' does not fit here"),
        (["text", "--tokenizer", "french"], "no tokenizer 'french'"),
        (["-", "--format", "pdf"], "no format 'pdf'"),
    ],
)
def test_wrong_arguments_are_one_line(
    cli: Cli, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = cli("embed", *args, "-m", model_folder)
    assert not list(tmp_path.iterdir())
    assert done.code == 2
    assert said in done.err
    assert done.err.count("\n") == 1


def test_no_such_model(cli: Cli, tmp_path: Path) -> None:
    done = cli("embed", "text", "-m", tmp_path / "nowhere")
    assert done.code == 2
    assert "no model" in done.err
    assert done.err.count("\n") == 1


class TestProvenance:
    @pytest.mark.parametrize("suffix", ["h5", "npz", "parquet", "safetensors"])
    def test_a_finished_run_is_not_done_again(
        self, cli: Cli, model_folder: Path, tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        source, out = tmp_path / "in.txt", tmp_path / f"out.{suffix}"
        source.write_bytes(TEXT)
        command = ("embed", source, "-o", out, "-m", model_folder)
        assert cli(*command).code == 0
        before = out.stat()
        monkeypatch.chdir(tmp_path)
        again = cli("embed", "in.txt", *command[2:])
        assert again.code == 0
        assert again.err == (
            f"{out}: finished already, with the same input and settings: 6 sentences, 16 tokens; --overwrite writes it "
            "again\n"
        )
        assert (out.stat().st_ino, out.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
        assert [p.name for p in tmp_path.iterdir() if "partial" in p.name] == []
        for changed in ([*command, "--overwrite"], [*command, "--restart"], [*command, "--layers", "top"]):
            assert "finished already" not in cli(*changed).err, changed
        cli(*command)
        source.write_bytes(TEXT.replace(b"cat", b"dog"))  # as long
        assert "6 sentences, 16 tokens\n" in cli(*command).err
        assert "finished already" in cli(*command).err
        assert "finished already" not in cli(*command, "--tokenized").err

    def test_standard_input_is_always_read(
        self, cli: Cli, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for text in (b"a cat.\n", b"a cat.\n"):
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
            assert "1 sentence," in cli("embed", "-", "-m", model_folder, "-o", tmp_path / "out.h5").err

    @pytest.mark.parametrize("suffix", ["h5", "npz", "parquet", "safetensors"])
    def test_info_says_how_a_file_was_made(
        self, cli: Cli, model_folder: Path, elmo: Elmo, tmp_path: Path, suffix: str
    ) -> None:
        (tmp_path / "in.txt").write_bytes(TEXT)
        out = tmp_path / f"out.{suffix}"
        cli("embed", tmp_path / "in.txt", "-o", out, "-m", model_folder, "--layers", "top")
        told = json.loads(cli("info", out, "--json").out)
        assert told["fingerprint"] == elmo.fingerprint
        assert told["model"] == str(model_folder)
        assert told["version"] == elmokit.__version__
        assert (told["layers"], told["sentences"], told["tokens"]) == ("top", 6, 16)
        assert told["tokenizer"].startswith("english ")
        assert told["input"].startswith("in.txt (")
        lines = cli("info", out).out.splitlines()
        assert f"fingerprint   {elmo.fingerprint}" in lines

    @pytest.mark.parametrize("suffix", ["h5", "npz", "parquet", "safetensors"])
    def test_damaged_files_are_not_taken_for_finished(
        self, cli: Cli, model_folder: Path, tmp_path: Path, suffix: str
    ) -> None:
        source, out = tmp_path / "in.txt", tmp_path / f"out.{suffix}"
        source.write_bytes(TEXT)
        command = ("embed", source, "-o", out, "-m", model_folder)
        cli(*command)
        whole = out.read_bytes()
        for damaged in (b"", whole[:100], whole[:-100], bytes(200)):
            out.write_bytes(damaged)
            done = cli(*command)
            assert done.code == 0
            assert "finished already" not in done.err
            assert out.read_bytes() == whole

    def test_hdf5_sees_no_damaged_file(self, cli: Cli, model_folder: Path, tmp_path: Path) -> None:
        """The size of the second text of its heap is changed: its library looks for the heap's end for ever."""
        source, out = tmp_path / "in.txt", tmp_path / "out.h5"
        source.write_bytes(TEXT)
        command = ("embed", source, "-o", out, "-m", model_folder)
        cli(*command)
        whole = out.read_bytes()
        damaged, heap = bytearray(whole), whole.index(b"GCOL")
        first = int.from_bytes(whole[heap + 24 : heap + 32], "little")
        damaged[heap + 40 + -(-first // 8) * 8] ^= 0x40
        out.write_bytes(damaged)
        again = [sys.executable, "-m", "elmokit", *map(str, command)]
        done = subprocess.run(again, capture_output=True, timeout=120, check=False)
        assert (done.returncode, b"finished already" in done.stderr) == (0, False)
        assert out.read_bytes() == whole


def test_progress_on_a_plain_file(
    cli: Cli, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as in a terminal
    monkeypatch.setenv("COLUMNS", "100")
    (tmp_path / "in.txt.gz").write_bytes(gzip.compress(TEXT * 200))
    done = cli("embed", tmp_path / "in.txt.gz", "-o", tmp_path / "out.npz", "-m", model_folder, "--batch-tokens", 40)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", done.err)
    assert re.search(r"embedding ━.* 100% 1,200 sentences, [\d,]+/s, 0:00 left", shown), shown[-300:]


def test_pace_counts_from_where_a_run_resumed() -> None:
    assert describe_pace((0.0, 0, 0), (0.0, 0, 0), 100) == "0 sentences"
    assert describe_pace((5.0, 400, 40), (15.0, 500, 60), 1000) == "60 sentences, 2/s, 0:50 left"
    assert describe_pace((0.0, 0, 0), (10.0, 10, 2000), 100_000) == "2,000 sentences, 200/s, 27:46:30 left"
    assert describe_pace((0.0, 0, 0), (10.0, 0, 20), None) == "20 sentences, 2/s"


class TestKilled:
    LINES = b"".join(b"word%d and some others of its kind .\n" % (k % 50) for k in range(400))

    def options(self, out: Path, model_folder: Path) -> list[object]:
        return ["-o", out, "-m", model_folder, "--batch-tokens", 40, "--device", "cpu"]

    def start_and_wait(self, process: Cli, out: Path, model_folder: Path) -> "subprocess.Popen[bytes]":
        """A run that has committed some of its input and waits for more."""
        running = process("embed", "-", *self.options(out, model_folder))
        running.stdin.write(self.LINES[: len(self.LINES) // 2])
        running.stdin.flush()
        folder = out.with_name(out.name + ".partial")
        draft, log = folder / "draft", folder / "records.bin"
        until = time.monotonic() + 180
        while not (draft.exists() and draft.stat().st_size > 40_000 and log.stat().st_size > 300):
            assert running.poll() is None, running.stderr.read()
            assert time.monotonic() < until, "nothing was spooled"
            time.sleep(0.05)
        return running  # type: ignore[no-any-return]

    def test_kill_9_leaves_no_file_and_the_next_run_makes_the_same(
        self, process: Cli, model_folder: Path, tmp_path: Path
    ) -> None:
        source, out, whole = tmp_path / "in.txt", tmp_path / "out.h5", tmp_path / "whole.h5"
        source.write_bytes(self.LINES)
        running = self.start_and_wait(process, out, model_folder)
        running.send_signal(signal.SIGKILL)
        running.communicate()
        assert not out.exists()
        _, said = process("embed", source, *self.options(out, model_folder)).communicate()
        assert re.search(rb"^\S*out.h5: resuming after \d+ sentences\n", said)
        assert b"taken over from an earlier run" in said
        process("embed", source, *self.options(whole, model_folder)).communicate()
        assert out.read_bytes() == whole.read_bytes()
        assert not out.with_name("out.h5.partial").exists()

    def test_interrupted_with_a_sentence(self, process: Cli, model_folder: Path, tmp_path: Path) -> None:
        running = self.start_and_wait(process, tmp_path / "out.h5", model_folder)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate()
        assert running.returncode == 130
        assert b"interrupted" in said
        assert b"Traceback" not in said


def test_a_closed_pipe_is_quiet(process: Cli, model_folder: Path) -> None:
    with process("embed", *["a few words here"] * 8, "-m", model_folder) as running:
        running.stdout.close()
        assert running.stderr.read() == b""


def test_the_preview_fits_80_columns(cli: Cli, model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    long = "internationalisation" * 3
    done = cli(
        "embed",
        f"the {long} of {long} .",
        f"東京都は日本の首都です。{long} [b] x",
        "-m",
        model_folder,
        "--layers",
        "all",
    )
    lines = done.out.splitlines()
    assert max(map(cell_len, lines)) <= 80
    rows = [line for line in lines if line.rstrip().endswith("...")]
    assert len(rows) == 5 + 7  # a line for each token
    assert "internationalisat…" in done.out


def test_vectors_as_json(cli: Cli, model_folder: Path, tmp_path: Path) -> None:
    texts = ["He sat on the bank.", "She paid it in."]
    done = cli("embed", *texts, "--json", "--layers", "all", "-m", model_folder, "--device", "cpu")
    assert (done.code, done.err) == (0, "")
    records = [json.loads(line) for line in done.out.splitlines()]
    assert [record["tokens"][-1] for record in records] == [".", "."]
    expected = Elmo.from_pretrained(model_folder, device="cpu").encode_layers(texts)
    for record, vectors in zip(records, expected, strict=True):
        np.testing.assert_allclose(record["vectors"], vectors, atol=1e-6)
    refused = cli("embed", *texts, "--json", "-o", tmp_path / "x.npz", "-m", model_folder)
    assert (refused.code, refused.err.count("\n")) == (2, 1)


def test_the_preview_of_an_endless_word(cli: Cli, model_folder: Path) -> None:
    done = cli("embed", f"an {'x' * 3000} end", "-m", model_folder)
    assert f"1  an {'x' * 59}… end   3 x" in " ".join(done.out.split("\n"))
