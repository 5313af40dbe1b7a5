"""Arrays and data frames: checks on the way in, labels on the way out."""

from __future__ import annotations

import importlib.util
import itertools
import warnings
from collections.abc import Mapping
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import validate_data

from ncprob.preprocessing import LARGEST

TEXT = (nw.String, nw.Categorical, nw.Enum)


def target_labels(estimator: Any) -> list[str]:
    """Names of the targets of a fitted estimator; y, or y0, y1, … where they have none."""
    names = list(getattr(estimator, "target_names_", [0]))
    if len(names) == 1 and not isinstance(names[0], str):
        return ["y"]
    return [name if isinstance(name, str) else f"y{k}" for k, name in enumerate(names)]


def is_frame(data: Any) -> bool:
    """Whether `data` is a data frame of a library that narwhals knows (pandas, polars, pyarrow, …)."""
    return isinstance(_frame(data), nw.DataFrame)


def _frame(data: Any) -> Any:
    """A data frame as narwhals sees it; anything else as it is. Arrays are not asked: that takes 0.2 ms."""
    return data if isinstance(data, np.ndarray) else nw.from_native(data, eager_only=True, strict=False)


def check_features(
    estimator: BaseEstimator, X: Any, *, reset: bool, tabular: bool, name: str = "X"
) -> NDArray[np.float64]:
    """X as a finite float64 array, 2-D when `tabular`.

    With `reset` (while fitting) the number and names of features are learned, else they are checked. Text and
    categorical columns of a data frame become the numbers of their levels in `estimator.categories_`.
    """
    X = _number_levels(estimator, X, reset, name)
    try:
        x = validate_data(
            estimator,
            X,
            reset=reset,
            dtype=np.float64,
            ensure_all_finite=False,
            allow_nd=not tabular,
            ensure_min_samples=1,
        )
    except TypeError as error:
        raise TypeError(f"`{name}` must be a numeric table of shape (n, p): {error}") from error
    except ValueError as error:
        what = "a numeric table of shape (n, p)" if reset else "a numeric table like `X` in fit"
        remedy = ". Encode text first, for example with OneHotEncoder." if "could not convert" in str(error) else ""
        raise ValueError(f"`{name}` must be {what}: {error}{remedy}") from error
    x = _plain(x)
    _check_finite(x, name)
    if reset and len(x) < 2:
        raise ValueError("`X` must hold at least 2 rows; got n_samples = 1 (one sample). Pass more data.")
    if reset:
        _check_size(x, name)
    return x


def _number_levels(estimator: BaseEstimator, X: Any, reset: bool, label: str) -> Any:
    """X with text columns numbered; with `reset` their levels are learned as `categories_`, most frequent first.

    A level that was not seen in fit gets the number −1: none of the known ones.
    """
    frame = _frame(X)
    if reset:
        estimator.categories_ = {}
    if not isinstance(frame, nw.DataFrame):
        return X
    # Codes that are all digits may be read as numbers another time: what was text in fit stays text.
    text = [name for name, kind in frame.schema.items() if isinstance(kind, TEXT) or name in estimator.categories_]
    other = [
        name
        for name, kind in frame.schema.items()
        if not (kind.is_numeric() or kind == nw.Boolean or isinstance(kind, TEXT))
    ]
    if other:
        raise TypeError(
            f"`{label}` must have numeric, text or categorical columns; got other types in {other}. "
            "Turn dates and durations into numbers first."
        )
    unnamed = [name for name in text if not isinstance(name, str)]
    if unnamed:
        raise TypeError(
            f"`{label}` must call columns of text by strings; got the names {unnamed[:3]}. "
            "Rename them, for example by X.columns = X.columns.astype(str)."
        )
    if not reset:
        numeric = set(getattr(estimator, "feature_names_in_", ())) - set(estimator.categories_)
        wrong = [name for name in text if name in numeric]
        if wrong:
            raise TypeError(f"`{label}` must have numbers in {wrong}, as in fit; got text. Convert these columns.")
    columns = {name: _text_values(frame[name], label) for name in text}
    if reset:
        estimator.categories_ = {name: _levels(values) for name, values in columns.items()}
    for name, values in columns.items():
        frame = frame.with_columns(nw.new_series(name, _numbers(estimator, name, values), backend=frame.implementation))
    return frame.to_native() if columns else X


