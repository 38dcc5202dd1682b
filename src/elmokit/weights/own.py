"""elmokit's own format, a folder: model.safetensors, config.json, vocab.txt (words.txt, characters.txt), README.md.

config.json holds a checksum of each tensor and of itself, and a digest of all tensors and of every list. So damage, and
files of two models in one folder, are noticed on reading. Models of 0.1.0 have the digests only.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import safetensors
from torch import Tensor

from elmokit.config import checksum_of, plain, read_json
from elmokit.errors import WeightsError
from elmokit.formats.atomic import write_text
from elmokit.formats.tensors import write_tensors
from elmokit.native.checksums import checksums, crc32
from elmokit.shape import BiLMConfig
from elmokit.weights.card import type_names, write_card
from elmokit.weights.described import (
    CONFIG,
    FORMAT,
    SOFTMAX,
    UNCHECKED,
    VERSION,
    WEIGHTS,
    Described,
    StatedSoftmax,
    digest_list,
    read_described,
    read_list,
)
from elmokit.weights.pretrained import (
    AdaptiveTensors,
    Pretrained,
    SoftmaxTensors,
    StoredSoftmax,
    check_numbers,
    check_tensors,
    outline_adaptive,
)
from elmokit.weights.storage import Dtype, StoredTensors, digest_tensors, pack, stored
from elmokit.weights.symbols import LazyList, write_symbols


def write_own(
    pretrained: Pretrained,
    folder: Path,
    *,
    dtype: Dtype | None,
    softmax: bool,
    card: str | None,
    moments: Mapping[str, Tensor] | None = None,
) -> None:
    """Writes the files; `card` is the model's name for a README.md, None for no such file."""
    dtype = dtype or pretrained.packed_as
    tensors = dict(pretrained.tensors)
    output = pretrained.softmax if softmax else None
    if output is not None:
        tensors |= {f"{SOFTMAX}{name}": values for name, values in output.named.items()}
    packed = pack(tensors, dtype, moments=moments)
    digest, kind = _digest(packed), dtype or type_names(packed.values())
    codec = pretrained.codec
    shared = codec.words is not None and codec.words == pretrained.vocabulary
    lists = {"vocab.txt": pretrained.vocabulary, "words.txt": None if shared else codec.words}
    lists["characters.txt"] = codec.characters
    config: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION if kind == "int4" else 1,
        "model": plain(pretrained.config),
        "codec": {
            "kind": codec.kind,
            "boundary_tokens": codec.boundary_tokens,
            "words": _mention("vocab.txt" if shared else "words.txt", codec.words),
            "characters": _mention("characters.txt", codec.characters),
        },
        "tokenizer": None if pretrained.tokenizer is None else pretrained.tokenizer._asdict(),
        "vocabulary": _mention("vocab.txt", pretrained.vocabulary),
        "softmax": None if output is None else _describe_softmax(output),
        "origin": pretrained.origin,
        "weights": {"file": WEIGHTS, "dtype": kind, "digest": digest, "checksums": _checksums(packed)},
        "extra": pretrained.extra,
    }
    try:
        text = json.dumps(config | {"checksum": checksum_of(config, without=UNCHECKED)}, indent=2) + "\n"
    except (TypeError, ValueError) as error:
        raise WeightsError(
            f"{folder}: 'extra' holds what JSON cannot ({error}); keep to numbers, strings and lists"
        ) from None
    write_tensors(folder / WEIGHTS, {n: stored(t) for n, t in packed.items()}, metadata={"digest": digest})
    for name, symbols in lists.items():
        if symbols is not None:
            write_text(folder / name, write_symbols(symbols))
    if card is not None:
        size = (folder / WEIGHTS).stat().st_size
        write_text(folder / "README.md", write_card(pretrained, name=card, stored=kind, size=size))
    write_text(folder / CONFIG, text)


