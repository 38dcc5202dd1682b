"""What the checksums of weights cost when a model is loaded.

    python benchmarks/loading.py [--model FOLDER] [--rounds 25]

Loads a model (default: the bundled one) as it is and a copy that states no checksums, as 0.1.0 wrote them, in turn, so
that a busy machine is busy for both; the best round of each counts. The files lie in the system's cache. Exits with 1
where checksums make a tenth or more.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

from elmokit import Elmo, load_pretrained
from elmokit.weights.described import BUNDLED, CONFIG, DEFAULT

LIMIT = 1.1


def seconds(folder: Path) -> tuple[float, float]:
    """To read the weights, and until a sentence could be embedded."""
    began = time.perf_counter()
    pretrained = load_pretrained(folder, softmax=False)
    read = time.perf_counter() - began
    Elmo(pretrained, device="cpu")
    return read, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=BUNDLED / DEFAULT)
    parser.add_argument("--rounds", type=int, default=25)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        other = Path(scratch) / "model"
        shutil.copytree(given.model, other)
        config = json.loads((other / CONFIG).read_text(encoding="utf-8"))
        del config["weights"]["checksums"], config["checksum"]
        (other / CONFIG).write_text(json.dumps(config), encoding="utf-8")
        folders = {"with checksums": given.model, "without": other}
        rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in folders}
        for _ in range(given.rounds):
            for name, folder in folders.items():
                rounds[name].append(seconds(folder))
    print(f"{'best of ' + str(given.rounds) + ', in milliseconds':32}{'read':>8}{'ready':>8}")
    best = {name: [min(times) for times in zip(*made, strict=True)] for name, made in rounds.items()}
    for name, (read, ready) in best.items():
        print(f"{name:32}{1e3 * read:8.1f}{1e3 * ready:8.1f}")
    ratio = best["with checksums"][1] / best["without"][1]
    print(f"{ratio:.3f} of the time without")
    sys.exit(ratio >= LIMIT)


if __name__ == "__main__":
    main()
