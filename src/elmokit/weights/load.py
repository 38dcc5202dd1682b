"""`load_pretrained` and `save_pretrained`: the one place that decides what a source is and which reader takes it."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from torch import Tensor

from elmokit.errors import InputError, WeightsError
from elmokit.formats.atomic import atomic_folder
from elmokit.weights._folder import ReadOptions, read_folder
from elmokit.weights.card import MARK
from elmokit.weights.catalogue import find, is_name
from elmokit.weights.described import BUNDLED as BUNDLED
from elmokit.weights.described import DEFAULT
from elmokit.weights.described import bundled_models as bundled_models
from elmokit.weights.pretrained import Pretrained
from elmokit.weights.storage import Dtype

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")

SavedFormat = Literal["elmokit", "official"]
DESCRIBES = {"elmokit": "config.json", "official": "options.json"}  # the file that is written last
OURS = ("model.safetensors", "weights.hdf5", "vocab.txt", "words.txt", "characters.txt", *DESCRIBES.values())


def load_pretrained(
    source: str | Path | None = None,
    *,
    revision: str | None = None,
    local_files_only: bool = False,
    options: str | Path | None = None,
    weights: str | Path | None = None,
    vocabulary: str | Path | None = None,
    softmax: bool = True,
    allow_nonfinite: bool = False,
) -> Pretrained:
    """A model from wherever it lies.

    `source` is, tried in this order: nothing (the bundled English model), the name of a bundled model, a folder, an
    archive or an .hdf5 file on this machine, the name of a published model in the catalogue (`allennlp:original`,
    `nlpl:209`, `manylangs:fi`; fetched once), the id `organisation/name` of a Hugging Face repository (at `revision`).
    With `local_files_only`, the last two come from the cache alone. `options`, `weights` and `vocabulary` name the
    files of an official model where they do not lie together; `weights` can stand instead of a source. `softmax=False`
    leaves the output layer unread.
    """
    ask = ReadOptions(
        options=_path(options),
        weights=_path(weights),
        vocabulary=_path(vocabulary),
        softmax=softmax,
        allow_nonfinite=allow_nonfinite,
    )
    if source is None and weights is not None:
        return _read_file(Path(weights), ask)
    name = DEFAULT if source is None else str(source)
    if (BUNDLED / name / "config.json").is_file() and re.fullmatch(r"\w[\w.-]*", name):
        return read_folder(BUNDLED / name, ask)
    if source is None:
        raise WeightsError("no model is bundled with this version of elmokit; give a model folder, archive or hub id")
    path = Path(source).expanduser()
    if path.is_dir():
        return read_folder(path, ask)
    if path.is_file():
        return _read_file(path, ask)
    if is_name(name):
        from elmokit.weights.fetch import fetch_model

        return read_folder(fetch_model(find(name), local_files_only=local_files_only), ask)
    if HUB_ID.fullmatch(name):
        from elmokit.weights.hub import fetch

        return read_folder(fetch(name, revision=revision, local_files_only=local_files_only), ask)
    bundled = ", ".join(bundled_models()) or "there are none"
    raise WeightsError(
        f"no model {name!r}: not a bundled model ({bundled}), not a folder or file on this machine, "
        "not a name of the catalogue (`elmokit models --remote`), not a hub id of the form organisation/name"
        + ("; download it first and give the file" if "://" in name else "")
    )


def save_pretrained(
    pretrained: Pretrained,
    folder: str | Path,
    *,
    format: SavedFormat = "elmokit",
    dtype: Dtype | None = None,
    softmax: bool = True,
    overwrite: bool = True,
    moments: Mapping[str, Tensor] | None = None,
) -> Path:
    """Writes a model; returns its folder, which appears whole or not at all.

    A model that is in the folder already is replaced unless `overwrite` is False; other files, and a README.md that was
    not written by elmokit, stay. Without `dtype` every number keeps its type (but the official format has neither int8
    nor int4), and an official model comes back bit for bit. The output layer is written where the model has one, unless
    `softmax` is False. With `moments` of `elmokit.weights.calibrate` four bits are chosen for text like that.
    """
    folder = Path(folder).expanduser()
    if format not in DESCRIBES:
        raise WeightsError(f"format {format!r} is not known; expected 'elmokit' or 'official'")
    try:
        with atomic_folder(folder, last=DESCRIBES[format], replaces=OURS, overwrite=overwrite) as draft:
            if format == "official":
                from elmokit.weights.hdf5 import write_official

                write_official(pretrained, draft, dtype=dtype, softmax=softmax)
            else:
                from elmokit.weights.own import write_own

                card = folder / "README.md"
                theirs = card.exists() and MARK not in card.read_text(encoding="utf-8", errors="replace")
                name = None if theirs else folder.resolve().name
                write_own(pretrained, draft, dtype=dtype, softmax=softmax, card=name, moments=moments)
    except InputError as error:
        raise WeightsError(str(error)) from error
    except OSError as error:
        raise WeightsError(f"{folder}: cannot be written ({error.strerror or error}); choose another place") from error
    return folder


def _read_file(path: Path, ask: ReadOptions) -> Pretrained:
    from elmokit.weights._archive import is_archive, read_archive

    if path.is_file() and is_archive(path):
        return read_archive(path, ask)
    if path.name == "config.json" or path.suffix == ".safetensors":
        return read_folder(path.parent, ask)
    from elmokit.weights.hdf5 import read_official

    return read_official(
        path,
        options=ask.options,
        vocabulary=ask.vocabulary,
        softmax=ask.softmax,
        allow_nonfinite=ask.allow_nonfinite,
    )


def _path(value: str | Path | None) -> Path | None:
    return None if value is None else Path(value).expanduser()
