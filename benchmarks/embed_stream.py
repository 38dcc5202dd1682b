"""One size of the linearity part of benchmarks/embed.py: text in, vectors out, as a stream; prints time and memory.

python embed_stream.py THREADS '{"model": null, "words": 10000, "files": ["text.txt.xz"]}'
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from itertools import chain

from embed_serve import peak_bytes


def main() -> None:
    os.environ["OMP_NUM_THREADS"] = sys.argv[1]  # before torch is loaded
    from elmokit import Elmo, Sentence
    from elmokit.formats import read_lines

    ask = json.loads(sys.argv[2])
    elmo = Elmo.from_pretrained(ask["model"], device="cpu")
    elmo.encode("The network is laid out when it is first used.")
    elmo.forget_words()
    done = 0

    def sentences() -> Iterator[Sentence]:
        nonlocal done
        for line in chain.from_iterable(map(read_lines, ask["files"])):
            for sentence in elmo.tokenizer.split(line):
                if done >= ask["words"]:
                    return
                done += len(sentence)
                yield sentence

    begin = time.perf_counter()
    for _ in elmo.stream(sentences()):
        pass
    took = time.perf_counter() - begin
    print(json.dumps({"words": done, "seconds": round(took, 3), "peak_mb": round(peak_bytes() / 1e6)}))


if __name__ == "__main__":
    main()
