"""A model at work on text of any size: parts, kills, other input, memory."""

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from small_tasks import small_data, small_setup, tiny_elmo

from elmokit.errors import InputError
from elmokit.tasks import apply
from elmokit.tasks.apply import ApplyReport, write_predictions
from elmokit.tasks.catalogue import load_task
from elmokit.tasks.run import train_task
from elmokit.tasks.saved import TaskModel
from elmokit.tasks.tagging.task import NER, TaggedExample
from elmokit.text import Sentence

Model = TaskModel[object, object]


class StopError(Exception):
    """As a kill would, it ends a run between two parts."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    train, dev = small_data(tmp_path_factory.mktemp("data"))
    return train_task(NER, small_setup(epochs=2), train, dev, encoder=tiny_elmo(), device="cpu")


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hundred lines, and parts of at most a few of them."""
    monkeypatch.setattr(apply, "PART_TOKENS", 60)
    rng = np.random.default_rng(3)
    words = ("Ann", "Bob", "New", "York", "sees", "the", "cat", "and")
    lines = [" ".join(rng.choice(words, size=rng.integers(0, 9))) for _ in range(100)]
    (tmp_path / "text.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path / "text.txt"


def examples(model: Model, text: Path) -> Iterator[TaggedExample]:
    return NER.read_text(text, NER.settings, model.tokenizer)


def stop_after(parts: int, model: Model, text: Path, output: Path) -> None:
    heard: list[int] = []

    def told(report: ApplyReport) -> None:
        heard.append(report.sentences)
        if len(heard) > parts:
            raise StopError

    with pytest.raises(StopError):
        write_predictions(model, examples(model, text), output, told=told)


@pytest.mark.parametrize("suffix", [".jsonl", ".conll"])
def test_the_file_of_a_run_that_was_killed(
    model: Model, text: Path, tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, killed = (tmp_path / f"{name}{suffix}" for name in ("whole", "killed"))
    report = write_predictions(model, examples(model, text), whole)
    predicted = model.predict_examples(list(examples(model, text)))
    pairs = list(zip(examples(model, text), predicted, strict=True))
    assert report == ApplyReport(len(pairs), 0)
    if suffix == ".jsonl":
        found = [json.loads(line) for line in whole.read_text(encoding="utf-8").splitlines()]
        assert found == [json.loads(json.dumps(NER.record(*pair))) for pair in pairs]
    else:
        assert whole.read_text(encoding="utf-8") == "".join(NER.conll(*pair) for pair in pairs)
    stop_after(3, model, text, killed)
    stop_after(2, model, text, killed)
    assert not killed.exists()
    ran: list[int] = []
    predict = TaskModel.predict_examples

    def counted(self: Model, given: list[TaggedExample]) -> list[object]:
        ran.append(len(given))
        return predict(self, given)

    monkeypatch.setattr(TaskModel, "predict_examples", counted)
    report = write_predictions(model, examples(model, text), killed)
    assert killed.read_bytes() == whole.read_bytes()
    assert report.resumed_at > 0
    assert sum(ran) == report.sentences - report.resumed_at  # what was found before is not looked for again
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("killed")] == [killed.name]


def test_another_run_is_not_continued(model: Model, text: Path, tmp_path: Path) -> None:
    output = tmp_path / "found.jsonl"
    stop_after(3, model, text, output)
    lines = text.read_text(encoding="utf-8").splitlines()
    text.write_text("\n".join(["Ann left .", *lines]) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"found\.jsonl\.partial holds an unfinished run over other input: the "):
        write_predictions(model, examples(model, text), output)
    other = train_task(NER, small_setup(epochs=1, seed=5), *small_data(tmp_path), encoder=tiny_elmo(), device="cpu")
    with pytest.raises(InputError, match="holds an unfinished run with other settings"):
        write_predictions(other, examples(other, text), output)
    report = write_predictions(model, examples(model, text), output, restart=True)
    assert (report.resumed_at, len(output.read_bytes().splitlines())) == (0, report.sentences)


def test_the_first_parts_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply, "PART_TOKENS", 20)
    words = [TaggedExample(Sentence.of(["a"])) for _ in range(40)]  # three positions each, with the boundaries
    assert [len(part) for part in apply.cut_examples(words, first=3)] == [1, 2, 4, 7, 7, 7, 7, 5]
    assert [len(part) for part in apply.cut_examples(words)] == [7, 7, 7, 7, 7, 5]


def test_names_that_cannot_be_written(model: Model, tmp_path: Path) -> None:
    (tmp_path / "folder.jsonl").mkdir()
    for name, why in (("found.txt", r"ends in \.jsonl or \.conll"), ("folder.jsonl", "is a folder")):
        with pytest.raises(InputError, match=why):
            write_predictions(model, [], tmp_path / name)
    with pytest.raises(InputError, match=r"the folder .* does not exist"):
        write_predictions(model, [], tmp_path / "none" / "found.jsonl")
    with pytest.raises(InputError, match="task 'sentiment' writes no CoNLL columns"):
        apply.check_target(tmp_path / "found.conll", load_task("sentiment"))
    write_predictions(model, [], tmp_path / "nothing.jsonl")
    assert (tmp_path / "nothing.jsonl").read_bytes() == b""


def test_memory_does_not_grow_with_the_text(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply, "PART_TOKENS", 600)

    def most(lines: int) -> int:
        text = tmp_path / "text.txt"
        text.write_text("Ann sees the cat and Bob\n" * lines, encoding="utf-8")
        tracemalloc.start()
        write_predictions(model, examples(model, text), tmp_path / "found.jsonl")
        held = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return held

    most(100)  # what is held for good
    assert most(4000) < 3 * most(200)


@pytest.mark.parametrize("task", ["ner", "sentiment", "entail", "roles", "coref"])
def test_files_are_read_as_they_are_needed(task: str, tmp_path: Path) -> None:
    """What comes later in a file, here no JSON, is not seen before the examples ahead of it are taken."""
    first = {
        "entail": {"sentence1": "Ann left.", "sentence2": "She went."},
        "roles": {"words": ["Ann", "left"], "frames": [{"verb": 1}]},
    }.get(task, {"text": "Ann left."})
    path, loaded = tmp_path / "text.jsonl", load_task(task)
    path.write_text(json.dumps(first) + "\nnot JSON\n", encoding="utf-8")
    found = iter(loaded.read_text(path, loaded.settings, tiny_elmo().tokenizer))
    assert next(found).sentences[0].tokens[0] == "Ann"
    with pytest.raises(Exception, match=r"text\.jsonl, line 2"):
        next(found)
