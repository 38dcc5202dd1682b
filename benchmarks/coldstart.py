"""How long a cold process takes to its first vector, part by part: `Elmo` with torch, and `elmokit.lite` without.

    python benchmarks/coldstart.py [--model en] [--rounds 7] [--installed]

Each round starts every way once in a fresh interpreter, so that a busy machine is busy for all of them; the median of
each part counts. "ours" is all but the interpreter, torch and NumPy. `--installed` also builds a wheel, installs it
with NumPy alone into an empty environment (a package index is needed) and says how many MB that takes.
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
parts, last = {}, time.perf_counter()
def mark(name):
    global last
    now = time.perf_counter()
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


def script(way: str, model: str) -> str:
    lines = [MARK]
    for name, code in WAYS[way]:
        lines += [code.format(model=model, sentence=SENTENCE), f"mark({name!r})"]
    return "\n".join([*lines, END])


def measure(way: str, model: str) -> dict[str, float]:
    """Seconds of each part; the interpreter's are what is left of the whole."""
    begin = time.perf_counter()
    ran = subprocess.run([sys.executable, "-c", script(way, model)], check=True, capture_output=True, text=True)
    took = time.perf_counter() - begin
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
    options = parser.parse_args()
    rounds: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(options.rounds):
        for way in WAYS:
            rounds[way].append(measure(way, options.model))
    print(f"milliseconds, median of {options.rounds}, {os.cpu_count()} cores, model {options.model}")
    print(f"{'':16}" + "".join(f"{way:>10}" for way in WAYS))
    medians = {way: {k: statistics.median(one[k] for one in told) for k in told[0]} for way, told in rounds.items()}
    for part in medians["Elmo"]:
        print(f"{part:16}" + "".join(f"{1000 * medians[way].get(part, 0):10.1f}" for way in WAYS))
    for name, left in (("to first vector", ("second vector",)), ("of that, ours", (*THEIRS, "second vector"))):
        sums = {way: sum(v for k, v in told.items() if k not in left) for way, told in medians.items()}
        print(f"{name:16}" + "".join(f"{1000 * sums[way]:10.1f}" for way in WAYS))
    if options.installed:
        print(f"installed: {installed()}")


if __name__ == "__main__":
    main()
