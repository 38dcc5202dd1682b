"""The making of a prepared corpus: one pass over the text, the merge of the words, one pass over the spooled numbers.

    blocks of lines -> workers number their words -> counter (runs on disk) and spool -> merge -> lexicon, shards

Memory: the parent holds one run of the counter (about 350 MB) and twice as many megabyte blocks as there are workers;
each worker some 80 MB; the merge about 30 bytes a distinct word. None of it grows with the length of the corpus.
"""

import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import ConfigError, InputError
from elmokit.pretrain.corpus.counting import WordCounter
from elmokit.pretrain.corpus.encoding import EncodedBlock, encode_blocks
from elmokit.pretrain.corpus.files import ArrayWriter, FileCheck
from elmokit.pretrain.corpus.heldout import HeldOut, plan_heldout
from elmokit.pretrain.corpus.lexicon import Lexicon
from elmokit.pretrain.corpus.prepared import VOCABULARY, CorpusReport
from elmokit.pretrain.corpus.shards import SHARD_TOKENS, ShardWriter
from elmokit.pretrain.corpus.spool import TokenSpool
from elmokit.pretrain.corpus.text import Corpus, read_blocks
from elmokit.pretrain.corpus.vocabulary import SPECIALS, Vocabulary


class Progress(NamedTuple):
    """How far preparation has come: bytes of the files while reading, tokens while writing; sorting is short."""

    stage: Literal["reading", "sorting", "writing"]
    done: int
    total: int | None
    tokens: int  # met so far


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """What to make of a corpus."""

    vocab_size: int | None = None  # most words in the target vocabulary, <S> </S> <UNK> included; None: no limit
    min_count: int = 1
    vocabulary: Vocabulary | None = None  # a fixed one instead, as in fine-tuning
    heldout: Corpus | float | None = None  # other text, a share of this one, or None: about 1%
    heldout_tokens: int = 200_000  # most tokens that a share may take
    max_characters: int = 50  # for the report: longer words lose their end
    shard_tokens: int = SHARD_TOKENS

    def __post_init__(self) -> None:
        if self.vocab_size is not None and self.vocab_size <= len(SPECIALS):
            raise ConfigError(f"vocab_size = {self.vocab_size}, expected more than the {len(SPECIALS)} special words")
        if self.vocabulary is not None and (self.vocab_size is not None or self.min_count != 1):
            raise ConfigError("a fixed vocabulary leaves nothing to vocab_size and min_count; drop one or the other")

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


class Build:
    """Makes all files but the manifest in an empty folder; `run` gives what stands in the manifest."""

    def __init__(
        self,
        folder: Path,
        preparation: Preparation,
        *,
        workers: int,
        most_words: int,
        block_bytes: int,
        progress: Callable[[Progress], None],
    ) -> None:
        self.folder, self.preparation, self.workers = folder, preparation, workers
        self.block_bytes, self.progress = block_bytes, progress
        first = preparation.vocabulary.words if preparation.vocabulary else SPECIALS
        self.counter = WordCounter(folder, first=first, most_words=most_words)
        self.train, self.heldout = TokenSpool(folder, "train"), TokenSpool(folder, "heldout")
        self.met = dict.fromkeys(("lines", "empty_lines", "cut_lines", "bad_bytes"), 0)

    def run(self, corpus: Corpus) -> dict[str, Any]:
        other, limit = self.preparation.heldout, self.preparation.heldout_tokens
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
        self.progress(Progress("sorting", 0, None, self._tokens))
        files = self.counter.finish(self.folder)
        lexicon = Lexicon.open(self.folder, files)
        vocabulary = Vocabulary(lexicon.first_words(self._vocabulary_size(lexicon)))
        with ArrayWriter(self.folder / VOCABULARY) as writer:
            writer.write(np.frombuffer(vocabulary.to_bytes(), dtype=np.uint8))
            files[VOCABULARY] = writer.close()
        train, _ = self._write_shards(self.train, "train", len(vocabulary), files)
        heldout, known = self._write_shards(self.heldout, "heldout", len(vocabulary), files)
        return {
            "tokenizer": {"name": corpus.tokenizer.name, "version": corpus.tokenizer.version},
            "report": asdict(self._report(lexicon, len(vocabulary), known)),
            "files": {name: asdict(check) for name, check in files.items()},
            "train": train,
            "heldout": heldout,
        }

    @property
    def _tokens(self) -> int:
        return self.train.tokens + self.heldout.tokens

    def _read(self, corpus: Corpus, held: HeldOut | None) -> None:
        """Tokenise and count a corpus; None holds out all of it."""
        total, paragraphs = corpus.size, 0
        blocks = read_blocks(corpus, block_bytes=self.block_bytes)
        for block in encode_blocks(blocks, corpus.reading, workers=self.workers):
            for name in self.met:
                self.met[name] += getattr(block, name)
            if held is None:
                mask = np.ones(len(block.lengths), dtype=np.bool_)
            else:
                mask = held.choose(block.paragraphs.astype(np.int64) + paragraphs, block.lengths)
            self._take(block, mask)
            paragraphs += block.lines - block.empty_lines
            self.progress(Progress("reading", block.consumed, total, self._tokens))

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
        if self.preparation.vocabulary is not None:
            return len(self.preparation.vocabulary)
        # Words of the held-out text alone have count 0 and are never targets.
        frequent = lexicon.counts[len(SPECIALS) :] >= max(self.preparation.min_count, 1)
        size = len(SPECIALS) + int(np.count_nonzero(frequent))
        return min(size, self.preparation.vocab_size or size)

    def _write_shards(
        self, spool: TokenSpool, part: str, size: int, files: dict[str, FileCheck]
    ) -> tuple[list[dict[str, Any]], int]:
        """The shards of a part as the manifest lists them, and how many of its tokens are in the vocabulary."""
        known = done = 0
        current, final = -1, np.zeros(0, dtype=np.uint32)
        with ShardWriter(self.folder, part, shard_tokens=self.preparation.shard_tokens) as writer:
            for run, tokens, lengths in spool.chunks():
                if run != current:
                    current, final = run, self.counter.lexicon_numbers(run)
                numbers = final[tokens]
                writer.write(numbers, lengths)
                known += int(np.count_nonzero(numbers < size))
                done += len(tokens)
                self.progress(Progress("writing", done, spool.tokens, self._tokens))
            writer.close()
        files |= writer.files
        return [asdict(info) for info in writer.infos], known

    def _report(self, lexicon: Lexicon, size: int, heldout_known: int) -> CorpusReport:
        overlong = lexicon.lengths > self.preparation.max_characters - 2
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
