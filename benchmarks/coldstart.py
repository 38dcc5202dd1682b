"""How long a cold process takes to its first vector, part by part: `Elmo` with torch, and `elmokit.lite` without.

    python benchmarks/coldstart.py [--model en] [--rounds 7] [--tree OTHER] [--clock process_time] [--installed]

Each round starts every way once in a fresh interpreter, so that a busy machine is busy for all of them; the median of
each part counts. "ours" is all but the interpreter, torch and NumPy. Bytecode is there, as after an install: a round
before the first writes it. `--tree` is another version's tree, to be compared: `git worktree add OTHER COMMIT`.
`--clock process_time` counts processor time of all threads, which a busy machine changes less. `--installed` also
builds a wheel, installs it with NumPy alone into an empty environment (a package index is needed) and says how many MB
that takes.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MARK = """
import json, time
clock = time.CLOCK
parts, last = {}, clock()
def mark(name):
    global last
    now = clock()
    parts[name], last = now - last, now
"""
END = "print(json.dumps(parts))"
SENTENCE = "He sat on the bank of the river."
WAYS = {
    "Elmo": [
        ("import numpy", "import numpy"),
        ("import torch", "import torch"),
        ("import elmokit", "from elmokit import Elmo, load_pretrained"),
        ("read the model", "pretrained = load_pretrained({model!r})"),
        ("lay it out", "elmo = Elmo(pretrained, device='cpu')"),
        ("first vector", "elmo.encode({sentence!r})"),
        ("second vector", "elmo.encode({sentence!r})"),
    ],
    "LiteElmo": [
        ("import numpy", "import numpy"),
        ("import elmokit", "from elmokit.lite import LiteElmo"),
        ("read the model", "elmo = LiteElmo.from_pretrained({model!r})"),
        ("first vector", "elmo.encode({sentence!r})"),
        ("second vector", "elmo.encode({sentence!r})"),
    ],
}
THEIRS = ("interpreter", "import numpy", "import torch")


def script(way: str, model: str, clock: str) -> str:
    lines = [MARK.replace("CLOCK", clock)]
    for name, code in WAYS[way.split(",")[0]]:
        lines += [code.format(model=model, sentence=SENTENCE), f"mark({name!r})"]
    return "\n".join([*lines, END])


def measure(way: str, tree: Path, options: argparse.Namespace, bytecode: str) -> dict[str, float]:
    """Seconds of each part; the interpreter's are what is left of the whole."""
    around = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    around |= {"PYTHONPATH": str(tree / "src"), "PYTHONPYCACHEPREFIX": bytecode}
    command = [sys.executable, "-c", script(way, options.model, options.clock)]
    before, begin = os.times(), time.perf_counter()
    ran = subprocess.run(command, check=True, capture_output=True, text=True, env=around)
    after, took = os.times(), time.perf_counter() - begin
    if options.clock == "process_time":
        took = after.children_user + after.children_system - before.children_user - before.children_system
    parts: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return {"interpreter": took - sum(parts.values()), **parts}


def installed() -> str:
    """Megabytes of an environment with elmokit and NumPy alone."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, str(ROOT)], check=True)
        [wheel] = home.glob("*.whl")
        subprocess.run([sys.executable, "-m", "venv", str(home / "env")], check=True)
        pip = [str(home / "env/bin/python"), "-m", "pip", "install", "-q"]
        subprocess.run([*pip, "numpy"], check=True)
        subprocess.run([*pip, "--no-deps", str(wheel)], check=True)
        sizes: dict[str, int] = {}
        [packages] = (home / "env").glob("lib/python3*/site-packages")
        for path in packages.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                top = path.relative_to(packages).parts[0].partition("-")[0].partition(".")[0]
                sizes[top] = sizes.get(top, 0) + path.stat().st_size
        kept = {name: sizes.get(name, 0) / 1e6 for name in ("elmokit", "numpy")}
        kept["elmokit"] = sizes.get("elmokit", 0) / 1e6
        return (
            ", ".join(f"{name} {size:.1f} MB" for name, size in kept.items())
            + f"; wheel {wheel.stat().st_size / 1e6:.1f} MB"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="en")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--installed", action="store_true")
    parser.add_argument("--tree", type=Path, help="another version's tree")
    parser.add_argument("--clock", choices=["perf_counter", "process_time"], default="perf_counter")
    options = parser.parse_args()
    ways = dict.fromkeys(WAYS, ROOT) | ({} if options.tree is None else {"Elmo, other": options.tree.resolve()})
    rounds: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as bytecode:
        for k in range(-1, options.rounds):
            for way, tree in ways.items():
                told = measure(way, tree, options, bytecode)
                if k >= 0:
                    rounds[way].append(told)
    kind = "of processor time" if options.clock == "process_time" else "by the clock"
    print(f"milliseconds {kind}, median of {options.rounds}, {os.cpu_count()} cores, model {options.model}")
    print(f"{'':16}" + "".join(f"{way:>12}" for way in ways))
    medians = {way: {k: statistics.median(one[k] for one in told) for k in told[0]} for way, told in rounds.items()}
    for part in medians["Elmo"]:
        print(f"{part:16}" + "".join(f"{1000 * medians[way].get(part, 0):12.1f}" for way in ways))
    for name, left in (("to first vector", ("second vector",)), ("of that, ours", (*THEIRS, "second vector"))):
        sums = {way: sum(v for k, v in told.items() if k not in left) for way, told in medians.items()}
        print(f"{name:16}" + "".join(f"{1000 * sums[way]:12.1f}" for way in ways))
    if options.installed:
        print(f"installed: {installed()}")


if __name__ == "__main__":
    main()
