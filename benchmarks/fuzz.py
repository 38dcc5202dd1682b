"""Damaged files against every reader: whatever lies on the disk, the answer is a result or one clear line.

    python benchmarks/fuzz.py --minutes 10
    python benchmarks/fuzz.py --target index --cases 500 --seed 3
    python benchmarks/fuzz.py --again 'index/segment:1:77'     # one case, with all that it says

Real files of every kind (tests/data) are damaged one at a time: bytes flipped, cut off, put in, repeated; values and
keys of JSON changed, also inside the header of safetensors. A real command reads them. Found is: a traceback, an exit
status other than 0 and 2, a crash of the process, a case that hangs, or memory out of proportion. Cases are drawn by
seed and number, so each can be repeated. Files that load in spite of the damage are counted as accepted.
"""

import argparse
import contextlib
import io
import json
import multiprocessing
import os
import random
import resource
import shutil
import struct
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FILES = ROOT / "tests" / "data" / "v0.1.0"
MANYLANGS = ROOT / "tests" / "data" / "manylangs"
MEMORY = 700  # MB that a case may add
HANGS = 60.0  # seconds
ODD: tuple[Any, ...] = (None, True, -1, 0, 1, 2**31, 2**63, 10**30, 1e308, float("nan"), "", "x", "../x", [], {}, [[]])


@dataclass(frozen=True)
class Target:
    """A kind of file and the command that reads it; `files` are patterns below the folder of all files."""

    name: str
    files: tuple[str, ...]
    command: tuple[str, ...]


def model(name: str) -> Target:
    return Target(f"model/{name}", (f"models/{name}/*",), ("embed", "The owl sleeps.", "-m", f"models/{name}"))