def read_own(folder: Path, *, softmax: bool, allow_nonfinite: bool) -> Pretrained:
    """Tensors are mapped from the file, not copied; they keep the type they are stored in (see `StoredTensors`)."""
    described = read_described(folder)
    stated, config = described.stated, described.config
    tensors = _read_tensors(folder / WEIGHTS, described, softmax=softmax)
    if stated.vocabulary is not None and not (folder / stated.vocabulary.file).is_file():
        raise WeightsError(f"{folder / stated.vocabulary.file}: no such file")
    if not allow_nonfinite:
        for name, numbers in tensors.held.items():  # of an int8 tensor, its scales
            if numbers.is_floating_point():
                check_numbers(numbers, f"{folder / WEIGHTS}: '{name}'")
    weights = tensors.part(SOFTMAX, inside=False)
    check_tensors(weights, config, str(folder / WEIGHTS))
    spec = described.codec()
    output = stated.softmax if softmax else None
    described.check_itself()
    return Pretrained(
        config,
        weights,
        codec=spec,
        tokenizer=stated.tokenizer,
        vocabulary=None if stated.vocabulary is None else LazyList(partial(read_list, folder, stated.vocabulary)),
        softmax=None if output is None else _softmax(tensors.part(SOFTMAX, inside=True), output, config, folder),
        origin=stated.origin,
        format="elmokit",
        stored=stated.weights.dtype,
        source=str(folder),
        extra=stated.extra or {},
    )


def verify_own(folder: Path) -> None:
    """Reads the whole model and compares every tensor and list with the digests; 0.1.0 wrote these, too."""
    pretrained = read_own(folder, softmax=True, allow_nonfinite=False)
    tuple(pretrained.vocabulary or ())  # reads it
    stated = read_json(folder / CONFIG, dict[str, Any], error=WeightsError)["weights"]["digest"]
    with safetensors.safe_open(folder / WEIGHTS, framework="pt") as file:
        found = _digest({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118 (not a dict)
    if found != stated:
        raise WeightsError(f"{folder / WEIGHTS}: not as it was saved (its digest does not fit); fetch or copy it again")


def _read_tensors(path: Path, described: Described, *, softmax: bool) -> StoredTensors:
    if not path.is_file():
        raise WeightsError(f"{path}: no such file")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            described.check_digest((file.metadata() or {}).get("digest"))
            names = [name for name in file.keys() if softmax or not name.startswith(SOFTMAX)]  # noqa: SIM118 (not a dict)
            held = {name: file.get_tensor(name) for name in names}
    except (safetensors.SafetensorError, OSError, RuntimeError) as error:
        raise WeightsError(f"{path}: not a whole safetensors file ({error}); fetch or copy it again") from None
    tensors = StoredTensors(held, str(path))
    if described.stated.weights.checksums is not None:
        described.check_checksums(_checksums(held))
    return tensors


def _describe_softmax(output: SoftmaxTensors | AdaptiveTensors) -> dict[str, Any]:
    plain = {"words": output.words}
    return plain if isinstance(output, SoftmaxTensors) else {**plain, "cutoffs": list(output.cutoffs)}


def _softmax(
    tensors: StoredTensors, stated: StatedSoftmax, config: BiLMConfig, folder: Path
) -> SoftmaxTensors | AdaptiveTensors:
    words, width, cutoffs = stated.words, config.lstm.projection_dim, stated.cutoffs
    if cutoffs is None:
        expected = {"weight": (words, width), "bias": (words,)}
    else:
        layer = outline_adaptive(words, width, cutoffs)
        expected = {name: tuple(values.shape) for name, values in layer.state_dict().items()}
    found = {name.removeprefix(SOFTMAX): tensors.shape(name) for name in tensors}
    if found != expected:
        raise WeightsError(f"{folder / WEIGHTS}: softmax of shapes {found}, expected {expected}")
    if cutoffs is None:
        return StoredSoftmax.of(tensors, SOFTMAX)
    return AdaptiveTensors(words, width, cutoffs, {name.removeprefix(SOFTMAX): tensors[name] for name in tensors})


def _mention(file: str, symbols: Sequence[str] | None) -> dict[str, Any] | None:
    return None if symbols is None else {"file": file, "size": len(symbols), "digest": digest_list(symbols)}


def _digest(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    digest_tensors(digest, tensors, typed=True)
    return digest.hexdigest()


def _checksums(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    size = sum(values.nbytes for values in tensors.values())
    return checksums(tensors, lambda name: stored(tensors[name]).checksum(name, crc32), size=size)
