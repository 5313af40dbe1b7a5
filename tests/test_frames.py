"""Arrays and data frames in; labels out."""

import importlib.util

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import BaseEstimator

from ncprob import NCPRegressor, frames


class Estimator(BaseEstimator):
    pass


def checked(X, y, **options):
    x = frames.check_features(Estimator(), X, **{"reset": True, "tabular": True, **options})
    return x, frames.check_target(y, len(x))


X = np.arange(6.0).reshape(3, 2)
Y = np.array([1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    "table",
    [X, X.tolist(), X.astype(np.float32), X.astype(int), pd.DataFrame(X), pl.DataFrame(X), np.asfortranarray(X)],
    ids=["array", "list", "float32", "int", "pandas", "polars", "fortran"],
)
@pytest.mark.parametrize(
    "target",
    [Y, Y.tolist(), Y.astype(int), pd.Series(Y), pl.Series(Y)],
    ids=["array", "list", "int", "pandas", "polars"],
)
def test_inputs_become_float64_arrays(table, target):
    x, y = checked(table, target)
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(y, Y)
    assert x.dtype == y.dtype == np.float64


def test_booleans_are_numbers():
    x, _ = checked(pd.DataFrame({"a": [True, False, True], "b": [1, 2, 3]}), Y)
    np.testing.assert_array_equal(x[:, 0], [1, 0, 1])


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_vector_targets(frame):
    _, y = checked(X, frame({"a": Y, "b": -Y}))
    np.testing.assert_array_equal(y, np.stack([Y, -Y], axis=1))
    assert checked(X, Y[:, None])[1].shape == (3, 1)


@pytest.mark.parametrize(
    ("target", "names"),
    [
        (Y, [0]),
        (Y.tolist(), [0]),
        (Y[:, None], [0]),
        (np.zeros((3, 2)), [0, 1]),
        (pd.Series(Y), [0]),
        (pd.Series(Y, name="price"), ["price"]),
        (pl.Series("price", Y), ["price"]),
        (pd.DataFrame({"a": Y, "b": Y}), ["a", "b"]),
        (pl.DataFrame({"a": Y, "b": Y}), ["a", "b"]),
    ],
)
def test_names_of_targets(target, names):
    assert frames.target_names(target) == names


def test_labels_of_pandas_keep_index_and_level_types():
    table = pd.DataFrame(X, index=["p", "q", "r"])
    answer = frames.label(np.arange(12.0).reshape(3, 2, 2), table, [["a", "b"], [0.05, 0.95]])
    assert answer.columns.tolist() == [("a", 0.05), ("a", 0.95), ("b", 0.05), ("b", 0.95)]
    assert answer.index.tolist() == ["p", "q", "r"]
    assert answer.loc["q", ("b", 0.05)] == 6


def test_labels_of_polars_are_joined():
    answer = frames.label(np.arange(6.0).reshape(3, 2), pl.DataFrame(X), [["a"], [0.05, 0.95]])
    assert isinstance(answer, pl.DataFrame)
    assert answer.columns == ["a_0.05", "a_0.95"]
    assert answer["a_0.95"].to_list() == [1, 3, 5]


def test_arrays_stay_arrays():
    answer = np.zeros((3, 2))
    assert frames.label(answer, X, [["a"], [0.05, 0.95]]) is answer
    assert not frames.is_frame(X)
    assert frames.is_frame(pd.DataFrame(X))
    assert frames.is_frame(pl.DataFrame(X))


def bad(value, where=(1, 0)):
    table = X.copy()
    table[where] = value
    return table


@pytest.mark.parametrize(
    ("table", "target", "error", "message"),
    [
        (bad(np.nan), Y, ValueError, r"`X` must not contain NaN or infinity; .* 1 places, first at index \[1, 0\]"),
        (bad(np.inf), Y, ValueError, "`X` must not contain NaN or infinity"),
        (bad(-np.inf), Y, ValueError, "`X` must not contain NaN or infinity"),
        (X, [1, np.nan, np.nan], ValueError, r"`y` must not contain NaN .* 2 places, first at index \[1\]"),
        (X, [1, 2, np.inf], ValueError, "`y` must not contain NaN or infinity"),
        (X, None, ValueError, "`y` must be given"),
        (X, Y[:2], ValueError, r"`X` and `y` must have as many rows; .*\[3, 2\]. Pair them row by row"),
        (X, ["a", "b", "c"], TypeError, r"`y` must be numeric; got <U1 values such as \['a'\]. For classes use NCPCl"),
        (X, np.zeros((3, 2, 2)), ValueError, r"`y` must have shape \(n,\) or \(n, q\); got \(3, 2, 2\). Reshape"),
        (X, np.zeros((3, 0)), ValueError, "`y` must have shape"),
        (X, 1j * Y, ValueError, "`y` must be real"),
        (X[:1], Y[:1], ValueError, "`X` must hold at least 2 rows; got n_samples = 1 .* Pass more data"),
        (X[:0], Y[:0], ValueError, "0 sample"),
        (X[:, 0], Y, ValueError, "Expected 2D array, got 1D array"),
        (X[:, :0], Y, ValueError, "0 feature"),
        (
            pd.DataFrame({"day": pd.to_datetime(["2024-01-01"] * 3)}),
            Y,
            TypeError,
            r"`X` must have .*\['day'\]. Turn dates",
        ),
        (
            pl.DataFrame({"town": [["x"]] * 3}),
            Y,
            TypeError,
            r"`X` must have numeric, text .* other types in \['town'\]",
        ),
        (
            pd.DataFrame({"town": ["x", None, "z"]}),
            Y,
            ValueError,
            "NaN or missing values; column 'town' has 1, .* row 1",
        ),
        (
            pl.DataFrame({"town": ["x", None, "z"]}),
            Y,
            ValueError,
            "NaN or missing values; column 'town' has 1, .* row 1",
        ),
        (
            pd.DataFrame({0: ["x", "y", "z"]}),
            Y,
            TypeError,
            r"`X` must call columns of text by strings; got the names \[0\]. Rename",
        ),
        ([["a", "b"]] * 3, Y, ValueError, "could not convert string to float: 'a'. Encode text"),
    ],
)
def test_bad_data_is_rejected(table, target, error, message):
    with pytest.raises(error, match=message):
        checked(table, target)


@pytest.mark.parametrize("library", [pd, pl])
def test_text_columns_are_numbered_by_frequency(library):
    estimator = Estimator()
    table = library.DataFrame({"a": Y, "town": ["y", "x", "y"]})
    numbers = frames.check_features(estimator, table, reset=True, tabular=True)
    assert estimator.categories_ == {"town": ["y", "x"]}
    np.testing.assert_array_equal(numbers, np.column_stack([Y, [0, 1, 0]]))
    new = library.DataFrame({"a": Y, "town": ["x", "z", "y"]})
    with pytest.warns(UserWarning, match=r"column 'town' has levels that were not seen in fit, such as \['z'\]"):
        numbers = frames.check_features(estimator, new, reset=False, tabular=True)
    np.testing.assert_array_equal(numbers[:, 1], [1, -1, 0])
    assert table["town"].to_list() == ["y", "x", "y"]  # the caller's table stays as it was


def test_categorical_columns_are_like_text():
    estimator = Estimator()
    table = pd.DataFrame({"size": pd.Categorical([3, 1, 3], categories=[1, 2, 3])})
    np.testing.assert_array_equal(frames.check_features(estimator, table, reset=True, tabular=True)[:, 0], [0, 1, 0])
    assert estimator.categories_ == {"size": ["3", "1"]}


def test_other_columns_than_at_fit():
    estimator = Estimator()
    frames.check_features(estimator, pd.DataFrame(X, columns=["a", "b"]), reset=True, tabular=True)
    with pytest.raises(ValueError, match="X has 1 features, but Estimator is expecting 2 features"):
        frames.check_features(estimator, X[:, :1], reset=False, tabular=True)
    with pytest.raises(ValueError, match="feature names"):
        frames.check_features(estimator, pd.DataFrame(X, columns=["b", "a"]), reset=False, tabular=True)


def test_images_are_allowed_for_custom_encoders():
    x, _ = checked(np.zeros((3, 1, 4, 4)), Y, tabular=False)
    assert x.shape == (3, 1, 4, 4)
    with pytest.raises(ValueError, match="dim 4"):
        checked(np.zeros((3, 1, 4, 4)), Y)


def test_good_weights():
    np.testing.assert_array_equal(frames.check_weights([0, 1, 2], 3), [0.0, 1.0, 2.0])


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        ([1, 2], ValueError, r"`sample_weight` must have shape \(3,\), one weight per row; .*\(2,\)"),
        ([[1], [2], [3]], ValueError, "`sample_weight` must have shape"),
        ([1, -1, 1], ValueError, "`sample_weight` must not be negative and not all zero. Drop"),
        ([0, 0, 0], ValueError, "not all zero"),
        ([1, np.nan, 1], ValueError, "`sample_weight` must not contain NaN"),
        (["a", "b", "c"], TypeError, "`sample_weight` must be numeric: .* Pass one number per row"),
    ],
)
def test_bad_weights(weights, error, message):
    with pytest.raises(error, match=message):
        frames.check_weights(weights, 3)


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (X, TypeError, r"`validation_data` must be a pair \(X, y\); got ndarray. Pass both"),
        ((X,), TypeError, "`validation_data` must be a pair"),
        ((X, np.zeros((3, 2))), ValueError, r"`validation_data` must have targets like `y`, .* got \(3, 2\)"),
        ((X, Y), ValueError, "`validation_data` must hold at least 4 rows; got 3. Pass more, or none"),
        ((X, Y[:2]), ValueError, "must have as many rows"),
        ((bad(np.nan), Y), ValueError, "must not contain NaN"),
    ],
)
def test_bad_validation_data(data, error, message):
    estimator = Estimator()
    frames.check_features(estimator, X, reset=True, tabular=True)
    with pytest.raises(error, match=message):
        frames.check_validation_data(estimator, data, (3,), tabular=True)


