"""Do the tests notice? Breaks the source in one small place at a time and runs the tests of that place.

    python benchmarks/mutants.py --sample 200 --jobs 2
    python benchmarks/mutants.py --package store --package index --sample 60 --seed 3
    python benchmarks/mutants.py --only 'store/spool.py:88'   # one place, to see what survives there

A mutant that no test notices is printed with the line it changed. The last line says how many of them there were.
Every mutant runs in a copy of the tree, so the working tree stays as it is.
"""

import argparse
import ast
import copy
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("store", "index", "pretrain", "tasks", "weights")
COMMANDS = {
    "store": ("cli/test_embed.py",),
    "index": ("cli/test_index_command.py",),
    "tasks": ("cli/test_task_commands.py", "cli/test_ablate_command.py"),
    "weights": ("cli/test_convert_info.py",),
}
COMPARE = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
           ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In}  # fmt: skip
ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}


@dataclass(frozen=True)
class Mutant:
    """One change: where it is, what it does, and the whole file with it."""

    path: str  # below src/elmokit
    line: int
    change: str
    source: str

    @property
    def name(self) -> str:
        return f"{self.path}:{self.line}: {self.change}"


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

    def generic_visit(self, node: ast.AST) -> None:
        if hasattr(node, "lineno"):
            self.found.append(node)
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_params"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    self.visit(child)

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
    text = path.read_text(encoding="utf-8")
    places = Places()
    places.visit(ast.parse(text))
    for k, node in enumerate(places.found):
        for n, (change, _) in enumerate(changes(node)):
            tree = ast.parse(text)
            again = Places()
            again.visit(tree)
            old = again.found[k]
            new = list(changes(old))[n][1]
            source = ast.unparse(ast.fix_missing_locations(Swap(old, new).visit(tree)))
            yield Mutant(str(path.relative_to(folder)), node.lineno, change, source)


def tests_of(path: str, tree: Path) -> list[str]:
    """The tests that answer for a module: those of its package and of its commands, and those of older files."""
    package = Path(path).parts[0]
    names = [package, f"test_{package}.py", *COMMANDS.get(package, ()), "test_version_0_1_0.py"]
    return [f"tests/{name}" for name in names if (tree / "tests" / name).exists()]


def trial(mutant: Mutant, tree: Path, *, timeout: float) -> tuple[str, float]:
    """What became of it: noticed, survived, or timed out (which is noticed, too)."""
    target = tree / "src" / "elmokit" / mutant.path
    before = target.read_text(encoding="utf-8")
    target.write_text(mutant.source, encoding="utf-8")
    environment = {
        **os.environ,
        "PYTHONPATH": str(tree / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests_of(mutant.path, tree)]
    began = time.monotonic()
    try:
        ended = subprocess.run(command, cwd=tree, env=environment, capture_output=True, timeout=timeout, check=False)
        outcome = "survived" if ended.returncode == 0 else "noticed"
    except subprocess.TimeoutExpired:
        outcome = "timed out"
    finally:
        target.write_text(before, encoding="utf-8")
    return outcome, time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", action="append", help=f"default: {', '.join(PACKAGES)}")
    parser.add_argument("--sample", type=int, default=200, help="how many mutants, drawn at random")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="FILE or FILE:LINE below src/elmokit")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time, each in a copy of the tree")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for the tests of one mutant")
    parser.add_argument("--json", type=Path, help="write the outcomes here")
    given = parser.parse_args()
    folder = ROOT / "src" / "elmokit"
    files = sorted(p for name in given.package or PACKAGES for p in (folder / name).rglob("*.py"))
    if given.only:
        name, _, line = given.only.partition(":")
        files = [folder / name]
    found = [mutant for path in files for mutant in mutants_of(path, folder)]
    if given.only and line:
        found = [mutant for mutant in found if mutant.line == int(line)]
    drawn = found if given.only else random.Random(given.seed).sample(found, min(given.sample, len(found)))
    print(f"{len(found):,} places to break in {len(files)} files; {len(drawn)} drawn", flush=True)
    outcomes: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as scratch:
        trees: Queue[Path] = Queue()
        for k in range(given.jobs):
            tree = Path(scratch) / f"tree{k}" / "elmokit"
            for name in ("src", "tests", "benchmarks", "docs", "README.md", "pyproject.toml"):
                source = ROOT / name
                copied = shutil.copytree if source.is_dir() else shutil.copy
                tree.mkdir(parents=True, exist_ok=True)
                copied(source, tree / name)
            if (ROOT.parent / "shared").is_dir():
                (tree.parent / "shared").symlink_to(ROOT.parent / "shared")
            trees.put(tree)

        def work(mutant: Mutant) -> tuple[Mutant, str, float]:
            tree = trees.get()
            try:
                return mutant, *trial(mutant, tree, timeout=given.timeout)
            finally:
                trees.put(tree)

        with ThreadPoolExecutor(given.jobs) as pool:
            for mutant, outcome, seconds in pool.map(work, drawn):
                outcomes.append({"mutant": mutant.name, "outcome": outcome, "seconds": round(seconds, 1)})
                if outcome == "survived":
                    print(f"survived  {mutant.name}", flush=True)
                if given.json:
                    given.json.write_text(json.dumps(outcomes, indent=1) + "\n", encoding="utf-8")
    survived = sum(row["outcome"] == "survived" for row in outcomes)
    print(f"{survived} of {len(outcomes)} survived ({survived / max(1, len(outcomes)):.1%})")


if __name__ == "__main__":
    main()
