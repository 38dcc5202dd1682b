"""The official format: weights in HDF5 beside an options.json, as bilm-tf writes and AllenNLP reads; bit-exact.

The forget bias of 1.0, which these files do not store, stays a field of the config. The softmax is an extension.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.chars import BOS, EOS, N_BYTE_IDS, CodecSpec
from elmokit.config import read_json
from elmokit.errors import WeightsError
from elmokit.formats.atomic import atomic_path, write_text
from elmokit.nn.bilm import BiLMConfig, Direction
from elmokit.weights._options import Contents, Options, find_options, read_config, write_options
from elmokit.weights.names import Place, Row, lay_out
from elmokit.weights.pretrained import (
    AdaptiveTensors,
    Pretrained,
    SoftmaxTensors,
    check_codec,
    check_numbers,
    parameter_shapes,
)
from elmokit.weights.storage import FLOAT_TYPES, Dtype, cast
from elmokit.weights.symbols import read_words, write_words

FLOATS = {2: torch.float16, 4: torch.float32, 8: torch.float64}  # by item size
MOST_PACKED = 1100  # times that HDF5's compression can shrink data: beyond it, the data is not there
OTHER_MODEL = "options.json and the weights seem to belong to different models"


def _same(parameter: Tensor) -> Tensor:
    return parameter


def _turned(parameter: Tensor) -> Tensor:
    return parameter.T  # the files have (in, out)


STACKED = "MultiRNNCell/Cell{k}/"  # a level that bilm-tf leaves out of one-layer models

TABLE = (
    Row("char_embed", "tokens.characters.weight", lambda t: t[1:]),  # all but the zero row
    Row("embedding", "tokens.words.weight", _same),
    Row("CNN/W_cnn_{k}", "tokens.convolutions.{k}.weight", lambda t: t.permute(2, 1, 0)[None]),  # (1, width, in, out)
    Row("CNN/b_cnn_{k}", "tokens.convolutions.{k}.bias", _same),
    Row("CNN_high_{k}/W_carry", "tokens.highways.{k}.gate.weight", _turned),
    Row("CNN_high_{k}/b_carry", "tokens.highways.{k}.gate.bias", _same),
    Row("CNN_high_{k}/W_transform", "tokens.highways.{k}.transform.weight", _turned),
    Row("CNN_high_{k}/b_transform", "tokens.highways.{k}.transform.bias", _same),
    Row("CNN_proj/W_proj", "tokens.projection.weight", _turned),
    Row("CNN_proj/b_proj", "tokens.projection.bias", _same),
    Row(f"RNN_{{d}}/RNN/{STACKED}LSTMCell/W_0", "lstm.{k}.weight_x", _turned),  # rows of the input, and below them
    Row(f"RNN_{{d}}/RNN/{STACKED}LSTMCell/W_0", "lstm.{k}.weight_h", _turned),  # rows of the previous output
    Row(f"RNN_{{d}}/RNN/{STACKED}LSTMCell/B", "lstm.{k}.bias", _same),
    Row(f"RNN_{{d}}/RNN/{STACKED}LSTMCell/W_P_0", "lstm.{k}.projection", _turned),
)
ONE_LAYER_TABLE = tuple(row._replace(key=row.key.replace(STACKED, "")) for row in TABLE)

DIRECTIONS: tuple[Direction, ...] = ("forward", "backward")  # RNN_0, RNN_1


def read_official(
    weights: Path,
    *,
    options: Path | None = None,
    vocabulary: Path | None = None,
    token_file: Path | None = None,
    softmax: bool = True,
    allow_nonfinite: bool = False,
) -> Pretrained:
    """A model from its HDF5 file; options.json is looked for beside it unless given.

    `token_file` is an HDF5 file of ready token vectors (`embedding`, one row per word of the vocabulary), which then
    stand in for the characters. The rows keep their numbers: masked positions never run, so they need no row in front.
    """
    path = find_options(weights) if options is None else options
    kept = read_json(path, dict[str, Any], error=WeightsError)
    stated = Options.of(kept, source=str(path))
    words = None if vocabulary is None else read_words(vocabulary)
    with open_hdf5(weights) as file, open_hdf5(token_file or weights) as table:
        one_layer = any(f"RNN_{d}/RNN/LSTMCell" in file for d in (0, 1))
        if stated.char_cnn is None and "embedding" not in table:
            raise WeightsError(
                f"{path}: char_cnn is missing, and so is 'embedding' in {table.filename}; expected a character network "
                "or word vectors"
            )
        contents = _look_into(file, stated, table if token_file else None, one_layer=one_layer)
        config = read_config(stated, contents, source=str(path))
        one_layer = one_layer and config.n_layers == 1
        shapes = parameter_shapes(config)
        places = _places(config, shapes, one_layer=one_layer)
        if token_file is None:
            _refuse_leftovers(file, places, config)
        arrays = {p.key: find_array(table if p.key == "embedding" else file, p.key, p.shape(shapes)) for p in places}
        tensors = {name: torch.zeros(shapes[name], dtype=t) for name, t in _types(places, arrays).items()}
        for place in places:
            place.fill(tensors, load(arrays[place.key], allow_nonfinite=allow_nonfinite))
        output = _read_softmax(file, config, allow_nonfinite=allow_nonfinite) if softmax else None
    for size, what in ((config.tokens.n_words, "embedding"), (0 if output is None else len(output.bias), "softmax/W")):
        if words is not None and size and len(words) != size:
            raise WeightsError(
                f"{vocabulary}: {len(words)} words, but '{what}' in {token_file or weights} has {size} rows"
            )
    listed = words is None or {BOS, EOS} <= set(words)  # bilm-tf reads a literal <S> by its characters if it is not
    codec = CodecSpec("words", words=words) if config.tokens.word_dim else CodecSpec("bytes", boundary_tokens=listed)
    check_codec(codec, config, str(vocabulary or weights))
    return Pretrained(
        config,
        tensors,
        codec=codec,
        vocabulary=words,
        softmax=output,
        origin="official",
        format="official",
        source=str(weights),
        extra={"official": {"options": kept, "one_layer_names": one_layer}},
    )


def write_official(pretrained: Pretrained, folder: Path, *, dtype: Dtype | None = None, softmax: bool = True) -> None:
    """weights.hdf5, vocab.txt where there is one, options.json. Without `dtype`, numbers keep their type; see below."""
    config, kept = pretrained.config, pretrained.extra.get("official", {})
    _refuse_unwritable(pretrained, dtype)
    output = pretrained.softmax if softmax else None
    if isinstance(output, AdaptiveTensors):
        raise WeightsError(
            f"{pretrained.source or 'the model'}: the official format has no place for an adaptive softmax; leave it "
            "out (softmax=False, --no-softmax), or save the model in elmokit's own format"
        )
    one_layer = config.n_layers == 1 and bool(kept.get("one_layer_names", True))
    with atomic_path(folder / "weights.hdf5") as part, h5py.File(part, "w") as file:
        for place in _places(config, pretrained.tensors, one_layer=one_layer):
            file[place.key] = _as_array(place.join(pretrained.tensors), dtype, place.key)
        if output is not None:
            file["softmax/W"] = _as_array(output.weight, dtype, "softmax/W")
            file["softmax/b"] = _as_array(output.bias, dtype, "softmax/b")
    if pretrained.vocabulary is not None:
        write_text(folder / "vocab.txt", write_words(pretrained.vocabulary))
    options = write_options(config, kept.get("options"))
    write_text(folder / "options.json", json.dumps(options, indent=2) + "\n")


def holds_model(path: Path) -> bool:
    """Whether it is the HDF5 file of a language model, not one of vectors."""
    with open_hdf5(path) as file:
        return "RNN_0" in file or "RNN_1" in file


def _places(config: BiLMConfig, parameters: Mapping[str, Any], *, one_layer: bool) -> list[Place]:
    directions = [{"d": DIRECTIONS.index(direction)} for direction in config.directions]
    return lay_out(ONE_LAYER_TABLE if one_layer else TABLE, parameters, directions)


def _look_into(file: h5py.File, options: Options, token_file: h5py.File | None, *, one_layer: bool) -> Contents:
    present = [d for d in (0, 1) if f"RNN_{d}" in file]
    if not present:
        found = ", ".join(sorted(file)[:8]) or "nothing"
        raise WeightsError(f"{file.filename}: no LSTM weights (RNN_0, RNN_1) but {found}; expected a language model")
    if options.bidirectional is not None:
        present = [0, 1] if options.bidirectional else present[:1]
    table = None
    if token_file is not None or options.char_cnn is None:
        holder = file if token_file is None else token_file
        shape = find_array(holder, "embedding", (None, None)).shape
        table = (int(shape[0]), int(shape[1]))
        width = options.lstm.projection_dim
        if token_file is not None and table[1] != width:
            raise WeightsError(f"{holder.filename}: 'embedding' is {table[1]} wide, expected {width}; {OTHER_MODEL}")
    cell = "LSTMCell" if one_layer else "MultiRNNCell/Cell0/LSTMCell"
    return Contents(
        directions=tuple(DIRECTIONS[d] for d in present),
        token_projection=token_file is None and "CNN_proj" in file,
        lstm_projection=f"RNN_{present[0]}/RNN/{cell}/W_P_0" in file,
        word_table=table,
    )


def _refuse_leftovers(file: h5py.File, places: Sequence[Place], config: BiLMConfig) -> None:
    """A network in the file that the options do not mention means that they are another model's."""
    known = {place.key for place in places}
    found: list[str] = []
    file.visititems(lambda name, node: found.append(name) if isinstance(node, h5py.Dataset) else None)
    skipped = tuple(f"RNN_{k}/" for k, d in enumerate(DIRECTIONS) if d not in config.directions)
    for name in found:
        if name.startswith(("CNN", "RNN_")) and name not in known and not name.startswith(skipped or ("\0",)):
            raise WeightsError(
                f"{file.filename}: '{name}' is there, but options.json does not mention it; {OTHER_MODEL}"
            )


