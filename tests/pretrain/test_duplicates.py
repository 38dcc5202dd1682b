"""Repeated paragraphs are found, others are not, and text that was prepared before is known again."""

import json
import random
import shlex
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_runs import run_here, write_text

from elmokit.pretrain import Corpus, PretrainConfig
from elmokit.pretrain.command import corpus_of
from elmokit.pretrain.corpus.duplicates import SHORT_COPIES, Duplicates
from elmokit.pretrain.corpus.prepare import CorpusPlan, prepare
from elmokit.pretrain.corpus.text import Block
from elmokit.pretrain.plan import MEASURED, STEPS, count_corpus, suggest, told
from elmokit.text import load_tokenizer


def paragraph(seed: int, words: int = 60) -> list[str]:
    dice = random.Random(seed)
    return [f"{dice.choice('bcdfglmnprst')}{dice.choice('aeiou')}{dice.randrange(400)}x" for _ in range(words)]


def changed(words: list[str], *, places: int, seed: int) -> list[str]:
    dice, made = random.Random(seed), list(words)
    for k in dice.sample(range(len(made)), places):
        made[k] = f"new{k}"
    return made


class TestMark:
    def test_copies_are_found_and_the_first_stays(self) -> None:
        lines = [" ".join(paragraph(k)) for k in (0, 1, 0, 2, 1)]
        assert Duplicates().mark(lines) == [False, False, True, False, True]

    def test_case_spaces_and_digits_do_not_matter(self) -> None:
        found = Duplicates()
        assert not found.mark(["The town of Abc has 1,234 people and lies in the north of the land."])[0]
        assert found.mark(["The  town of ABC has 5,678 people and lies in the north of the land. "])[0]
        assert found.report.exact == 1

    def test_near_copies_are_found_and_others_are_not(self) -> None:
        """One changed word of 100 leaves 91 of 96 sequences and is found in nearly all cases; 20 leave few."""
        hits = {1: 0, 20: 0}
        for seed in range(100):
            own = paragraph(seed, 100)
            for places in hits:
                found = Duplicates()
                other = changed(own, places=places, seed=seed)
                hits[places] += found.mark([" ".join(own), " ".join(other)])[1]
        assert hits[1] >= 85
        assert hits[20] <= 10

    def test_different_paragraphs_stay(self) -> None:
        lines = [" ".join(paragraph(k, 30)) for k in range(3000)]
        assert not any(Duplicates().mark(lines))

    def test_short_lines_may_stand_a_few_times(self) -> None:
        found = Duplicates()
        assert found.mark(["See also"] * 12) == [False] * SHORT_COPIES + [True] * (12 - SHORT_COPIES)
        assert found.report.short == 3
        assert found.report.examples == [(12, "See also")]

    def test_scripts_without_spaces(self) -> None:
        first = "北京是中华人民共和国的首都,也是全国的政治中心和文化中心。"
        assert Duplicates().mark([first, "上海位于长江入海口,是中国最大的城市之一,人口两千多万。", first]) == [
            False,
            False,
            True,
        ]

    def test_blank_lines_count_for_nothing(self) -> None:
        found = Duplicates()
        assert not any(found.mark(["", " ", ""] * 20))
        assert found.report.paragraphs == 0

    def test_blocks_cut_anywhere_give_the_same(self) -> None:
        lines = [" ".join(paragraph(k % 40)) for k in range(100)]
        whole, parts = Duplicates(), Duplicates()
        assert whole.mark(lines) == [gone for k in range(0, 100, 7) for gone in parts.mark(lines[k : k + 7])]
        assert whole.report == parts.report
        assert whole.report.share == pytest.approx(0.6)


