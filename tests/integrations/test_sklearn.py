"""The transformers in scikit-learn's own tools."""

import importlib
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import models
from elmokit import Elmo
from elmokit.errors import InputError, MissingExtraError, WeightsError

sklearn = pytest.importorskip("sklearn")
from sklearn.base import clone  # noqa: E402
from sklearn.compose import ColumnTransformer  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.model_selection import GridSearchCV  # noqa: E402
from sklearn.pipeline import Pipeline, make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402

from elmokit.integrations.sklearn import ElmoTokenVectorizer, ElmoVectorizer  # noqa: E402

TEXTS = ["The cat sat.", "A dog ran away!", "", "The mat, the cat", "the the the", "One dog."]
LABELS = [0, 1, 0, 0, 0, 1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("sklearn") / "model"
    Elmo(models.tiny(seed=5).pretrained, device="cpu").save_pretrained(place)
    return str(place)


@pytest.fixture(scope="module")
def elmo(folder: str) -> Elmo:
    return Elmo.from_pretrained(folder, device="cpu")


def test_rows_are_the_encoders(folder: str, elmo: Elmo) -> None:
    for layers in ("average", "top", "concat:0,1"):
        rows = ElmoVectorizer(folder, layers=layers, device="cpu").fit_transform(TEXTS)
        assert_allclose(rows, elmo.encode(TEXTS, layers=layers), atol=1e-5)
    tokens = [["The", "cat", "sat", "."], ["Ab"]]
    assert_allclose(ElmoVectorizer(folder).fit_transform(tokens), elmo.encode(tokens), atol=1e-5)
    assert_allclose(
        ElmoVectorizer(elmo, normalise=True).fit_transform(TEXTS), elmo.encode(TEXTS, normalise=True), atol=1e-5
    )
    assert ElmoVectorizer(folder).fit(TEXTS).transform([]).shape == (0, elmo.width)


def test_pooling(folder: str, elmo: Elmo) -> None:
    vectors = elmo.encode_tokens(TEXTS)
    for pooling, expected in (("max", lambda v: v.max(axis=0)), ("first", lambda v: v[0]), ("last", lambda v: v[-1])):
        rows = ElmoVectorizer(folder, pooling=pooling).fit_transform(TEXTS)
        for row, one in zip(rows, vectors, strict=True):
            assert_allclose(row, expected(one) if len(one) else np.zeros(elmo.width), atol=1e-5)


def test_rare_words_count_more_with_idf(folder: str, elmo: Elmo) -> None:
    made = ElmoVectorizer(folder, weights="idf").fit(TEXTS)
    n = len(TEXTS)
    idf = {"the": np.log((1 + n) / (1 + 3)) + 1, "cat": np.log((1 + n) / (1 + 2)) + 1, "zebra": np.log(1 + n) + 1}
    weights = np.array(list(idf.values()))
    vectors = elmo.encode_tokens([["The", "cat", "zebra"]])[0]
    assert_allclose(made.transform([["The", "cat", "zebra"]])[0], weights @ vectors / weights.sum(), atol=1e-5)
    assert not made.transform([""]).any()
    assert_allclose(ElmoVectorizer(folder, weights="idf").fit_transform(iter(TEXTS)), made.transform(TEXTS), atol=1e-6)


def test_a_search_over_layers(folder: str) -> None:
    model = Pipeline([("elmo", ElmoVectorizer(folder)), ("classes", LogisticRegression())])
    search = GridSearchCV(model, {"elmo__layers": ["0", "top"], "elmo__pooling": ["mean", "max"]}, cv=2)
    search.fit(TEXTS * 2, LABELS * 2)
    assert set(search.best_params_) == {"elmo__layers", "elmo__pooling"}
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.score(TEXTS, LABELS) >= 0.5


def test_a_clone_is_unfitted_and_equal(folder: str) -> None:
    fitted = ElmoVectorizer(folder, layers="top", weights="idf").fit(TEXTS)
    again = clone(fitted)
    assert again.get_params() == fitted.get_params()
    with pytest.raises(sklearn.exceptions.NotFittedError):
        again.transform(TEXTS)
    assert_allclose(again.fit(TEXTS).transform(TEXTS), fitted.transform(TEXTS), atol=1e-6)
    assert "layers='top'" in repr(fitted)


def test_a_pickle_holds_no_weights_and_knows_its_model(folder: str, tmp_path: Path) -> None:
    fitted = ElmoVectorizer(folder, layers="top", weights="idf").fit(TEXTS)
    data = pickle.dumps(fitted)
    assert len(data) < 20_000
    assert_allclose(pickle.loads(data).transform(TEXTS), fitted.transform(TEXTS), atol=1e-6)
    (tmp_path / "fitted.pkl").write_bytes(data)
    code = f"import pickle; print(pickle.load(open({str(tmp_path / 'fitted.pkl')!r}, 'rb')).transform(['One.']).shape)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "(1, 12)", done.stderr
    other = tmp_path / "other"
    Elmo(models.tiny(seed=6).pretrained).save_pretrained(other)
    with pytest.raises(WeightsError, match="not the model that this vectorizer was fitted with"):
        fitted.set_params(model=str(other)).transform(TEXTS)


def test_names_of_features_and_tables(folder: str, elmo: Elmo) -> None:
    pandas = pytest.importorskip("pandas")
    made = ElmoVectorizer(folder).set_output(transform="pandas")
    table = made.fit_transform(pandas.Series(TEXTS, index=list("abcdef")))
    assert list(table.columns) == list(made.get_feature_names_out()) == [f"elmo{k}" for k in range(elmo.width)]
    if not sklearn.__version__.startswith("1.4."):  # which keeps the index of tables only
        assert list(table.index) == list("abcdef")
    assert_allclose(table.to_numpy(), elmo.encode(TEXTS), atol=1e-5)


def test_columns_of_a_pandas_table(folder: str) -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"text": TEXTS, "length": [float(len(t)) for t in TEXTS], "title": TEXTS[::-1]})
    columns = ColumnTransformer(
        [
            ("text", ElmoVectorizer(folder), "text"),
            ("title", ElmoVectorizer(folder), ["title"]),
            ("n", StandardScaler(), ["length"]),
        ]
    )
    model = make_pipeline(columns, LogisticRegression()).fit(table, LABELS)
    assert model.predict(table).shape == (6,)
    assert columns.fit_transform(table).shape == (6, 12 + 12 + 1)
    names = columns.get_feature_names_out()
    assert names[0] == "text__elmo0"
    assert names[-1] == "n__length"