def _text_values(column: nw.Series[Any], label: str) -> NDArray[Any]:
    values = np.array(column.to_list(), dtype=object)
    missing = np.array([_is_missing(value) for value in values], dtype=bool)
    if missing.any():
        raise ValueError(
            f"`{label}` must not contain NaN or missing values; column {column.name!r} has {int(missing.sum())}, first "
            f"at row {int(missing.argmax())}. Drop or impute these rows, or name them, for example 'missing'."
        )
    return values.astype(str)


def _levels(values: NDArray[Any]) -> list[str]:
    """Distinct values, most frequent first, ties by name."""
    names, counts = np.unique(values, return_counts=True)
    return by_frequency(dict(zip(names.tolist(), counts.tolist(), strict=True)))


def by_frequency(counts: Mapping[str, int]) -> list[str]:
    """Levels, most frequent first, ties by name.

    Examples
    --------
    >>> by_frequency({"flat": 2, "loft": 1, "house": 2})
    ['flat', 'house', 'loft']
    """
    return sorted(counts, key=lambda level: (-counts[level], level))


def _numbers(estimator: BaseEstimator, name: str, values: NDArray[Any]) -> NDArray[np.float64]:
    number = {level: float(i) for i, level in enumerate(estimator.categories_.get(name, ()))}
    unseen = sorted(set(values.tolist()) - set(number))
    if unseen:
        warnings.warn(
            f"column {name!r} has levels that were not seen in fit, such as {unseen[:3]}; they count as none of those.",
            stacklevel=5,
        )
    return np.array([number.get(value, -1.0) for value in values])


def check_target(y: Any, n_rows: int, name: str = "y") -> NDArray[np.float64]:
    """y as finite float64 of shape (n,) or (n, q)."""
    array = _as_array(y)
    if np.iscomplexobj(array):
        raise ValueError("`y` must be real. Complex data not supported.")
    try:
        array = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"`{name}` must be numeric; got {array.dtype} values such as {array.ravel()[:1].tolist()}. "
            "For classes use NCPClassifier."
        ) from error
    if array.ndim not in (1, 2) or array.shape[-1] == 0:
        raise ValueError(f"`{name}` must have shape (n,) or (n, q); got {array.shape}. Reshape it.")
    _check_length(array, n_rows, name)
    _check_finite(array, name)
    _check_size(array, name)
    return _plain(array)


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    """Contiguous and writable: torch takes no negative strides and warns of read-only memory (memory maps)."""
    return np.require(array, requirements=["C", "W"])


def check_labels(y: Any, n_rows: int) -> NDArray[Any]:
    """Class labels of shape (n,), without missing ones."""
    array = _as_array(y)
    if array.ndim == 2 and array.shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected; it is flattened.",
            DataConversionWarning,
            stacklevel=3,
        )
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError(f"`y` must hold one label per row, shape (n,); got {array.shape}. Fit one model per column.")
    _check_length(array, n_rows)
    if array.dtype.kind == "f":
        _check_finite(array, "y")
    # NumPy turns a NaN in a list of text into the text "nan".
    labels = np.array(y, dtype=object).ravel() if isinstance(y, list | tuple) else array
    if labels.dtype == object and any(_is_missing(label) for label in labels):
        raise ValueError("`y` must not contain missing labels (None or NaN). Drop these rows.")
    return array


def _is_missing(label: Any) -> bool:
    """None, NaN or pandas' NA: what does not equal itself, or does not say."""
    same = label == label
    return label is None or not isinstance(same, bool | np.bool_) or not same


def _as_array(y: Any) -> NDArray[Any]:
    if y is None:
        raise ValueError("`y` must be given: it requires y to be passed, but the target y is None.")
    native = nw.from_native(y, eager_only=True, allow_series=True, strict=False)
    return np.asarray(native.to_numpy() if isinstance(native, nw.DataFrame | nw.Series) else y)


