"""What the Model view shows: the model in facts, what its layers know, and the curves of trainings."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elmokit.encoders import Elmo, Encoder
from elmokit.errors import FormatError, InputError
from elmokit.explore.steps import Progress, Steps
from elmokit.index import Index
from elmokit.layers import unit_rows
from elmokit.weights.card import describe

LOG, TASK_LOG = "log.jsonl", "training.json"
SAMPLE = 200  # sentences that layers are measured on


def describe_model(encoder: Encoder) -> dict[str, Any]:
    """Shape, place and arithmetic; of an ELMo also its parts."""
    facts: dict[str, Any] = {
        "source": encoder.source,
        "kind": type(encoder).__name__,
        "layers": list(encoder.layer_names),
        "width": encoder.width,
        "context": encoder.context,
        "arithmetic": encoder.arithmetic,
        "device": str(encoder.device),
        "tokenizer": encoder.tokenizer.name,
        "fingerprint": encoder.fingerprint,
    }
    if isinstance(encoder, Elmo):
        facts["parts"] = describe(encoder.pretrained)
    return facts


def describe_index(name: str, index: Index) -> dict[str, Any]:
    """An index in facts."""
    words = index.words
    return {
        "name": name,
        "folder": str(index.folder),
        "occurrences": len(index),
        "words": len(words),
        "layers": index.settings.layers,
        "fields": list(index.settings.keep),
        "finished": index.finished,
        "texts": [run.name.rpartition(" (")[0] or run.name or "text" for run in index.manifest.runs],
        "model": index.manifest.model,
    }


def context_by_layer(encoder: Encoder, index: Index) -> Steps[dict[str, Any]]:
    """How much each layer depends on the context, over a sample of an index's sentences (after Ethayarajh 2019).

    same     the mean cosine of two occurrences of the same word, in different sentences
    others   the mean cosine of two different words, whatever the sentence: the layer's base line

    Where `same` comes near `others`, a word's vector says more of its context than of the word.
    """
    if not len(index):
        raise InputError(f"{index.folder.name} holds no words yet; add text with  elmokit index TEXT -o {index.folder}")
    rows = np.linspace(0, len(index) - 1, min(SAMPLE, len(index))).round().astype(int)
    texts = list(dict.fromkeys(index.occurrence(int(row)).text for row in rows))
    sentences = [encoder.tokenizer.tokenize(text) for text in texts]
    parts = []
    for at in range(0, len(sentences), 32):
        yield Progress(at, len(sentences), "measuring the layers", model=True)
        parts += encoder.encode_layers(sentences[at : at + 32])
    values = unit_rows(np.concatenate(parts, axis=1).astype(np.float32))  # (L, N, D)
    words = np.unique([word.casefold() for s in sentences for word in s.tokens], return_inverse=True)[1]
    home = np.repeat(np.arange(len(sentences)), [len(s) for s in sentences])
    rng = np.random.default_rng(0)
    a, b = rng.integers(len(words), size=(2, 20_000))
    a, b = (side[words[a] != words[b]] for side in (a, b))
    pairs = _pairs(words, home, rng)
    measured = [
        {
            "layer": name,
            "same": float(np.einsum("nd,nd->n", layer[pairs[:, 0]], layer[pairs[:, 1]]).mean()) if len(pairs) else None,
            "others": float(np.einsum("nd,nd->n", layer[a], layer[b]).mean()) if len(a) else None,
        }
        for name, layer in zip(encoder.layer_names, values, strict=True)
    ]
    return {"sentences": len(sentences), "words": len(words), "layers": measured}


def read_probes(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """The records that `elmokit probe -o FILE` wrote."""
    found: list[dict[str, Any]] = []
    for path in paths:
        try:
            records = json.loads(path.read_text(encoding="utf-8"))
            found += [
                {**{key: record[key] for key in ("encoder", "label", "view", "accuracy", "control")}, "file": path.name}
                for record in records
            ]
        except (ValueError, KeyError, TypeError) as error:
            raise FormatError(f"{path}: not a file of  elmokit probe -o FILE ({error!r}); make it again") from None
    return found


def read_run(folder: Path) -> dict[str, Any]:
    """The curves of a training so far: `elmokit pretrain`'s steps, or a task model's epochs."""
    log, epochs = folder / LOG, folder / TASK_LOG
    if log.is_file():
        written = log.read_text(encoding="utf-8", errors="replace").splitlines()
        curves = _curves([line for line in map(_parsed, written) if line is not None], along="step")
        return {"name": folder.name, "along": "step", "curves": curves}
    if epochs.is_file():
        try:
            read = json.loads(epochs.read_text(encoding="utf-8"))
            lines = [{"number": e["number"], "loss": e["loss"], **e["scores"]} for e in read]
        except (ValueError, KeyError, TypeError) as error:
            raise FormatError(f"{epochs}: not what  elmokit train  wrote ({error!r}); restore it") from None
        return {"name": folder.name, "along": "epoch", "curves": _curves(lines, along="number")}
    return {"name": folder.name, "along": "step", "curves": {}}


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        read = json.loads(line)
    except ValueError:  # the last one may be half written
        return None
    return read if isinstance(read, dict) and isinstance(read.get("step"), int) else None


def _curves(lines: Sequence[dict[str, Any]], *, along: str, most: int = 800) -> dict[str, list[list[float]]]:
    """[x, y] of each quantity, thinned evenly where there are many."""
    curves: dict[str, list[list[float]]] = {}
    for line in lines:
        for name, value in line.items():
            if name not in (along, "time", "epoch") and isinstance(value, int | float):
                curves.setdefault(name, []).append([line[along], value])
    for name, points in curves.items():
        if len(points) > most:
            keep = np.linspace(0, len(points) - 1, most).round().astype(int)
            curves[name] = [points[k] for k in keep]
    return curves


def _pairs(words: Any, home: Any, rng: np.random.Generator) -> Any:
    """Some pairs of the same word in two sentences, at most a few of each word. (n, 2)"""
    order = np.argsort(words, kind="stable")
    found = []
    for some in np.split(order, np.flatnonzero(np.diff(words[order])) + 1):
        if len(some) > 1:
            drawn = rng.choice(some, size=(min(len(some), 8), 2))
            found += [(x, y) for x, y in drawn.tolist() if home[x] != home[y]]
    return np.array(found, dtype=np.int64).reshape(-1, 2)
