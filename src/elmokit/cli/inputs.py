"""Text that commands read: files, folders, patterns, standard input, or the text itself on the command line.

A line of text, a JSON field, a Parquet value and a text on the command line mean the same: a sentence, or a paragraph
that is split into its sentences. What comes tokenised stays as it is.
"""

import glob
import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elmokit.encoders import Encoder
    from elmokit.formats import Format, ReadReport
    from elmokit.formats.ahead import Cutters
    from elmokit.index import Index
    from elmokit.text import Sentence, Tokenizer

ESCAPED = re.compile("[\ud800-\udfff]")  # bytes of an argument that Python could not decode
MUCH = 1 << 20  # bytes of text that are worth processes of their own


def decode_argument(given: Any) -> Any:
    """An argument as text in UTF-8, also where Python reads arguments as ASCII (LC_ALL=C with PYTHONUTF8=0).

    Names of files stay as they are, since only so can they be opened.
    """
    from elmokit.errors import InputError

    if isinstance(given, list | tuple):
        return type(given)(map(decode_argument, given))
    if not isinstance(given, str) or not ESCAPED.search(given) or os.path.exists(given) or glob.glob(given):
        return given
    content = os.fsencode(given)
    try:
        return content.decode()
    except UnicodeDecodeError:
        shown = content.decode(errors="backslashreplace")
        raise InputError(f"'{shown}' is not UTF-8; expected text in UTF-8, or a file that is there") from None


def is_source(argument: str) -> bool:
    """Whether an argument names something to read; all else is text. A name that looks like a file must be one.

    So does a name of a known kind (corpus.txt), or with a folder that is there (data/corpus).
    """
    from elmokit.errors import InputError
    from elmokit.formats.read import SUFFIXES, TABLES
    from elmokit.formats.streams import COMPRESSIONS

    if not argument.strip():
        return False
    if argument == "-" or os.path.exists(argument):  # not Path.exists, which raises for what is too long to be a name
        return True
    known = Path(argument).suffix.lower() in {*SUFFIXES, *TABLES, *COMPRESSIONS}
    placed = os.sep in argument.rstrip(os.sep) and os.path.isdir(os.path.dirname(argument))
    if any(c.isspace() for c in argument) or not (known or placed):
        return False
    if any(c in argument for c in "*?["):
        return True
    raise InputError(
        f"{argument}: no such file (looked in {Path.cwd()}); if it is meant as text, write it with a space at the end"
    )


@contextmanager
def one_thread(*, wanted: bool) -> Iterator[None]:
    """Without torch's other threads, which would wait for work longer than a few sentences take."""
    import torch

    usual = torch.get_num_threads()
    if wanted:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(usual)


def measure_inputs(arguments: Sequence[str]) -> int | None:
    """The bytes of all arguments together; None where one is a stream, such as standard input."""
    from elmokit.formats import expand_inputs

    total = 0
    for argument in arguments:
        if not is_source(argument):
            total += len(argument)
            continue
        for source in expand_inputs([argument]):
            if str(source) == "-" or not Path(source).is_file():
                return None
            total += Path(source).stat().st_size
    return total


def choose_workers(asked: int | None, arguments: Sequence[str], *, device: str) -> int:
    """How many processes cut the text: those asked for, or some where a GPU would wait for one and there is much."""
    from elmokit.formats.ahead import available_workers

    if asked is not None:
        return asked
    size = measure_inputs(arguments)
    return available_workers() // 2 if device == "cuda" and (size is None or size >= MUCH) else 0


def name_inputs(arguments: Sequence[str], **reading: object) -> str:
    """The arguments' names, with a digest of their contents and of how they are read; nothing where one is a stream."""
    from elmokit.formats import expand_inputs

    if measure_inputs(arguments) is None:
        return ""
    digest = hashlib.blake2b(repr(sorted(reading.items())).encode("utf-8", "surrogateescape"), digest_size=16)
    for argument in arguments:
        if not is_source(argument):
            digest.update(f"text {len(argument)} {argument}".encode("utf-8", "surrogateescape"))
            continue
        for source in expand_inputs([argument]):
            with Path(source).open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                digest.update(f"file {size} ".encode())
                while block := file.read(1 << 20):
                    digest.update(block)
    label = ", ".join(Path(argument).name if is_source(argument) else "text" for argument in arguments)
    return f"{label if len(label) <= 200 else label[:197] + '...'} ({digest.hexdigest()})"


