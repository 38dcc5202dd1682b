"""Do the tests notice? Breaks the source in one small place at a time and runs the tests that go there.

    python benchmarks/mutants.py --sample 200 --results runs/mutants.jsonl
    python benchmarks/mutants.py --package store --package index --sample 60 --seed 3
    python benchmarks/mutants.py --only 'store/spool.py:88'   # one place, to see what survives there
    python benchmarks/mutants.py --results runs/mutants.jsonl --again   # the survivors, with all tests

The first run notes which of a package's tests enter which functions (entered.py). A mutant then runs the tests that
enter its function, the quickest first, up to the first failure. `--again` takes those that survived and runs all tests
of the package and of its commands. Tests run in a fork of a process that has torch loaded and in a copy of the tree, so
the working tree stays as it is. Outcomes are appended to the results; a run that was stopped goes on. A mutant that no
test notices is printed with its line.
Changes that cannot matter (the wording of messages, `strict` of zip and the like) are not made.
"""

import argparse
import ast
import contextlib
import copy
import hashlib
import importlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from entered import Entered, run_files

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("store", "weights", "index", "tasks", "pretrain")
COMMANDS = {
    "store": ("cli/test_embed.py", "cli/test_verify.py", "cli/test_full_disks.py"),
    "index": ("cli/test_index_command.py",),
    "tasks": ("cli/test_task_commands.py", "cli/test_ablate_command.py"),
    "weights": ("cli/test_convert_info.py",),
}
QUIET = ("-W", "ignore::pytest.PytestAssertRewriteWarning")  # hypothesis is loaded before pytest begins
LOADED = ("torch", "h5py", "pytest", "hypothesis", "pyarrow.parquet", "safetensors.torch", "usearch.index", "typer")
OWN = {"store": ("test_parts.py",)}  # tests of a package that are named otherwise
LONG = ("test_interruptions.py", "test_distributed.py", "test_kills.py", "test_save_faults.py")  # start many processes
COMPARE = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
           ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In}  # fmt: skip
IDLE = {"strict", "flush", "stacklevel", "usedforsecurity", "indent", "non_blocking", "daemon"}  # options of no effect
ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}


@dataclass(frozen=True)
class Mutant:
    """One change: where it is and what it does."""

    folder: Path
    path: str  # below the folder
    line: int
    change: str
    function: str | None  # FILE:LINE of the function around it, None where importing the module runs it
    place: int  # its number among the places of the file, and among the changes of that place
    kind: int

    @property
    def name(self) -> str:
        return f"{self.path}:{self.line}: {self.change}"

    @cached_property
    def source(self) -> str:
        """The whole file with the change."""
        tree = ast.parse((self.folder / self.path).read_text(encoding="utf-8"))
        places = Places()
        places.visit(tree)
        old = places.found[self.place]
        new = list(changes(old))[self.kind][1]
        return ast.unparse(ast.fix_missing_locations(Swap(old, new).visit(tree)))

    @cached_property
    def key(self) -> str:
        return f"{self.path} {hashlib.sha256(self.source.encode()).hexdigest()[:16]}"


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What one place can become."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARE:
        new = copy.deepcopy(node)
        new.ops[0] = COMPARE[type(node.ops[0])]()
        yield "compares otherwise", new
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        yield "calculates otherwise", ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right)
    elif isinstance(node, ast.BoolOp):
        yield "and for or", ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "not left out", node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield f"{node.value} turned round", ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield f"{node.value} is {node.value + 1}", ast.Constant(node.value + 1)
    elif isinstance(node, ast.If | ast.While | ast.IfExp):
        new = copy.deepcopy(node)
        new.test = ast.UnaryOp(ast.Not(), node.test)
        yield "condition turned round", new
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield f"no {ast.unparse(node.value.func)}()", ast.Pass()
    elif isinstance(node, ast.Raise):
        yield "no error", ast.Pass()
    elif isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
        yield "returns None", ast.Return(ast.Constant(None))