def _types(places: Sequence[Place], arrays: Mapping[str, h5py.Dataset]) -> dict[str, torch.dtype]:
    """The float type of each parameter: the widest of the arrays it is read from."""
    kinds: dict[str, list[torch.dtype]] = {}
    for place in places:
        for part in place.parts:
            kinds.setdefault(part.name, []).append(float_type(arrays[place.key]))
    return {name: reduce(torch.promote_types, types) for name, types in kinds.items()}


def _read_softmax(file: h5py.File, config: BiLMConfig, *, allow_nonfinite: bool) -> SoftmaxTensors | None:
    if "softmax/W" not in file and "softmax/b" not in file:
        return None
    weight = find_array(file, "softmax/W", (None, config.lstm.projection_dim))
    bias = find_array(file, "softmax/b", weight.shape[:1])
    return SoftmaxTensors(load(weight, allow_nonfinite=allow_nonfinite), load(bias, allow_nonfinite=allow_nonfinite))


def _refuse_unwritable(pretrained: Pretrained, dtype: Dtype | None) -> None:
    advice = "save it in elmokit's own format"
    if dtype not in (None, "float32", "float16"):
        raise WeightsError(f"the official format has no {dtype}; choose float32 or float16, or {advice}")
    if pretrained.codec.kind == "dictionary":
        raise WeightsError(f"{pretrained.source}: the official format has no place for its dictionaries; {advice}")
    if pretrained.config.lstm.forget_bias != 1.0:
        bias = pretrained.config.lstm.forget_bias
        raise WeightsError(f"{pretrained.source}: forget bias {bias}, but the official format means 1.0; {advice}")
    if pretrained.codec.kind == "bytes" and pretrained.config.tokens.n_characters != N_BYTE_IDS:
        n = pretrained.config.tokens.n_characters
        raise WeightsError(f"{pretrained.source}: {n} characters, but the official format has {N_BYTE_IDS}; {advice}")


