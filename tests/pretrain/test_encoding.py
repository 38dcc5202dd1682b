import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from elmokit.errors import FormatError
from elmokit.formats.ahead import available_workers
from elmokit.pretrain.corpus._encoding import EncodedBlock, encode_block, encode_blocks
from elmokit.pretrain.corpus.text import Block, Reading
from elmokit.text import Sentence, load_tokenizer

SPACES = Reading(tokenizer=load_tokenizer("whitespace"))


def sentences(block: EncodedBlock) -> list[list[str]]:
    words = block.words.split("\n")
    ends = np.cumsum(block.lengths)
    return [[words[k] for k in part] for part in np.split(block.tokens, ends[:-1])] if len(ends) else []


def test_paragraphs_and_sentences() -> None:
    text = b"He came. She left.\n\nIt rained.\n"
    block = Block(text, "text", "a")
    english = load_tokenizer("english")
    split = encode_block(block, Reading(tokenizer=english, lines="paragraphs"))
    assert sentences(split) == [["He", "came", "."], ["She", "left", "."], ["It", "rained", "."]]
    assert split.paragraphs.tolist() == [0, 0, 1]
    assert (split.lines, split.empty_lines) == (3, 1)
    whole = encode_block(block, Reading(tokenizer=english, lines="sentences"))
    assert [len(sentence) for sentence in sentences(whole)] == [6, 3]


def test_bad_bytes_and_odd_whitespace() -> None:
    encoded = encode_block(Block(b"a\xff b\x0cc\xe2\x80\xa8d\r\n \t\r\n", "text", "a", bad_bytes=2), SPACES)
    assert sentences(encoded) == [["a\ufffd", "b", "c", "d"]]
    assert (encoded.bad_bytes, encoded.lines, encoded.empty_lines) == (3, 2, 1)


def test_json_text_and_tokens() -> None:
    rows = [{"text": "a b\n\nc"}, {"text": ["x y", "", "z"]}, {"text": [" "]}, {"text": []}, {"text": "\ud800"}]
    data = "\n".join(map(json.dumps, rows)).encode()
    encoded = encode_block(Block(data, "jsonl", "a"), SPACES)
    assert sentences(encoded) == [["a", "b"], ["c"], ["x", "y", "z"], ["\ufffd"]]
    assert encoded.paragraphs.tolist() == [0, 1, 2, 3]
    assert encoded.bad_bytes == 1


def test_treebank_escapes() -> None:
    encoded = encode_block(Block(b"-LRB- a", "text", "a"), Reading(tokenizer=SPACES.tokenizer, treebank=True))
    assert sentences(encoded) == [["(", "a"]]


class Lumping:
    """A tokenizer whose tokens hold spaces, and one that holds nothing else."""

    name, version = "lumping", 1

    def tokenize(self, text: str) -> Sentence:
        return Sentence.of([text[:3], " ", text[3:]])

    def split(self, text: str) -> Sequence[Sentence]:
        return [Sentence.of(["\u3000"]), self.tokenize(text)]


def test_words_never_hold_space() -> None:
    encoded = encode_block(Block(b"a bcd e", "text", "a"), Reading(tokenizer=Lumping()))
    assert sentences(encoded) == [["a", "b", "cd", "e"]]


def test_nothing_in_nothing_out() -> None:
    encoded = encode_block(Block(b"\n\n", "text", "a"), SPACES)
    assert (encoded.words, len(encoded.tokens), len(encoded.lengths), encoded.empty_lines) == ("", 0, 0, 2)


@pytest.mark.parametrize("workers", [1, 2])
def test_order_and_errors_whatever_the_workers(workers: int) -> None:
    # The first blocks take longest, so that results that came back as they finished would be out of order.
    blocks = [Block(f"word{k} ".encode() * 10 ** (5 - k), "text", "a") for k in range(6)]
    found = [block.words for block in encode_blocks(iter(blocks), SPACES, workers=workers)]
    assert found == [f"word{k}" for k in range(6)]
    bad = [*blocks, Block(b'{"text": "a"}\n{"tex": 1}\n', "jsonl", "b.jsonl", line=41)]
    with pytest.raises(FormatError, match=r"b\.jsonl, line 42: has no field 'text'"):
        list(encode_blocks(iter(bad), SPACES, workers=workers))


def test_available_workers() -> None:
    assert 1 <= available_workers() <= 16


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system does not say which CPUs may be used")
def test_no_more_workers_than_cpus_that_this_process_may_use() -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert available_workers() == 1
    finally:
        os.sched_setaffinity(0, before)


PROGRAM = """
import sys
from multiprocessing import active_children
from elmokit.pretrain.corpus._encoding import encode_blocks
from elmokit.pretrain.corpus.text import Block, Reading
from elmokit.text import load_tokenizer

if __name__ == "__main__":
    blocks = (Block(b"a b", "text", "a") for _ in range(1_000_000))
    encoded = encode_blocks(blocks, Reading(tokenizer=load_tokenizer("whitespace")), workers=2)
    next(encoded)
    print(*(child.pid for child in active_children()), flush=True)
    sys.stdin.read()
"""


def runs(process: int) -> bool:
    """Whether it is there and not merely waiting to be buried."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


@pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="needs /proc")
def test_workers_end_with_a_killed_parent(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, str(tmp_path / "program.py")]
    quiet = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **quiet) as parent:
        assert parent.stdout is not None
        workers = [int(word) for word in parent.stdout.readline().split()]
        assert len(workers) == 2
        assert all(map(runs, workers))
        parent.kill()
        ends = time.monotonic() + 120
        while (left := [worker for worker in workers if runs(worker)]) and time.monotonic() < ends:
            time.sleep(0.05)
        for worker in left:
            os.kill(worker, 9)
        assert not left
