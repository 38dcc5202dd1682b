"""`elmokit index`, `neighbors` and `drift` as a user meets them."""

import errno
import json
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from elmokit import Elmo, Index
from elmokit.index.segment import SegmentWriter
from elmokit.weights.load import BUNDLED

Cli = Callable[..., Any]
PARAGRAPHS = """\
The actors read the play aloud. They play it every night.
\nChildren play in the park. The play was long.
Zoë's café sells naïve art, 猫 and 犬. 🎭 The play is the thing!
"""


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text(PARAGRAPHS * 3, encoding="utf-8")
    return path


@pytest.fixture
def index(cli: Cli, corpus: Path, model_folder: Path, tmp_path: Path) -> Path:
    done = cli("index", corpus, "-o", tmp_path / "index", "-m", model_folder)
    assert done.code == 0, done.err
    return tmp_path / "index"


def test_paragraphs_become_sentences_and_what_is_there_is_not_added_again(
    cli: Cli, index: Path, corpus: Path, tmp_path: Path
) -> None:
    again = cli("index", corpus, "-o", index)
    assert again.code == 0, again.err
    assert "in it already" in again.err
    copy = tmp_path / "copy.txt"
    copy.write_bytes(corpus.read_bytes())
    assert "in it already" in cli("index", copy, "-o", index).err  # whatever it is called now
    more = tmp_path / "more.txt"
    more.write_text("One more line.\n")
    done = cli("index", more, "-o", index)
    assert "occurrences added: 3" in done.err
    assert "search: exact" in done.err
    single = cli("index", "-o", index, "--check")
    assert single.code == 0
    assert "search: exact" in single.err


@pytest.mark.filterwarnings("default::elmokit.errors.ElmokitWarning")
def test_other_arithmetic_is_told(
    cli: Cli, index: Path, corpus: Path, tmp_path: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "more.txt").write_text("One more line.\n")
    monkeypatch.setattr(Elmo, "arithmetic", "float32 on an abacus", raising=False)
    stored = json.loads((index / "index.json").read_text())
    for run in stored["runs"]:
        run["arithmetic"] = "int8 in C"
    (index / "index.json").write_text(json.dumps(stored))
    found = cli("neighbors", index, "They read the play.", "-w", "play")
    assert found.code == 0
    assert found.err.startswith(f"elmokit: note: the vectors of {index} were made with int8 in C, those of your text")
    assert found.err.count("\n") == 1
    done = cli("index", tmp_path / "more.txt", "-o", index)
    assert done.code == 2
    assert "--mix-arithmetic" in done.err.splitlines()[-1]
    done = cli("index", tmp_path / "more.txt", "-o", index, "--mix-arithmetic")
    assert done.code == 0, done.err
    assert "occurrences added: 3" in done.err
    cli("index", corpus, "-o", tmp_path / "other", "-m", model_folder)
    assert "some of the difference may come from that" in cli("drift", index, tmp_path / "other", "--min-count", 3).err


def test_a_pipe_is_read_once(cli: Cli, model_folder: Path, tmp_path: Path) -> None:
    """What a shell makes of <(zcat corpus.gz): its name must not be made by reading it."""
    os.mkfifo(pipe := tmp_path / "pipe")
    writer = threading.Thread(target=pipe.write_text, args=("One line.\n",))
    writer.start()
    done = cli("index", pipe, "-o", tmp_path / "index", "-m", model_folder)
    writer.join()
    assert "read: 1 sentence," in done.err, done.err


