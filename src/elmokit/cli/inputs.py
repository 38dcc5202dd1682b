"""What stands on the command line as sentences: files, folders, patterns, standard input, or the text itself."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elmokit.formats import Format, ReadReport
    from elmokit.text import Sentence, Tokenizer


def is_source(argument: str) -> bool:
    """Whether an argument names something to read; all else is text. A name that looks like a file must be one."""
    from elmokit.errors import InputError
    from elmokit.formats.inputs import SUFFIXES
    from elmokit.formats.streams import COMPRESSIONS

    if not argument.strip():
        return False
    if argument == "-" or os.path.exists(argument):  # not Path.exists, which raises for what is too long to be a name
        return True
    if any(c.isspace() for c in argument) or Path(argument).suffix.lower() not in {*SUFFIXES, *COMPRESSIONS}:
        return False
    if any(c in argument for c in "*?["):
        return True
    raise InputError(
        f"{argument}: no such file (looked in {Path.cwd()}); if it is meant as text, write it with a space at the end"
    )


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
    format: "Format | str",
    field: str,
    report: "ReadReport",
) -> "Iterator[Sentence]":
    """The sentences of all arguments in order; each text is one sentence."""
    from elmokit.formats import expand_inputs, read_sentences
    from elmokit.formats.streams import mend

    for argument in arguments:
        if not is_source(argument):
            text, bad = mend(argument)  # bytes that are not UTF-8 reach Python as lone surrogates
            report.bad_bytes += bad
            report.lines += 1
            report.consumed += len(argument)
            report.blank_lines += not text.strip()
            yield tokenizer.tokenize(text)
            continue
        for source in expand_inputs([argument]):
            yield from read_sentences(source, tokenizer=tokenizer, format=format, field=field, report=report)  # type: ignore[arg-type]
