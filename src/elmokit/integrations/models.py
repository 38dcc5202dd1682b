"""`encoder_for`: the model that an object of another library names, loaded once however many objects ask for it."""

import threading
from collections import OrderedDict
from pathlib import Path

from elmokit.encoders import Encoder, load_encoder
from elmokit.weights.load import BUNDLED

Model = str | Path | Encoder | None  # what `load_encoder` takes, or an encoder that is there already
KEPT = 2  # models that stay loaded, those asked for last

_loaded: OrderedDict[tuple[str | None, str], Encoder] = OrderedDict()
_turn = threading.Lock()


def encoder_for(model: Model = None, *, device: str = "auto") -> Encoder:
    """The encoder itself, or the one of that name; two calls with the same name share one."""
    if isinstance(model, Encoder):
        return model
    key = None if model is None else str(model), device
    with _turn:
        if key not in _loaded:
            _loaded[key] = load_encoder(model, device=device)
        _loaded.move_to_end(key)
        while len(_loaded) > KEPT:
            _loaded.popitem(last=False)
        return _loaded[key]


def name_of(encoder: Encoder) -> str:
    """What to load it by later: where it was read from; of a bundled model its name, wherever the package is."""
    source = Path(encoder.source)
    return source.name if source.parent == BUNDLED else encoder.source
