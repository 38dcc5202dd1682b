"""Text cut by other processes: the same sentences in the same order, errors in their place, no process left behind."""

import json
from pathlib import Path

import pytest

from elmokit.errors import FormatError
from elmokit.formats import ReadReport, ahead, read_sentences
from elmokit.formats.ahead import Cutters, cut_block
from elmokit.text import Sentence, load_tokenizer

TEXT = ["One sentence. And another one!", "", "  ", "A 2nd line, isn't it?", "naïve café \u2028 x"] * 40


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "BLOCK_CHARACTERS", 200)


def plain(sentences: list[Sentence]) -> list[tuple[object, ...]]:
    return [(s.tokens, s.text, s.start, s.fields) for s in sentences]


@pytest.mark.parametrize("lines", ["sentences", "paragraphs"])
@pytest.mark.parametrize("name", ["english", "unicode@2+lower", "whitespace"])
def test_cut_as_without_processes(small: None, tmp_path: Path, lines: str, name: str) -> None:
    tokenizer = load_tokenizer(name)
    path = tmp_path / "a.jsonl"
    units = [*TEXT, ["a", "list", "of tokens"], []]
    path.write_text("".join(json.dumps({"text": unit, "year": k % 3}) + "\n" for k, unit in enumerate(units)))
    here, there = ReadReport(), ReadReport()
    expected = list(read_sentences(path, tokenizer=tokenizer, lines=lines, keep=["year"], report=here))  # type: ignore[arg-type]
    for workers in (0, 2) if lines == "paragraphs" and name == "english" else (0,):
        there = ReadReport()
        with Cutters(tokenizer, workers=workers, lines=lines) as cutters:  # type: ignore[arg-type]
            found = list(
                read_sentences(path, tokenizer=tokenizer, lines=lines, keep=["year"], report=there, cutters=cutters)  # type: ignore[arg-type]
            )
        assert plain(found) == plain(expected)
        assert all(s.offsets is None for s in found)
        assert there == here


def test_what_stands_before_a_bad_line_comes_first(small: None, tmp_path: Path) -> None:
    path, tokenizer = tmp_path / "a.jsonl", load_tokenizer("english")
    path.write_text("".join(json.dumps({"text": f"line {k}"}) + "\n" for k in range(100)) + "{\n")
    with Cutters(tokenizer, workers=1) as cutters:
        found: list[Sentence] = []
        with pytest.raises(FormatError, match="101"):
            found.extend(read_sentences(path, tokenizer=tokenizer, cutters=cutters))
        assert [s.text for s in found] == [f"line {k}" for k in range(100)]
        pool = cutters._pool
        assert pool is not None
        processes = list(pool._processes.values())
    assert not any(process.is_alive() for process in processes)


def test_words_are_numbered_and_texts_stay_behind() -> None:
    block = cut_block(["the cat", "the dog"], load_tokenizer("english"), "sentences")
    assert block.words == ["the", "cat", "dog"]
    assert (block.ids.tolist(), block.offsets.tolist()) == ([0, 1, 0, 2], [0, 2, 4])
    assert block.places is None
    assert block.told == b'["the cat", ["the", "cat"]]["the dog", ["the", "dog"]]'
    split = cut_block(["It is. It was."], load_tokenizer("english"), "paragraphs")
    assert split.places == [(0, "It is.", 0), (0, "It was.", 7)]