def test_masks():
    np.testing.assert_array_equal(frames.check_mask([True, False, True], 3), [True, False, True])
    for wrong in ([1, 0, 1], [True, False], "all"):
        with pytest.raises(ValueError, match="`A` must be a Box, a callable or a boolean mask over the 3"):
            frames.check_mask(wrong, 3)


# ---------------------------------------------------------------- in and out, the same for every library


def libraries():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"size": rng.uniform(-1, 1, 90), "rooms": rng.integers(1, 6, 90), "town": ["p", "q", "p"] * 30}
    )
    target = pd.Series(table["size"] + (table["town"] == "p") + 0.1 * rng.normal(size=90), name="price")
    arrow = pa.Table.from_pandas(table), pa.table({"price": target})["price"]
    return {"pandas": (table, target), "polars": (pl.from_pandas(table), pl.from_pandas(target)), "pyarrow": arrow}


def fitted(X, y):
    return NCPRegressor(
        max_steps=20, hidden_sizes=(8,), coordinates="raw", random_state=0, progress=False, device="cpu"
    ).fit(X, y)


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_answers_do_not_depend_on_the_library(library):
    X, y = libraries()[library]
    reference = fitted(*libraries()["pandas"])
    model = fitted(X, y)
    assert model.feature_names_in_.tolist() == ["size", "rooms", "town"]
    assert model.categories_ == {"town": ["p", "q"]}
    np.testing.assert_array_equal(model.predict(X), reference.predict(libraries()["pandas"][0]))
    answer = model.predict_interval(X, coverage=[0.5, 0.9])
    assert type(answer) is type(X)
    expected = reference.predict_interval(libraries()["pandas"][0], coverage=[0.5, 0.9])
    np.testing.assert_array_equal(np.asarray(answer), expected.to_numpy())


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_vector_targets_keep_their_labels(library):
    X, y = libraries()[library]
    both = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}[library]({"low": y, "high": y})
    answer = fitted(X, both).predict_quantiles(X, alpha=[0.1, 0.9])
    if library == "pandas":
        assert answer.columns.tolist() == [("low", 0.1), ("low", 0.9), ("high", 0.1), ("high", 0.9)]
    else:
        names = answer.columns if library == "polars" else answer.column_names
        assert names == ["low_0.1", "low_0.9", "high_0.1", "high_0.9"]


