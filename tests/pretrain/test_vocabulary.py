import gzip
from pathlib import Path

import pytest

from elmokit.errors import FormatError
from elmokit.pretrain.corpus.lexicon import SPECIALS, Vocabulary


def test_round_trip(tmp_path: Path) -> None:
    vocabulary = Vocabulary([*SPECIALS, "the", "a\u2028b", "日本"])
    vocabulary.save(tmp_path / "vocab.txt")
    (tmp_path / "vocab.txt.gz").write_bytes(gzip.compress((tmp_path / "vocab.txt").read_bytes()))
    for name in ("vocab.txt", "vocab.txt.gz"):
        assert Vocabulary.from_file(tmp_path / name).words == vocabulary.words
    assert vocabulary.ids(["日本", "nowhere", "the", "<S>"]).tolist() == [5, 2, 3, 0]
    assert ("the" in vocabulary, "nowhere" in vocabulary, len(vocabulary)) == (True, False, 6)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\nb\nc\n", r"vocab\.txt: begins with \('a', 'b', 'c'\), expected \('<S>', '</S>', '<UNK>'\)"),
        ("", "begins with"),
        ("<S>\n</S>\n<UNK>\na\nb\na\nb\n", r"vocab\.txt, line 6: 'a' stands there again"),
        ("<S>\n</S>\n<UNK>\n\na\n", "holds an empty word"),
    ],
)
def test_unusable_files(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "vocab.txt").write_text(content)
    with pytest.raises(FormatError, match=message):
        Vocabulary.from_file(tmp_path / "vocab.txt")


def test_other_encodings(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_bytes("<S>\n</S>\n<UNK>\né\n".encode("latin-1"))
    with pytest.raises(FormatError, match="1 bytes are not UTF-8"):
        Vocabulary.from_file(tmp_path / "vocab.txt")
