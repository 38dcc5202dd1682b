"""Damaged files of every kind: a short form of benchmarks/fuzz.py, and the cases in which it once found something."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARK = Path(__file__).resolve().parents[1] / "benchmarks" / "fuzz.py"
ONCE_FOUND = [
    "task/ner:1:0",  # bytes that are not UTF-8, in a list of words
    "task/roles:1:0",  # JSON that cannot be parsed
    "task/taglm:1:1",  # a field left out of training.json
    "run/index:1:1",  # a segment's header without a field
    "run/finetuning:1:1",  # a log that is not UTF-8
    "run/training:1:1",  # the header of a layer table
    "index/new:1:3",  # index.json that is not UTF-8
]


@pytest.fixture(scope="module")
def fuzz() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fuzz", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fuzz"] = module  # where the worker's process looks for it
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def worker(fuzz: ModuleType, monkeypatch_module: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch_module.syspath_prepend(str(BENCHMARK.parent))
    made = fuzz.Worker()
    yield made
    made.close()


@pytest.fixture(scope="module")
def monkeypatch_module() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


def test_every_kind_of_file_damaged_once(fuzz: ModuleType, worker: Any) -> None:
    cases = [fuzz.Case(target, 100, 0) for target in fuzz.TARGETS]
    outcomes = {case.name: worker.run(case) for case in cases}
    assert {name: found for name, found in outcomes.items() if found not in ("read", "refused")} == {}
    assert sum(found == "refused" for found in outcomes.values()) > len(cases) // 3  # the damage is real


@pytest.mark.parametrize("name", ONCE_FOUND)
def test_what_was_found_once(name: str, fuzz: ModuleType, worker: Any) -> None:
    assert worker.run(fuzz.Case.of(name)) in ("read", "refused")
