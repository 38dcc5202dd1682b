"""Model files for tests, written with the libraries themselves and not with the package."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import reference as ref

OPTIONS: dict[str, Any] = {
    "lstm": {
        "dim": 6,
        "projection_dim": 4,
        "n_layers": 2,
        "cell_clip": 3,
        "proj_clip": 3,
        "use_skip_connections": True,
    },
    "char_cnn": {
        "activation": "relu",
        "embedding": {"dim": 3},
        "filters": [[1, 2], [3, 3]],
        "max_characters_per_token": 10,
        "n_characters": 262,
        "n_highway": 1,
    },
}
WORDS = ("<S>", "</S>", "<UNK>", "the", "cat")


def changed(path: str, value: Any = None) -> dict[str, Any]:
    """OPTIONS with the field `a.b` set, or taken out where no value is given."""
    options: dict[str, Any] = json.loads(json.dumps(OPTIONS))
    *sections, name = path.split(".")
    place = options
    for section in sections:
        place = place[section]
    if value is None:
        del place[name]
    else:
        place[name] = value
    return options


def random_weights(options: Mapping[str, Any] = OPTIONS, **choices: Any) -> dict[str, np.ndarray]:
    return ref.random_official(np.random.default_rng(0), options, **choices)


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> Path:
    with h5py.File(path, "w") as file:
        for key, array in arrays.items():
            file[key] = array
    return path


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, node: arrays.update({name: node[...]}) if isinstance(node, h5py.Dataset) else None)
    return arrays


def write_model(
    folder: Path,
    options: Mapping[str, Any] = OPTIONS,
    weights: Mapping[str, np.ndarray] | None = None,
    vocabulary: Sequence[str] | None = None,
) -> Path:
    """An official model folder; returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "options.json").write_text(json.dumps(options))
    write_arrays(folder / "lm_weights.hdf5", random_weights(options) if weights is None else weights)
    if vocabulary is not None:
        (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in vocabulary), encoding="utf-8")
    return folder


def assert_same_arrays(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    """The same names, types, shapes and bits."""
    assert found.keys() == expected.keys()
    for key, array in expected.items():
        assert (found[key].dtype, found[key].shape) == (array.dtype, array.shape), key
        assert found[key].tobytes() == array.tobytes(), key
