"""Raw text to a prepared corpus, once: a second call with the same text and options finds what the first one wrote.

    blocks of lines -> workers number their words -> counter (runs on disk) and spool -> merge -> lexicon, shards

Memory: the parent holds one run of the counter (about 350 MB) and twice as many megabyte blocks as there are workers;
each worker some 80 MB; the merge about 30 bytes a distinct word. None of it grows with the length of the corpus.
"""

import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import ConfigError, ElmokitError, InputError
from elmokit.formats.ahead import available_workers
from elmokit.formats.locks import LOCK, locked
from elmokit.pretrain.corpus._counting import MOST_WORDS, WordCounter
from elmokit.pretrain.corpus._encoding import EncodedBlock, encode_blocks
from elmokit.pretrain.corpus._heldout import HeldOut, plan_heldout
from elmokit.pretrain.corpus._shards import SHARD_TOKENS, ShardInfo, ShardWriter
from elmokit.pretrain.corpus.duplicates import Duplicates
from elmokit.pretrain.corpus.files import ArrayWriter, FileCheck, TokenSpool
from elmokit.pretrain.corpus.lexicon import SPECIALS, Lexicon, Vocabulary
from elmokit.pretrain.corpus.manifest import (
    MANIFEST,
    VOCABULARY,
    CorpusReport,
    Manifest,
    PreparedCorpus,
    is_whole,
    read_identity,
)
from elmokit.pretrain.corpus.text import BLOCK_BYTES, Corpus, read_blocks
from elmokit.pretrain.journal import say
from elmokit.weights import TokenizerSpec

_BUILDING = "building"


class PrepareProgress(NamedTuple):
    """How far preparation has come: bytes of the files while reading, tokens while writing; sorting is short."""

    stage: Literal["reading", "sorting", "writing"]
    done: int
    total: int | None
    tokens: int  # met so far


@dataclass(frozen=True, kw_only=True)
class CorpusPlan:
    """What to make of a corpus."""

    vocab_size: int | None = None  # most words in the target vocabulary, <S> </S> <UNK> included; None: no limit
    min_count: int = 1
    vocabulary: Vocabulary | None = None  # words that come first, as in fine-tuning; no others without a vocab_size
    heldout: Corpus | float | None = None  # other text, a share of this one, or None: about 1%
    heldout_tokens: int = 200_000  # most tokens that a share may take
    max_characters: int = 50  # for the report: longer words lose their end
    shard_tokens: int = SHARD_TOKENS

    def __post_init__(self) -> None:
        if self.vocab_size is not None and self.vocab_size <= len(SPECIALS):
            raise ConfigError(f"vocab_size = {self.vocab_size}, expected more than the {len(SPECIALS)} special words")
        if self.vocabulary is not None and self.vocab_size is None and self.min_count != 1:
            raise ConfigError("a fixed vocabulary leaves nothing to min_count; drop one or the other")
        if self.vocabulary is not None and self.vocab_size is not None and self.vocab_size < len(self.vocabulary):
            raise ConfigError(
                f"vocab_size = {self.vocab_size:,}, but {len(self.vocabulary):,} words are fixed; expected no fewer"
            )

    def identity(self, corpus: Corpus) -> dict[str, Any] | None:
        """What the result depends on, as JSON; None where the text cannot be recognised when it comes again."""
        other = self.heldout.identity() if isinstance(self.heldout, Corpus) else self.heldout
        text = corpus.identity()
        if text is None or (other is None and self.heldout is not None):
            return None
        words = "\n".join(self.vocabulary.words) if self.vocabulary else ""
        named = ("vocab_size", "min_count", "heldout_tokens", "max_characters", "shard_tokens")
        options = {name: getattr(self, name) for name in named}
        return {"text": text, "heldout": other, "vocabulary_crc32": zlib.crc32(words.encode()), **options}


def _placeless(value: Any) -> Any:
    """An identity without what a copy of a file changes."""
    if isinstance(value, dict):
        return {key: _placeless(inner) for key, inner in value.items() if key not in ("path", "mtime_ns")}
    return [_placeless(inner) for inner in value] if isinstance(value, list) else value


