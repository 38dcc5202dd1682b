from pathlib import Path

import pytest

from elmokit.errors import InputError
from elmokit.formats import expand_inputs, format_of


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.txt", "text"),
        ("a", "text"),
        ("-", "text"),
        ("a.gz", "text"),
        ("a.JSONL.gz", "jsonl"),
        ("dir.v1/a.conllu.xz", "conllu"),
        ("a.conll.zst", "columns"),
        ("a.parquet", "parquet"),
    ],
)
def test_format_of(name: str, expected: str) -> None:
    assert format_of(name) == expected


def test_expand(tmp_path: Path) -> None:
    names = ["b.txt", "a.txt.gz", "deep/er/c.jsonl", "skip.bin", ".hidden.txt", ".git/x.txt", "[odd].txt", "bare"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    def relative(*inputs: str | Path) -> list[str]:
        return [str(Path(f).relative_to(tmp_path)) for f in expand_inputs(inputs)]

    assert relative(tmp_path) == ["[odd].txt", "a.txt.gz", "b.txt", "deep/er/c.jsonl"]
    assert relative(tmp_path / "bare", tmp_path / "b.txt") == ["bare", "b.txt"]
    assert relative(str(tmp_path / "[odd].txt")) == ["[odd].txt"]
    assert relative(str(tmp_path / "[ab]*.*")) == ["a.txt.gz", "b.txt"]
    assert relative(str(tmp_path / "**" / "*.jsonl")) == ["deep/er/c.jsonl"]
    assert expand_inputs(["-"]) == ["-"]


def test_nothing_found(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file or folder"):
        expand_inputs([tmp_path / "nowhere.txt"])
    with pytest.raises(InputError, match="no file matches"):
        expand_inputs([str(tmp_path / "*.txt")])
    with pytest.raises(InputError, match=r"holds no text files; looked for .*\.jsonl"):
        expand_inputs([tmp_path])