class Places(ast.NodeVisitor):
    """All places of a module that may change; annotations, names of modules and help texts are left alone."""

    def __init__(self) -> None:
        self.found: list[ast.AST] = []
        self.functions: list[int | None] = []  # the first line of the function around each place
        self.around: list[int | None] = [None]

    def generic_visit(self, node: ast.AST) -> None:
        if hasattr(node, "lineno"):
            self.found.append(node)
            self.functions.append(self.around[-1])
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_params"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    self.visit(child)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.around.append(min([node.lineno, *(d.lineno for d in node.decorator_list)]))
        for statement in node.body:
            self.visit(statement)
        self.around.pop()
        self.visit(node.args)

    def visit_Call(self, node: ast.Call) -> None:
        kept = [k for k in node.keywords if k.arg not in IDLE]
        for child in (node.func, *node.args, *kept):
            self.visit(child)
        self.found.append(node)
        self.functions.append(self.around[-1])

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" not in ast.unparse(node.test):
            self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Messages: their wording is no behaviour."""


class Swap(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        if node is self.old:
            return ast.copy_location(self.new, node)
        return self.generic_visit(node)


def mutants_of(path: Path, folder: Path) -> Iterator[Mutant]:
    places = Places()
    places.visit(ast.parse(path.read_text(encoding="utf-8")))
    name = str(path.relative_to(folder))
    for k, (node, first) in enumerate(zip(places.found, places.functions, strict=True)):
        around = None if first is None else f"{name}:{first}"
        for n, (change, _) in enumerate(changes(node)):
            yield Mutant(folder, name, node.lineno, change, around, k, n)  # type: ignore[attr-defined]


def test_files(package: str, tree: Path) -> list[str]:
    """A package's own tests, without those that start many processes."""
    names = [
        p for name in (package, f"test_{package}.py", *OWN.get(package, ())) for p in ((tree / "tests").glob(name))
    ]
    found = sorted(p for top in names for p in ([top] if top.is_file() else top.rglob("test_*.py")))
    return [str(p.relative_to(tree)) for p in found if p.name not in LONG]


def forked(work: Callable[[], int], tree: Path, *, timeout: float) -> int | None:
    """The exit status of work in a process of its own, in the tree; None where it does not end in time."""
    child = os.fork()
    if child == 0:
        status = 70
        try:
            os.setsid()
            os.chdir(tree)
            os.environ.update(
                PYTHONPATH=str(tree / "src"), PYTHONDONTWRITEBYTECODE="1", TMPDIR=str(tree.parent / "tmp")
            )
            sys.dont_write_bytecode = True
            sys.path[:0] = [str(tree / "src"), str(tree)]
            out = os.open(tree.parent / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(out, 1)
            os.dup2(out, 2)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            status = int(work())
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(status)
    ends = time.monotonic() + timeout
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < ends:
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if ended == (0, 0):
        os.waitpid(child, 0)
        return None
    return os.waitstatus_to_exitcode(ended[1])


def run_tests(tests: list[str], tree: Path, *, timeout: float) -> str:
    def work() -> int:
        import pytest

        return int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *QUIET, *tests]))

    if not tests:
        return "survived"
    shutil.rmtree(tree.parent / "tmp", ignore_errors=True)
    (tree.parent / "tmp").mkdir()
    status = forked(work, tree, timeout=timeout)
    if status is not None and status > 2:  # neither passed, failed nor not collected
        said = (tree.parent / "output").read_text(encoding="utf-8", errors="replace")
        if "\nERROR tests/" not in said:  # else a module of tests could not be imported, and its tests not found
            raise SystemExit(f"pytest did not run: {said[-2000:]}")
    return "timed out" if status is None else "survived" if status == 0 else "noticed"


def trial(mutant: Mutant, tree: Path, entered: Entered, *, everything: bool) -> tuple[str, float]:
    """What became of it: noticed, survived, or timed out (which is noticed, too); and seconds."""
    target = tree / "src" / "elmokit" / mutant.path
    before = target.read_text(encoding="utf-8")
    package = Path(mutant.path).parts[0]
    enter, others = entered.tests(mutant.function, test_files(package, tree))
    batches = [enter if mutant.function else others]
    if everything:
        commands = [f"tests/{name}" for name in (*COMMANDS.get(package, ()), "test_version_0_1_0.py")]
        own = sorted((tree / "tests" / package).glob("*.py"))
        commands += [str(p.relative_to(tree)) for p in own if p.name in LONG]
        batches = [enter, others, commands]
    _put(target, mutant.source)
    began, outcome = time.monotonic(), "survived"
    try:
        for tests in batches:
            outcome = run_tests(tests, tree, timeout=300 + 10 * entered.seconds(tests))
            if outcome != "survived":
                break
    finally:
        _put(target, before)
    return outcome, time.monotonic() - began