def prepare(
    corpus: Corpus,
    folder: str | Path,
    plan: CorpusPlan | None = None,
    *,
    workers: int | None = None,
    most_words: int = MOST_WORDS,
    block_bytes: int = BLOCK_BYTES,
    progress: Callable[[PrepareProgress], None] | None = None,
    replace: bool = True,
    check: Callable[[str], None] | None = None,
) -> PreparedCorpus:
    """The prepared form of a corpus: what lies in `folder` if it was made of the same text in the same way, else new.

    `workers` processes tokenise (None: one per CPU; 1 needs no process but this one). They are started afresh, so a
    script that calls this with more than one needs the usual `if __name__ == "__main__":`. `most_words` distinct words
    are kept in memory at a time. None of these changes the result. One process prepares; others wait and then open.
    Without `replace`, a folder that holds other prepared text is an InputError. `check` is called with the fingerprint
    of new text before it replaces anything, and may raise.
    """
    plan, folder = plan or CorpusPlan(), Path(folder)
    identity = plan.identity(corpus)
    if identity is not None and read_identity(folder) == identity:
        return PreparedCorpus.open(folder)
    if not replace and is_whole(folder):
        alike = identity is not None and _placeless(read_identity(folder)) == _placeless(identity)
        other = (
            "from files of the same sizes, which then had another date or place"
            if alike
            else "from other text or with other settings"
        )
        raise InputError(
            f"{folder}: holds text that was prepared {other}; to train on what is there, leave the corpus out. Or "
            "choose another folder, or remove it"
        )
    busy = f"{folder}: another process prepares text there; wait until it is done, or choose another folder"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _building(folder / _BUILDING, busy=busy) as building:
            build = Build(
                building,
                plan,
                workers=available_workers() if workers is None else workers,
                most_words=most_words,
                block_bytes=block_bytes,
                progress=progress or _ignore,
            )
            manifest = build.run(corpus, identity)
            if check is not None:
                check(manifest.fingerprint)
            _move(building, folder, manifest.files)
            manifest.write(folder)
    except OSError as error:
        raise ElmokitError(
            f"{folder}: the corpus cannot be prepared there: {error.strerror or error}; making it takes 8 bytes of "
            "disk a token, keeping it 4; free some space or choose another folder"
        ) from error
    return PreparedCorpus.open(folder)


@contextmanager
def _building(folder: Path, *, busy: str) -> Iterator[Path]:
    """A folder for files that are not finished: empty, locked, and removed after the block."""
    with locked(folder / LOCK, busy=busy):
        try:
            for left in folder.iterdir():  # by a kill
                if left.name != LOCK:
                    left.unlink()
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _ignore(progress: PrepareProgress) -> None:
    pass


def _move(building: Path, folder: Path, names: Iterable[str]) -> None:
    """The finished files into their place. The old manifest goes first: from then on nothing there looks complete."""
    (folder / MANIFEST).unlink(missing_ok=True)
    for stale in (*folder.glob("train-?????.*"), *folder.glob("heldout-?????.*")):
        stale.unlink()
    for name in names:
        (building / name).replace(folder / name)


