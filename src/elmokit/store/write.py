"""Vectors to disk: a stream of any length in flat memory, through any number of kills, to a whole file or none."""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elmokit.batch import cut_stream
from elmokit.encoders.choice import Choice
from elmokit.encoders.encoder import Encoder, Layers
from elmokit.encoders.given import Given, read_request
from elmokit.encoders.places import batch_budget, pick_device
from elmokit.errors import InputError
from elmokit.formats import atomic_path
from elmokit.store.arrays import write_npz, write_safetensors
from elmokit.store.hdf5 import write_hdf5
from elmokit.store.parquet import load_pyarrow, write_parquet
from elmokit.store.sentences import SentenceIndex
from elmokit.store.spool import Record, Spool, open_spool
from elmokit.text import Sentence

SUFFIXES = (".h5", ".hdf5", ".parquet", ".npz", ".safetensors")
CHUNK_BATCHES = 16  # batches between two commits: what a kill can cost


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """What is embedded and how; the same as `Encoder.encode_tokens` has, and two of the older tools for HDF5."""

    layers: Layers = "average"
    batch_tokens: int | None = None
    device: str | torch.device | None = None
    dtype: str | None = None
    normalise: bool = False
    use_sentence_keys: bool = False  # HDF5: key by sentence instead of line number
    forget_sentences: bool = False  # HDF5: leave `sentence_to_index` out


@dataclass(slots=True)
class StoreReport:
    """What was met on the way."""

    sentences: int = 0
    tokens: int = 0
    empty: int = 0
    overlong_words: int = 0
    unknown_words: int = 0
    longest: int = 0
    duplicates: int = 0
    resumed_at: int = 0


def write_vectors(
    encoder: Encoder,
    sentences: Given,
    path: str | Path,
    *,
    options: StoreOptions | None = None,
    restart: bool = False,
    seen: Callable[[int], None] = lambda n: None,
) -> StoreReport:
    """Embed the sentences into a .h5, .hdf5, .parquet, .npz or .safetensors file; `seen` is told how many are done.

    Until it is complete the file is not there: vectors are spooled to `<path>.partial/`, and the same call after a kill
    goes on from the last finished chunk and makes the same file, byte for byte. `restart` throws away what is spooled.
    """
    target, options = Path(path), options or StoreOptions()
    check_target(target)
    request = read_request(sentences, tokenizer=encoder.tokenizer)
    if request.single:
        raise InputError("one string was given, expected a list of sentences, a generator or a Path")
    choice = Choice.of(options.layers, None, default="average")
    axes = choice.axes(encoder.depth, encoder.width)
    report = StoreReport()
    with open_spool(target, run=_run_of(encoder, options), restart=restart) as spool:
        _fill(spool, encoder, request.sentences, options, report, seen)
        index = SentenceIndex(spool.folder / "sentences.sqlite")
        for line, record in enumerate(spool.records()):
            index.add(record.text, line)
        report.duplicates = index.duplicates
        with atomic_path(target) as draft:
            match target.suffix.lower():
                case ".parquet":
                    write_parquet(draft, spool.records(), axes=axes)
                case ".npz":
                    write_npz(draft, spool.records())
                case ".safetensors":
                    write_safetensors(draft, spool.records, axes=axes, metadata={"layers": str(options.layers)})
                case _:
                    keys, forget = options.use_sentence_keys, options.forget_sentences
                    write_hdf5(draft, spool.records(), index, sentence_keys=keys, forget=forget)
        index.close()
        spool.discard()
    return report


def check_target(target: Path) -> None:
    """Whether a file of that name can be written, before any work is done."""
    if target.suffix.lower() not in SUFFIXES:
        raise InputError(f"{target}: cannot tell the format from the name; expected one of {', '.join(SUFFIXES)}")
    if target.suffix.lower() == ".parquet":
        load_pyarrow()


def _fill(
    spool: Spool,
    encoder: Encoder,
    sentences: Iterator[Sentence],
    options: StoreOptions,
    report: StoreReport,
    seen: Callable[[int], None],
) -> None:
    """Embed what the spool does not have yet.

    Chunks are cut by the input alone and the word cache starts empty in each, so a resumed run makes the same batches,
    and with them the same roundings, as one that was never killed.
    """
    device = encoder.device if options.device is None else pick_device(options.device)
    budget = batch_budget(options.batch_tokens, device)
    digest = hashlib.blake2b(digest_size=16)
    done = report.resumed_at = spool.done.sentences
    for chunk in cut_stream(sentences, tokens=budget * CHUNK_BATCHES):
        for sentence in chunk:
            digest.update(json.dumps([sentence.text, sentence.tokens]).encode())
            _count(report, sentence, encoder)
            if report.sentences == done and digest.hexdigest() != spool.done.digest:
                raise _other_input(spool)
        if report.sentences > done:
            if report.sentences - len(chunk) < done:  # the earlier run's input ended within this chunk
                raise _other_input(spool)
            encoder.forget_words()
            stream = encoder.stream(
                chunk,
                layers=options.layers,
                batch_tokens=budget,
                device=options.device,
                dtype=options.dtype,
                normalise=options.normalise,
            )
            for sentence, vectors in stream:
                spool.append(Record(text_of(sentence), sentence.tokens, np.asarray(vectors, dtype=np.float32)))
            spool.commit(report.sentences, digest.hexdigest())
        seen(len(chunk))
    if report.sentences < done:
        raise _other_input(spool)


def _other_input(spool: Spool) -> InputError:
    return InputError(
        f"{spool.folder} holds an unfinished run over other input: the {spool.done.sentences} sentences done there are "
        f"not those given now; repeat that run to finish it, or start anew with --restart (restart=True)"
    )


def text_of(sentence: Sentence) -> str:
    """The sentence as one line, stripped: what the older tools' index goes by."""
    return (" ".join(sentence.tokens) if sentence.text is None else sentence.text).strip()


def _count(report: StoreReport, sentence: Sentence, encoder: Encoder) -> None:
    report.sentences += 1
    report.tokens += len(sentence)
    report.empty += len(sentence) == 0
    report.longest = max(report.longest, len(sentence))
    report.overlong_words += sum(map(encoder.overlong, sentence.tokens))
    report.unknown_words += sum(map(encoder.unknown, sentence.tokens))


def _run_of(encoder: Encoder, options: StoreOptions) -> dict[str, Any]:
    """What must be the same for a run to be gone on with; the input is compared by its contents."""
    return {
        "model": encoder.fingerprint,
        "tokenizer": f"{encoder.tokenizer.name} {encoder.tokenizer.version}",
        "layers": str(options.layers),
        "batch_tokens": options.batch_tokens,
        "device": str(options.device or encoder.device),
        "dtype": str(options.dtype or encoder.dtype),
        "normalise": options.normalise,
    }