def read_inputs(
    arguments: Sequence[str],
    *,
    tokenizer: "Tokenizer",
    lines: str,
    format: "Format | str" = "auto",
    field: str = "text",
    keep: Sequence[str] = (),
    report: "ReadReport | None" = None,
    cutters: "Cutters | None" = None,
) -> "Iterator[Sentence]":
    """The sentences of all arguments, in order; `keep` and `cutters` as in `read_sentences`."""
    from elmokit.text.packed import SentenceStream, in_blocks

    reading = {"format": format, "field": field, "keep": keep, "cutters": cutters}
    streams = _read_each(arguments, tokenizer, lines, report, reading)
    if cutters is None:
        return (sentence for stream in streams for sentence in stream)
    return SentenceStream(block for stream in streams for block in in_blocks(stream))


def _read_each(
    arguments: Sequence[str], tokenizer: "Tokenizer", lines: Any, report: "ReadReport | None", reading: dict[str, Any]
) -> "Iterator[Iterator[Sentence]]":
    from elmokit.formats import ReadReport, expand_inputs, read_sentences
    from elmokit.formats.read import sentences_of
    from elmokit.formats.streams import mend

    counts = ReadReport() if report is None else report
    for argument in arguments:
        if is_source(argument):
            for source in expand_inputs([argument]):
                yield read_sentences(source, tokenizer=tokenizer, lines=lines, report=report, **reading)
            continue
        text, bad = mend(argument)  # bytes that are not UTF-8 reach Python as lone surrogates
        counts.bad_bytes += bad
        counts.lines += 1
        counts.consumed += len(argument)
        counts.blank_lines += not text.strip()
        yield iter(sentences_of(text, tokenizer, lines=lines))


def name_corpus(arguments: Sequence[str]) -> str:
    """What a corpus is called: its files and a digest of what is in them; nothing where one is a stream."""
    from elmokit.formats import expand_inputs

    sources = expand_inputs(arguments)
    if any(str(source) == "-" or not Path(source).is_file() for source in sources):
        return ""
    digest = hashlib.blake2b(digest_size=8)
    for source in sources:
        with Path(source).open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return f"{', '.join(arguments)} ({digest.hexdigest()})"


def expand_addresses(arguments: Sequence[str]) -> list[str]:
    """Files, folders and patterns as files; addresses such as s3://bucket/key as they are."""
    from elmokit.formats import expand_inputs

    found: list[str] = []
    for argument in arguments:
        found += [argument] if "://" in argument else map(str, expand_inputs([argument]))
    return found


def read_words(path: Path) -> tuple[str, ...]:
    """Words from a file, separated by any white space."""
    from elmokit.errors import InputError
    from elmokit.formats import read_lines

    words = tuple(dict.fromkeys(word for line in read_lines(path) for word in line.split()))
    if not words:
        raise InputError(f"{path}: holds no words; expected some, separated by spaces or line breaks")
    return words


def load_indexed(index: "Index", model: str | None, *, device: str, allow_other: bool | None = None) -> "Encoder":
    """The model that an index was made with, from where it was then, unless another place is given."""
    import warnings

    from elmokit.encoders import load_encoder
    from elmokit.errors import ElmokitError, ElmokitWarning, InputError

    if model:
        encoder = load_encoder(model, device=device)
    else:
        try:
            encoder = load_encoder(index.manifest.model_place, device=device, local_files_only=True)
        except ElmokitError as error:
            raise InputError(
                f"{index.folder}: made with the model {index.manifest.source!r}, which cannot be loaded ({error}); "
                "say with -m where that model is"
            ) from error
    index.manifest.check_encoder(encoder, index.folder, allow_other=allow_other)
    here, there = encoder.arithmetic, index.manifest.arithmetic
    if there and here not in there:
        warnings.warn(
            f"the vectors of {index.folder} were made with {', '.join(there)}, those of your text with {here}: "
            "scores may differ slightly from those where that one runs",
            ElmokitWarning,
            stacklevel=1,
        )
    return encoder
