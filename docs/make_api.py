"""Writes docs/api.md from the docstrings of the public names.

    python docs/make_api.py            write it
    python docs/make_api.py --check    exit with 1 where the file is not what the docstrings say

The source is read, not imported: the result does not depend on what is installed, and making it takes no time.
"""

import argparse
import ast
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src"
TARGET = Path(__file__).with_name("api.md")
MODULES = {
    "elmokit.encoders": "Sentences to vectors",
    "elmokit.features": "Several encoders side by side",
    "elmokit.layers": "Layers and how they are chosen",
    "elmokit.nn.mix": "The mix",
    "elmokit.store": "Vectors on disk",
    "elmokit.text": "Text",
    "elmokit.text.english": "English",
    "elmokit.text.unicode": "Any script",
    "elmokit.formats": "Files of text",
    "elmokit.weights": "Models on disk",
    "elmokit.lm": "The language model",
    "elmokit.index": "Nearest neighbours on disk",
    "elmokit.analysis.neighbours": "Neighbours of a word in its context",
    "elmokit.analysis.drift": "Drift between two corpora",
    "elmokit.analysis.kmeans": "Groups of directions",
    "elmokit.plots": "Charts",
    "elmokit.analysis.probing": "Probes: layers, controls, curves",
    "elmokit.analysis.word_labels": "Probes: words and their labels",
    "elmokit.analysis.views": "Probes: what is looked at of an encoder",
    "elmokit.analysis.probe": "Probes: the classifier",
    "elmokit.analysis.mixed_probe": "Probes: the classifier with a mix",
    "elmokit.analysis.senses": "Word senses by nearest centroid",
    "elmokit.analysis.word_senses": "The senses of one word",
    "elmokit.analysis.pairs": "Words in context",
    "elmokit.analysis.mixes": "Mixes of task models",
    "elmokit.analysis.sense_files": "Files of word senses",
    "elmokit.analysis.pair_files": "Files of words in context",
    "elmokit.pretrain.config": "Pre-training: the configuration",
    "elmokit.pretrain.corpus.text": "Pre-training: the corpus",
    "elmokit.pretrain.corpus.prepare": "Pre-training: preparing text",
    "elmokit.pretrain.run": "Pre-training: the run",
    "elmokit.pretrain.finetune": "Fine-tuning",
    "elmokit.export.save": "Exported models: writing",
    "elmokit.integrations.onnx": "Exported models: running without torch",
    "elmokit.tasks.saved": "Task models",
    "elmokit.tasks.run": "Training a task model",
    "elmokit.tasks.setup": "Training a task model: the settings",
    "elmokit.tasks.task": "What a task is",
    "elmokit.tasks.words": "What task networks read of words",
    "elmokit.tasks.layers": "Where their layers come from",
    "elmokit.tasks.tagging.network": "Sequence tagging",
    "elmokit.tasks.classify.task": "Text classification",
    "elmokit.tasks.entail.task": "Pair classification",
    "elmokit.tasks.classes": "Classification: predictions and scores",
    "elmokit.tasks.classify.network": "The biattentive classification network",
    "elmokit.tasks.entail.network": "ESIM",
    "elmokit.tasks.qa.task": "Question answering",
    "elmokit.tasks.qa.data": "Question answering: the data",
    "elmokit.tasks.qa.scores": "Question answering: the scores",
    "elmokit.tasks.roles.task": "Semantic roles",
    "elmokit.tasks.roles.data": "Semantic roles: the data",
    "elmokit.tasks.roles.scores": "Semantic roles: the scores",
    "elmokit.tasks.coref.task": "Coreference",
    "elmokit.tasks.coref.document": "Coreference: documents and clusters",
    "elmokit.tasks.coref.data": "Coreference: the files",
    "elmokit.tasks.coref.scores": "Coreference: the scores",
    "elmokit.tasks.ablate.run": "Ablation",
    "elmokit.tasks.ablate.report": "Ablation: the report",
    "elmokit.compat.allennlp": "AllenNLP's names",
    "elmokit.compat.simple_elmo": "simple_elmo's names",
    "elmokit.compat.manylangs": "ELMoForManyLangs' names",
    "elmokit.batch": "Batches",
    "elmokit.chars": "Words as rows",
    "elmokit.errors": "Errors",
}
HEAD = """\
# API

Written from the docstrings by `python docs/make_api.py`. Options after `*` are keyword-only.

Shape letters: {shapes}

`from elmokit import ...` offers {names}. Everything else is imported from the module it is listed under.
"""