class TestBlocks:
    def test_lines_keep_their_numbers(self) -> None:
        line = " ".join(paragraph(0)).encode()
        (block,) = Duplicates().filter([Block(b"\n".join([line, line, b"other"]), "text", "x")], field="text")
        assert block.data.split(b"\n") == [line, b"", b"other"]

    def test_json_lines_by_their_field(self) -> None:
        text = " ".join(paragraph(0))
        lines = [json.dumps({"id": k, "text": text}) for k in range(2)] + ["{broken", '{"id": 3}']
        (block,) = Duplicates().filter([Block("\n".join(lines).encode(), "jsonl", "x")], field="text")
        assert block.data.decode().split("\n") == [lines[0], "", *lines[2:]]


def test_prepared_text_leaves_them_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "text.txt"
    path.write_text("\n".join(" ".join(paragraph(k % 20)) for k in range(60)), encoding="utf-8")
    plain = Corpus(paths=[path], tokenizer=load_tokenizer("whitespace"))
    without = Corpus(paths=[path], tokenizer=load_tokenizer("whitespace"), dedupe=True)
    assert "dedupe" not in (plain.identity() or {})
    assert (without.identity() or {})["dedupe"] is True
    reports = [prepare(c, tmp_path / str(k), workers=1).report for k, c in enumerate((plain, without))]
    assert reports[0].tokens + reports[0].heldout_tokens == 3600
    assert reports[1].tokens + reports[1].heldout_tokens == 1200
    assert "40 of 60 paragraphs repeat an earlier one" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["text", "parquet", "jsonl", "texts", "tokens"])
@pytest.mark.parametrize("last", [" ".join(paragraph(0)), "", " ".join(paragraph(2))])
def test_empty_lines_are_those_of_the_given_text(tmp_path: Path, kind: str, last: str) -> None:
    one, two = (" ".join(paragraph(k)) for k in (0, 1))
    lines = [one, "", two, one, "", one, last]
    path = tmp_path / f"a.{kind}"
    if kind == "text":
        path.write_text("\n".join(lines) + "\n" * (not last), encoding="utf-8")
    elif kind == "jsonl":
        path.write_text("\n".join(json.dumps({"text": line}) for line in lines), encoding="utf-8")
    elif kind == "parquet":
        pq.write_table(pa.table({"text": lines}), path)
    texts = [line.split() for line in lines] if kind == "tokens" else lines
    given = {"paths": [path]} if path.exists() else {"texts": texts}
    for dedupe in (False, True):
        corpus = Corpus(**given, tokenizer=load_tokenizer("whitespace"), dedupe=dedupe)
        plan = CorpusPlan(heldout=0.0)
        report = prepare(corpus, tmp_path / f"out-{dedupe}", plan, workers=1).report
        assert (report.lines, report.empty_lines) == (len(lines), lines.count(""))
    assert report.tokens == 60 * len({*lines} - {""})


def test_json_lines_that_are_left_out_count_with_all_their_lines(tmp_path: Path) -> None:
    texts = ["\n".join(" ".join(paragraph(k)) for k in part) for part in [(0, 1), (2, 3, 4), (0, 1)]]
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts), encoding="utf-8")
    corpus = Corpus(paths=[tmp_path / "a.jsonl"], tokenizer=load_tokenizer("whitespace"), dedupe=True)
    report = prepare(corpus, tmp_path / "out", CorpusPlan(heldout=0.0), workers=1).report
    assert (report.lines, report.empty_lines, report.sentences) == (7, 0, 5)


