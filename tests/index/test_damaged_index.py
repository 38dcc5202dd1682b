"""Damaged files of an index: all that goes wrong is an ElmokitError, and no byte of a segment changes unnoticed."""

import contextlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import models
from elmokit.encoders import Elmo, WordTable
from elmokit.errors import ElmokitError, FormatError
from elmokit.formats.tensors import Stored, open_tensors, write_tensors
from elmokit.index import Index, IndexSettings, load_word_means, save_word_means

pytest.importorskip("usearch", reason="usearch is not installed: pip install 'elmokit[neighbours]'")


@pytest.fixture(scope="module")
def elmo() -> Elmo:
    return Elmo(models.tiny().pretrained, device="cpu")


@pytest.fixture(scope="module")
def whole(elmo: Elmo, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damage") / "whole"
    texts = ["The cat sat on the mat.", "Ζεὺς said: naïve 猫!", "A cat and a mat."] * 5
    sentences = [replace(elmo.tokenizer.tokenize(text), fields=(f"{k} 猫",)) for k, text in enumerate(texts)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("elmokit.index.growth.CHUNK_TOKENS", 40)
        patch.setattr("elmokit.index.growth.SEGMENT_ROWS", 30)
        index = Index.build(elmo, sentences, folder, name="text", settings=IndexSettings(keep=("year",)))
    index.make_graph(threads=1)
    save_word_means(index)
    assert len(index.segments) == 2
    return folder


def use(folder: Path) -> None:
    """Everything that an index can be asked."""
    index = Index.open(folder)
    rows = range(len(index))
    for row in rows:
        index.occurrence(row, 1.0)
        index.sentence_of(row)
    index.search(index.vectors(rows), k=3, exact=True)
    index.search(index.vectors(rows), k=3)
    for word in index.words:
        index.rows_of(word)
    load_word_means(index)
    index.verify()


def damaged(content: bytes, draw: Any) -> bytes:
    """Flipped, cut, overwritten, repeated or replaced bytes, most often near the front, where headers are."""
    kind = draw(st.sampled_from(["flip", "cut", "write", "insert", "digit", "replace"]))
    if kind == "replace":
        return bytes(draw(st.binary(max_size=200)))
    at = draw(st.integers(0, min(len(content), 2000) - 1) | st.integers(0, len(content) - 1))
    match kind:
        case "flip":
            return content[:at] + bytes([content[at] ^ 1 << draw(st.integers(0, 7))]) + content[at + 1 :]
        case "cut":
            return content[:at]
        case "write":
            new = draw(st.binary(min_size=1, max_size=20))
            return content[:at] + new + content[at + len(new) :]
        case "insert":
            return content[:at] + draw(st.binary(min_size=1, max_size=20)) + content[at:]
    digits = [k for k, byte in enumerate(content[:3000]) if chr(byte).isdigit()]
    at = draw(st.sampled_from(digits)) if digits else 0
    return (
        content[:at]
        + draw(st.sampled_from([b"-", b"9", b"99999999999", b"0", b"null", b"1e400", b"[", b'"']))
        + content[at + 1 :]
    )


@settings(max_examples=250)
@given(data=st.data())
def test_damage_to_any_file(data: st.DataObject, whole: Path) -> None:
    folder = whole.with_name("damaged")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole, folder)
    path = data.draw(st.sampled_from(sorted(p for p in folder.iterdir() if p.name != "lock")))
    content = path.read_bytes()
    path.write_bytes(changed := damaged(content, data.draw))
    with contextlib.suppress(ElmokitError):
        use(folder)
        assert changed == content or not path.name.startswith(("segment", "graph-")), "accepted"


def test_every_byte_of_a_segment_counts(whole: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "index"))
    path = folder / "segment-000001.safetensors"
    content = path.read_bytes()
    for at in range(0, len(content), 7):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :])
        with pytest.raises(FormatError, match=r"segment-000001\.safetensors"):
            Index.open(folder).verify()
    path.write_bytes(content)
    assert Index.open(folder).verify()


