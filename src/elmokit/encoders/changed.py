"""Whether an encoder is the one that something was made with, and what to say where it is not."""

import warnings
from pathlib import Path

from elmokit.encoders.encoder import Encoder
from elmokit.errors import ElmokitError, ElmokitWarning, InputError
from elmokit.weights.load import bundled_models

# Models that came with elmokit, by fingerprint: name, and a commit that has it.
CAME_WITH = {"43a960e2611f3d199c1069d75cad914e": ("en", "f5ec1dd")}


def check_same_encoder(
    encoder: Encoder,
    *,
    fingerprint: str,
    source: str,
    holder: str,
    allow_other: bool = False,
    fits: bool = True,
    error: type[ElmokitError] = InputError,
) -> None:
    """Refuses another encoder than that of `fingerprint` from `source`, which `holder` was made with.

    With `allow_other` it is a warning, unless its vectors have another form (`fits` is False).
    """
    if encoder.fingerprint == fingerprint:
        return
    said = (
        f"{holder} holds vectors of another model, or was trained on them: {source!r} (fingerprint {fingerprint}); "
        f"{encoder.source!r} is another encoder (fingerprint {encoder.fingerprint})"
    )
    if allow_other and fits:
        warnings.warn(f"{said}; going on with it, as asked: results may be worse", ElmokitWarning, stacklevel=2)
        return
    go_on = (
        "go on with the other one with --allow-other-encoder (allow_other_encoder=True)"
        if fits
        else "its vectors have another number of layers or another width, so it cannot be used instead"
    )
    raise error(f"{said}. {_old_one(fingerprint, source)}; make it again for this one, or {go_on}")


def _old_one(fingerprint: str, source: str) -> str:
    """How to get the encoder that was used."""
    if known := CAME_WITH.get(fingerprint):
        name, commit = known
        return (
            f"The model {name!r} that comes with elmokit has changed. The old one is in the history: in a clone, "
            f"`git worktree add ../old {commit}`, then give --model ../old/src/elmokit/models/{name}"
        )
    name = Path(source).name
    if name in bundled_models() and (source == name or Path(source).parts[-3:-1] == ("elmokit", "models")):
        return (
            f"The model {name!r} that comes with elmokit has changed. Old ones are in the history: in a clone, "
            f"`git log -- src/elmokit/models/{name}` lists them; `git worktree add ../old COMMIT`, then give --model "
            f"../old/src/elmokit/models/{name}"
        )
    return "Give the encoder that was used with --model"
