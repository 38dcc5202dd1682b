"""Running text for the commands that take a whole corpus: paragraphs cut into sentences, and a name to know it by."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elmokit.encoders import Encoder
    from elmokit.formats import ReadReport
    from elmokit.index import Index
    from elmokit.text import Sentence, Tokenizer


def read_corpus(
    arguments: Sequence[str],
    *,
    tokenizer: "Tokenizer",
    whole_lines: bool,
    format: str,
    field: str,
    report: "ReadReport",
) -> "Iterator[Sentence]":
    """The sentences of files, folders, patterns or standard input.

    A line of text, a JSON field or a Parquet value is a paragraph that is cut into its sentences, unless `whole_lines`;
    what comes tokenised is left as it is.
    """
    from elmokit.formats import expand_inputs, read_sentences

    for source in expand_inputs(arguments):
        read = read_sentences(source, tokenizer=tokenizer, format=format, field=field, report=report)  # type: ignore[arg-type]
        for sentence in read:
            if whole_lines or sentence.text is None or not sentence.tokens:
                yield sentence
            else:
                yield from tokenizer.split(sentence.text)


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


def read_words(path: Path) -> tuple[str, ...]:
    """Words from a file, separated by any white space."""
    from elmokit.errors import InputError
    from elmokit.formats import read_lines

    words = tuple(dict.fromkeys(word for line in read_lines(path) for word in line.split()))
    if not words:
        raise InputError(f"{path}: holds no words; expected some, separated by spaces or line breaks")
    return words


def load_indexed(index: "Index", model: str | None, *, device: str) -> "Encoder":
    """The model that an index was made with, from where it was then, unless another place is given."""
    import warnings

    from elmokit.encoders import load_encoder
    from elmokit.errors import ElmokitWarning

    known = index.manifest.source
    encoder = load_encoder(model or (known if Path(known).exists() else None), device=device)
    index.manifest.check_encoder(encoder, index.folder)
    here, there = str(getattr(encoder, "arithmetic", "")), index.manifest.arithmetic
    if here and there and here not in there:
        warnings.warn(
            f"the vectors of {index.folder} were made with {', '.join(there)}, those of your text with {here}: "
            "scores may differ slightly from those where that one runs",
            ElmokitWarning,
            stacklevel=1,
        )
    return encoder