def rewrite(path: Path, *, checksums: bool = False, **arrays: Any) -> None:
    """The file with other arrays; without checksums, as 0.1.0 wrote it, unless they are made to fit."""
    file = open_tensors(path)
    kept = {name: file.read(name) for name in file.places} | arrays
    progress = json.loads(file.metadata["progress"])
    fitting = progress.pop("checksums") | {name: Stored.of(array).checksum(name) for name, array in kept.items()}
    progress |= {"checksums": fitting} if checksums else {}
    write_tensors(path, kept, metadata={"progress": json.dumps(progress)})


@pytest.mark.parametrize("checksums", [False, True])
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("words", 10**6, "word 1000000 of a vocabulary"),
        ("sentences", 10**6, "sentence 1000000 of"),
        ("vocabulary_ends", 10**9, "not cut into pieces"),
        ("text_ends", 0, "not cut into pieces"),
        ("vocabulary", 255, "is not UTF-8"),
        ("vocabulary", ord("a"), "in its vocabulary twice"),
        ("text", 255, "is not UTF-8"),
    ],
)
def test_numbers_that_do_not_fit_each_other(
    whole: Path, tmp_path: Path, name: str, value: int, said: str, checksums: bool
) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "index"))
    path = folder / "segment-000000.safetensors"
    array = open_tensors(path).read(name)
    if value == ord("a"):  # two words that are the same
        ends = open_tensors(path).read("vocabulary_ends")
        ends[:2] = 1, 2
        array[:2] = value
        rewrite(path, checksums=checksums, vocabulary=array, vocabulary_ends=ends)
    else:
        array[-1 if name != "vocabulary" else 0] = value
        rewrite(path, checksums=checksums, **{name: array})
    with pytest.raises(FormatError, match=said):
        use(folder)


@pytest.mark.parametrize(
    ("name", "shape"), [("scales", (3,)), ("total", (5,)), ("spans", (4, 2)), ("spans", (38, 3)), ("positions", (0,))]
)
def test_shapes_that_do_not_fit_each_other(whole: Path, tmp_path: Path, name: str, shape: tuple[int, ...]) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "index"))
    path = folder / "segment-000000.safetensors"
    rewrite(path, **{name: np.zeros(shape, dtype=open_tensors(path).read(name).dtype)})
    with pytest.raises(FormatError, match=rf"{name!r} has shape .* to fit the codes"):
        Index.open(folder)


@pytest.mark.parametrize("progress", ["", "{}", "[]", '{"run": -1}', '{"run": 0, "sentences": 1e300}', '{"run": "x"}'])
def test_progress_that_is_none(whole: Path, tmp_path: Path, progress: str) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "index"))
    path = folder / "segment-000000.safetensors"
    file = open_tensors(path)
    write_tensors(path, {name: file.read(name) for name in file.places}, metadata={"progress": progress})
    with pytest.raises(FormatError, match="progress"):
        Index.open(folder)


def test_means_of_words_that_are_damaged_are_made_again(whole: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "index"))
    (path,) = folder.glob("types-*")
    index = Index.open(folder)
    want = load_word_means(index)
    assert want is not None
    path.write_bytes(path.read_bytes()[:-5])
    found = load_word_means(index)
    assert found is not None
    np.testing.assert_array_equal(found.vectors, want.vectors)


def test_means_of_words_are_read_if_they_are_as_wide_as_the_index(whole: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "index"))
    (path,) = folder.glob("types-*")
    index = Index.open(folder)
    made = load_word_means(index)
    assert made is not None
    WordTable(made.words, made.vectors + 1).save(path)  # so that it shows where they come from
    read = load_word_means(index)
    assert read is not None
    np.testing.assert_array_equal(read.vectors, made.vectors + 1)
    WordTable(made.words, made.vectors[:, 1:]).save(path)
    again = load_word_means(index)
    assert again is not None
    np.testing.assert_array_equal(again.vectors, made.vectors)