def test_pandas_keeps_any_index():
    X, y = libraries()["pandas"]
    dates = X.set_index(pd.date_range("2024-01-01", periods=len(X)))
    assert fitted(dates, y).predict_quantiles(dates).index.equals(dates.index)


NUMBERS = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}


@pytest.mark.parametrize("library", NUMBERS)
def test_missing_numbers_are_refused(library):
    X = NUMBERS[library]({"a": [1.0, None, 3.0], "b": [1, 2, 3]})
    with pytest.raises(ValueError, match=r"`X` must not contain NaN .* first at index \[1, 0\]. Drop or impute"):
        checked(X, Y)


@pytest.mark.parametrize(
    "target",
    [
        pd.Series([1.0, pd.NA, 3.0], dtype="Float64"),
        pd.Series([1, None, 3], dtype=object),
        pl.Series([1.0, None, 3.0]),
        pa.chunked_array([[1.0, None, 3.0]]),
        pd.DataFrame({"a": [1.0, np.nan, 3.0], "b": [1.0, 2.0, 3.0]}),
    ],
    ids=["nullable", "object", "polars", "pyarrow", "table"],
)
def test_missing_targets_are_refused(target):
    with pytest.raises(ValueError, match=r"`y` must not contain NaN or infinity; .* 1 places, first at index \[1"):
        checked(X, target)


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_columns_apart_and_together(library):
    table = libraries()[library][0]
    names, columns = frames.split_columns(table)
    assert [column.dtype.kind for column in columns] == ["f", "f", "U"]
    again = frames.join_columns(dict(zip(names, columns, strict=True)), like=table)
    assert type(again) is type(table)
    for first, second in zip(frames.split_columns(again)[1], columns, strict=True):
        np.testing.assert_array_equal(first, second)