def test_counts_and_a_suggestion(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("a b b c c c\n" * 3 + "d\n", encoding="utf-8")
    counts = count_corpus(Corpus(paths=[path], tokenizer=load_tokenizer("whitespace")), workers=1)
    assert (counts.tokens, counts.types, counts.once, counts.sentences) == (19, 4, 1, 4)
    assert counts.coverage[5000] == 1.0
    assert counts.duplicates.exact == 2
    assert suggest(counts).preset == "tiny"
    assert "tiny models had 387" in "\n".join(told(counts, suggest(counts), PretrainConfig(), [str(path)]))
    assert {preset for _, preset, *_ in STEPS} <= MEASURED.keys()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = write_text(tmp_path / "text.txt", sentences=300)
    ended = run_here(["pretrain", "--plan", str(text), "--tokenizer", "unicode", "--device", "cpu", "--workers", "1"])
    assert ended.status == 0, ended.said
    out = capsys.readouterr().out
    for said in (
        "tokens ",
        "types ",
        "coverage ",
        "repetitions ",
        " tokens/s on cpu",
        "--preset tiny",
        "--tokenizer unicode",
    ):
        assert said in out
    ended = run_here(["pretrain", str(text)])
    assert ended.status == 2
    assert "say where with -o FOLDER" in ended.said


@pytest.mark.parametrize(("share", "dedupe", "warned"), [(0.5, False, True), (0.5, True, False), (0.01, False, False)])
def test_a_plan_warns_of_much_repeated_text(share: float, dedupe: bool, warned: bool, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    write_text(path)
    counts = count_corpus(Corpus(paths=[path], tokenizer=load_tokenizer("whitespace")), workers=1)
    words = round(1000 * share)
    counts = replace(counts, duplicates=replace(counts.duplicates, words=words, all_words=1000))
    lines = told(counts, suggest(counts), PretrainConfig(dedupe=dedupe), [str(path)])
    assert any("use --dedupe" in line for line in lines) == warned


def suggested(tmp_path: Path, config: PretrainConfig, *names: str, lines: list[str]) -> list[str]:
    """The words of the command that a plan suggests for such text."""
    for name in names:
        (tmp_path / name).write_text("\n".join(json.dumps({"body": line}) for line in lines), encoding="utf-8")
    paths = [str(tmp_path / name) for name in names]
    counts = count_corpus(corpus_of(config, paths), workers=1)
    return shlex.split(told(counts, suggest(counts), config, paths)[-1])


def test_the_suggested_command_reads_the_same_text(tmp_path: Path) -> None:
    names = [f"part {k}.jsonl" for k in range(5)]
    config = PretrainConfig(tokenizer="whitespace", text_field="body", lines="sentences")
    _, *command = suggested(tmp_path, config, *names, lines=["a b b c c c"])
    assert command[:2] == ["elmokit", "pretrain"]
    assert command[2:7] == [str(tmp_path / name) for name in names]
    assert "--tokenizer whitespace --lines sentences --text-field body" in " ".join(command[7:])
    plain = PretrainConfig(tokenizer="whitespace", text_field="body")
    assert "--lines" not in suggested(tmp_path, plain, "a.jsonl", lines=["a b b c c c"])


@pytest.mark.parametrize("kind", ["txt", "jsonl"])
def test_what_a_plan_advises_is_for_the_text_without_repetitions(tmp_path: Path, kind: str) -> None:
    lines = [" ".join([f"word{k}"] * 6 + paragraph(k)) for k in range(300)]
    repeated = [line for k in range(3) for line in lines[:100]]
    path, once = tmp_path / f"a.{kind}", tmp_path / f"b.{kind}"
    for file, given in ((path, [*lines, "", *repeated]), (once, lines)):
        rows = given if kind == "txt" else [json.dumps({"text": line}) for line in given]
        file.write_text("\n".join(rows), encoding="utf-8")
    corpus, other = (Corpus(paths=[p], tokenizer=load_tokenizer("whitespace")) for p in (path, once))
    counts, wanted = count_corpus(corpus, workers=1), count_corpus(other, workers=1)
    assert (counts.lines, counts.sentences, counts.tokens) == (601, 600, 600 * 66)
    assert counts.types == wanted.types
    assert counts.advised.tokens == wanted.tokens == 300 * 66
    assert suggest(counts).vocab_size == suggest(wanted).vocab_size < counts.types - counts.once
    timed = replace(suggest(counts), tokens_per_second=300 * 66 / 100)
    time = told(counts, timed, PretrainConfig(), ["a"])[-3]
    assert "25 min with --dedupe at 198 tokens/s" in time  # 15 epochs
    deduped = count_corpus(replace(corpus, dedupe=True), workers=1)
    assert (deduped.tokens, deduped.once, deduped.lines) == (wanted.tokens, wanted.once, counts.lines)