def test_one_row_per_token(folder: str, elmo: Elmo) -> None:
    sentences = [["The", "cat"], [], ["sat", "on", "mats"]]
    made = ElmoTokenVectorizer(folder, layers="top")
    rows = made.fit_transform(sentences)
    expected = elmo.encode_tokens(sentences, layers="top")
    assert_allclose(rows, np.concatenate(expected), atol=1e-5)
    assert made.lengths(sentences) == [2, 0, 3]
    for one, other in zip(made.split(rows, sentences), expected, strict=True):
        assert_allclose(one, other, atol=1e-5)
    assert made.lengths(["Two words.", "One"]) == [3, 1]
    model = make_pipeline(clone(made), LogisticRegression()).fit(sentences, [0, 1, 0, 0, 1])
    tags = made.split(model.predict(sentences), sentences)
    assert [len(one) for one in tags] == [2, 0, 3]
    with pytest.raises(InputError, match="3 rows were given for sentences of 5 tokens"):
        made.split(rows[:3], sentences)
    assert_allclose(pickle.loads(pickle.dumps(made)).transform(sentences), rows, atol=1e-6)


def test_one_row_per_token_in_a_pandas_table(folder: str) -> None:
    pandas = pytest.importorskip("pandas")
    made = ElmoTokenVectorizer(folder).set_output(transform="pandas")
    table = made.fit_transform(pandas.Series(["Two words", "", "One"], index=[7, 8, 9]))
    assert list(table.index) == [7, 7, 9]
    assert list(table.columns) == list(made.get_feature_names_out())


@pytest.mark.parametrize(
    ("options", "given", "said"),
    [
        ({"pooling": "sum"}, TEXTS, "pooling 'sum' not known"),
        ({"weights": "tf"}, TEXTS, "weights 'tf' not known"),
        ({"weights": "idf", "pooling": "max"}, TEXTS, "weigh the words of a mean"),
        ({"layers": "all"}, TEXTS, "keep the layers apart"),
        ({}, "one text", "one string was given"),
        ({}, ["a", None], "row 1 is None"),
        ({}, np.zeros((2, 3)), "a table of 3 columns"),
    ],
)
def test_what_cannot_be_used_is_said(folder: str, options: dict[str, Any], given: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        ElmoVectorizer(folder, **options).fit_transform(given)


def test_without_sklearn_the_line_that_installs_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name == "sklearn" or name.startswith("sklearn.")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "elmokit.integrations.sklearn", raising=False)
    with pytest.raises(MissingExtraError, match=r"pip install 'elmokit\[sklearn\]'"):
        importlib.import_module("elmokit.integrations.sklearn")
