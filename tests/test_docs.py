"""The code in the Markdown pages of the project runs, and what it says about shapes and outputs is so.

Every page runs from top to bottom in an empty folder; that of migrating.md holds a model of ELMoForManyLangs. What
cannot run here (a hub, a GPU, an older tool) says `no-run` after the language.

- python: a page's blocks share their names. A comment such as `# (2, D)` or `# [(6, D), (3, D)]` behind a statement is
  the shape of its value; D is the model's width and L its number of layers.
- bash: each line must succeed; `<<'END'` begins a file.
- console: lines after `$ ` likewise, and the lines below are the output; `...` stands for anything.
"""

import ast
import doctest
import math
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from elmokit.__main__ import main
from elmokit.native.library import c_library
from elmokit.pretrain import load_config
from elmokit.weights.pretrained import parameter_shapes

ROOT = Path(__file__).resolve().parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs").glob("*/*.md"))]
INTEGRATIONS = {  # pages of docs/integrations and the packages that they need; .ci/integrations runs them
    name: name for name in ("chromadb", "flair", "gensim", "lancedb", "sentence_transformers")
} | {"langchain": "langchain_core", "llama_index": "llama_index.core", "tables": "datasets"}
LANGUAGES = {"python", "bash", "console", "json", "toml", "text"}
SHAPE = re.compile(r"#\s*(\(.*\)|\[\(.*\)\])")
SHELL = set("|<>&;$`*?~(){}!")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int  # of its first line of code, counted from 1
    language: str
    marks: tuple[str, ...]
    code: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}, line {self.line}"


def read_blocks(page: Path) -> Iterator[Block]:
    fence, begin, info, code = "", 0, "", list[str]()
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        mark = re.match(r"\s*(```+)\s*(.*)$", line)
        if not fence and mark:
            fence, begin, info, code = mark[1], number + 1, mark[2], []
        elif fence and line.strip() == fence:
            language, *marks = info.split() or [""]
            yield Block(page, begin, language, tuple(marks), "\n".join(code))
            fence = ""
        elif fence:
            code.append(line)
    assert not fence, f"{page}: the block of line {begin} does not end"


@pytest.fixture
def _empty_folder(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem not in INTEGRATIONS], ids=lambda page: page.name)
@pytest.mark.usefixtures("_empty_folder")
def test_page_runs(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if page.name == "spacy.md":
        pytest.importorskip("spacy")
    if page.name == "lite.md" and c_library() is None:
        pytest.skip("elmokit.lite runs in C alone, which is not there")
    if page.name == "migrating.md":
        shutil.copytree(ROOT / "tests/data/manylangs/both", tmp_path / "manylangs")
    run_page(page, monkeypatch, capsys)


@pytest.mark.integration
@pytest.mark.parametrize("name", INTEGRATIONS)
@pytest.mark.usefixtures("_empty_folder")
@pytest.mark.filterwarnings("ignore")  # what other packages do is not ours
def test_page_of_an_integration_runs(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip(INTEGRATIONS[name])
    run_page(ROOT / f"docs/integrations/{name}.md", monkeypatch, capsys)


def run_page(page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in read_blocks(page):
        if "no-run" in block.marks:
            continue
        if block.language == "python":
            run_python(block, names)
        elif block.language in ("bash", "console"):
            run_shell(block, monkeypatch, capsys)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_is_sound(page: Path) -> None:
    """Blocks are of known languages, and links inside the project lead somewhere."""
    for block in read_blocks(page):
        assert block.language in LANGUAGES, f"{block.place}: language {block.language!r}"
        assert set(block.marks) <= {"no-run"}, f"{block.place}: {block.marks}"
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", prose_of(page)):
        if "://" in target:
            continue
        found = page.parent / target if target else page
        assert found.exists(), f"{page.name} links to {target}, which is not there"
        assert not anchor or anchor in anchors_of(found), f"{page.name} links to {target}#{anchor}, which is not there"


def test_what_the_architecture_page_names_is_there() -> None:
    """`Class.method` in [file](link): the link leads to that file, and the name is defined there."""
    page = ROOT / "docs/architecture.md"
    told = re.findall(r"`([\w.]+)` in \[([^]]+)\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
    assert len(told) > 40
    for name, shown, target in told:
        assert target == f"../src/elmokit/{shown}"
        source = (page.parent / target).read_text(encoding="utf-8")
        for part in name.split("."):
            defined = rf"^\s*(def|class) {part}\b|^{part}\b.* =" if target.endswith(".py") else rf"^\w.*\b{part}\("
            assert re.search(defined, source, flags=re.MULTILINE), f"{shown} has no {name}"


@pytest.mark.parametrize("command", ["make_api.py", "make_architecture.py"])
def test_a_made_page_is_up_to_date(command: str) -> None:
    done = subprocess.run([sys.executable, ROOT / "docs" / command, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_presets_have_the_sizes_that_the_page_tells() -> None:
    page = (ROOT / "docs/pretraining.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| (\d+) \| 3 x (\d+) \|" + r" ([\d,]+) \|" * 3, page, flags=re.MULTILINE)
    assert [row[0] for row in rows] == ["tiny", "small", "medium", "original"]
    for name, *told in rows:
        config = load_config(name)
        model = config.model()
        network = sum(math.prod(shape) for shape in parameter_shapes(model).values())
        found = [config.cell_dim, config.projection_dim, model.width, network]
        found += [config.vocab_size * (config.projection_dim + 1), config.vocab_size]
        assert [int(number.replace(",", "")) for number in told] == found, name


def prose_of(page: Path) -> str:
    return re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def anchors_of(page: Path) -> set[str]:
    """The page's headings as GitHub names them."""
    headings = re.findall(r"^#+ (.+)$", prose_of(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def run_python(block: Block, names: dict[str, Any]) -> None:
    lines = block.code.splitlines()
    for statement in ast.parse(block.code).body:
        ast.increment_lineno(statement, block.line - 1)
        value = None
        if isinstance(statement, ast.Expr):
            value = eval(compile(ast.Expression(statement.value), block.place, "eval"), names)
        else:
            exec(compile(ast.Module([statement], []), block.place, "exec"), names)
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                value = names[statement.targets[0].id]
        said = SHAPE.search(lines[(statement.end_lineno or 0) - block.line])
        if said is not None:
            elmo = names.get("elmo")
            sizes = {"D": elmo.width} if hasattr(elmo, "width") else {}
            sizes |= {"L": len(elmo.layer_names)} if hasattr(elmo, "layer_names") else {}
            assert shape_of(value) == eval(said[1], sizes), f"{block.place}: {ast.unparse(statement)}"


def shape_of(value: Any) -> Any:
    return tuple(value.shape) if hasattr(value, "shape") else [tuple(v.shape) for v in value]


def run_shell(block: Block, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    checker = doctest.OutputChecker()
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    for command, expected in commands_of(block):
        status, output = run_command(command, monkeypatch, capsys)
        assert status == 0, f"{block.place}: {command}\nexit status {status}\n{output}"
        if expected:
            assert checker.check_output(expected, output, flags), (
                f"{block.place}: {command}\nsaid in the page:\n{expected}\nfound:\n{output}"
            )


def commands_of(block: Block) -> Iterator[tuple[str, str]]:
    """Each command and the output that the page shows for it (console only)."""
    joined = block.code.replace("\\\n", " ")
    if block.language == "bash":
        pattern = r"^[^#\s].*<<'END'\n(?:.*\n)*?END$|^[^#\s].*$"  # a line, or a file up to its END
        yield from ((found[0], "") for found in re.finditer(pattern, joined, flags=re.MULTILINE))
        return
    for part in re.split(r"^\$ ", joined, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output.strip() + "\n" if output.strip() else ""


def run_command(command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit status and standard output. Plain `elmokit` lines run in this process, which has torch loaded already."""
    words = shlex.split(command, comments=True)
    if words[0] != "elmokit" or any(
        SHELL & set(word) for word in shlex.split(command, posix=False)[1:] if word[0] not in "\"'"
    ):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command.encode()], capture_output=True, encoding="utf-8", timeout=120
        )
        return done.returncode, done.stdout + (done.stderr if done.returncode else "")
    monkeypatch.setattr(sys, "argv", words)
    capsys.readouterr()
    status = 0
    try:
        main()
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    output = capsys.readouterr()
    return status, output.out + (output.err if status else "")
