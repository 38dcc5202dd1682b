"""A prepared corpus: a folder with the vocabulary, the lexicon, the shards, and a manifest that vouches for them.

The manifest is written last and names every file with its size and checksum: a folder without one is unfinished.
"""

import json
import zlib
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from elmokit.errors import FormatError, InputError
from elmokit.formats import write_text
from elmokit.pretrain.corpus.files import FileCheck, check_file
from elmokit.pretrain.corpus.lexicon import Lexicon, Vocabulary
from elmokit.pretrain.corpus.shards import Shard, ShardedCorpus, ShardInfo

MANIFEST, VOCABULARY = "manifest.json", "vocab.txt"
FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusReport:
    """What was found in a corpus. Words and coverage are of the training part unless they say otherwise."""

    lines: int
    empty_lines: int
    cut_lines: int  # too long to be read whole
    bad_bytes: int
    sentences: int
    tokens: int
    types: int
    vocabulary: int  # the size of the target vocabulary, <S> </S> <UNK> included
    coverage: float  # the share of tokens that are in it
    overlong_types: int  # words that lose their end to the character limit
    overlong_tokens: int
    heldout_sentences: int
    heldout_tokens: int
    heldout_coverage: float


class PreparedCorpus:
    """Everything that training needs to know of a corpus, read from its folder alone."""

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder, self.manifest = folder, manifest
        self.files = {name: FileCheck(**check) for name, check in manifest["files"].items()}
        self.report = CorpusReport(**manifest["report"])
        self.tokenizer_name: str = manifest["tokenizer"]["name"]
        self.tokenizer_version: int = manifest["tokenizer"]["version"]
        self.train = self._part("train")
        self.heldout = self._part("heldout")

    @classmethod
    def open(cls, folder: str | Path) -> "PreparedCorpus":
        """The corpus that `prepare` left in this folder. Sizes are checked here, contents when they are first used."""
        folder = Path(folder)
        try:
            manifest = json.loads((folder / MANIFEST).read_bytes())
        except FileNotFoundError as error:
            raise InputError(f"{folder}: holds no finished corpus ({MANIFEST} is missing); prepare it first") from error
        except (ValueError, OSError) as error:
            raise FormatError(f"{folder / MANIFEST}: cannot be read ({error}); prepare the corpus again") from error
        if not isinstance(manifest, dict) or manifest.get("format_version") != FORMAT_VERSION:
            found = manifest.get("format_version") if isinstance(manifest, dict) else manifest
            raise FormatError(
                f"{folder / MANIFEST}: has format version {found}, expected {FORMAT_VERSION}; prepare the corpus again"
            )
        prepared = cls(folder, manifest)
        for name, check in prepared.files.items():
            check_file(folder / name, check, contents=False)
        return prepared

    def _part(self, part: str) -> ShardedCorpus:
        infos = [ShardInfo(**info) for info in self.manifest[part]]
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
        """Tells this prepared text from any other: a checkpoint keeps it to notice that its data has changed."""
        checks = {name: asdict(check) for name, check in self.files.items()}
        return f"{zlib.crc32(json.dumps(checks, sort_keys=True).encode()):08x}"


def read_identity(folder: Path) -> Any:
    """What the corpus in a folder was made of; None where there is none that this version can use."""
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except (ValueError, OSError):
        return None
    current = isinstance(manifest, dict) and manifest.get("format_version") == FORMAT_VERSION
    return manifest.get("identity") if current else None


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    write_text(folder / MANIFEST, json.dumps({"format_version": FORMAT_VERSION, **manifest}, indent=1) + "\n")
