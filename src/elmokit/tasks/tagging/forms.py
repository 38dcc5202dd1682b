"""Training sentences once more in the forms that plain text has: words cut as a tokenizer cuts them, other case.

CoNLL-2003 has Jean-Luc as one word; plain text comes to a tagger as the tokenizer cuts it, Jean - Luc. A tagger that
never saw a name cut ends it at the hyphen. One that saw names in capitals alone misses those of a hasty writer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, chain, pairwise

from elmokit.errors import InputError
from elmokit.tasks.labels import Span, read_spans, write_tags
from elmokit.tasks.tagging.network import TaggedExample
from elmokit.text import Sentence, Tokenizer


def recut(examples: Sequence[TaggedExample], tokenizer: Tokenizer) -> Iterator[TaggedExample]:
    """Each example with a word that the tokenizer cuts, once more with its words cut; spans keep their text.

    Left out are those with a span that ends in London-based or Graf-like: what is in front of the hyphen is a name of
    its own there, and the labels do not say which.
    """
    for example in examples:
        if example.scheme is None:
            raise InputError("words have one label each, which cannot be parted; recut is for labels of spans")
        parts = _parts(example.sentence, tokenizer)
        at = list(accumulate(map(len, parts), initial=0))
        spans = read_spans(example.tags or ())
        if at[-1] > len(parts) and not any(_is_derived(parts[span.end - 1]) for span in spans):
            moved = [Span(at[span.start], at[span.end], span.type) for span in spans]
            tags = write_tags(moved, at[-1], scheme=example.scheme)
            tokens = [piece for part in parts for piece in part]
            yield TaggedExample(Sentence.of(tokens), tuple(tags), example.scheme)


def recase(examples: Sequence[TaggedExample], share: float) -> Iterator[TaggedExample]:
    """That share of the examples, evenly spaced, once more in lower case and in capitals in turn; labels stay."""
    wanted = round(share * len(examples))
    for k in range(wanted):
        example = examples[k * len(examples) // wanted]
        words = (word.upper() if k % 2 else word.lower() for word in example.sentence.tokens)
        yield replace(example, sentence=Sentence.of(words))


def _parts(sentence: Sentence, tokenizer: Tokenizer) -> list[tuple[str, ...]]:
    """What the tokenizer makes of each word where it stands; a word that it would join with its neighbour stays."""
    words = Sentence.of(sentence.tokens)
    # A full stop behind it, so that the last word keeps its own (U.S.) as it does inside a sentence.
    text = f"{words.as_text} ."
    cuts = set(chain.from_iterable(tokenizer.tokenize(text).spans))
    parts = []
    for start, end in words.spans:
        whole = not {start, end} <= cuts or any(map(str.isspace, text[start:end]))
        inside = [] if whole else [place for place in range(start + 1, end) if place in cuts]
        parts.append(tuple(text[a:b] for a, b in pairwise([start, *inside, end])))
    return parts


def _is_derived(part: Sequence[str]) -> bool:
    """Capital in front, small letter behind."""
    return len(part) > 1 and part[0][0].isupper() and part[-1][0].islower()
