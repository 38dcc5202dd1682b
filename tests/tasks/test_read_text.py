"""What `apply` reads: a file means what it means to `embed`."""

from pathlib import Path

import pytest

from elmokit.tasks.catalogue import load_task
from elmokit.text import load_tokenizer

ENGLISH = load_tokenizer("english")
CONLLU = "# text = Ann left .\n1\tAnn\t_\tX\t_\t_\t0\t_\t_\t_\n2\tleft\t_\tX\t_\t_\t0\t_\t_\t_\n\n"


@pytest.mark.parametrize("name", ["classify", "ner", "coref"])
def test_tokens_of_conllu(name: str, tmp_path: Path) -> None:
    task, path = load_task(name), tmp_path / "text.conllu"
    path.write_text(2 * CONLLU, encoding="utf-8")
    found = [sentence for one in task.read_text(path, task.settings, ENGLISH) for sentence in one.sentences]
    assert [sentence.tokens for sentence in found] == [("Ann", "left")] * 2


@pytest.mark.parametrize(
    ("name", "text"), [("classify", "Ann left."), ("entail", "Ann left. ||| Bob."), ("roles", "Ann *left*.")]
)
def test_texts_of_parquet(name: str, text: str, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"text": [text, text]}), tmp_path / "text.parquet")
    (tmp_path / "text.txt").write_text(f"{text}\n" * 2, encoding="utf-8")
    task = load_task(name)
    files = (tmp_path / f"text.{end}" for end in ("parquet", "txt"))
    found, expected = (list(task.read_text(path, task.settings, ENGLISH)) for path in files)
    assert [one.sentences[0].tokens for one in found] == [one.sentences[0].tokens for one in expected]
    assert len(found) == 2