def test_columns_with_numbers_as_names():
    table = pd.DataFrame({0: [1.0, 2.0], 1: [True, False], "x": ["a", "b"]})
    names, columns = frames.split_columns(table)
    assert names == [0, 1, "x"]
    pd.testing.assert_frame_equal(frames.join_columns(dict(zip(names, columns, strict=True)), like=table), table)
    with pytest.raises(ValueError, match=r"`X` must be a table of shape \(n, p\); got shape \(3,\)"):
        frames.split_columns(Y)


@pytest.mark.parametrize("missing", [(), ("pyarrow",), ("pyarrow", "pandas")])
def test_columns_become_a_frame_of_whichever_library_is_there(monkeypatch, missing):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in missing else found(name))
    columns = {"a b": np.array([1.0, 2.0]), "k": np.array(["x", "y"], dtype=object)}
    names, again = frames.split_columns(frames.join_columns(columns))
    assert dict(zip(names, map(list, again), strict=True)) == {"a b": [1.0, 2.0], "k": ["x", "y"]}


def test_without_any_library_of_frames_one_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install pyarrow"):
        frames.join_columns({"a": np.ones(2)})


def codes(values):
    return pd.DataFrame({"code": values, "size": np.linspace(0, 1, len(values))})


def test_codes_that_were_text_in_fit_stay_text():
    model = fitted(codes(["10", "20", "20", "1"] * 10), np.tile([0.0, 1.0, 1.0, 5.0], 10))
    expected = model.predict(codes(["10", "20", "1"]))
    np.testing.assert_array_equal(model.predict(codes([10, 20, 1])), expected)


def test_text_where_fit_had_numbers_is_refused():
    model = fitted(codes([10, 20, 20, 1] * 10), np.tile([0.0, 1.0, 1.0, 5.0], 10))
    with pytest.raises(TypeError, match=r"`X` must have numbers in \['code'\], as in fit; got text"):
        model.predict(codes(["10", "20", "1"]))


@pytest.mark.parametrize(
    ("names", "labels"), [(["price"], ["price"]), ([0], ["y"]), ([0, 1], ["y0", "y1"]), (["price", 1], ["price", "y1"])]
)
def test_labels_of_targets(names, labels):
    model = NCPRegressor()
    model.target_names_ = names
    assert frames.target_labels(model) == labels