def _check_length(array: NDArray[Any], n_rows: int, name: str = "y") -> None:
    if len(array) != n_rows:
        raise ValueError(
            f"`X` and `{name}` must have as many rows; found input variables with inconsistent numbers of samples: "
            f"[{n_rows}, {len(array)}]. Pair them row by row."
        )


def _check_finite(array: NDArray[Any], name: str) -> None:
    bad = ~np.isfinite(array)
    if bad.any():
        first = np.argwhere(bad)[0].tolist()
        raise ValueError(
            f"`{name}` must not contain NaN or infinity; Input {name} contains NaN or inf in {int(bad.sum())} places, "
            f"first at index {first}. Drop or impute these rows."
        )


def _check_size(array: NDArray[Any], name: str) -> None:
    """Refuse values whose squares overflow: they have no variance."""
    largest = np.abs(array).max(initial=0.0)
    if largest > LARGEST:
        raise ValueError(
            f"`{name}` must not exceed {LARGEST:g} in size, or its variance is no number; it reaches {largest:.3g}. "
            "Rescale it, for example to other units or logarithms."
        )


def check_weights(sample_weight: ArrayLike, n_rows: int) -> NDArray[np.float64]:
    """Weights of the rows: finite, not negative, not all zero."""
    try:
        weights = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"`sample_weight` must be numeric: {error}. Pass one number per row.") from error
    if weights.shape != (n_rows,):
        raise ValueError(
            f"`sample_weight` must have shape ({n_rows},), one weight per row; sample_weight.shape == {weights.shape}."
        )
    _check_finite(weights, "sample_weight")
    if (weights < 0).any() or not weights.any():
        raise ValueError("`sample_weight` must not be negative and not all zero. Drop the rows or mend the weights.")
    return weights


def check_mask(mask: Any, n_rows: int) -> NDArray[np.bool_]:
    """A boolean mask over the training rows."""
    array = np.asarray(mask)
    if array.dtype != bool or array.shape != (n_rows,):
        raise ValueError(
            f"`A` must be a Box, a callable or a boolean mask over the {n_rows} training rows; "
            f"got {type(mask).__name__} with dtype {array.dtype} and shape {array.shape}."
        )
    return array


def check_pair(validation_data: Any) -> tuple[Any, Any]:
    """`validation_data` as X and y."""
    if not isinstance(validation_data, tuple | list) or len(validation_data) != 2:
        raise TypeError(
            f"`validation_data` must be a pair (X, y); got {type(validation_data).__name__}. Pass both held-out parts."
        )
    return validation_data[0], validation_data[1]


