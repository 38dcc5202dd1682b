"""How long `elmokit --help` takes, beside importing typer and rich, which it cannot do without.

    python benchmarks/startup.py [--rounds 15]

Each round starts every command once in a fresh interpreter, so that a busy machine is busy for all of them; the best
round of each counts. Exits with 1 where the help takes more than 2.5 times as long as the imports.
"""

import argparse
import subprocess
import sys
import time

LIMIT = 2.5
IMPORTS = "import typer, rich"
COMMANDS = {
    "python -c pass": ["-c", "pass"],
    f"python -c '{IMPORTS}'": ["-c", IMPORTS],
    "python -c 'import elmokit'": ["-c", "import elmokit"],
    "elmokit --help": ["-m", "elmokit", "--help"],
    "elmokit embed --help": ["-m", "elmokit", "embed", "--help"],
}


def seconds(arguments: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    best = dict.fromkeys(COMMANDS, float("inf"))
    for _ in range(rounds):
        for name, arguments in COMMANDS.items():
            best[name] = min(best[name], seconds(arguments))
    base = best[f"python -c '{IMPORTS}'"]
    print(f"best of {rounds}, in milliseconds, and as a multiple of the imports")
    for name, took in best.items():
        print(f"{name:32} {1000 * took:7.0f} {took / base:7.2f}")
    if best["elmokit --help"] > LIMIT * base:
        sys.exit(f"elmokit --help takes {best['elmokit --help'] / base:.2f} times as long as the imports, over {LIMIT}")


if __name__ == "__main__":
    main()
