"""A task model at work on text of any size: part by part, into a file that a killed run goes on with.

The file appears when it is complete. Until then what was found lies in a log in `<path>.partial/`.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elmokit.errors import InputError
from elmokit.formats.atomic import atomic_write
from elmokit.formats.resumable import disk_errors, follow, open_log
from elmokit.tasks.saved import TaskModel
from elmokit.tasks.task import Example, Task
from elmokit.weights.storage import digest_tensors

SUFFIXES = (".jsonl", ".conll")
PART_TOKENS = 1 << 14  # positions of a part: what a kill can cost


@dataclass(slots=True)
class ApplyReport:
    """What was met on the way."""

    sentences: int = 0  # or whatever the task's examples are
    resumed_at: int = 0


def write_predictions(
    model: TaskModel[Any, Any],
    examples: Iterable[Any],
    path: str | Path,
    *,
    restart: bool = False,
    told: Callable[[ApplyReport], None] = lambda report: None,
) -> ApplyReport:
    """What the model finds in the examples, into a .jsonl or .conll file; the same call after a kill resumes.

    `restart` throws away what an unfinished run has left. `told` is called when the work begins and after each part.
    """
    target, task = Path(path), model.task
    check_target(target, task)
    run = {"task": task.name, "model": _fingerprint(model), "format": target.suffix, "device": str(model.device)}
    if model.encoder is not None:
        run["arithmetic"] = model.encoder.arithmetic
    folder = target.with_name(target.name + ".partial")
    with open_log(folder, run=run, restart=restart) as log:
        report = ApplyReport(resumed_at=log.done.sentences)
        told(report)
        what, unit = f"{folder} holds an unfinished run over other input", task.unit
        for part in follow(cut_examples(examples), _tell, done=log.done, what=what, unit=unit):
            if not part.done:
                pairs = zip(part.sentences, model.predict_examples(part.sentences), strict=True)
                if target.suffix == ".conll":
                    lines = (task.conll(example, prediction) for example, prediction in pairs)
                else:
                    lines = (json.dumps(task.record(e, p), ensure_ascii=False) + "\n" for e, p in pairs)
                log.append_several(len(part.sentences), "".join(lines).encode())
                log.commit(part.end)
            report.sentences += len(part.sentences)
            told(report)
        if report.sentences or not target.exists():  # an empty input replaces nothing
            with disk_errors(target), atomic_write(target) as file:
                for payload in log.payloads():
                    file.write(payload)
        log.discard()
    return report


def check_target(target: Path, task: Task[Any, Any] | None = None) -> None:
    """Whether a file of that name can be written (by that task), before any work is done."""
    if target.suffix not in SUFFIXES:
        raise InputError(f"{target}: expected a name that ends in {' or '.join(SUFFIXES)}")
    if target.is_dir():
        raise InputError(f"{target}: is a folder, expected the name of a file to write")
    if task is not None and target.suffix == ".conll":
        check_columns(task)


def check_columns(task: Task[Any, Any]) -> None:
    """Whether the task has columns for CoNLL files."""
    if type(task).conll is Task.conll:
        raise InputError(f"task {task.name!r} writes no CoNLL columns; choose JSON lines")


def cut_examples(examples: Iterable[Any], *, first: int | None = None) -> Iterator[list[Any]]:
    """Stretches of a stream, in order: each ends once it has `PART_TOKENS` positions, boundaries included.

    With `first`, the first ends after so many, and each may have twice as many as the one before.
    """
    part: list[Any] = []
    held, most = 0, first or PART_TOKENS
    for example in examples:
        part.append(example)
        held += sum(len(sentence) + 2 for sentence in example.sentences)
        if held >= most:
            yield part
            part, held, most = [], 0, min(2 * most, PART_TOKENS)
    if part:
        yield part


def _tell(examples: Sequence[Example], update: Callable[[bytes], object]) -> None:
    for example in examples:
        update(repr(example).encode())


def _fingerprint(model: TaskModel[Any, Any]) -> str:
    """Equal for models that find the same."""
    described = model.task.name, model.network.config, "" if model.encoder is None else model.encoder.fingerprint
    digest = hashlib.blake2b(repr(described).encode(), digest_size=16)
    digest.update("\n".join(model.reader.vocabulary.words).encode("utf-8", "surrogatepass"))
    digest_tensors(digest, {name: values.cpu() for name, values in model.network.state_dict().items()})
    return digest.hexdigest()
