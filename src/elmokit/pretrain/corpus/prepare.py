"""Raw text to a prepared corpus, once: a second call with the same text and options takes what the first one left."""

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from elmokit.errors import ElmokitError
from elmokit.pretrain.corpus.build import Build, Preparation, Progress
from elmokit.pretrain.corpus.counting import MOST_WORDS
from elmokit.pretrain.corpus.encoding import available_workers
from elmokit.pretrain.corpus.prepared import MANIFEST, PreparedCorpus, read_identity, write_manifest
from elmokit.pretrain.corpus.text import BLOCK_BYTES, Corpus

_BUILDING = "building"


def prepare(
    corpus: Corpus,
    folder: str | Path,
    preparation: Preparation | None = None,
    *,
    workers: int | None = None,
    most_words: int = MOST_WORDS,
    block_bytes: int = BLOCK_BYTES,
    progress: Callable[[Progress], None] | None = None,
) -> PreparedCorpus:
    """The prepared form of a corpus: what lies in `folder` if it was made of the same text in the same way, else new.

    `workers` processes tokenise (None: one per CPU; 1 needs no process but this one). They are started afresh, so a
    script that calls this with more than one needs the usual `if __name__ == "__main__":`. `most_words` distinct words
    are kept in memory at a time. None of these changes the result. One process prepares; others wait and then open.
    """
    preparation, folder = preparation or Preparation(), Path(folder)
    identity = preparation.identity(corpus)
    if identity is not None and read_identity(folder) == identity:
        return PreparedCorpus.open(folder)
    building = folder / _BUILDING
    try:
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir(parents=True)
        build = Build(
            building,
            preparation,
            workers=available_workers() if workers is None else workers,
            most_words=most_words,
            block_bytes=block_bytes,
            progress=progress or _ignore,
        )
        manifest = build.run(corpus)
        _move(building, folder, manifest["files"])
        write_manifest(folder, {"identity": identity, **manifest})
    except OSError as error:
        raise ElmokitError(
            f"{folder}: the corpus cannot be prepared there: {error.strerror or error}; making it takes 8 bytes of "
            "disk a token, keeping it 4; free some space or choose another folder"
        ) from error
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return PreparedCorpus.open(folder)


def _ignore(progress: Progress) -> None:
    pass


def _move(building: Path, folder: Path, names: Iterable[str]) -> None:
    """The finished files into their place. The old manifest goes first: from then on nothing there looks complete."""
    (folder / MANIFEST).unlink(missing_ok=True)
    for stale in (*folder.glob("train-?????.*"), *folder.glob("heldout-?????.*")):
        stale.unlink()
    for name in names:
        (building / name).replace(folder / name)
