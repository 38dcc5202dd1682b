"""elmokit's own format, a folder: model.safetensors, config.json, vocab.txt (words.txt, characters.txt), README.md.

config.json holds a checksum of each tensor and of itself, and a digest of all tensors and of every list. So damage, and
files of two models in one folder, are noticed on reading. Models of 0.1.0 have the digests only.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import safetensors
from torch import Tensor

from elmokit.chars import CodecSpec
from elmokit.config import Count, Positive, Range, checksum_of, plain, read_json, revive, shorten
from elmokit.errors import WeightsError
from elmokit.formats.atomic import write_text
from elmokit.formats.tensors import write_tensors
from elmokit.nn.bilm import BiLMConfig
from elmokit.weights.card import type_names, write_card
from elmokit.weights.pretrained import (
    AdaptiveTensors,
    Pretrained,
    SoftmaxTensors,
    TokenizerSpec,
    check_codec,
    check_numbers,
    check_shapes,
    outline_adaptive,
)
from elmokit.weights.storage import Dtype, StoredTensors, digest_tensors, pack, stored
from elmokit.weights.symbols import LazyList, read_symbols, write_symbols

FORMAT, VERSION = "elmokit", 2  # 2: four bits, which 0.1.0 cannot read; all else is written as 1
CONFIG, WEIGHTS = "config.json", "model.safetensors"
SOFTMAX = "softmax."
UNFIT = "the save may have been interrupted, or files of two models lie here: save or fetch it again"
UNCHECKED = ("extra", "checksum")  # fields of config.json that its checksum leaves out


@dataclass(frozen=True, slots=True)
class _List:
    """A list of symbols beside config.json."""

    file: Literal["vocab.txt", "words.txt", "characters.txt"]
    size: Count
    digest: str


@dataclass(frozen=True, slots=True)
class _Codec:
    kind: Literal["bytes", "words", "dictionary"]
    boundary_tokens: bool = True
    words: _List | None = None
    characters: _List | None = None


@dataclass(frozen=True, slots=True)
class _Output:
    words: Annotated[int, Range(1, 1_000_000_000)]
    cutoffs: tuple[Positive, ...] | None = None  # of an adaptive softmax


@dataclass(frozen=True, slots=True)
class _Weights:
    dtype: str
    digest: str
    checksums: dict[str, str] | None = None  # CRC-32 of each tensor; None: a model of 0.1.0


@dataclass(frozen=True, slots=True)
class _Stated:
    """config.json, but for its format and version."""

    model: dict[str, Any]  # a BiLMConfig
    codec: _Codec
    weights: _Weights
    tokenizer: TokenizerSpec | None = None
    vocabulary: _List | None = None
    softmax: _Output | None = None
    origin: Literal["elmokit", "official", "manylangs"] = "elmokit"
    extra: dict[str, Any] | None = None
    checksum: str | None = None  # of the other fields but `extra`


def write_own(
    pretrained: Pretrained, folder: Path, *, dtype: Dtype | None = None, softmax: bool = True, card: str | None = None
) -> None:
    """Writes the files; `card` is the model's name for a README.md, None for no such file."""
    tensors = dict(pretrained.tensors)
    output = pretrained.softmax if softmax else None
    if output is not None:
        tensors |= {f"{SOFTMAX}{name}": values for name, values in output.named.items()}
    packed = pack(tensors, dtype)
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


def read_own(folder: Path, *, softmax: bool = True, allow_nonfinite: bool = False) -> Pretrained:
    """Tensors are mapped from the file, not copied; they keep the type they are stored in (see `StoredTensors`)."""
    path = folder / CONFIG
    values = read_json(path, dict[str, Any], error=WeightsError)
    if values.get("format") != FORMAT:
        raise WeightsError(
            f"{path}: not a model of elmokit (format is {shorten(values.get('format'))}, not '{FORMAT}')"
        )
    version = values.get("version")
    if type(version) is not int or not 1 <= version <= VERSION:
        raise WeightsError(
            f"{path}: format version {shorten(version)}, this elmokit reads up to {VERSION}; install a newer one"
        )
    stated = revive(_Stated, values, source=str(path), error=WeightsError, ignore_unknown=True)
    config = revive(BiLMConfig, stated.model, source=f"{path}: model", error=WeightsError, complete=True)
    tensors = _read_tensors(folder / WEIGHTS, stated.weights, softmax=softmax)
    if stated.vocabulary is not None and not (folder / stated.vocabulary.file).is_file():
        raise WeightsError(f"{folder / stated.vocabulary.file}: no such file")
    if not allow_nonfinite:
        for name, numbers in tensors.held.items():  # of an int8 tensor, its scales
            if numbers.is_floating_point():
                check_numbers(numbers, f"{folder / WEIGHTS}: '{name}'")
    weights = tensors.part(SOFTMAX, inside=False)
    check_shapes(weights, config, str(folder / WEIGHTS))
    spec = CodecSpec(
        stated.codec.kind,
        boundary_tokens=stated.codec.boundary_tokens,
        words=None if stated.codec.words is None else _read_list(folder, stated.codec.words),
        characters=None if stated.codec.characters is None else _read_list(folder, stated.codec.characters),
    )
    check_codec(spec, config, str(folder))
    output = stated.softmax if softmax else None
    if stated.checksum is not None and stated.checksum != checksum_of(values, without=UNCHECKED):
        raise WeightsError(
            f"{path}: not as it was saved (its checksum does not fit); fetch or copy it again. If you changed it "
            "yourself, remove the field 'checksum'"
        )
    return Pretrained(
        config,
        weights,
        codec=spec,
        tokenizer=stated.tokenizer,
        vocabulary=None if stated.vocabulary is None else LazyList(partial(_read_list, folder, stated.vocabulary)),
        softmax=None if output is None else _softmax(tensors.part(SOFTMAX, inside=True), output, config, folder),
        origin=stated.origin,
        format="elmokit",
        stored=stated.weights.dtype,
        source=str(folder),
        extra=stated.extra or {},
    )


