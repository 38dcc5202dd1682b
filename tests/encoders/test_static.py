"""`Static`: every format to the same vectors, unknown words by rule, whatever is wrong with a file told by line."""

import gzip
import json
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

import models
from elmokit.encoders import Elmo
from elmokit.encoders.results import Choice, per_sentence, pooled
from elmokit.encoders.static.distil import distil_corpus, distil_words
from elmokit.encoders.static.encoder import Static
from elmokit.encoders.static.load import load_table
from elmokit.encoders.static.table import (
    HEADER_BYTES,
    WordTable,
    export_word2vec,
    read_table,
    verify_table,
    write_table,
)
from elmokit.errors import FormatError, InputError, MissingExtraError
from elmokit.text import Sentence

WORDS = ["the", "Cat", "3.14", "猫", "👩‍👩‍👧", "\u00a0", "don't", "</s>"]
VECTORS = np.random.default_rng(0).normal(size=(len(WORDS), 6)).astype(np.float32)
TABLE = WordTable(WORDS, VECTORS)


def text_of(words: list[str], rows: np.ndarray) -> bytes:
    return "".join(f"{w} {' '.join(map(str, r))}\n" for w, r in zip(words, rows, strict=True)).encode()


FILES = {
    "word2vec.txt": f"{len(WORDS)} 6\n".encode() + text_of(WORDS, VECTORS),
    "trailing.vec": f"{len(WORDS)} 6\r\n".encode() + text_of(WORDS, VECTORS).replace(b"\n", b" \r\n"),
    "glove.txt": text_of(WORDS, VECTORS),
    "glove.txt.gz": gzip.compress(text_of(WORDS, VECTORS)),
    "google.bin": f"{len(WORDS)} 6\n".encode() + b"".join(
        w.encode() + b" " + r.tobytes() for w, r in zip(WORDS, VECTORS, strict=True)
    ),
    "mikolov.bin": f"{len(WORDS)} 6\n".encode() + b"".join(
        w.encode() + b" " + r.tobytes() + b"\n" for w, r in zip(WORDS, VECTORS, strict=True)
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def table_from(path: Path) -> WordTable:
    table = load_table(path)
    assert isinstance(table, WordTable)
    return table


@pytest.mark.parametrize("name", FILES)
def test_every_format_gives_the_same(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(FILES[name])
    table = table_from(tmp_path / name)
    assert list(table.words) == WORDS
    np.testing.assert_array_equal(table.vectors, VECTORS)
    assert isinstance(table.vectors, np.memmap)
    assert table.fingerprint == TABLE.fingerprint


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("layers", ["average", "top", "all", "concat:0", "weights:0.5"])
def test_without_batches_the_vectors_are_the_same(layers: str, normalise: bool) -> None:
    static = Static(TABLE, device="cpu")
    sentences = [["the", "CAT", "unheard"], [], WORDS * 2, ["cat"], ["3.14", "the"]]
    stack = static.run([Sentence.of(tokens) for tokens in sentences])  # padded
    values, mask = Choice.of(layers, None, default="average").on(static.device, static.dtype)(stack)
    for limit in (None, 3):  # as if memory had been short before
        static.placed().limit = limit
        for shape, call in ((per_sentence, static.encode_tokens), (pooled, static.encode)):
            expected = shape(values, mask, normalise=normalise)
            found = call(sentences, layers=layers, normalise=normalise, batch_tokens=12)
            for got, want in zip(found, expected, strict=True):
                assert got.dtype == want.dtype
                np.testing.assert_array_equal(got, want)
        streamed = list(static.stream(iter(sentences), layers=layers, normalise=normalise, batch_tokens=12))
        assert [list(sentence.tokens) for sentence, _ in streamed] == sentences


def test_words_with_spaces(tmp_path: Path) -> None:
    words = ["the", ". . .", "at name@domain.com", "1 2 3", "cat"]
    (tmp_path / "glove.txt").write_bytes(text_of(words, VECTORS[:5]))
    assert list(table_from(tmp_path / "glove.txt").words) == words


def test_a_file_is_read_once_and_again_when_it_changes(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_bytes(FILES["glove.txt"])
    table_from(path)
    (made,) = (cache / "static").iterdir()
    before = made.stat().st_mtime_ns
    table_from(path)
    assert made.stat().st_mtime_ns == before
    path.write_bytes(text_of(["new", "words"], VECTORS[:2]))
    assert list(table_from(path).words) == ["new", "words"]
    assert len(list((cache / "static").iterdir())) == 1, "what was made of the old file is gone"


def test_the_first_of_equal_words_stays(tmp_path: Path) -> None:
    (tmp_path / "twice.txt").write_bytes(text_of(["a", "b", "a"], VECTORS[:3]))
    table = table_from(tmp_path / "twice.txt")
    assert list(table.words) == ["a", "b"]
    np.testing.assert_array_equal(table.vectors, VECTORS[:2])
    with pytest.raises(InputError, match="'a' stands there twice"):
        WordTable(["a", "b", "a"], VECTORS[:3])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "line 1: not a word followed by numbers; expected word2vec"),
        (b"just some text\nand more of it\n", "line 1: not a word followed by numbers"),
        (b"the 0.1 0.2\ncat 0.1\nsat 0.3 0.4\n", "line 2: 1 numbers, expected 2"),
        (b"2 2\nthe 0.1 0.2\ncat 0.1 zero\n", "line 3: 'zero' is not a number"),
        (b"2 2\nthe 0.1 0.2\ncat 0.1 1e-", "line 3: '1e-' is not a number"),  # cut short
        (b"3 2\nthe 0.1 0.2\ncat 0.1 0.3\n", "2 words, but its first line says 3; it was cut short"),
        (b"1 2\nthe 0.1 0.2\ncat 0.1 0.3\n", "2 words, but its first line says 1"),
        (b"0 2\n", "line 1: says 0 words of 2 numbers"),
        (b"the 0.1 nan\ncat 0.1 0.2\n", "the vector of 'the' has numbers that are NaN"),
        (b"the 0.1 0.2\ncat 0.1 1e16\n", "'cat' has numbers that are NaN, infinite or beyond 1e"),
        (FILES["google.bin"][:-3], "ends after 7 of 8 words; it was cut short"),
        (FILES["google.bin"] + b"more", "goes on after the 8 words"),
        (b"2 4\n" + b"\xff" * 200_000, "no word found after 0 words"),
        (pickle.dumps({"a": 1}), r"save_word2vec_format\('vectors.bin', binary=True\)"),
        (b"PK\x03\x04" + b"x" * 50, "a zip archive, expected word2vec"),
        (b"\xff\xfet\x00", "UTF-16"),
    ],
)
def test_what_is_wrong_with_a_file_is_told(content: bytes, said: str, tmp_path: Path, cache: Path) -> None:
    (tmp_path / "vectors.txt").write_bytes(content)
    with pytest.raises(FormatError, match=said):
        load_table(tmp_path / "vectors.txt")
    assert not cache.exists() or not [p for p in cache.rglob("*") if p.is_file()], "nothing half done is left behind"


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file; expected a file of static vectors"):
        load_table(tmp_path / "none.vec")


words = st.lists(st.text(max_size=5), min_size=1, max_size=12, unique=True)


@given(words, st.integers(1, 4))
def test_tables_come_back_from_their_file(
    tmp_path_factory: pytest.TempPathFactory, some: list[str], width: int
) -> None:
    path = tmp_path_factory.mktemp("tables") / "table.safetensors"
    rows = np.arange(len(some) * width, dtype=np.float32).reshape(len(some), width)
    write_table(path, [(some, rows), (some[:1], rows[:1] + 1)], width=width)
    table = read_table(path)
    assert list(table.words) == some
    np.testing.assert_array_equal(table.vectors, rows)
    assert load_file(path)["vectors"].shape == rows.shape, "any reader of safetensors can open it"


def test_a_damaged_table_is_refused(tmp_path: Path) -> None:
    path = TABLE.save(tmp_path / "table.safetensors")
    assert load_table(path).fingerprint == TABLE.fingerprint
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(FormatError, match="but its header describes"):
        load_table(path)
    with pytest.raises(InputError, match="ends in"):
        TABLE.save(tmp_path / "table.txt")


@pytest.mark.parametrize("checksums", [True, False])
def test_a_damaged_table_is_refused_or_harmless(checksums: bool, tmp_path: Path) -> None:
    """A flip among the vectors is for `verify_table`; files of 0.1.0 have no checksums."""
    path = TABLE.save(tmp_path / "table.safetensors")
    content = path.read_bytes()
    if not checksums:
        header = json.loads(content[8:HEADER_BYTES])
        del header["__metadata__"]["checksums"]
        content = content[:8] + json.dumps(header).encode().ljust(HEADER_BYTES - 8) + content[HEADER_BYTES:]
    end = HEADER_BYTES + VECTORS.nbytes
    refused = set()
    for at in range(len(content)):
        damaged = bytearray(content)
        damaged[at] ^= 1 << at % 8
        path.write_bytes(damaged)
        try:
            found = read_table(path)
        except (FormatError, InputError):
            refused.add(at)
            continue
        if not HEADER_BYTES <= at < end:
            assert not checksums or (list(found.words) == WORDS and np.array_equal(found.vectors, VECTORS)), at
    assert refused.isdisjoint(range(HEADER_BYTES, end))
    assert not checksums or refused >= set(range(end, len(content)))
    for cut in range(0, len(content), 7):
        path.write_bytes(content[:cut])
        with pytest.raises(FormatError):
            read_table(path)
    path.write_bytes(content)
    verify_table(path)
    damaged = bytearray(content)
    damaged[HEADER_BYTES + 5] ^= 1
    path.write_bytes(damaged)
    if checksums:
        with pytest.raises(FormatError, match="its vectors are not as they were saved"):
            verify_table(path)


class TestUnknownWords:
    SENTENCE = ("the", "CAT", "Cat", "THE", "dog", "")

    def test_zero_and_lower_case_are_the_default(self) -> None:
        static = Static(TABLE)
        got = static.encode_tokens([self.SENTENCE])[0]
        np.testing.assert_array_equal(got, [VECTORS[0], 0 * VECTORS[0], VECTORS[1], VECTORS[0], *np.zeros((2, 6))])
        assert [static.unknown(w) for w in self.SENTENCE] == [False, True, False, False, True, True]

    def test_mean_and_no_fallback(self) -> None:
        got = Static(TABLE, fallback="none", unknown="mean").encode_tokens([self.SENTENCE])[0]
        np.testing.assert_allclose(got[3], VECTORS.mean(axis=0), atol=1e-6)
        np.testing.assert_array_equal(got[2], VECTORS[1])

    def test_error(self) -> None:
        strict = Static(TABLE, unknown="error")
        assert strict.encode_tokens([["the"]])[0].shape == (1, 6)
        with pytest.raises(InputError, match=r"no vector for 'dog'; choose unknown='zero'"):
            strict.encode([["dog"]])

    def test_choices_are_named(self) -> None:
        with pytest.raises(InputError, match="unknown 'ignore' not understood; expected zero, mean, error"):
            Static(TABLE, unknown="ignore")  # type: ignore[arg-type]


def test_it_is_an_encoder_like_the_others() -> None:
    static = Static(TABLE)
    assert (static.depth, static.width, static.context) == (1, 6, "none")
    assert "no other word" in static.info
    layers = static.encode_layers([["the", "猫"], [], ["Cat"]])
    assert [x.shape for x in layers] == [(1, 2, 6), (1, 0, 6), (1, 1, 6)]
    np.testing.assert_array_equal(layers[0][0], VECTORS[[0, 3]])
    assert static.encode(["the cat", ""]).shape == (2, 6)
    assert static.encode_tokens("the cat", dtype="float64").dtype == np.float64
    assert static.encode_layers([[], []])[0].shape == (1, 0, 6)
    assert static.fingerprint != Static(TABLE, unknown="mean").fingerprint


class TestExport:
    @pytest.mark.parametrize("binary", [False, True])
    def test_it_comes_back_bit_for_bit(self, binary: bool, tmp_path: Path) -> None:
        path = export_word2vec(TABLE, tmp_path / "out.vectors", binary=binary)
        table = table_from(path)
        assert list(table.words) == WORDS
        np.testing.assert_array_equal(table.vectors, VECTORS)

    def test_words_that_do_not_fit(self, tmp_path: Path) -> None:
        spaced = WordTable(["new york", "x"], VECTORS[:2])
        with pytest.raises(InputError, match="'new york' cannot be written"):
            export_word2vec(spaced, tmp_path / "out.txt")
        assert not (tmp_path / "out.txt").exists()
        assert list(table_from(export_word2vec(spaced, tmp_path / "out.txt", spaces="_")).words) == ["new_york", "x"]


class TestDistilled:
    ELMO = Elmo(models.tiny().pretrained, device="cpu")

    def test_layer_0_of_a_vocabulary(self) -> None:
        table = distil_words(self.ELMO, ["cat", "sat", "cat", "猫"])
        assert list(table.words) == ["cat", "sat", "猫"]
        in_context = self.ELMO.encode_tokens([["a", "sat", "cat"]], layers=0)[0]
        np.testing.assert_allclose(Static(table).encode_tokens([["a", "sat", "cat"]])[0][1:], in_context[1:], atol=1e-6)

    def test_averages_over_a_corpus(self) -> None:
        corpus = [["the", "cat", "sat"], [], ["a", "cat"], ["the", "the"]]
        table = distil_corpus(self.ELMO, iter(corpus), layers="top", min_count=2)
        assert list(table.words) == ["the", "cat"], "the most frequent first, rare ones left out"
        every = self.ELMO.encode_tokens(corpus, layers="top")
        want = [(every[0][0] + every[3][0] + every[3][1]) / 3, (every[0][1] + every[2][1]) / 2]
        np.testing.assert_allclose(table.vectors, want, atol=1e-6)

    def test_nothing_to_distil(self) -> None:
        with pytest.raises(InputError, match="no word stands 3 times"):
            distil_corpus(self.ELMO, [["a"]], min_count=3)
        with pytest.raises(InputError, match="one string was given to distil"):
            distil_words(self.ELMO, "bank")
        with pytest.raises(InputError, match="no words were given"):
            distil_words(self.ELMO, [])
        with pytest.raises(InputError, match="keep the layers apart"):
            distil_corpus(self.ELMO, [["a"]], layers="all")


class TestOtherLibraries:
    def test_gensim_objects_by_what_they_have(self) -> None:
        keyed = SimpleNamespace(index_to_key=WORDS, vectors=VECTORS)
        for given_object in (keyed, SimpleNamespace(wv=keyed)):
            static = Static.from_gensim(given_object, unknown="error")
            assert static.table.vectors is VECTORS  # type: ignore[union-attr]
        with pytest.raises(InputError, match="list: expected gensim's KeyedVectors"):
            Static.from_gensim([1])

    def test_gensim_itself(self, tmp_path: Path) -> None:
        gensim = pytest.importorskip("gensim.models")
        keyed = gensim.KeyedVectors(6)
        keyed.add_vectors(WORDS, VECTORS)
        np.testing.assert_array_equal(Static.from_gensim(keyed).vectors(WORDS), VECTORS)
        keyed.save_word2vec_format(str(tmp_path / "gensim.bin"), binary=True)
        np.testing.assert_array_equal(table_from(tmp_path / "gensim.bin").vectors, VECTORS)
        for binary in (False, True):
            path = export_word2vec(TABLE, tmp_path / "ours", binary=binary)
            back = gensim.KeyedVectors.load_word2vec_format(str(path), binary=binary)
            assert back.index_to_key == WORDS
            np.testing.assert_array_equal(back.vectors, VECTORS)
        keyed.save(str(tmp_path / "pickled.kv"))
        with pytest.raises(FormatError, match="a pickle"):
            load_table(tmp_path / "pickled.kv")

    def test_fasttext_without_its_library(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "model.bin").write_bytes((793_712_314).to_bytes(4, "little") + bytes(20))
        monkeypatch.setitem(sys.modules, "fasttext", None)
        with pytest.raises(MissingExtraError, match=r"pip install 'elmokit\[fasttext\]'"):
            load_table(tmp_path / "model.bin")

    def test_fasttext_itself(self, tmp_path: Path) -> None:
        fasttext = pytest.importorskip("fasttext")
        (tmp_path / "corpus.txt").write_text("the cat sat on the mat and the dog saw the cat\n" * 50)
        model = fasttext.train_unsupervised(str(tmp_path / "corpus.txt"), dim=8, minCount=1, epoch=1, thread=1)
        model.save_model(str(tmp_path / "model.bin"))
        static = Static.from_pretrained(tmp_path / "model.bin")
        np.testing.assert_allclose(static.vectors(["cat", "catlike"])[1], model.get_word_vector("catlike"))
        assert not static.unknown("catlike"), "it knows words by their parts"
        assert static.vectors(["", "a b"]).shape == (2, 8)
