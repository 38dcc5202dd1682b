"""`elmo.columns`: a column of vectors for tables of pandas, polars and datasets."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import models
from elmokit import Elmo
from elmokit.errors import InputError

TEXTS = ["The cat sat.", "", "A mat"]


@pytest.fixture(scope="module")
def elmo() -> Elmo:
    return Elmo(models.tiny(seed=2).pretrained, device="cpu")


def test_pandas(elmo: Elmo) -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"text": [*TEXTS, None, float("nan")], "n": range(5)}, index=list("abcde"))
    made = table.pipe(elmo.columns("text", output="v", layers="top"))
    assert list(made.columns) == ["text", "n", "v"]
    assert list(made.index) == list("abcde")
    assert_allclose(np.stack(made["v"][:3]), elmo.encode(TEXTS, layers="top"), atol=1e-6)
    assert made["v"].isna().tolist() == [False, False, False, True, True]
    assert "v" not in table.columns
    column = elmo.columns(tokens=True)(table["text"][:3])
    assert [len(one) for one in column] == [4, 0, 2]
    assert column.name == "vector"
    assert elmo.columns()(pandas.Series(["A mat", None], dtype="string")).isna().tolist() == [False, True]
    lists = pandas.DataFrame({"text": [["A", "mat"], np.array(["B"], dtype=object)]})
    assert_allclose(np.stack(elmo.columns()(lists)["vector"]), elmo.encode([["A", "mat"], ["B"]]), atol=1e-6)


@pytest.mark.integration
def test_polars(elmo: Elmo) -> None:
    polars = pytest.importorskip("polars")
    table = polars.DataFrame({"text": TEXTS, "n": [1, 2, 3]})
    made = table.pipe(elmo.columns("text"))
    assert made.schema["vector"] == polars.Array(polars.Float32, elmo.width)
    assert_allclose(made["vector"].to_numpy(), elmo.encode(TEXTS), atol=1e-6)
    some = polars.DataFrame({"text": ["A mat", None]}).pipe(elmo.columns("text"))
    assert some.schema["vector"] == made.schema["vector"]
    assert some["vector"].null_count() == 1
    tokens = table.pipe(elmo.columns("text", tokens=True))["vector"].to_list()
    assert [len(one) for one in tokens] == [4, 0, 2]
    kind = polars.Array(polars.Float32, elmo.width)
    lazy = table.lazy().select(polars.col("text").map_batches(elmo.columns(), return_dtype=kind)).collect()
    assert_allclose(lazy["text"].to_numpy(), elmo.encode(TEXTS), atol=1e-6)
    assert elmo.columns("text")(table.head(0)).schema["vector"] == kind


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_datasets(elmo: Elmo, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    given = datasets.Dataset.from_dict({"text": [*TEXTS, None], "label": [0, 1, 0, 1]})
    made = given.map(elmo.columns("text"), batched=True, batch_size=3)
    assert made.column_names == ["text", "label", "vector"]
    assert_allclose(np.array(made["vector"][:3]), elmo.encode(TEXTS), atol=1e-6)
    assert made[3]["vector"] is None
    tokens = given.map(elmo.columns("text", tokens=True, output="t"), batched=True)
    assert [len(row or ()) for row in tokens["t"]] == [4, 0, 2, 0]
    two = given.map(elmo.columns("text"), batched=True, batch_size=1, num_proc=2)
    assert_allclose(np.array(two["vector"][:3]), elmo.encode(TEXTS), atol=1e-5)
    stream = given.to_iterable_dataset().map(elmo.columns("text"), batched=True)
    assert_allclose(next(iter(stream))["vector"], elmo.encode(TEXTS[0]), atol=1e-6)


@pytest.mark.parametrize(
    ("given", "said"),
    [({"other": ["a"]}, "no column 'text'; the table has other"), ([1], "a list was given, expected a batch")],
)
def test_what_cannot_be_used_is_said(elmo: Elmo, given: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        elmo.columns("text")(given)