def test_progress_and_where_it_resumes(
    cli: Cli, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elmokit.index.growth.CHUNK_TOKENS", 64)
    monkeypatch.setattr("elmokit.index.growth.SEGMENT_ROWS", 100)
    source = tmp_path / "corpus.txt"
    source.write_text(PARAGRAPHS * 30, encoding="utf-8")
    command = ("index", source, "-o", tmp_path / "index", "-m", model_folder)
    write = SegmentWriter.write

    def failing(writer: SegmentWriter, path: Path, progress: Any) -> None:
        if path.name == "segment-000003.safetensors":
            raise OSError(errno.ENOSPC, "No space left on device")
        write(writer, path, progress)

    with monkeypatch.context() as patch:
        patch.setattr(SegmentWriter, "write", failing)
        done = cli(*command)
    assert done.code == 2
    assert done.err.count("\n") == 1
    monkeypatch.setenv("FORCE_COLOR", "1")  # as in a terminal
    monkeypatch.setenv("COLUMNS", "500")  # paths may be long here
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", cli(*command).err)
    assert re.search(r"index: resuming after \d+ sentences\n", shown)
    assert re.search(r"embedding ━.* 100% 180 sentences, [\d,]+/s, 0:00 left", shown), shown[-500:]


def test_a_line_is_a_sentence_on_request(cli: Cli, corpus: Path, model_folder: Path, tmp_path: Path) -> None:
    whole = cli("index", corpus, "-o", tmp_path / "whole", "-m", model_folder, "--lines", "sentences")
    cut = cli("index", corpus, "-o", tmp_path / "cut", "-m", model_folder)
    assert "read: 12 sentences" in whole.err
    assert "3 (passed over)" in whole.err
    assert "read: 18 sentences" in cut.err


def test_concordance(cli: Cli, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = cli("neighbors", index, "They read the play.", "-w", "play", "-n", 5, "--same-word")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    shown = [line for line in lines if re.match(r"-?\d\.\d\d ", line)]
    assert len(shown) == 5
    assert max(map(cell_len, lines)) <= 80
    assert any("play aloud" in line for line in shown)
    columns = {cell_len(line[: line.index("play")]) for line in [lines[0], *shown]}
    assert len(columns) == 1, "one below the other, also after letters of double width"
    assert "copies folded: " in done.out
    assert "static neighbours (means over the corpus): " in done.out


def test_json_lines(cli: Cli, index: Path) -> None:
    done = cli("neighbors", index, "The play was long, they play it.", "-w", "play", "-p", 6, "--json")
    records = [json.loads(line) for line in done.out.splitlines()]
    contexts = [r for r in records if r["kind"] == "context"]
    assert len(contexts) == 5
    assert all(r["text"][r["start"] : r["end"]] == r["word"] and r["copies"] >= 1 for r in contexts)
    assert [r["word"] for r in records if r["kind"] == "static"]


def test_what_goes_wrong_is_said(cli: Cli, index: Path, tmp_path: Path, corpus: Path) -> None:
    wrong = [
        (("neighbors", index, "They play the play.", "-w", "play"), "out of 1, 3"),
        (("neighbors", index, "They play.", "-w", "plays"), "did you mean 'play'?"),
        (("neighbors", index, "They plaid.", "-w", "plaid", "--same-word"), "did you mean 'play'"),
        (("neighbors", tmp_path, "They play.", "-w", "play"), "holds no index"),
        (("index", tmp_path / "nothing.txt", "-o", tmp_path / "new"), "no such file"),
        (("index", corpus, "-o", index, "--layers", "1"), "layers: 'top' there, '1' now"),
        (("drift", index, corpus), "give two of the same kind"),
        (("drift", index, tmp_path / "nothing"), "no such file"),
    ]
    for arguments, said in wrong:
        done = cli(*arguments)
        assert done.code == 2, arguments
        assert said in done.err
    assert not (tmp_path / "new").exists()


def test_its_model_is_found_or_asked_for(cli: Cli, index: Path, model_folder: Path) -> None:
    def say(source: str) -> None:
        stored = json.loads((index / "index.json").read_text())
        (index / "index.json").write_text(json.dumps(stored | {"source": source}))

    (more := index.with_name("more.txt")).write_text("One more line.\n")
    commands = (("neighbors", index, "They play.", "-w", "play"), ("index", more, "-o", index))
    for source in ("my-model", "models/my-model", "/gone/site-packages/elmokit/models/my-model"):
        say(source)
        for command in commands:
            done = cli(*command)
            assert (done.code, done.err.count("\n")) == (2, 1)
            assert f"{index}: made with the model {source!r}, which cannot be loaded (" in done.err
            assert done.err.endswith("say with -m where that model is\n")
    for command in commands:
        assert cli(*command, "-m", model_folder).code == 0
    say("/gone/site-packages/elmokit/models/en")  # of another installation
    assert f"{str(BUNDLED / 'en')!r} is another encoder" in cli(*commands[0]).err


@pytest.mark.filterwarnings("default::elmokit.errors.ElmokitWarning")
def test_bytes_that_are_not_utf8_are_told(cli: Cli, model_folder: Path, tmp_path: Path) -> None:
    old = tmp_path / "old.txt"
    old.write_bytes("The play at the café. They play well.\nPlay it again, as they play.\n".encode("latin-1"))
    told, model = f"note: {old}: bytes that are not UTF-8: 1 (read as U+FFFD)", ("-m", model_folder)
    new = tmp_path / "new.txt"
    new.write_text(old.read_text(encoding="latin-1"), encoding="utf-8")
    for command in (("drift", old, new, "--min-count", 2), ("senses", old, "--word", "play", "--clusters", 2)):
        done = cli(*command, *model)
        assert (done.code, done.err.count(told)) == (0, 1), done.err


def test_indexes_that_were_kept_are_of_the_same_texts(cli: Cli, model_folder: Path, tmp_path: Path) -> None:
    old, new, words = (tmp_path / name for name in ("old.txt", "new.txt", "words.txt"))
    old.write_text("They play well.\nThe play was long.\n")
    new.write_text("Children play ball.\nPlay, they play.\n")
    words.write_text("play\n")
    common = ("-m", model_folder, "--keep", tmp_path / "kept", "--words", words, "--min-count", 2)
    for _ in range(2):
        assert cli("drift", old, new, *common).code == 0
    swapped = cli("drift", new, old, *common)
    assert swapped.code == 2
    assert "give another folder with --keep" in swapped.err
    old.write_text("They play well.\nThe play was long.\nThe play ended.\n")
    assert cli("drift", old, new, *common).code == 2
    assert len(Index.open(tmp_path / "kept" / "first")) == 2


def test_words_from_files(cli: Cli, corpus: Path, model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("play\nPARK 猫\n", encoding="utf-8")
    done = cli("index", corpus, "-o", tmp_path / "few", "-m", model_folder, "--words", tmp_path / "words.txt")
    assert "21 occurrences of 3 words" in done.err
    done = cli("index", corpus, "-o", tmp_path / "other", "-m", model_folder, "--stop-words", "english")
    assert cli("neighbors", tmp_path / "other", "the play", "-w", "the", "--same-word").code == 2
    (tmp_path / "empty.txt").write_text("\n")
    done = cli("index", corpus, "-o", tmp_path / "none", "-m", model_folder, "--words", tmp_path / "empty.txt")
    assert "holds no words" in done.err


class TestDrift:
    def test_texts_and_indexes_say_the_same(self, cli: Cli, corpus: Path, model_folder: Path, tmp_path: Path) -> None:
        other = tmp_path / "other.txt"
        other.write_text("The play of light on water. Let it play over the park and its actors.\n" * 9)
        common = ("--min-count", 3, "--json")
        texts = cli("drift", corpus, other, "-m", model_folder, "--keep", tmp_path / "kept", *common)
        assert texts.code == 0, texts.err
        found = [json.loads(line) for line in texts.out.splitlines()]
        assert {r["word"] for r in found} == {"play", "park", "actors"}
        assert all(r["first_examples"] and r["second_examples"] and 0 < r["p"] <= 1 for r in found)
        indexes = cli("drift", tmp_path / "kept" / "first", tmp_path / "kept" / "second", *common)
        assert indexes.out == texts.out
        for name, path in (("whole1", corpus), ("whole2", other)):
            assert cli("index", path, "-o", tmp_path / name, "-m", model_folder).code == 0
        whole = cli("drift", tmp_path / "whole1", tmp_path / "whole2", *common)
        words = {json.loads(line)["word"] for line in whole.out.splitlines()}
        assert words == {"play", "park", "actors"}, "function words are left out, as of texts"

    def test_a_table_to_read_and_a_picture(
        self, cli: Cli, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COLUMNS", "80")
        done = cli("drift", index, index, "--min-count", 3, "-n", 4)
        assert done.code == 0, done.err
        assert "more words" in done.out
        assert "-0.000" not in done.out
        pytest.importorskip("altair", reason="altair is not installed: pip install 'elmokit[plots]'")
        done = cli("drift", index, index, "--min-count", 3, "-n", 4, "--plot", tmp_path / "drift.json")
        assert done.code == 0, done.err
        assert "jsd" in (tmp_path / "drift.json").read_text(encoding="utf-8")

    def test_words_that_are_missing_or_rare_are_told_and_left_out(self, cli: Cli, index: Path, tmp_path: Path) -> None:
        (tmp_path / "words.txt").write_text("play\nplayy\nnight\n")
        done = cli("drift", index, index, "--words", tmp_path / "words.txt", "--min-count", 5, "--json")
        assert done.code == 0, done.err
        assert [json.loads(line)["word"] for line in done.out.splitlines()] == ["play"]
        assert "'playy' is not in" in done.err
        assert "did you mean 'play'" in done.err
        assert "left out, not 5 times in both: night, playy" in done.err
        (tmp_path / "words.txt").write_text("xyzzy\n")
        done = cli("drift", index, index, "--words", tmp_path / "words.txt")
        assert done.code == 2
        assert "none of the words occurs in both" in done.err

    def test_against_a_gold_ranking(self, cli: Cli, corpus: Path, model_folder: Path, tmp_path: Path) -> None:
        other = tmp_path / "other.txt"
        other.write_text("The play of light on water. Let it play over the park and its actors.\n" * 9)
        gold = tmp_path / "gold.txt"
        gold.write_text("play\t0.9\npark\t0.1\nactors\t0.5\nxyzzy\t0\n")
        common = ("-m", model_folder, "--min-count", 3, "--gold", gold, "--shuffles", 50)
        done = cli("drift", corpus, other, *common, "--json")
        assert done.code == 0, done.err
        found = [json.loads(line) for line in done.out.splitlines()]
        assert {r["word"] for r in found[:3]} == {"play", "park", "actors"}
        assert all(r["p_net"] <= r["q"] <= 1 for r in found[:3])
        assert [r["net"] for r in found[:3]] == sorted((r["net"] for r in found[:3]), reverse=True)
        assert [(r["measure"], r["words"], r["graded"]) for r in found[3:]] == [
            ("net", 3, 4),
            ("prt", 3, 4),
            ("apd", 3, 4),
            ("jsd", 3, 4),
        ]
        assert "left out, not 3 times in both: xyzzy" in done.err
        done = cli("drift", corpus, other, *common)
        assert "rho against the gold ranking, 3 of its 4 words" in done.out
        gold.write_text("play 0.9\n")
        done = cli("drift", corpus, other, *common)
        assert (done.code, done.err.count("\n")) == (2, 1)
        assert "expected a new word, a tab and a number" in done.err

    def test_no_word_in_common(self, cli: Cli, corpus: Path, model_folder: Path, tmp_path: Path) -> None:
        (tmp_path / "short.txt").write_text("Nothing here.\n")
        done = cli("drift", corpus, tmp_path / "short.txt", "-m", model_folder)
        assert done.code == 2
        assert "no word occurs 10 times in both texts" in done.err