class Build:
    """Makes all files but the manifest in an empty folder; `run` makes that."""

    def __init__(
        self,
        folder: Path,
        plan: CorpusPlan,
        *,
        workers: int,
        most_words: int,
        block_bytes: int,
        progress: Callable[[PrepareProgress], None],
    ) -> None:
        self.folder, self.plan, self.workers = folder, plan, workers
        self.block_bytes, self.progress = block_bytes, progress
        first = plan.vocabulary.words if plan.vocabulary else SPECIALS
        self.counter = WordCounter(folder, first=first, most_words=most_words)
        self.train, self.heldout = TokenSpool(folder, "train"), TokenSpool(folder, "heldout")
        self.met = dict.fromkeys(("lines", "empty_lines", "cut_lines", "bad_bytes"), 0)

    def run(self, corpus: Corpus, identity: dict[str, Any] | None) -> Manifest:
        other, limit = self.plan.heldout, self.plan.heldout_tokens
        with self.train, self.heldout:
            if isinstance(other, Corpus):
                self._read(corpus, HeldOut(period=0, group=1, tokens=0))
                self._read(other, None)
            else:
                self._read(corpus, plan_heldout(other, tokens=limit, estimated=corpus.estimated_tokens()))
        if not self.train.sentences:
            raise InputError(
                f"the corpus holds no words to train on ({self.met['lines']} lines, {self.met['empty_lines']} of them "
                f"empty, {self.heldout.sentences} sentences held out); give it more text"
            )
        self.progress(PrepareProgress("sorting", 0, None, self._tokens))
        files = self.counter.finish(self.folder)
        lexicon = Lexicon.open(self.folder, files, contents=False)
        vocabulary = Vocabulary(lexicon.first_words(self._vocabulary_size(lexicon)))
        with ArrayWriter(self.folder / VOCABULARY) as writer:
            writer.write(np.frombuffer(vocabulary.to_bytes(), dtype=np.uint8))
            files[VOCABULARY] = writer.close()
        train, _ = self._write_shards(self.train, "train", len(vocabulary), files)
        heldout, known = self._write_shards(self.heldout, "heldout", len(vocabulary), files)
        return Manifest(
            identity=identity,
            tokenizer=TokenizerSpec(corpus.tokenizer.name, corpus.tokenizer.version),
            report=self._report(lexicon, len(vocabulary), known),
            files=files,
            train=train,
            heldout=heldout,
        )

    @property
    def _tokens(self) -> int:
        return self.train.tokens + self.heldout.tokens

    def _read(self, corpus: Corpus, held: HeldOut | None) -> None:
        """Tokenise and count a corpus; None holds out all of it."""
        total, paragraphs = corpus.size, 0
        blocks, duplicates = read_blocks(corpus, block_bytes=self.block_bytes), Duplicates()
        if corpus.dedupe:
            blocks = duplicates.filter(blocks, field=corpus.field)
        for block in encode_blocks(blocks, corpus.reading, workers=self.workers):
            for name in self.met:
                self.met[name] += getattr(block, name)
            if held is None:
                mask = np.ones(len(block.lengths), dtype=np.bool_)
            else:
                mask = held.choose(block.paragraphs.astype(np.int64) + paragraphs, block.lengths)
            self._take(block, mask)
            paragraphs += int(block.paragraphs[-1]) + 1 if len(block.paragraphs) else 0
            self.progress(PrepareProgress("reading", block.consumed, total, self._tokens))
        if corpus.dedupe:
            say(f"left out: {duplicates.report.told()}")

    def _take(self, block: EncodedBlock, held: NDArray[np.bool_]) -> None:
        """Count the training words of a block and spool its sentences, held-out ones apart."""
        numbers = self.counter.number(block.words.split("\n") if block.words else [])
        inside = ~np.repeat(held, block.lengths)  # (tokens,)
        trained = block.tokens[inside]
        self.counter.add(numbers, np.bincount(trained, minlength=len(numbers)))
        self.train.add(self.counter.run, numbers[trained], block.lengths[~held])
        self.heldout.add(self.counter.run, numbers[block.tokens[~inside]], block.lengths[held])
        self.counter.end_block()

    def _vocabulary_size(self, lexicon: Lexicon) -> int:
        plan = self.plan
        fixed = len(plan.vocabulary or SPECIALS)
        if plan.vocabulary is not None and plan.vocab_size is None:
            return fixed
        # Words of the held-out text alone have count 0 and are never targets.
        frequent = lexicon.counts[fixed:] >= max(plan.min_count, 1)
        size = fixed + int(np.count_nonzero(frequent))
        return min(size, plan.vocab_size or size)

    def _write_shards(
        self, spool: TokenSpool, part: str, size: int, files: dict[str, FileCheck]
    ) -> tuple[list[ShardInfo], int]:
        """The shards of a part, and how many of its tokens are in the vocabulary."""
        known = done = 0
        current, final = -1, np.zeros(0, dtype=np.uint32)
        with ShardWriter(self.folder, part, shard_tokens=self.plan.shard_tokens) as writer:
            for run, tokens, lengths in spool.chunks():
                if run != current:
                    current, final = run, self.counter.lexicon_numbers(run)
                numbers = final[tokens]
                writer.write(numbers, lengths)
                known += int(np.count_nonzero(numbers < size))
                done += len(tokens)
                self.progress(PrepareProgress("writing", done, spool.tokens, self._tokens))
            writer.close()
        files |= writer.files
        return writer.infos, known

    def _report(self, lexicon: Lexicon, size: int, heldout_known: int) -> CorpusReport:
        overlong = lexicon.lengths > self.plan.max_characters - 2
        known = int(lexicon.counts[:size].sum())
        return CorpusReport(
            **self.met,
            sentences=self.train.sentences,
            tokens=self.train.tokens,
            types=int(np.count_nonzero(lexicon.counts)),
            vocabulary=size,
            coverage=known / self.train.tokens,
            overlong_types=int(np.count_nonzero(overlong & (lexicon.counts > 0))),
            overlong_tokens=int(lexicon.counts[overlong].sum()),
            heldout_sentences=self.heldout.sentences,
            heldout_tokens=self.heldout.tokens,
            heldout_coverage=heldout_known / max(self.heldout.tokens, 1),
        )
