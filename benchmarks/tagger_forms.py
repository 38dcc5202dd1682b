"""How good a ready-made tagger is on labelled text as it is in the file and in other forms.

    python benchmarks/tagger_forms.py ner ../shared/eval/ner-conll2003/dev.txt.xz

as in the file  the file's words, which is what `elmokit evaluate` scores
headlines       those sentences of it that have capitals and no lower-case letter
lower case      every word in lower case
capitals        every word in capitals
plain text      the words of each sentence with spaces between, given as a text: the tagger's tokenizer cuts it again. A
                span is right if it has the right type and begins and ends at the right characters
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from elmokit import Sentence, Tagger
from elmokit.tasks.labels import count_types, read_spans
from elmokit.tasks.tagging.network import TaggedExample

Place = tuple[int, int, str]  # first character, the one behind the last, type


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    tagger: Any = Tagger.from_pretrained(given.model, device="cpu")
    for file in given.files:
        examples = tagger.task.read(file, tagger.setup.settings)
        print(f"{given.model} on {file}, {len(examples):,} sentences")
        for form, part in forms(examples):
            if part:
                name, value = next(iter(tagger.evaluate(part).items()))
                print(f"  {form:16} {name} {100 * value:6.2f}  {len(part):,} sentences", flush=True)
        if examples[0].scheme is not None:
            print(f"  {'plain text':16} F1 {100 * plain_text(tagger, examples):6.2f}  {len(examples):,} sentences")


def forms(examples: Sequence[TaggedExample]) -> Iterator[tuple[str, list[TaggedExample]]]:
    """The examples in each form, labels as they are."""
    yield "as in the file", list(examples)
    yield "headlines", [example for example in examples if example.sentence.as_text.isupper()]
    for form, change in (("lower case", str.lower), ("capitals", str.upper)):
        yield form, [replace(one, sentence=Sentence.of(map(change, one.sentence.tokens))) for one in examples]


def plain_text(tagger: Any, examples: Sequence[TaggedExample]) -> float:
    """F1 of spans in the sentences as texts."""
    found = tagger.predict([example.sentence.as_text for example in examples])
    pairs = [
        (set(gold_places(example)), {(span.start, span.end, span.type) for one in sentences for span in one.spans})
        for example, sentences in zip(examples, found, strict=True)
    ]
    return count_types(pairs, lambda place: place[2])[0].f1


def gold_places(example: TaggedExample) -> Iterator[Place]:
    spans = example.sentence.spans
    for span in read_spans(example.tags or ()):
        yield spans[span.start][0], spans[span.end - 1][1], span.type


if __name__ == "__main__":
    main()
