"""The bundled model, and indexes of real text: the sample of the package, in two parts, and an empty one."""

from pathlib import Path

import pytest

from elmokit.encoders import Elmo
from elmokit.explore import Explorer
from elmokit.index import Index, IndexSettings

SAMPLE = Path(__file__).resolve().parents[2] / "src" / "elmokit" / "cli" / "sample.txt"


@pytest.fixture(scope="session")
def elmo() -> Elmo:
    return Elmo.from_pretrained()


@pytest.fixture(scope="session")
def indexes(elmo: Elmo, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders: `whole` (two texts), `first` and `second` (its halves), `layered` (all layers), `empty`."""
    folder = tmp_path_factory.mktemp("indexes")
    lines = [line for line in SAMPLE.read_text(encoding="utf-8").splitlines() if line.strip()]
    halves = {"first": lines[::2], "second": lines[1::2]}
    split = {name: [s for line in some for s in elmo.tokenizer.split(line)] for name, some in halves.items()}
    for name, sentences in split.items():
        Index.build(elmo, sentences, folder / name, name=f"{name}.txt (0)")
        Index.build(elmo, sentences, folder / "whole", name=f"{name}.txt (0)")
    concat = IndexSettings(layers="concat:0..2")
    Index.build(elmo, split["first"], folder / "layered", settings=concat, name="first.txt (0)")
    Index.begin(elmo, folder / "empty")
    return {name: folder / name for name in ("whole", "first", "second", "layered", "empty")}


@pytest.fixture(scope="session")
def explorer(elmo: Elmo, indexes: dict[str, Path]) -> Explorer:
    return Explorer(elmo, indexes={name: Index.open(folder) for name, folder in indexes.items()})