def check_validation_data(
    estimator: BaseEstimator, validation_data: Any, target_shape: tuple[int, ...], tabular: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Held-out (X, y) with the columns of the training data."""
    held_x, held_y = check_pair(validation_data)
    x = check_features(estimator, held_x, reset=False, tabular=tabular)
    y = check_target(held_y, len(x))
    if y.shape[1:] != target_shape[1:]:
        raise ValueError(
            f"`validation_data` must have targets like `y`, shape {('n', *target_shape[1:])}; got {y.shape}."
        )
    check_held_out_length(x)
    return x, y


def check_held_out_length(x: NDArray[Any]) -> None:
    """Unbiased estimates of the loss need four rows."""
    if len(x) < 4:
        raise ValueError(f"`validation_data` must hold at least 4 rows; got {len(x)}. Pass more, or none.")


def target_names(y: Any) -> list[Any]:
    """Names of the targets: columns or series name, else 0, 1, … (skpro's convention)."""
    native = nw.from_native(y, eager_only=True, allow_series=True, strict=False)
    if isinstance(native, nw.DataFrame):
        return list(native.columns)
    if isinstance(native, nw.Series):
        return [native.name if native.name else 0]
    shape = np.asarray(y).shape
    return list(range(shape[1] if len(shape) > 1 else 1))


def label(answer: NDArray[np.float64], X: Any, levels: list[list[Any]]) -> Any:
    """`answer` as a data frame like X with one column per combination of `levels`; arrays stay arrays.

    pandas gets column tuples and keeps its index; libraries without such columns get names joined by "_".
    """
    frame = _frame(X)
    if not isinstance(frame, nw.DataFrame):
        return answer
    columns = list(itertools.product(*levels))
    table = answer.reshape(len(answer), len(columns))
    if frame.implementation.is_pandas():
        pandas = frame.implementation.to_native_namespace()
        return pandas.DataFrame(table, index=X.index, columns=pandas.MultiIndex.from_tuples(columns))
    named = {"_".join(str(part) for part in parts): table[:, i] for i, parts in enumerate(columns)}
    return nw.from_dict(named, backend=frame.implementation).to_native()


def split_columns(X: Any) -> tuple[list[Any], list[NDArray[Any]]]:
    """Names and columns of a table: floats, booleans, or text; columns of an array are called x0, x1, …

    Examples
    --------
    >>> split_columns([[1, 2], [3, 4]])
    (['x0', 'x1'], [array([1., 3.]), array([2., 4.])])
    """
    frame = _frame(X)
    if not isinstance(frame, nw.DataFrame):
        array = np.asarray(X, dtype=np.float64)
        if array.ndim != 2:
            raise ValueError(f"`X` must be a table of shape (n, p); got shape {array.shape}. Pass rows and columns.")
        return [f"x{i}" for i in range(array.shape[1])], list(array.T)
    return list(frame.columns), [_column_values(column) for column in frame.iter_columns()]


def _column_values(column: Any) -> NDArray[Any]:
    if isinstance(column.dtype, TEXT):
        return np.array(column.to_list(), dtype=object).astype(str)
    return column.to_numpy().astype(bool if column.dtype == nw.Boolean else np.float64)


def join_columns(columns: Mapping[Any, NDArray[Any]], like: Any = None) -> Any:
    """Inverse of `split_columns`: a table of the kind of `like`, or a data frame of whichever library is installed.

    Examples
    --------
    >>> join_columns({"x0": np.array([1.0, 3.0]), "x1": np.array([2.0, 4.0])}, like=np.zeros((1, 2)))
    array([[1., 2.],
           [3., 4.]])
    """
    frame = _frame(like)
    if like is not None and not isinstance(frame, nw.DataFrame):
        return np.column_stack(list(columns.values()))
    backend = _installed_library() if like is None else frame.implementation
    return nw.from_dict(dict(columns), backend=backend).to_native()


def numeric_columns(table: Any, label: str) -> tuple[list[Any], NDArray[np.float64]]:
    """Names and values (n, p) of a data frame of numbers, as a time series needs it.

    Examples
    --------
    >>> import pandas
    >>> numeric_columns(pandas.DataFrame({"a": [1, 2]}), "trajectory 0")
    (['a'], array([[1.],
           [2.]]))
    """
    frame = nw.from_native(table, eager_only=True)
    other = [name for name, kind in frame.schema.items() if not (kind.is_numeric() or kind == nw.Boolean)]
    if other:
        raise TypeError(
            f"`trajectories` must have columns of numbers; {label} has others in {other}. "
            "Drop them, make them the index, or turn text into indicators first."
        )
    values = [column.to_numpy().astype(np.float64) for column in frame.iter_columns()]
    return list(frame.columns), np.column_stack(values) if values else np.zeros((len(frame), 0))


def table_of_rows(
    tables: list[Any], rows: NDArray[np.int64], names: list[Any], values: NDArray[np.float64], single: bool = False
) -> Any:
    """`values` as a data frame like `tables`, with the index of `rows`, counted over all tables, if they have one.

    With `single`, a table of one column is given as a series.
    """
    first = nw.from_native(tables[0], eager_only=True)
    if first.implementation.is_pandas():
        pandas = first.implementation.to_native_namespace()
        index = tables[0].index if len(tables) == 1 else tables[0].index.append([table.index for table in tables[1:]])
        table = pandas.DataFrame(values, index=index[rows], columns=names)
    else:
        columns = dict(zip(names, values.T, strict=True))
        table = nw.from_dict(columns, backend=first.implementation).to_native()
    if single and len(names) == 1:
        return nw.from_native(table, eager_only=True)[names[0]].to_native()
    return table


def _installed_library() -> Any:
    for backend in ("pyarrow", "pandas", "polars"):
        if importlib.util.find_spec(backend) is not None:
            return backend
    raise ValueError("tables need a library of data frames. Install one: pip install pyarrow")
