import tempfile
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.errors import FormatError, InputError
from elmokit.pretrain.corpus._shards import Shard, ShardedCorpus, ShardWriter


def written(folder: Path, sentences: list[list[int]], *, shard_tokens: int, piece: int = 3) -> ShardedCorpus:
    writer = ShardWriter(folder, "train", shard_tokens=shard_tokens)
    for k in range(0, len(sentences), piece):
        part = sentences[k : k + piece]
        lengths = np.array([len(sentence) for sentence in part], dtype=np.uint32)
        writer.write(np.array(list(chain.from_iterable(part)), dtype=np.uint32), lengths)
    writer.close()
    return ShardedCorpus([Shard(folder, info, writer.files) for info in writer.infos])


SENTENCES = st.lists(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=6), max_size=20)


@settings(max_examples=20)  # each waits for the disk
@given(SENTENCES, st.integers(1, 12), st.integers(1, 5), st.data())
def test_what_is_written_is_read(
    sentences: list[list[int]], shard_tokens: int, piece: int, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        corpus = written(Path(folder), sentences, shard_tokens=shard_tokens, piece=piece)
        assert [sentence.tolist() for sentence in corpus] == sentences
        assert (len(corpus), corpus.n_tokens) == (len(sentences), sum(map(len, sentences)))
        assert corpus.lengths.tolist() == [len(sentence) for sentence in sentences]
        for shard in corpus.shards[:-1]:
            assert shard_tokens <= shard.info.tokens < shard_tokens + 6
        which = data.draw(st.lists(st.integers(0, len(sentences) - 1), max_size=30)) if sentences else []
        tokens, lengths = corpus.gather(np.array(which, dtype=np.int64))
        assert tokens.tolist() == list(chain.from_iterable(sentences[k] for k in which))
        assert lengths.tolist() == [len(sentences[k]) for k in which]


def test_gather_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elmokit.pretrain.corpus._shards._GATHERED_SENTENCES", 4)
    sentences = [[k] * (1 + k % 3) for k in range(30)]
    corpus = written(tmp_path, sentences, shard_tokens=10)
    which = np.random.default_rng(0).permutation(30)
    assert corpus.gather(which)[0].tolist() == list(chain.from_iterable(sentences[k] for k in which))


def test_files_are_little_endian_and_mapped(tmp_path: Path) -> None:
    corpus = written(tmp_path, [[1, 2], [3]], shard_tokens=100)
    assert (tmp_path / "train-00000.tokens").read_bytes() == b"\1\0\0\0\2\0\0\0\3\0\0\0"
    assert (tmp_path / "train-00000.starts").read_bytes() == b"\0\0\0\0\2\0\0\0\3\0\0\0"
    assert not corpus[1].flags.owndata
    assert not corpus[1].flags.writeable
    with pytest.raises(IndexError):
        corpus[2]


@pytest.mark.parametrize("name", ["train-00001.tokens", "train-00001.starts"])
def test_damage_is_named(tmp_path: Path, name: str) -> None:
    corpus = written(tmp_path, [[1, 2], [3, 4]], shard_tokens=1)
    data = bytearray((tmp_path / name).read_bytes())
    data[-1] ^= 1
    (tmp_path / name).write_bytes(data)
    assert corpus[0].tolist() == [1, 2]
    with pytest.raises(FormatError, match=rf"{name}: has CRC-32 .* damaged; delete"):
        corpus[1]
    (tmp_path / name).write_bytes(data[:-2])
    with pytest.raises(FormatError, match=rf"{name}: has {len(data) - 2} bytes, expected {len(data)}"):
        corpus[1]
    (tmp_path / name).unlink()
    with pytest.raises(FormatError, match=rf"{name}: is missing"):
        corpus[1]


def test_impossible_shard_size(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="shard_tokens = 0"):
        ShardWriter(tmp_path, "train", shard_tokens=0)
