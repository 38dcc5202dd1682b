"""UMAP where it is installed: points of all layers, groups apart, one layer begun from the other."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from elmokit.encoders import Elmo
from elmokit.errors import MissingExtraError
from elmokit.explore import Explorer
from elmokit.explore.cloud import Cloud, gather, methods, project
from elmokit.explore.steps import finish
from elmokit.index import Index

pytestmark = pytest.mark.filterwarnings("ignore:Tensorflow not installed:ImportWarning")
needs_umap = pytest.mark.skipif(not find_spec("umap"), reason="umap-learn is not installed: pip install elmokit[umap]")


def cloud_of(layers: dict[str, np.ndarray]) -> Cloud:
    n = len(next(iter(layers.values())))
    rows = np.arange(n)
    return Cloud("word", [], np.zeros(n, dtype=np.int64), rows, n, ["word"], layers=layers)


@needs_umap
def test_what_is_near_stays_near() -> None:
    assert methods() == ["pca", "umap"]
    rng = np.random.default_rng(0)
    kinds = np.repeat([0, 1, 2], 30)
    centres = 6 * rng.standard_normal((3, 16))
    upper = (centres[kinds] + rng.standard_normal((90, 16))).astype(np.float16)
    lower = (upper + rng.standard_normal((90, 16))).astype(np.float16)
    flat = np.ones((90, 16), dtype=np.float16)  # the lowest layer of an ELMo: one vector for all
    points = project(cloud_of({"flat": flat, "lower": lower, "upper": upper}), method="umap")
    assert list(points) == ["flat", "lower", "upper"]
    assert not points["flat"].any()
    for name in ("lower", "upper"):
        assert points[name].shape == (90, 2)
        assert np.abs(points[name]).max() == pytest.approx(1)
        apart = np.linalg.norm(points[name][:, None] - points[name], axis=-1)
        np.fill_diagonal(apart, np.inf)
        assert (kinds[apart.argmin(axis=1)] == kinds).mean() > 0.95
    middles = {name: np.stack([points[name][kinds == k].mean(axis=0) for k in range(3)]) for name in points}
    moved = np.linalg.norm(middles["lower"] - middles["upper"], axis=1)
    others = np.linalg.norm(middles["lower"][[1, 2, 0]] - middles["upper"], axis=1)
    assert moved.max() < others.min()  # a group is nearest to itself in the other layer: the slider moves, not jumps


@needs_umap
def test_a_word_of_an_index(explorer: Explorer, elmo: Elmo, indexes: dict[str, Path]) -> None:
    assert finish(explorer.about())["projections"] == ["pca", "umap"]
    found = finish(explorer.word(["whole"], "bank", projection="umap"))
    assert [layer["name"] for layer in found["layers"]] == ["token", "lstm1", "lstm2"]
    few = finish(gather([Index.open(indexes["whole"])], "bank", elmo, limit=4))
    assert not project(few, method="umap")["lstm2"].any()  # too few to place


@pytest.mark.skipif(bool(find_spec("umap")), reason="umap-learn is installed")
def test_without_it_the_error_says_what_to_install() -> None:
    assert methods() == ["pca"]
    with pytest.raises(MissingExtraError, match=r"elmokit\[umap\]"):
        project(cloud_of({"top": np.ones((9, 4), dtype=np.float16)}), method="umap")