def verify_own(folder: Path) -> None:
    """Reads the whole model and compares every tensor and list with the digests; 0.1.0 wrote these, too."""
    pretrained = read_own(folder)
    tuple(pretrained.vocabulary or ())  # reads it
    stated = read_json(folder / CONFIG, dict[str, Any], error=WeightsError)["weights"]["digest"]
    with safetensors.safe_open(folder / WEIGHTS, framework="pt") as file:
        found = _digest({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118 (not a dict)
    if found != stated:
        raise WeightsError(f"{folder / WEIGHTS}: not as it was saved (its digest does not fit); fetch or copy it again")


def _read_tensors(path: Path, stated: _Weights, *, softmax: bool) -> StoredTensors:
    if not path.is_file():
        raise WeightsError(f"{path}: no such file")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            if (file.metadata() or {}).get("digest") != stated.digest:
                raise WeightsError(f"{path}: does not belong to the {CONFIG} beside it; {UNFIT}")
            names = [name for name in file.keys() if softmax or not name.startswith(SOFTMAX)]  # noqa: SIM118 (not a dict)
            held = {name: file.get_tensor(name) for name in names}
    except (safetensors.SafetensorError, OSError, RuntimeError) as error:
        raise WeightsError(f"{path}: not a whole safetensors file ({error}); fetch or copy it again") from None
    if stated.checksums is not None:
        for name, found in _checksums(held).items():
            if found != stated.checksums.get(name):
                raise WeightsError(
                    f"{path}: '{name}' is not as it was saved (its checksum does not fit); fetch or copy it again"
                )
    return StoredTensors(held, str(path))


def _describe_softmax(output: SoftmaxTensors | AdaptiveTensors) -> dict[str, Any]:
    plain = {"words": output.words}
    return plain if isinstance(output, SoftmaxTensors) else {**plain, "cutoffs": list(output.cutoffs)}


def _softmax(
    tensors: Mapping[str, Tensor], stated: _Output, config: BiLMConfig, folder: Path
) -> SoftmaxTensors | AdaptiveTensors:
    named = {name.removeprefix(SOFTMAX): values for name, values in tensors.items()}
    words, width, cutoffs = stated.words, config.lstm.projection_dim, stated.cutoffs
    if cutoffs is None:
        expected = {"weight": (words, width), "bias": (words,)}
    else:
        layer = outline_adaptive(words, width, cutoffs)
        expected = {name: tuple(values.shape) for name, values in layer.state_dict().items()}
    found = {name: tuple(values.shape) for name, values in named.items()}
    if found != expected:
        raise WeightsError(f"{folder / WEIGHTS}: softmax of shapes {found}, expected {expected}")
    return SoftmaxTensors(**named) if cutoffs is None else AdaptiveTensors(words, width, cutoffs, named)


def _read_list(folder: Path, mention: _List) -> tuple[str, ...]:
    symbols = read_symbols(folder / mention.file)
    if _digest_list(symbols) != mention.digest:
        raise WeightsError(
            f"{folder / mention.file}: {len(symbols)} lines, not the {mention.size} that {CONFIG} was saved with; "
            f"{UNFIT}"
        )
    return symbols


def _mention(file: str, symbols: Sequence[str] | None) -> dict[str, Any] | None:
    return None if symbols is None else {"file": file, "size": len(symbols), "digest": _digest_list(symbols)}


def _digest_list(symbols: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(symbols).encode("utf-8", "surrogatepass")).hexdigest()


def _digest(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    digest_tensors(digest, tensors, typed=True)
    return digest.hexdigest()


def _checksums(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """By name; on all cores, since Python's lock is free meanwhile."""
    with ThreadPoolExecutor() as pool:
        return dict(zip(tensors, pool.map(lambda name: stored(tensors[name]).checksum(name), tensors), strict=True))
