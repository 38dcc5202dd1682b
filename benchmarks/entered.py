"""Which tests enter which functions: benchmarks/mutants.py asks this before it breaks something.

The tests run once under a trace function that notes each function's first call in a test. Processes that a test starts
are not traced. What was noted is kept in a file; only test files that have changed run again. Tests that
are skipped or fail as it is are left out.
"""

import contextlib
import hashlib
import json
import os
import sys
import threading
from collections import defaultdict
from pathlib import Path
from types import FrameType
from typing import Any


def begin(notes: Path, folder: str) -> None:
    """Notes every function below the folder when it is first called by a test; a test's set-up counts for its file."""
    out = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    seen: set[tuple[str, str, int]] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if not code.co_filename.startswith(folder):
            return
        test, _, phase = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")
        where = test.partition("::")[0] if phase == "(setup)" else test
        key = (where, code.co_filename[len(folder) + 1 :], code.co_firstlineno)
        if where and key not in seen:
            seen.add(key)
            os.write(out, (json.dumps(key) + "\n").encode())

    threading.settrace(note)  # type: ignore[arg-type]
    sys.settrace(note)  # type: ignore[arg-type]


class Notes:
    """A pytest plugin: which functions tests enter, from the moment that all are collected, and how long they take."""

    def __init__(self, notes: Path, folder: str) -> None:
        self.notes, self.folder = notes, folder
        self.seconds: dict[str, float] = defaultdict(float)
        self.useless: set[str] = set()  # skipped, or failed before anything was broken

    def pytest_collection_finish(self) -> None:
        begin(self.notes, self.folder)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] += report.duration
        if report.outcome != "passed":
            self.useless.add(report.nodeid)


def run_files(tree: Path, names: list[str], out: Path) -> None:
    """Runs test files of the tree in this process and writes which functions their tests entered."""
    import pytest

    plugin = Notes(out.with_suffix(".notes"), str(tree / "src" / "elmokit"))
    quiet = ("-W", "ignore::pytest.PytestAssertRewriteWarning")
    pytest.main(["-q", "-p", "no:cacheprovider", *quiet, *names], plugins=[plugin])
    sys.settrace(None)
    found: dict[str, dict[str, Any]] = {name: {"seconds": {}, "functions": defaultdict(list)} for name in names}
    for test, took in plugin.seconds.items():
        if test in plugin.useless:
            continue
        found[test.partition("::")[0]]["seconds"][test] = round(took, 3)
    for line in plugin.notes.read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(ValueError, KeyError):
            where, path, first = json.loads(line)
            found[where.partition("::")[0]]["functions"][f"{path}:{first}"].append(where)
    out.write_text(json.dumps(found), encoding="utf-8")


class Entered:
    """The notes of all test files so far."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def stale(self, tree: Path, names: list[str]) -> list[str]:
        return [name for name in names if self.files.get(name, {}).get("digest") != _digest(tree / name)]

    def keep(self, tree: Path, found: Path) -> None:
        for name, noted in json.loads(found.read_text(encoding="utf-8")).items():
            self.files[name] = {"digest": _digest(tree / name), **noted}
        self.path.write_text(json.dumps(self.files), encoding="utf-8")

    def tests(self, function: str | None, names: list[str]) -> tuple[list[str], list[str]]:
        """The tests of these files that enter a function (FILE:LINE), and all others; the quickest first."""
        enter, others = [], []
        for name in names:
            noted = self.files.get(name, {"seconds": {}, "functions": {}})
            found = set(noted["functions"].get(function, ()))
            for test, took in noted["seconds"].items():
                (enter if test in found or name in found else others).append((took, test))
        return [test for _, test in sorted(enter)], [test for _, test in sorted(others)]

    def seconds(self, tests: list[str]) -> float:
        return float(sum(self.files.get(t.partition("::")[0], {"seconds": {}})["seconds"].get(t, 60.0) for t in tests))


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
