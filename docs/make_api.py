"""Writes docs/api.md: the names in the `__all__` of each public module, with signatures and one-line summaries.

    python docs/make_api.py            write it
    python docs/make_api.py --check    exit with 1 if the file is out of date

The source is read, not imported: the result does not depend on what is installed.
"""

import argparse
import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
TARGET = Path(__file__).with_name("api.md")
WIDTH = 120
FIRST = (  # what most users want; the rest follows in the order of the import contract
    "encoders", "layers", "lm", "weights", "text", "formats", "store", "tasks", "pretrain", "index",
    "analysis", "plots", "export", "integrations", "compat",
)  # fmt: skip
INSIDE = ("kernels", "cli")  # not for users
HEAD = """\
# API

What is in an `__all__` is the API: what `elmokit` exports, and what each module on this page exports. Any other name
may change in any version. An option after `*` must be given by name. This page is written by `python docs/make_api.py`.

Shape letters: {shapes}

`from elmokit import ...` offers {names}.

Below, each name stands once, under the module that it is imported from.
"""

Definition = ast.ClassDef | ast.FunctionDef


@dataclass(frozen=True)
class Module:
    """One source file."""

    name: str
    path: Path

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text(encoding="utf-8"))

    @property
    def docstring(self) -> str:
        return ast.get_docstring(self.tree) or ""

    @property
    def public(self) -> list[str]:
        """`__all__`."""
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                return sorted((str(name) for name in ast.literal_eval(node.value)), key=str.casefold)
        return []

    def find(self, name: str) -> Definition | None:
        """The class or function of that name, here or where it is imported from; None for constants."""
        for node in ast.walk(self.tree):
            if isinstance(node, Definition) and node.name == name and not _is_overload(node):
                return node
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names):
                return read_module(node.module).find(name) if (node.module or "").startswith("elmokit") else None
        return None


