"""What lies in a model folder: elmokit's files, official ones or ELMoForManyLangs'. The contents decide."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from elmokit.errors import WeightsError
from elmokit.weights.pretrained import Pretrained

EXPECTED = (
    "config.json with model.safetensors (elmokit), options.json with an .hdf5 file (official), or encoder.pkl with "
    "token_embedder.pkl (ELMoForManyLangs)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What a caller may ask of any reader."""

    options: Path | None = None  # official: instead of the one in the folder
    weights: Path | None = None  # official: instead of the one in the folder
    vocabulary: Path | None = None  # official: instead of the one in the folder
    softmax: bool = True  # False: leave the output layer on the disk
    allow_nonfinite: bool = False


def read_folder(folder: Path, ask: ReadOptions, *, source: str = "") -> Pretrained:
    """The model in a folder, or in the one folder inside it that holds a model."""
    source = source or str(folder)
    homes = [home for home in (folder, *_subfolders(folder)) if _holds_model(home)]
    if folder in homes or ask.weights:
        homes = [folder]
    if len(homes) != 1:
        names = ", ".join(sorted(path.name for path in (homes or _visible(folder)))[:8]) or "nothing"
        problem = "several models" if homes else "no model"
        advice = "give one of them" if homes else f"expected {EXPECTED}"
        raise WeightsError(f"{source}: {problem} in this folder, which holds {names}; {advice}")
    return replace(_read_home(homes[0], ask), source=source)


def _read_home(home: Path, ask: ReadOptions) -> Pretrained:
    # Each reader brings a library of its own, so only the one that is needed is imported.
    if (home / "model.safetensors").is_file():
        from elmokit.weights.own import read_own

        return read_own(home, softmax=ask.softmax, allow_nonfinite=ask.allow_nonfinite)
    if (home / "encoder.pkl").is_file() or (home / "token_embedder.pkl").is_file():
        from elmokit.weights.manylangs import read_manylangs

        return read_manylangs(home, allow_nonfinite=ask.allow_nonfinite)
    from elmokit.weights.hdf5 import holds_model, read_official

    weights = ask.weights
    if weights is None:
        files = _files(home, (".hdf5", ".h5"))
        models = [path for path in files if holds_model(path)] if len(files) > 1 else files
        if len(models) != 1:
            names = ", ".join(path.name for path in (models or files))
            raise WeightsError(f"{home}: expected one .hdf5 file with a language model, found {names or 'none'}")
        weights = models[0]
    return read_official(
        weights,
        options=ask.options or _options(home),
        vocabulary=ask.vocabulary or _vocabulary(home),
        softmax=ask.softmax,
        allow_nonfinite=ask.allow_nonfinite,
    )


def _holds_model(home: Path) -> bool:
    names = {path.name for path in _visible(home)}
    return bool(names & {"model.safetensors", "encoder.pkl", "token_embedder.pkl"}) or bool(
        _files(home, (".hdf5", ".h5"))
    )


def _options(home: Path) -> Path | None:
    """options.json, or the one file whose name ends so; None leaves it to the weights' name."""
    named = _files(home, ("options.json",))
    plain = [path for path in named if path.name == "options.json"]
    found = plain or named
    return found[0] if len(found) == 1 else None


def _vocabulary(home: Path) -> Path | None:
    named = [path for name in ("vocab.txt", "vocab.txt.gz") if (path := home / name).is_file()]
    return named[0] if named else None


def _files(home: Path, endings: Sequence[str]) -> list[Path]:
    return [path for path in _visible(home) if path.name.endswith(tuple(endings)) and path.is_file()]


def _subfolders(folder: Path) -> list[Path]:
    return [path for path in _visible(folder) if path.is_dir() and path.name != "__MACOSX"]


def _visible(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise WeightsError(f"{folder}: cannot be read ({error.strerror})") from None
