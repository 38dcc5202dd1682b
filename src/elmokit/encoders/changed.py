"""Whether an encoder is the one that something was made with, and what to say where it is not."""

import warnings
from pathlib import Path

from elmokit.encoders.encoder import Encoder
from elmokit.errors import ElmokitError, ElmokitWarning, InputError
from elmokit.weights.load import BUNDLED, bundled_models

# Models that came with elmokit, by fingerprint: name, and a commit that has it.
CAME_WITH = {
    "43a960e2611f3d199c1069d75cad914e": ("en", "f5ec1dd"),
    "f0a21dac7f4146ff79090a2dae78663e": ("en", "7ca4d2d"),
    "8038e2c0f3ce2d9b2e02d182e003abae": ("en", "7f8a60e"),
    "b436131d80faed69e0d0b7e35956ba21": ("en", "57242d3"),
    "924752d1887e3e7221c7139ca59565bb": ("en-large", "02f030c"),
    "3c99fdf0197777769c7cb307efee1178": ("en-large", "7f8a60e"),
    "0128429920c8b863c47912deb04b4f18": ("en-large", "57242d3"),
}


def check_same_encoder(
    encoder: Encoder,
    *,
    fingerprint: str,
    source: str,
    holder: str,
    allow_other: bool | None = None,
    fits: bool = True,
    error: type[ElmokitError] = InputError,
) -> None:
    """Refuses another encoder than that of `fingerprint` from `source`, which `holder` was made with.

    With `allow_other` it is a warning, unless its vectors have another form (`fits` is False). None: whoever asks has
    no such choice to offer.
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
    why, go_on = "", ""
    if not fits:
        why = ", whose vectors have another number of layers or another width, so it cannot be used instead"
    elif allow_other is not None:
        go_on = ", or go on with it as it is: --allow-other-encoder (allow_other_encoder=True)"
    old = _old_one(encoder, fingerprint, source)
    raise error(f"{said}{why}. {old}; or make {holder} again with {encoder.source!r}{go_on}")


def _old_one(encoder: Encoder, fingerprint: str, source: str) -> str:
    """How to get the encoder that was used."""
    name, commit = CAME_WITH.get(fingerprint, (Path(source).name, ""))
    named_so = source == name or Path(source).parts[-3:-1] == ("elmokit", "models")
    if not commit and not (name in bundled_models() and named_so):
        return "Give the encoder that was used with --model"
    log = f"; `git log -- src/elmokit/models/{name}` lists them" if not commit else ""
    old = (
        f"in a clone, `git worktree add ../old {commit or 'COMMIT'}`, then give --model "
        f"../old/src/elmokit/models/{name}{log}"
    )
    if Path(encoder.source) == BUNDLED / name:
        return f"The model {name!r} that comes with elmokit has changed since. Old ones are in its history: {old}"
    return f"It was the model {name!r} that came with elmokit: give --model {name}, or if that has changed since, {old}"
