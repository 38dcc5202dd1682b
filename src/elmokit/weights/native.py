"""elmokit's own format, a folder: model.safetensors, config.json, vocab.txt (words.txt, characters.txt), README.md.

Each file appears whole, config.json last, and config.json holds a digest of the tensors and of every list. A reader
that meets a save half done sees either no config.json or a digest that does not fit, and never a mixture.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from elmokit.chars import CodecSpec
from elmokit.errors import ConfigError, WeightsError
from elmokit.formats.atomic import atomic_path, write_text
from elmokit.nn.bilm import BiLMConfig, Direction
from elmokit.nn.char_cnn import TokenEncoderConfig
from elmokit.nn.lstm import LstmConfig
from elmokit.weights.card import MARK, write_card
from elmokit.weights.description import type_names
from elmokit.weights.fields import MANY, Section
from elmokit.weights.pretrained import (
    AdaptiveTensors,
    Pretrained,
    SoftmaxTensors,
    TokenizerSpec,
    check_codec,
    check_finite,
    check_shapes,
    outline_adaptive,
)
from elmokit.weights.storage import Dtype, StoredTensors, pack
from elmokit.weights.symbols import read_symbols, write_symbols

FORMAT, VERSION = "elmokit", 1
CONFIG, WEIGHTS = "config.json", "model.safetensors"
LISTS = ("vocab.txt", "words.txt", "characters.txt")
SOFTMAX = "softmax."
MOST_WORDS = 1_000_000_000
UNFIT = "the save may have been interrupted, or files of two models lie here: save or fetch it again"


def write_native(pretrained: Pretrained, folder: Path, *, dtype: Dtype | None = None, softmax: bool = True) -> None:
    tensors = dict(pretrained.tensors)
    output = pretrained.softmax if softmax else None
    if output is not None:
        tensors |= {f"{SOFTMAX}{name}": values for name, values in output.named.items()}
    packed = pack(tensors, dtype)
    digest, stored = _digest_tensors(packed), dtype or type_names(packed.values())
    codec = pretrained.codec
    shared = codec.words is not None and codec.words == pretrained.vocabulary
    lists = {"vocab.txt": pretrained.vocabulary, "words.txt": None if shared else codec.words}
    lists["characters.txt"] = codec.characters
    config = {
        "format": FORMAT,
        "version": VERSION,
        "model": asdict(pretrained.config),
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
        "weights": {"file": WEIGHTS, "dtype": stored, "digest": digest},
        "extra": pretrained.extra,
    }
    try:
        text = json.dumps(config, indent=2) + "\n"
    except (TypeError, ValueError) as error:
        raise WeightsError(
            f"{folder}: 'extra' holds what JSON cannot ({error}); keep to numbers, strings and lists"
        ) from None
    with atomic_path(folder / WEIGHTS) as part:
        part.touch()
        mode = part.stat().st_mode  # safetensors leaves a file that its owner alone can read
        try:
            safetensors.torch.save_file(packed, part, metadata={"digest": digest})
            part.chmod(mode)
        except safetensors.SafetensorError as error:  # tells of a full disk in words only
            code = re.search(r"os error (\d+)", str(error))
            raise OSError(int(code[1]), os.strerror(int(code[1]))) if code else error from None
    for name, symbols in lists.items():
        if symbols is not None:
            write_text(folder / name, write_symbols(symbols))
    _write_card(pretrained, folder, stored=stored)
    write_text(folder / CONFIG, text)


def read_native(folder: Path, *, softmax: bool = True, allow_nonfinite: bool = False) -> Pretrained:
    """Tensors are mapped from the file, not copied; they keep the type they are stored in (see `StoredTensors`)."""
    stated = Section.read(folder / CONFIG)
    if stated.text("format", default="") != FORMAT:
        raise WeightsError(f"{stated.file}: not a model of elmokit ('format' is not '{FORMAT}')")
    if stated.integer("version", low=1) > VERSION:
        found = stated.integer("version")
        raise WeightsError(
            f"{stated.file}: format version {found}, this elmokit reads up to {VERSION}; install a newer one"
        )
    config = _read_config(stated.section("model"))
    tensors = _read_tensors(folder / WEIGHTS, stated.section("weights").text("digest"), softmax=softmax)
    if not allow_nonfinite:
        for name, values in tensors.held.items():  # of an int8 tensor, its scales
            if values.is_floating_point():
                check_finite(values, f"{folder / WEIGHTS}: '{name}'")
    weights = tensors.part(SOFTMAX, inside=False)
    check_shapes(weights, config, str(folder / WEIGHTS))
    codec, tokenizer = stated.section("codec"), stated.optional_section("tokenizer")
    kind, origin = codec.text("kind"), stated.text("origin", default="elmokit")
    if kind not in ("bytes", "words", "dictionary"):
        raise codec.wrong("kind", "'bytes', 'words' or 'dictionary'")
    if origin not in ("elmokit", "official", "manylangs"):
        raise stated.wrong("origin", "'elmokit', 'official' or 'manylangs'")
    spec = CodecSpec(
        kind,  # type: ignore[arg-type]
        boundary_tokens=codec.boolean("boundary_tokens", default=True),
        words=_read_list(folder, codec, "words"),
        characters=_read_list(folder, codec, "characters"),
    )
    check_codec(spec, config, str(folder))
    extra, output = stated.optional_section("extra"), stated.optional_section("softmax") if softmax else None
    return Pretrained(
        config,
        weights,
        codec=spec,
        tokenizer=None if tokenizer is None else TokenizerSpec(tokenizer.text("name"), tokenizer.integer("version")),
        vocabulary=_read_list(folder, stated, "vocabulary"),
        softmax=None if output is None else _softmax(tensors.part(SOFTMAX, inside=True), output, config, folder),
        origin=origin,  # type: ignore[arg-type]
        format="elmokit",
        stored=stated.section("weights").text("dtype"),
        source=str(folder),
        extra={} if extra is None else dict(extra.values),
    )


def _read_config(model: Section) -> BiLMConfig:
    tokens, lstm = model.section("tokens"), model.section("lstm")
    pad = tokens.values.get("pad_id")
    directions = model.values.get("directions")
    if directions not in (["forward", "backward"], ["forward"], ["backward"]):
        raise model.wrong("directions", '["forward", "backward"] or one of them')
    pair: tuple[Direction, ...] = tuple(directions)
    try:
        return BiLMConfig(
            tokens=TokenEncoderConfig(
                char_dim=tokens.integer("char_dim"),
                n_characters=tokens.integer("n_characters"),
                max_characters=tokens.integer("max_characters", low=1),
                filters=tokens.filters("filters"),
                activation=tokens.text("activation"),  # type: ignore[arg-type]
                n_highway=tokens.integer("n_highway", high=MANY),
                word_dim=tokens.integer("word_dim"),
                n_words=tokens.integer("n_words", high=MOST_WORDS),
                projection_dim=tokens.integer("projection_dim", low=1),
                project=tokens.boolean("project"),
                pad_id=None if pad is None else tokens.integer("pad_id"),
            ),
            lstm=LstmConfig(
                cell_dim=lstm.integer("cell_dim", low=1),
                projection_dim=lstm.integer("projection_dim", low=1),
                project=lstm.boolean("project"),
                cell_clip=lstm.limit("cell_clip"),
                proj_clip=lstm.limit("proj_clip"),
                forget_bias=lstm.number("forget_bias"),
            ),
            n_layers=model.integer("n_layers", low=1, high=MANY),
            skip_connections=model.boolean("skip_connections"),
            directions=pair,
        )
    except ConfigError as error:
        raise WeightsError(f"{model.file}: {error}") from None


def _read_tensors(path: Path, digest: str, *, softmax: bool) -> StoredTensors:
    if not path.is_file():
        raise WeightsError(f"{path}: no such file")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            if (file.metadata() or {}).get("digest") != digest:
                raise WeightsError(f"{path}: does not belong to the {CONFIG} beside it; {UNFIT}")
            names = [name for name in file.keys() if softmax or not name.startswith(SOFTMAX)]  # noqa: SIM118 (not a dict)
            stored = {name: file.get_tensor(name) for name in names}
    except (safetensors.SafetensorError, OSError, RuntimeError) as error:
        raise WeightsError(f"{path}: not a whole safetensors file ({error}); fetch or copy it again") from None
    return StoredTensors(stored, str(path))


def _describe_softmax(output: SoftmaxTensors | AdaptiveTensors) -> dict[str, Any]:
    plain = {"words": output.words}
    return plain if isinstance(output, SoftmaxTensors) else {**plain, "cutoffs": list(output.cutoffs)}


def _softmax(
    tensors: Mapping[str, Tensor], stated: Section, config: BiLMConfig, folder: Path
) -> SoftmaxTensors | AdaptiveTensors:
    named = {name.removeprefix(SOFTMAX): values for name, values in tensors.items()}
    words, width = stated.integer("words", low=1, high=MOST_WORDS), config.lstm.projection_dim
    cutoffs = stated.values.get("cutoffs")
    if cutoffs is None:
        expected = {"weight": (words, width), "bias": (words,)}
    elif isinstance(cutoffs, list) and cutoffs and all(type(cutoff) is int for cutoff in cutoffs):
        layer = outline_adaptive(words, width, tuple(cutoffs))
        expected = {name: tuple(values.shape) for name, values in layer.state_dict().items()}
    else:
        raise stated.wrong("cutoffs", "a list of word numbers")
    found = {name: tuple(values.shape) for name, values in named.items()}
    if found != expected:
        raise WeightsError(f"{folder / WEIGHTS}: softmax of shapes {found}, expected {expected}")
    return SoftmaxTensors(**named) if cutoffs is None else AdaptiveTensors(words, width, tuple(cutoffs), named)


def _read_list(folder: Path, section: Section, field: str) -> tuple[str, ...] | None:
    mention = section.optional_section(field)
    if mention is None:
        return None
    name = mention.text("file")
    if name not in LISTS:
        raise mention.wrong("file", f"one of {', '.join(LISTS)}")
    symbols = read_symbols(folder / name)
    if _digest_list(symbols) != mention.text("digest"):
        size = mention.integer("size", high=MOST_WORDS)
        raise WeightsError(
            f"{folder / name}: {len(symbols)} lines, not the {size} that {CONFIG} was saved with; {UNFIT}"
        )
    return symbols


def _mention(file: str, symbols: Sequence[str] | None) -> dict[str, Any] | None:
    return None if symbols is None else {"file": file, "size": len(symbols), "digest": _digest_list(symbols)}


def _digest_list(symbols: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(symbols).encode("utf-8", "surrogatepass")).hexdigest()


def _digest_tensors(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}\n".encode())
        digest.update(tensors[name].reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _write_card(pretrained: Pretrained, folder: Path, *, stored: str) -> None:
    """Someone's own README.md stays."""
    path = folder / "README.md"
    if not path.exists() or MARK in path.read_text(encoding="utf-8", errors="replace"):
        size = (folder / WEIGHTS).stat().st_size
        write_text(path, write_card(pretrained, name=folder.resolve().name, stored=stored, size=size))
