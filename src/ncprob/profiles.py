"""Tables that vary one or a few inputs and keep the others: what plots and reports ask a model about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ncprob import frames

FEW = 12  # up to so many distinct numbers are shown one by one, like levels of text
TAIL = 0.01  # a grid spans the middle of the data: laws at the very ends rest on single rows


@dataclass(frozen=True)
class Inputs:
    """Columns of a table X, with the way back to a table of the same kind.

    Examples
    --------
    >>> inputs = Inputs.of(np.array([[1.0, 5.0], [2.0, 6.0], [9.0, 7.0]]))
    >>> inputs.typical()
    [2.0, 6.0]
    >>> inputs.at_typical({0: np.array([0.0, 1.0])}).table()
    array([[0., 6.],
           [1., 6.]])
    """

    names: list[str]
    columns: list[NDArray[Any]]
    native_names: list[Any]
    like: Any

    @classmethod
    def of(cls, X: Any, names: Sequence[Any] | None = None) -> Inputs:
        """Columns of X; `names` are those of the model, where X is an array without any."""
        native, columns = frames.split_columns(X)
        known = native if names is None or frames.is_frame(X) or len(names) != len(native) else names
        return cls([str(name) for name in known], columns, native, X)

    def __len__(self) -> int:
        return len(self.columns[0]) if self.columns else 0

    def table(self) -> Any:
        """A table like the X these came from."""
        return frames.join_columns(dict(zip(self.native_names, self.columns, strict=True)), self.like)

    def rows(self, index: Any) -> Inputs:
        """Some of the rows."""
        return replace(self, columns=[column[index] for column in self.columns])

    def index_of(self, feature: str | int) -> int:
        """Position of an input given by name or position."""
        if isinstance(feature, str) and feature in self.names:
            return self.names.index(feature)
        if isinstance(feature, int | np.integer) and 0 <= feature < len(self.names):
            return int(feature)
        raise ValueError(
            f"`feature` must be a name or position among the {len(self.names)} inputs {self.names[:8]}; "
            f"got {feature!r}. Choose one of these."
        )

    def typical(self) -> list[Any]:
        """Median of every number, most frequent value of every other input."""
        return [typical_value(column) for column in self.columns]

    def at_typical(self, varied: Mapping[int, NDArray[Any]], fixed: Mapping[int, Any] | None = None) -> Inputs:
        """Rows with the `varied` columns, all others at their typical value or at that in `fixed`."""
        n = len(next(iter(varied.values())))
        values = [(fixed or {}).get(i, value) for i, value in enumerate(self.typical())]
        columns = [varied[i] if i in varied else np.full(n, value) for i, value in enumerate(values)]
        return replace(self, columns=columns)

    def with_each(self, position: int, values: NDArray[Any]) -> Inputs:
        """All rows once per value, with the column at `position` set to it; the value changes slowest."""
        columns = [np.tile(column, len(values)) for column in self.columns]
        columns[position] = np.repeat(values, len(self))
        return replace(self, columns=columns)


def is_number(column: NDArray[Any]) -> bool:
    """Whether a column holds numbers, not text or booleans."""
    return column.dtype.kind == "f"


def is_discrete(column: NDArray[Any]) -> bool:
    """Whether values are told one by one: text, booleans, and numbers with few distinct values."""
    return not is_number(column) or len(np.unique(column)) <= FEW


def typical_value(column: NDArray[Any]) -> Any:
    """Median of numbers, one of them, so that counts stay counts; else the most frequent value."""
    if is_number(column):
        return float(np.quantile(column, 0.5, method="inverted_cdf"))
    values, counts = np.unique(column, return_counts=True)
    return values[counts.argmax()].item()


def grid_of(column: NDArray[Any], size: int, most: int = FEW) -> NDArray[Any]:
    """Values to show an input at: `size` equal steps, or the distinct values, of which the `most` frequent.

    Examples
    --------
    >>> grid_of(np.array(["b", "a", "b"]), 5).tolist()
    ['a', 'b']
    >>> grid_of(np.linspace(0, 1, 1001), 3).round(2).tolist()
    [0.01, 0.5, 0.99]
    """
    if not is_discrete(column):
        low, high = np.quantile(column, [TAIL, 1 - TAIL])
        return np.linspace(low, high if high > low else column.max(), size)
    values, counts = np.unique(column, return_counts=True)
    return np.sort(values[np.argsort(-counts, kind="stable")[:most]])


def as_values(values: ArrayLike, column: NDArray[Any]) -> NDArray[Any]:
    """Values of the user's own for an input, of the kind of its column."""
    return np.asarray(values, dtype=float if is_number(column) else column.dtype.kind)