def _put(target: Path, source: str) -> None:
    """Writes a module and forgets what was compiled from the one before, which may be as old and as long."""
    target.write_text(source, encoding="utf-8")
    for compiled in (target.parent / "__pycache__").glob(f"{target.stem}.*"):
        compiled.unlink()


def copied_tree(scratch: Path) -> Path:
    tree = scratch / "elmokit"
    for name in ("src", "tests", "benchmarks", "docs", "README.md", "pyproject.toml"):
        source = ROOT / name
        tree.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tree / name)
    if (ROOT.parent / "shared").is_dir():
        (scratch / "shared").symlink_to(ROOT.parent / "shared")
    return tree


def note_tests(entered: Entered, names: list[str], tree: Path) -> None:
    """Runs test files that are new or have changed since they were last noted."""
    if stale := entered.stale(tree, names):
        began, found = time.monotonic(), tree.parent / "found.json"
        (tree.parent / "tmp").mkdir(exist_ok=True)
        forked(lambda: run_files(tree, stale, found) or 0, tree, timeout=7200)  # type: ignore[func-returns-value]
        entered.keep(tree, found)
        print(f"noted {len(stale)} test files in {time.monotonic() - began:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", action="append", help=f"default: {', '.join(PACKAGES)}")
    parser.add_argument("--sample", type=int, default=200, help="how many mutants, drawn at random")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="FILE or FILE:LINE below src/elmokit")
    parser.add_argument("--again", action="store_true", help="those that survived, with all tests")
    parser.add_argument("--results", type=Path, default=ROOT / "runs" / "mutants.jsonl", help="default: %(default)s")
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in LOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)  # once, for all forks

    folder = ROOT / "src" / "elmokit"
    files = sorted(p for name in given.package or PACKAGES for p in (folder / name).rglob("*.py"))
    if given.only:
        name, _, line = given.only.partition(":")
        files = [folder / name]
    found = [mutant for path in files for mutant in mutants_of(path, folder)]
    if given.only and line:
        found = [mutant for mutant in found if mutant.line == int(line)]
    drawn = found if given.only else random.Random(given.seed).sample(found, min(given.sample, len(found)))
    given.results.parent.mkdir(parents=True, exist_ok=True)
    done = read_results(given.results)
    if given.again:
        names = {row["mutant"] for row in done.values() if row["outcome"] == "survived"}
        drawn = [m for m in found if m.name in names and done.get(m.key, {}).get("outcome") == "survived"]
    print(f"{len(found):,} places to break in {len(files)} files; {len(drawn)} drawn", flush=True)
    entered = Entered(given.results.with_suffix(".tests.json"))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        tree = copied_tree(Path(scratch))
        drawn.sort(key=lambda mutant: [*PACKAGES, Path(mutant.path).parts[0]].index(Path(mutant.path).parts[0]))
        for mutant in drawn:
            note_tests(entered, test_files(Path(mutant.path).parts[0], tree), tree)
            if mutant.key in done and not given.again:
                continue
            outcome, seconds = trial(mutant, tree, entered, everything=given.again)
            row = {
                "key": mutant.key,
                "mutant": mutant.name,
                "outcome": outcome,
                "seconds": round(seconds, 1),
                "all": given.again,
            }
            done[mutant.key] = row
            with given.results.open("a", encoding="utf-8") as out:
                out.write(json.dumps(row) + "\n")
            if outcome == "survived":
                print(f"survived  {mutant.name}", flush=True)
    survived = sum(done[mutant.key]["outcome"] == "survived" for mutant in drawn)
    print(f"{survived} of {len(drawn)} survived ({survived / max(1, len(drawn)):.1%})")


def read_results(path: Path) -> dict[str, dict[str, object]]:
    """The last outcome of each mutant."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {row["key"]: row for row in map(json.loads, lines)}


if __name__ == "__main__":
    main()
