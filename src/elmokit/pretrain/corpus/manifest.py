"""A prepared corpus: a folder with the vocabulary, the lexicon, the shards, and a manifest that lists them.

The manifest is written last and names every file with its size and checksum: a folder without one is unfinished.
"""

import json
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from elmokit.config import Count, Positive, Share, plain, read_json
from elmokit.errors import FormatError, InputError
from elmokit.formats.atomic import write_text
from elmokit.pretrain.corpus._shards import Shard, ShardedCorpus, ShardInfo
from elmokit.pretrain.corpus.files import FileCheck, check_file
from elmokit.pretrain.corpus.lexicon import COUNTS, STARTS, TEXT, Lexicon, Vocabulary
from elmokit.weights import TokenizerSpec

MANIFEST, VOCABULARY = "manifest.json", "vocab.txt"
FORMAT_VERSION = 1
ADVICE = "delete the folder that holds it and prepare the corpus again"


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusReport:
    """What was found in a corpus. Words and coverage are of the training part unless they say otherwise."""

    lines: Count
    empty_lines: Count
    cut_lines: Count  # too long to be read whole
    bad_bytes: Count
    sentences: Positive
    tokens: Positive
    types: Count
    vocabulary: Positive  # the size of the target vocabulary, <S> </S> <UNK> included
    coverage: Share  # the share of tokens that are in it
    overlong_types: Count  # words that lose their end to the character limit
    overlong_tokens: Count
    heldout_sentences: Count
    heldout_tokens: Count
    heldout_coverage: Share


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What manifest.json holds besides its format version."""

    identity: dict[str, Any] | None = None  # what the corpus was made of; None: it would not be known again
    tokenizer: TokenizerSpec
    report: CorpusReport
    files: dict[str, FileCheck]
    train: list[ShardInfo]
    heldout: list[ShardInfo]

    def __post_init__(self) -> None:
        """Every file that is read must be listed, with the size that the numbers of the manifest ask for."""
        for name in self.files:
            if Path(name).name != name:
                raise FormatError(f"files names {name!r}; expected the name of a file in the folder")
        for name, size in self._sizes():
            if name not in self.files:
                raise FormatError(f"files lacks {name}")
            if size is not None and self.files[name].bytes != size:
                raise FormatError(f"files.{name}.bytes is {self.files[name].bytes}; expected {size}")

    def _sizes(self) -> Iterator[tuple[str, int | None]]:
        yield from ((VOCABULARY, None), (TEXT, None), (COUNTS, None))
        yield STARTS, self.files[COUNTS].bytes + 8
        for shard in (*self.train, *self.heldout):
            yield f"{shard.name}.tokens", 4 * shard.tokens
            yield f"{shard.name}.starts", 4 * (shard.sentences + 1)

    @property
    def fingerprint(self) -> str:
        """Identifies the contents of the files."""
        checks = {name: asdict(check) for name, check in self.files.items()}
        return f"{zlib.crc32(json.dumps(checks, sort_keys=True).encode()):08x}"

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        version = {"format_version": FORMAT_VERSION}
        return read_json(folder / MANIFEST, cls, what="a prepared corpus", advice=ADVICE, marks=version)

    def write(self, folder: Path) -> None:
        content = {"format_version": FORMAT_VERSION, **plain(self), "tokenizer": self.tokenizer._asdict()}
        write_text(folder / MANIFEST, json.dumps(content, indent=1) + "\n")


class PreparedCorpus:
    """Everything that training needs to know of a corpus, read from its folder alone."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest
        self.files, self.report, self.tokenizer = manifest.files, manifest.report, manifest.tokenizer
        self.train, self.heldout = self._part(manifest.train), self._part(manifest.heldout)

    @classmethod
    def open(cls, folder: str | Path) -> "PreparedCorpus":
        """The corpus that `prepare` wrote to this folder. Sizes are checked here, contents when they are first used."""
        folder = Path(folder)
        if not (folder / MANIFEST).exists():
            raise InputError(f"{folder}: holds no finished corpus ({MANIFEST} is missing); prepare it first")
        prepared = cls(folder, Manifest.read(folder))
        for name, check in prepared.files.items():
            check_file(folder / name, check, contents=False)
        return prepared

    def _part(self, infos: list[ShardInfo]) -> ShardedCorpus:
        return ShardedCorpus([Shard(self.folder, info, self.files) for info in infos])

    @cached_property
    def lexicon(self) -> Lexicon:
        return Lexicon.open(self.folder, self.files)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The target vocabulary: the first words of the lexicon."""
        check_file(self.folder / VOCABULARY, self.files[VOCABULARY])
        return Vocabulary.from_file(self.folder / VOCABULARY)

    @property
    def fingerprint(self) -> str:
        """Identifies this prepared text: a checkpoint keeps it to notice that its data has changed."""
        return self.manifest.fingerprint


def read_identity(folder: Path) -> dict[str, Any] | None:
    """What the corpus in a folder was made of; None where there is none that this version can use."""
    try:
        return Manifest.read(folder).identity
    except FormatError:
        return None


def is_whole(folder: Path) -> bool:
    """Whether a folder holds prepared text that this version can use."""
    try:
        Manifest.read(folder)
    except FormatError:
        return False
    return True