KINDS = ("h5", "npz", "safetensors", "parquet")
TARGETS = (
    *map(model, ("float32", "float16", "int8", "adaptive", "words", "dictionary", "official", "both")),
    *map(model, ("new-float32", "new-int8", "new-int4")),
    *(
        Target(f"lite/{name}", (f"models/{name}/*",), ("lite", f"models/{name}"))
        for name in ("new-float32", "new-int8", "new-int4")
    ),
    Target("alignment", ("models/aligned/*",), ("embed", "The owl sleeps.", "-m", "aligned:models/aligned")),
    Target("verify/alignment", ("models/aligned/*",), ("verify", "models/aligned")),
    Target("model/archive", ("models/archive.zip",), ("embed", "The owl sleeps.", "-m", "models/archive.zip")),
    Target("model/softmax", ("models/float32/*",), ("perplexity", "The owl sleeps.", "-m", "models/float32")),
    Target("model/info", ("models/float32/*",), ("info", "models/float32")),
    Target(
        "static/table", ("static/table.safetensors",), ("embed", "The owl.", "-m", "static:static/table.safetensors")
    ),
    Target("static/text", ("static/text.txt",), ("embed", "The owl.", "-m", "static:static/text.txt")),
    Target("static/binary", ("static/binary.bin",), ("embed", "The owl.", "-m", "static:static/binary.bin")),
    *(
        Target(f"task/{name}", (f"tasks/{name}/*",), ("apply", f"tasks/{name}", "Ann feeds the owl."))
        for name in ("ner", "new-ner", "new-int4", "pos", "sentiment", "classify", "taglm")
    ),
    Target("task/coref", ("tasks/coref/*",), ("evaluate", "tasks/coref", "text/coref.conll")),
    Target("task/roles", ("tasks/roles/*",), ("evaluate", "tasks/roles", "text/roles.jsonl")),
    Target("task/qa", ("tasks/qa/*",), ("evaluate", "tasks/qa", "text/qa.json")),
    *(
        Target(
            f"index/{name}", (f"index/{name}/*",), ("neighbors", f"index/{name}", "The owl sleeps.", "--word", "owl")
        )
        for name in ("exact", "graph", "new")
    ),
    *(
        Target(f"run/{name}", patterns, ("resume", f"unfinished/{name}"))
        for name, patterns in {
            "index": ("unfinished/index/*",),
            "pretraining": ("unfinished/pretraining/**/*", "unfinished/prepared/*"),
            "finetuning": ("unfinished/finetuning/**/*",),
            "training": ("unfinished/training/*", "layers/*"),
            "vectors": ("unfinished/vectors.npz.partial/*",),
        }.items()
    ),
    Target("text/plain", ("text/corpus.txt",), ("embed", "text/corpus.txt", "-o", "out.npz", "-m", "models/int8")),
    Target("text/xz", ("text/long.txt.xz",), ("embed", "text/long.txt.xz", "-o", "out.npz", "-m", "models/int8")),
    Target("text/conllu", ("text/pos.conllu",), ("embed", "text/pos.conllu", "-o", "out.npz", "-m", "models/int8")),
    Target("text/jsonl", ("text/roles.jsonl",), ("evaluate", "tasks/roles", "text/roles.jsonl")),
    Target("text/columns", ("text/ner.txt",), ("evaluate", "tasks/ner", "text/ner.txt")),
    Target("text/coref", ("text/coref.conll",), ("evaluate", "tasks/coref", "text/coref.conll")),
    Target("text/squad", ("text/qa.json",), ("evaluate", "tasks/qa", "text/qa.json")),
    Target("text/trees", ("text/sentiment.txt",), ("evaluate", "tasks/sentiment", "text/sentiment.txt")),
    Target("text/pairs", ("text/entail.tsv",), ("evaluate", "tasks/entail", "text/entail.tsv")),
    *(Target(f"vectors/{kind}", (f"vectors/new.{kind}",), ("info", f"vectors/new.{kind}")) for kind in KINDS),
    *(Target(f"verify/{kind}", (f"vectors/new.{kind}",), ("verify", f"vectors/new.{kind}")) for kind in KINDS),
    Target("verify/run", ("unfinished/pretraining/**/*",), ("verify", "unfinished/pretraining")),
    *(Target(f"onnx/{kind}", (f"onnx/{kind}/*",), ("onnx", f"onnx/{kind}")) for kind in ("float32", "int8")),
)
NEW = {  # files as this version writes them, with its checksums
    "models/new-float32": ("convert", "models/float32", "models/new-float32"),
    "models/new-int8": ("convert", "models/float32", "models/new-int8", "--dtype", "int8"),
    "models/new-int4": ("convert", "models/float32", "models/new-int4", "--dtype", "int4"),
    "models/aligned": (
        *("align", "models/new-float32", "models/new-int8", "-o", "models/aligned", "--min-count", "1"),
        *("--source-text", "text/some.txt", "--target-text", "text/some.txt"),
    ),
    "index/new": ("index", "text/some.txt", "-o", "index/new", "-m", "models/float32"),
    **{
        f"vectors/new.{kind}": ("embed", "text/some.txt", "-o", f"vectors/new.{kind}", "-m", "models/int8")
        for kind in KINDS
    },
}


def make_files(folder: Path) -> None:
    """All files, those of version 0.1.0 and new ones, ready to be read."""
    shutil.copytree(FILES, folder)
    shutil.copytree(MANYLANGS / "both", folder / "models" / "both")
    manifest = folder / "unfinished" / "prepared" / "manifest.json"
    content = manifest.read_text(encoding="utf-8")
    manifest.write_text(content.replace("THE-FOLDER", str(folder.resolve())), encoding="utf-8")
    (text,) = json.loads(content)["identity"]["text"]["files"]
    os.utime(folder / "text" / "corpus.txt", ns=(text["mtime_ns"], text["mtime_ns"]))
    for path in manifest.parent.iterdir():
        os.utime(path, ns=(text["mtime_ns"], text["mtime_ns"]))
    os.chdir(folder)
    for words in NEW.values():
        if (outcome := _command(words)) != "read":
            raise SystemExit(f"elmokit {' '.join(words)}: {outcome}")
    train = _recorded("unfinished/training")
    train[train.index("-o") + 1] = "tasks/new-ner"
    if (outcome := _command(tuple(train))) != "read":
        raise SystemExit(f"elmokit {' '.join(train)}: {outcome}")
    if (outcome := _command(("convert", "tasks/new-ner", "tasks/new-int4", "--dtype", "int4"))) != "read":
        raise SystemExit(f"tasks/new-int4: {outcome}")


def _recorded(name: str) -> list[str]:
    """The command of version 0.1.0 that made these files."""
    found: list[str] = json.loads((FILES / "commands.json").read_text(encoding="utf-8"))[name][-1]
    return found