Definition = ast.ClassDef | ast.FunctionDef


@dataclass(frozen=True)
class Module:
    """One source file."""

    name: str
    source: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source)

    @property
    def summary(self) -> str:
        return ast.get_docstring(self.tree) or ""

    def public(self) -> list[str]:
        """`__all__`, or what is defined here under a public name and has a docstring."""
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                return [str(name) for name in ast.literal_eval(node.value)]
        own = [node for node in self.tree.body if isinstance(node, Definition)]
        return [node.name for node in own if not node.name.startswith("_") and _is_told(node)]

    def find(self, name: str) -> "tuple[Module, Definition] | None":
        """The class or function of that name, here or where it is imported from; None for constants."""
        for node in self.tree.body:
            if isinstance(node, Definition) and node.name == name and not _is_overload(node):
                return self, node
            if isinstance(node, ast.ImportFrom) and node.module and any(a.name == name for a in node.names):
                return read_module(node.module).find(name)
        return None

    def comment(self, node: ast.stmt) -> str:
        """What stands behind a statement after two spaces and a number sign."""
        line = self.source.splitlines()[(node.end_lineno or 1) - 1].encode()[node.end_col_offset or 0 :].decode()
        return line.strip() if line.startswith("  #") else ""


@cache
def read_module(name: str) -> Module:
    path = SOURCE.joinpath(*name.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return Module(name, file.read_text(encoding="utf-8"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    text = api_text()
    if parser.parse_args().check:
        if not TARGET.is_file() or TARGET.read_text(encoding="utf-8") != text:
            sys.exit(f"{TARGET.name} is not what the docstrings say; run  python docs/make_api.py")
        return
    TARGET.write_text(text, encoding="utf-8")


def api_text() -> str:
    root = read_module("elmokit")
    shapes = " ".join(root.summary.partition("Shape letters used throughout:")[2].split())
    names = ", ".join(f"`{name}`" for name in root.public() if not name.startswith("_"))
    parts = [HEAD.format(shapes=shapes, names=names)]
    parts += [f"- [{title}](#{_anchor(f'{title}: {module}')})" for module, title in MODULES.items()]
    parts.append("")
    for name, title in MODULES.items():
        parts += module_lines(read_module(name), title)
    return "\n".join(parts).rstrip("\n") + "\n"


def module_lines(module: Module, title: str) -> Iterator[str]:
    yield from (f"## {title}: `{module.name}`", "", *_paragraphs(module.summary), "")
    for name in sorted(module.public(), key=str.casefold):
        found = module.find(name)
        if found is None or not _is_told(found[1]):
            continue
        home, node = found
        if isinstance(node, ast.ClassDef):
            yield from class_lines(home, node)
        else:
            yield from (f"### `{name}`", "", *_signature(node), "", *_paragraphs(ast.get_docstring(node) or ""), "")


def class_lines(home: Module, node: ast.ClassDef) -> Iterator[str]:
    yield from (f"### `{node.name}`", "", *_paragraphs(ast.get_docstring(node) or ""), "")
    fields = [item for item in node.body if isinstance(item, ast.AnnAssign) and ast.unparse(item.target)[0] != "_"]
    made = [item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"]
    if fields:
        yield from ("```python no-run", f"{node.name}(", *(_field(home, f) for f in fields), ")", "```", "")
    elif made and len(made[0].args.args) + len(made[0].args.kwonlyargs) > 1:
        yield from (*_signature(made[0], name=node.name), "")
    for item in node.body:
        if not isinstance(item, ast.FunctionDef) or item.name.startswith("_") or _is_overload(item):
            continue
        told = ast.get_docstring(item)
        if told and "property" in " ".join(map(ast.unparse, item.decorator_list)):
            yield from (f"**`.{item.name}`** {' '.join(told.split())}", "")
        elif told:
            yield from (*_signature(item, name=f"{node.name}.{item.name}"), "", *_paragraphs(told), "")


def _signature(node: ast.FunctionDef, *, name: str | None = None) -> Iterator[str]:
    """A call as it is written, one argument a line where it is long."""
    arguments = [item for item in _arguments(node.args) if item not in ("self", "cls")]
    returns = f" -> {ast.unparse(node.returns)}" if node.returns and node.name != "__init__" else ""
    returns = returns.replace("'", "")  # a class that names itself
    one = f"{name or node.name}({', '.join(arguments)}){returns}"
    lines = [one] if len(one) <= 100 else [f"{name or node.name}(", *(f"    {a}," for a in arguments), f"){returns}"]
    yield from ("```python no-run", *lines, "```")


def _field(home: Module, node: ast.AnnAssign) -> str:
    """A dataclass field with its comment; the help text in `name: int = made(3, "what it is")` serves as one."""
    value, said = node.value, home.comment(node)
    if isinstance(value, ast.Call) and len(value.args) == 2 and isinstance(value.args[1], ast.Constant):
        said = f"# {ast.literal_eval(value.args[1])}"
        value = value.args[0]
    default = f" = {ast.unparse(value)}" if value else ""
    return (
        f"    {ast.unparse(node.target)}: {ast.unparse(node.annotation)}{default}".replace("'", '"')
        + ","
        + (f"  {said}" if said else "")
    )


def _arguments(given: ast.arguments) -> Iterator[str]:
    plain = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(plain) - len(given.defaults)) + list(given.defaults)
    yield from (_argument(arg, default) for arg, default in zip(plain, defaults, strict=True))
    if given.vararg or given.kwonlyargs:
        yield f"*{given.vararg.arg if given.vararg else ''}"
    yield from (_argument(arg, default) for arg, default in zip(given.kwonlyargs, given.kw_defaults, strict=True))


def _argument(arg: ast.arg, default: ast.expr | None) -> str:
    kind = f": {ast.unparse(arg.annotation)}" if arg.annotation else ""
    return (arg.arg + kind + (f" = {ast.unparse(default)}" if default else "")).replace("'", '"')


def _paragraphs(docstring: str) -> Iterator[str]:
    """A docstring as Markdown: prose as it is, tables of names and indented examples as blocks of text."""
    for k, paragraph in enumerate(inspect.cleandoc(docstring).split("\n\n")):
        lines = paragraph.splitlines()
        aligned = len(lines) > 1 and sum("   " in line.strip() for line in lines) >= len(lines) / 2
        literal = aligned or paragraph.startswith("    ")
        if k:
            yield ""
        yield from ("```text", *lines, "```") if literal else map(_escape, lines)


def _escape(line: str) -> str:
    """Marks such as <UNK> stand for themselves, except in code."""
    parts = line.split("`")
    return "`".join(part if k % 2 else part.replace("<", "&lt;") for k, part in enumerate(parts))


def _is_told(node: Definition) -> bool:
    """Whether there is anything to say: a docstring, or fields, which speak for themselves."""
    return bool(ast.get_docstring(node)) or any(isinstance(item, ast.AnnAssign) for item in node.body)


def _is_overload(node: Definition) -> bool:
    return any(ast.unparse(d) == "overload" for d in node.decorator_list)


def _anchor(heading: str) -> str:
    """As GitHub makes it."""
    return "".join(c for c in heading.lower().replace(" ", "-") if c.isalnum() or c in "-_")


if __name__ == "__main__":
    main()
