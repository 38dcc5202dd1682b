"""What stands on the command line as sentences: files, folders, patterns, standard input, or the text itself."""

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
            report.blank_lines += not text.strip()
            yield tokenizer.tokenize(text)
            continue
        for source in expand_inputs([argument]):
            yield from read_sentences(source, tokenizer=tokenizer, format=format, field=field, report=report)  # type: ignore[arg-type]