def damage(content: bytes, dice: random.Random) -> bytes:
    """The bytes with one thing wrong with them."""
    kind = dice.randrange(8)
    if kind < 3 and (changed := damaged_json(content, dice)) is not None:
        return changed
    if not content:
        return bytes(dice.randrange(256) for _ in range(dice.randrange(1, 40)))
    at = dice.randrange(len(content))
    if kind == 3:
        return content[:at]
    if kind == 4:
        return content[:at] + bytes(dice.randrange(256) for _ in range(dice.randrange(1, 9))) + content[at:]
    if kind == 5:
        end = min(len(content), at + dice.randrange(1, 65))
        return content[:end] + content[at:end] + content[end:]
    changed = bytearray(content)
    for _ in range(dice.choice((1, 1, 1, 4, 32))):
        where = dice.randrange(min(len(content), dice.choice((64, 4096, len(content)))))
        changed[where] = dice.choice((changed[where] ^ (1 << dice.randrange(8)), 0, 255, dice.randrange(256)))
    return bytes(changed)


def damaged_json(content: bytes, dice: random.Random) -> bytes | None:
    """One value, key or item changed in JSON, or in the header of safetensors; None where there is no JSON."""
    head = b""
    text = content
    rest = b""
    if len(content) > 8 and content[8:9] == b"{":
        (length,) = struct.unpack("<Q", content[:8])
        if length < len(content):
            head, text, rest = content[:8], content[8 : 8 + length], content[8 + length :]
    if text.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        value = json.loads(text)
    except ValueError:
        return None
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key in list(node) if isinstance(node, dict) else range(len(node)):
            places.append((node, key))
            if isinstance(node[key], dict | list):
                walk(node[key])

    walk(value)
    if not places:
        return None
    node, key = dice.choice(places)
    action = dice.randrange(4)
    if action == 0:
        del node[key]
    elif action == 1 and isinstance(node[key], int) and not isinstance(node[key], bool):
        node[key] = dice.choice((node[key] + 1, node[key] - 1, -node[key], node[key] * 1000, node[key] // 2))
    else:
        node[key] = dice.choice(ODD)
    made = json.dumps(value).encode()
    return (struct.pack("<Q", len(made)) + made + rest) if head else made


@dataclass(frozen=True)
class Case:
    """One damaged file: found again by its name, TARGET:SEED:NUMBER."""

    target: Target
    seed: int
    number: int

    @property
    def name(self) -> str:
        return f"{self.target.name}:{self.seed}:{self.number}"

    @classmethod
    def of(cls, name: str) -> "Case":
        target, seed, number = name.rsplit(":", 2)
        found = [t for t in TARGETS if t.name == target]
        if not found:
            raise SystemExit(f"no target {target!r}; targets: {', '.join(t.name for t in TARGETS)}")
        return cls(found[0], int(seed), int(number))

    def apply(self, folder: Path) -> Path | None:
        """Damages one file below the folder; None where there is none of that kind."""
        dice = random.Random(self.name)
        files = sorted(p for pattern in self.target.files for p in folder.glob(pattern) if p.is_file())
        if not files:
            return None
        path = dice.choice(files)
        path.write_bytes(damage(path.read_bytes(), dice))
        return path


def run_case(case: Case, files: Path, *, show: bool = False, damaged: bool = True) -> str:
    """'read', 'refused', or what went wrong."""
    work = files.with_name("work")
    shutil.rmtree(work, ignore_errors=True)
    files.rename(work)  # commands know some files by their path: every case runs in the same one
    shutil.copytree(work, files)
    try:
        path = case.apply(files) if damaged else files
        if path is None:
            return f"no file: {' '.join(case.target.files)}"
        if show:
            print(f"{case.name}: {path.relative_to(files)}")
        os.chdir(files)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        outcome = _command(case.target.command, show=show)
        more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        return f"memory: {more:.0f} MB more" if more > MEMORY else outcome
    finally:
        os.chdir(ROOT)
        shutil.rmtree(files, ignore_errors=True)
        work.rename(files)


def _command(words: tuple[str, ...], *, show: bool = False) -> str:
    if words[0] in ("onnx", "lite"):
        return _encoder(words[0], Path(words[1]))
    if words[0] == "resume":
        words = tuple(_recorded(words[1]))
    from elmokit.__main__ import main

    out, err, code = io.StringIO(), io.StringIO(), 0
    sys.argv = ["elmokit", *words]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException as error:
        if show:
            traceback.print_exc()
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
    if show:
        print(out.getvalue(), err.getvalue(), f"status {code}", sep="\n")
    if "Traceback" in err.getvalue():
        return "traceback: " + err.getvalue().strip().splitlines()[-1][:200]
    if code not in (0, 2):
        return f"status {code}: {err.getvalue().strip()[-200:]}"
    return "refused" if code else "read"


def _encoder(kind: str, path: Path) -> str:
    from elmokit.errors import ElmokitError
    from elmokit.integrations.onnx import OnnxElmo
    from elmokit.lite import LiteElmo
    from elmokit.native.library import c_library

    if kind == "lite" and c_library() is None:
        return "read"  # it runs in C alone: nothing to try
    try:
        found = OnnxElmo(path) if kind == "onnx" else LiteElmo.from_pretrained(path)
        found.encode_tokens("The owl sleeps.")
    except ElmokitError:
        return "refused"
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]
    return "read"


def _serve(pipe: Connection, scratch: str) -> None:
    """A process that runs cases until it is told to end, or dies of one."""
    import warnings

    warnings.simplefilter("ignore")
    os.environ.update(ELMOKIT_CACHE=str(Path(scratch) / "cache"), HF_HUB_OFFLINE="1")
    files = Path(scratch) / "files"
    make_files(files)
    for target in TARGETS:
        if (outcome := run_case(Case(target, 0, 0), files, damaged=False)) != "read":
            raise SystemExit(f"{target.name}, undamaged: {outcome}")
    pipe.send("ready")
    while (name := pipe.recv()) is not None:
        pipe.send(run_case(Case.of(name), files))


class Worker:
    """A process for the cases; a new one after a crash."""

    def __init__(self) -> None:
        self.scratch = tempfile.TemporaryDirectory()
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(other, self.scratch.name), daemon=True)
        self.process.start()
        other.close()
        try:
            self.pipe.recv()
        except EOFError:
            raise SystemExit(1) from None

    def run(self, case: Case) -> str:
        self.pipe.send(case.name)
        try:
            if self.pipe.poll(HANGS):
                return str(self.pipe.recv())
            outcome = f"hangs for {HANGS:.0f} s"
        except (EOFError, ConnectionError):
            self.process.join(5)
            outcome = f"crash: the process ended with {self.process.exitcode}"
        self.close()
        self.__init__()  # type: ignore[misc]  # a fresh process
        return outcome

    def close(self) -> None:
        self.process.kill()
        self.process.join()
        self.scratch.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", action="append", default=[], help="only targets that begin so")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--cases", type=int, default=0, help="so many per target instead of minutes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--again", help="one case by its name, with all that it says")
    given = parser.parse_args()
    if given.again:
        with tempfile.TemporaryDirectory() as scratch:
            os.environ.update(ELMOKIT_CACHE=str(Path(scratch) / "cache"), HF_HUB_OFFLINE="1")
            make_files(Path(scratch) / "files")
            print(run_case(Case.of(given.again), Path(scratch) / "files", show=True))
        return
    targets = [t for t in TARGETS if not given.target or t.name.startswith(tuple(given.target))]
    counts: dict[str, Counter[str]] = {t.name: Counter() for t in targets}
    worker, ends, number, found = Worker(), time.monotonic() + 60 * given.minutes, 0, 0
    while number < given.cases if given.cases else time.monotonic() < ends:
        for target in targets:
            case = Case(target, given.seed, number)
            outcome = worker.run(case)
            counts[target.name][outcome if outcome in ("read", "refused") else "found"] += 1
            if outcome not in ("read", "refused"):
                found += 1
                print(f"{case.name}  {outcome}", flush=True)
        number += 1
    worker.close()
    print(f"{'target':22}{'cases':>8}{'refused':>9}{'accepted':>9}{'found':>7}")
    for name, count in counts.items():
        print(f"{name:22}{sum(count.values()):8}{count['refused']:9}{count['read']:9}{count['found']:7}")
    total = sum(sum(count.values()) for count in counts.values())
    print(f"{total:,} damaged files, {found} findings")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
