import gzip
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import elmokit.pretrain.corpus.text as corpus_module
from elmokit.errors import FormatError, InputError
from elmokit.pretrain.corpus.text import Corpus, read_blocks
from elmokit.text import load_tokenizer

SPACES = load_tokenizer("whitespace")


def text_file(folder: Path, data: bytes, name: str = "a.txt") -> Corpus:
    (folder / name).write_bytes(data)
    return Corpus(paths=[folder / name], tokenizer=SPACES)


@pytest.mark.parametrize("block_bytes", [1, 7, 1000])
def test_blocks_are_whole_lines_in_order(tmp_path: Path, block_bytes: int) -> None:
    data = "\ufefféa b\n\nc\r\n".encode() + b"word " * 30 + b"\nlast"
    blocks = list(read_blocks(text_file(tmp_path, data), block_bytes=block_bytes))
    assert b"".join(block.data for block in blocks) == data[3:]
    assert all(block.data.endswith(b"\n") for block in blocks[:-1])
    assert blocks[-1].consumed == len(data)
    before = 1
    for block in blocks:
        assert block.line == before
        before += block.data.count(b"\n")


@given(st.lists(st.sampled_from(["é", "日", "\n", " ", "a"]), min_size=1, max_size=60), st.integers(1, 9))
def test_long_lines_are_cut_at_spaces_or_between_characters(pieces: list[str], block_bytes: int) -> None:
    text = "".join(pieces)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus_module, "_LINE_BYTES", 4)
        with tempfile.TemporaryDirectory() as folder:
            blocks = list(read_blocks(text_file(Path(folder), text.encode()), block_bytes=block_bytes))
    assert "".join(block.data.decode() for block in blocks) == text  # every block is valid UTF-8 by itself
    for block in blocks:
        assert (
            not block.cut_lines or len(block.data) <= max(block_bytes, 3) + 4 + 4
        )  # what was left over, a block, a line's most


def test_a_huge_line_is_cut_at_a_space(tmp_path: Path) -> None:
    data = b"words and " * 700_000
    blocks = list(read_blocks(text_file(tmp_path, gzip.compress(data, 1), "a.txt.gz")))
    assert b"".join(block.data for block in blocks) == data
    assert max(len(block.data) for block in blocks) <= 4 << 20
    assert sum(block.cut_lines for block in blocks) == len(blocks) - 1
    assert all(block.data.endswith(b" ") for block in blocks)


def test_json_lines_are_never_cut(tmp_path: Path) -> None:
    line = json.dumps({"text": "w " * 2_000_000}).encode() + b"\n"
    (block,) = read_blocks(text_file(tmp_path, line, "a.jsonl"))
    assert (block.data, block.kind) == (line, "jsonl")


def test_texts_tokens_and_rows() -> None:
    texts = ["one\ntwo", ["three", "fo ur"], {"text": "five"}, "\ud800"]
    blocks = list(read_blocks(Corpus(texts=texts, tokenizer=SPACES)))
    assert [(block.kind, block.data.decode(), block.bad_bytes) for block in blocks] == [
        ("text", "one\ntwo\n", 0),
        ("tokens", "three fo ur\n", 0),
        ("text", "five\n\ufffd\n", 1),
    ]
    with pytest.raises(FormatError, match="text 2: field 'text' is '3', expected a string or a list"):
        list(read_blocks(Corpus(texts=["a", 3], tokenizer=SPACES)))


def test_parquet_and_folders(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["p one", "p two"]}), tmp_path / "b.parquet")
    (tmp_path / "a.txt").write_text("t one\n")
    blocks = list(read_blocks(Corpus(paths=[tmp_path], tokenizer=SPACES)))
    assert [block.data for block in blocks] == [b"t one\n", b"p one\np two\n"]


def test_identity_follows_the_files(tmp_path: Path) -> None:
    corpus = text_file(tmp_path, b"a")
    before = corpus.identity()
    assert json.loads(json.dumps(before)) == before
    assert text_file(tmp_path, b"a b").identity() != before
    assert Corpus(paths=[tmp_path / "a.txt"], tokenizer=load_tokenizer("english")).identity() != before


def test_streams_have_no_identity_unless_named() -> None:
    def texts() -> Iterator[str]:
        yield "a"

    assert Corpus(texts=texts(), tokenizer=SPACES).identity() is None
    named = Corpus(texts=texts(), texts_name="mine", tokenizer=SPACES).identity()
    assert named is not None
    assert named["texts"] == "mine"
    assert Corpus(paths=["-"], tokenizer=SPACES).identity() is None


def test_unusable_corpora(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="paths or of texts"):
        Corpus(tokenizer=SPACES)
    with pytest.raises(InputError, match="expected 'sentences' or 'paragraphs'"):
        Corpus(paths=["a"], tokenizer=SPACES, lines="pages")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"a\.conllu: is read as conllu, expected text, jsonl or parquet"):
        list(read_blocks(text_file(tmp_path, b"", "a.conllu")))