def _as_array(values: Tensor, dtype: Dtype | None, key: str) -> NDArray[np.floating[Any]]:
    """As the file has it. Biases are float32 at least: the older tools add the forget bias in the type they find."""
    kind = values.dtype if dtype is None else FLOAT_TYPES[dtype]
    if kind not in FLOATS.values() or (values.ndim == 1 and kind == torch.float16):
        dtype = "float32"  # which holds bfloat16 and float16 exactly
    array: NDArray[np.floating[Any]] = cast(values, dtype, key).numpy()
    return array


@contextmanager
def open_hdf5(path: Path) -> Iterator[h5py.File]:
    """The file, open for reading; whatever the library says about a damaged one becomes one clear error."""
    if not path.is_file():
        raise WeightsError(f"{path}: no such file")
    if not h5py.is_hdf5(path):
        raise WeightsError(f"{path}: not an HDF5 file{_guess(path)}; expected the weights of an official ELMo model")
    try:
        with h5py.File(path, "r") as file:
            yield file
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:  # what the library says differs by damage
        raise WeightsError(f"{path}: damaged or incomplete HDF5 file ({error}); fetch or copy it again") from None


def _guess(path: Path) -> str:
    with path.open("rb") as stream:
        start = stream.read(64)
    if not start:
        return " (it is empty)"
    if start.startswith(b"version https://git-lfs"):
        return " but a Git LFS pointer to one (run: git lfs pull)"
    return " but a web page" if start.lstrip()[:1] == b"<" else ""


