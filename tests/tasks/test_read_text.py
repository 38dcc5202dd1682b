"""What `apply` reads: a file means what it means to `embed`."""

from pathlib import Path

import pytest

from elmokit.errors import ElmokitError, InputError
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


@pytest.mark.parametrize("end", ["jsonl", "parquet", "txt"])
def test_a_paragraph_is_cut_into_sentences_in_any_format(end: str, tmp_path: Path) -> None:
    text, path = "It rained. Ann left Rome.", tmp_path / f"text.{end}"
    if end == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pyarrow.table({"text": [text]}), path)
    else:
        path.write_text(f'{{"text": "{text}"}}\n' if end == "jsonl" else f"{text}\n", encoding="utf-8")
    task = load_task("ner")
    found = [one.sentences[0] for one in task.read_text(path, task.settings, ENGLISH)]
    assert [(len(sentence), sentence.start) for sentence in found] == [(3, 0), (4, 11)]
    assert [text[a:b] for sentence in found for a, b in sentence.places] == [t for s in found for t in s.tokens]


def test_each_text_of_a_parquet_file_is_a_document(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    texts = ["Ann, my sister, saw her dog.", "Bob lost his cat. It ran."]
    parquet.write_table(pyarrow.table({"text": texts}), tmp_path / "text.parquet")
    task = load_task("coref")
    found = list(task.read_text(tmp_path / "text.parquet", task.settings, ENGLISH))
    assert [len(document.sentences) for document in found] == [1, 2]
    for text, document in zip(texts, found, strict=True):
        assert all(text[a:b] == w for s in document.sentences for (a, b), w in zip(s.places, s.tokens, strict=True))


@pytest.mark.parametrize("name", ["ner", "coref", "roles"])
@pytest.mark.parametrize("end", ["csv", "tsv.gz", "json"])
def test_tables_are_no_running_text(name: str, end: str, tmp_path: Path) -> None:
    task = load_task(name)
    (tmp_path / f"text.{end}").write_text("id,text\n1,Ann left.\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"is named as a table or a JSON file, which this task does not read"):
        list(task.read_text(tmp_path / f"text.{end}", task.settings, ENGLISH))


@pytest.mark.parametrize("name", ["ner", "coref", "roles", "sentiment"])
@pytest.mark.parametrize("end", ["jsonl", "parquet"])
def test_another_field_holds_the_text(name: str, end: str, tmp_path: Path) -> None:
    path, text = tmp_path / f"text.{end}", "Ann *left* Rome."
    if end == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pyarrow.table({"id": ["1"], "body": [text]}), path)
    else:
        path.write_text(f'{{"id": "1", "body": "{text}"}}\n', encoding="utf-8")
    task = load_task(name)
    (found,) = task.read_text(path, task.settings, ENGLISH, field="body")
    assert found.sentences[0].tokens[-2:] == ("Rome", ".")
    if name != "roles":
        with pytest.raises(ElmokitError, match="'body'"):  # what there is is told
            list(task.read_text(path, task.settings, ENGLISH))


@pytest.mark.parametrize("name", ["entail", "qa"])
def test_two_texts_are_not_in_one_field(name: str, tmp_path: Path) -> None:
    task, path = load_task(name), tmp_path / "text.jsonl"
    path.write_text('{"sentence1": "a", "sentence2": "b", "passage": "a", "question": "b"}\n', encoding="utf-8")
    assert len(list(task.read_text(path, task.settings, ENGLISH))) == 1
    with pytest.raises(InputError, match="leave it out"):
        list(task.read_text(path, task.settings, ENGLISH, field="sentence1"))
