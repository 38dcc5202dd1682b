"""What the mixes of task models learned, read from the models' folders."""

from collections.abc import Sequence
from pathlib import Path

from elmokit.config import revive
from elmokit.errors import InputError, WeightsError
from elmokit.layers import LayerChoice
from elmokit.plots import MixWeights
from elmokit.tasks.saved import read_description
from elmokit.tasks.setup import FeatureSettings


def read_mixes(folders: Sequence[str | Path]) -> list[MixWeights]:
    """The learned mixes of each model, one for each place where layers enter its network.

    A model is called by its folder, with the place where it has several mixes.
    """
    found: list[MixWeights] = []
    for folder in map(Path, folders):
        model = read_description(folder)
        mixes = model.mixes
        if not mixes or model.encoder is None:
            raise InputError(f"{folder}: has no learned mix; the task was trained with fixed layers or without encoder")
        names = model.encoder.layers
        stated = model.setup.get("features")
        features = revive(FeatureSettings, stated, source=f"{folder}: features", error=WeightsError)
        picked = LayerChoice.parse(features.elmo_layers).indices(len(names))
        for place, mix in mixes.items():
            if len(mix.shares) != len(picked):
                raise WeightsError(f"{folder}: {len(mix.shares)} weights for {len(picked)} layers; save it again")
            called = f"{folder.name} ({model.task}" + (f", {place})" if len(mixes) > 1 else ")")
            found.append(MixWeights(called, tuple(names[k] for k in picked), mix.shares, mix.gamma))
    return found