@cache
def read_module(name: str) -> Module:
    path = SOURCE.joinpath(*name.split("."))
    return Module(name, path / "__init__.py" if path.is_dir() else path.with_suffix(".py"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    text = api_text()
    if parser.parse_args().check:
        if not TARGET.is_file() or TARGET.read_text(encoding="utf-8") != text:
            sys.exit(f"{TARGET.name} is out of date; run  python docs/make_api.py")
        return
    TARGET.write_text(text, encoding="utf-8")


def public_modules() -> Iterator[Module]:
    """The modules with an `__all__`, but for old names of them."""
    layers = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    parts = [part.strip("() ") for layer in layers[0]["layers"] for part in layer.split("|")]
    for part in dict.fromkeys((*FIRST, *(part for part in parts if part not in INSIDE))):
        files = [SOURCE / "elmokit" / f"{part}.py", *(SOURCE / "elmokit" / part).rglob("*.py")]
        names = (".".join(file.relative_to(SOURCE).with_suffix("").parts) for file in files if file.is_file())
        for name in sorted(name.removesuffix(".__init__") for name in names):
            if read_module(name).public and not read_module(name).docstring.startswith("The old name"):
                yield read_module(name)


def api_text() -> str:
    root = read_module("elmokit")
    shapes = " ".join(root.docstring.partition("Shape letters used throughout:")[2].split())
    names = ", ".join(f"`{name}`" for name in root.public if not name.startswith("_"))
    parts, told = [HEAD.format(shapes=shapes, names=names)], set[Definition]()
    for module in public_modules():
        lines: list[str] = []
        for name in module.public:
            found = module.find(name)
            if found is None:
                lines.append(name)
            elif found not in told:
                told.add(found)
                lines += definition_lines(module, found)
        if lines:
            parts += [f"## {module.name}", "", _escape(_summary(module.docstring)), "", "```python no-run"]
            parts += [*lines, "```", ""]
    return "\n".join(parts).rstrip("\n") + "\n"


def definition_lines(module: Module, node: Definition) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef):
        yield from _with_summary(_signature(node, node.name), node, "")
        return
    head = f"class {node.name}({', '.join(map(ast.unparse, node.bases))})".removesuffix("()")
    fields = [item for item in node.body if isinstance(item, ast.AnnAssign) and _is_field(item)]
    made = [item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"]
    indent = "    " if node.bases else ""
    call = node.name if node.bases else f"class {node.name}"
    if made:
        lines = _signature(made[0], call, indent=indent)
    else:
        lines = list(_call(call, [_field(item) for item in fields], "", indent=indent)) if fields else []
    yield from _with_summary([head] if node.bases or not lines else lines, node, "")
    if node.bases:
        yield from lines
    bases = [module.find(ast.unparse(base).partition("[")[0]) for base in node.bases]
    inherited = {_signature(item, item.name)[0] for base in bases for item in _members(base)}
    own = [item for item in _members(node) if _signature(item, item.name)[0] not in inherited]
    plain = [f".{item.name}{_returns(item)}" for item in own if _is_property(item) and not ast.get_docstring(item)]
    if plain:
        yield from _wrap(plain, "    ", "    ", "   ")
    for item in own:
        if not _is_property(item) and (ast.get_docstring(item) or item.name == "forward"):
            yield from _with_summary(_signature(item, item.name, indent="    "), item, "    ")
        elif _is_property(item) and ast.get_docstring(item):
            yield from _with_summary([f"    .{item.name}{_returns(item)}"], item, "    ")


def _members(node: Definition | None) -> list[ast.FunctionDef]:
    """The public methods and properties that a class defines itself."""
    inside = node.body if isinstance(node, ast.ClassDef) else []
    methods = [item for item in inside if isinstance(item, ast.FunctionDef) and not _is_overload(item)]
    return [item for item in methods if not item.name.startswith("_")]


def _with_summary(lines: list[str], node: Definition, indent: str) -> Iterator[str]:
    """A definition, and behind or below it what its docstring says in the first sentence."""
    said = _summary(ast.get_docstring(node) or "")
    *before, last = lines
    yield from before
    if said and len(last) + len(said) + 4 <= WIDTH:
        yield f"{last}  # {said}"
    else:
        yield last
        if said:
            yield from _wrap(said.split(), f"{indent}    # ", f"{indent}    # ", " ")


def _signature(node: ast.FunctionDef, name: str, *, indent: str = "") -> list[str]:
    arguments = [item for item in _arguments(node.args) if item not in ("self", "cls")]
    return list(_call(name, arguments, "" if node.name == "__init__" else _returns(node), indent=indent))


def _call(name: str, arguments: list[str], returns: str, *, indent: str) -> Iterator[str]:
    """A call as it is written, wrapped where it is long."""
    parts = [item + "," for item in arguments[:-1]] + arguments[-1:]
    yield from _wrap([*parts[:-1], (parts[-1] if parts else "") + ")" + returns], f"{indent}{name}(", f"{indent}    ")


def _wrap(words: list[str], first: str, rest: str, gap: str = " ") -> Iterator[str]:
    line, empty = first, True
    for word in words:
        if not empty and len(line) + len(gap) + len(word) > WIDTH:
            yield line
            line, empty = rest, True
        line += word if empty else gap + word
        empty = False
    yield line


def _returns(node: ast.FunctionDef) -> str:
    return f" -> {_annotation(node.returns)}" if node.returns else ""


def _annotation(node: ast.expr) -> str:
    """A type as it is written, without the quotes around one that is not there yet."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return ast.unparse(node).replace("'", '"')


def _field(node: ast.AnnAssign) -> str:
    """A dataclass field; `made(3, "what it is")` is a default with its help text."""
    value = node.value
    if isinstance(value, ast.Call):
        named = {keyword.arg: keyword.value for keyword in value.keywords}
        value = value.args[0] if value.args else named.get("default", ast.Constant(...))
    default = f" = {ast.unparse(value)}".replace("'", '"') if value else ""
    return f"{ast.unparse(node.target)}: {_annotation(node.annotation)}{default}"


def _arguments(given: ast.arguments) -> Iterator[str]:
    plain = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(plain) - len(given.defaults)) + list(given.defaults)
    yield from (_argument(arg, default) for arg, default in zip(plain, defaults, strict=True))
    if given.vararg or given.kwonlyargs:
        yield f"*{given.vararg.arg if given.vararg else ''}"
    yield from (_argument(arg, default) for arg, default in zip(given.kwonlyargs, given.kw_defaults, strict=True))
    if given.kwarg:
        yield f"**{given.kwarg.arg}"


def _argument(arg: ast.arg, default: ast.expr | None) -> str:
    kind = f": {_annotation(arg.annotation)}" if arg.annotation else ""
    return arg.arg + kind + (f" = {ast.unparse(default)}".replace("'", '"') if default else "")


def _summary(docstring: str) -> str:
    """Its first sentence."""
    paragraph = " ".join(docstring.partition("\n\n")[0].split())
    return re.split(r"(?<!et al)\. (?=[A-Z`])", paragraph)[0].rstrip(".")


def _escape(line: str) -> str:
    """Marks such as <UNK> stand for themselves, except in code."""
    parts = line.split("`")
    return "`".join(part if k % 2 else part.replace("<", "&lt;") for k, part in enumerate(parts))


def _is_field(node: ast.AnnAssign) -> bool:
    return ast.unparse(node.target)[0] != "_" and "ClassVar" not in ast.unparse(node.annotation)


def _is_property(node: ast.FunctionDef) -> bool:
    return any("property" in ast.unparse(d) for d in node.decorator_list)


def _is_overload(node: Definition) -> bool:
    return any(ast.unparse(d) == "overload" for d in node.decorator_list)


if __name__ == "__main__":
    main()