def find_array(file: h5py.File, key: str, shape: tuple[int | None, ...]) -> h5py.Dataset:
    """The array under `key`, known to be of floats, of that shape (None: any size) and to lie in this file."""
    where = f"{file.filename}: '{key}'"
    wanted = "(" + ", ".join("any" if n is None else str(n) for n in shape) + ("," if len(shape) == 1 else "") + ")"
    if key not in file:
        raise WeightsError(
            f"{where} is missing, expected an array of shape {wanted}; {OTHER_MODEL}, or it is incomplete"
        )
    array = file[key]
    if not isinstance(array, h5py.Dataset):
        raise WeightsError(f"{where} is a group, expected an array of shape {wanted}")
    if array.dtype.kind != "f" or array.dtype.itemsize not in FLOATS:
        raise WeightsError(f"{where} has type {array.dtype}, expected float32 (float16 and float64 are read too)")
    if len(array.shape) != len(shape) or any(
        n not in (None, found) for n, found in zip(shape, array.shape, strict=True)
    ):
        raise WeightsError(f"{where} has shape {array.shape}, expected {wanted}; {OTHER_MODEL}")
    if array.file.filename != file.filename or array.is_virtual or array.external:
        raise WeightsError(f"{where} points into another file, expected the weights themselves")
    if array.id.get_storage_size() * MOST_PACKED < array.nbytes:
        raise WeightsError(
            f"{where} declares {array.nbytes:,} bytes but holds none of them; the file was not written to its end"
        )
    return array


def float_type(array: h5py.Dataset) -> torch.dtype:
    return FLOATS[array.dtype.itemsize]


def load(array: h5py.Dataset, *, allow_nonfinite: bool) -> Tensor:
    """The numbers as they stand, in this machine's byte order."""
    values = torch.from_numpy(np.asarray(array[...], dtype=array.dtype.newbyteorder("=")))
    if not allow_nonfinite:
        check_numbers(values, f"{array.file.filename}: '{array.name.lstrip('/')}'")
    return values
