"""What the mixes of task models learned, read from the models' folders."""

from collections.abc import Sequence
from pathlib import Path

from elmokit.errors import InputError
from elmokit.layers import LayerChoice
from elmokit.plots import MixWeights
from elmokit.tasks.saved import read_config


def read_mixes(folders: Sequence[str | Path]) -> list[MixWeights]:
    """The learned mixes of each model, one for each place where layers enter its network.

    A model is called by its folder, with the place where it has several mixes.
    """
    found: list[MixWeights] = []
    for folder in map(Path, folders):
        config = read_config(folder)
        mixes = config["mixes"]
        if not mixes:
            raise InputError(f"{folder}: has no learned mix; the task was trained with fixed layers or without encoder")
        names = config["encoder"]["layers"]
        picked = LayerChoice.parse(config["setup"]["features"]["elmo_layers"]).indices(len(names))
        for place, mix in mixes.items():
            called = f"{folder.name} ({config['task']}" + (f", {place})" if len(mixes) > 1 else ")")
            found.append(MixWeights(called, tuple(names[k] for k in picked), tuple(mix["shares"]), mix["gamma"]))
    return found
