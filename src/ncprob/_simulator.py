"""`Simulator`: a joint law of (X, Y) that can be sampled and whose conditional law is known exactly."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from ncprob._laws import ConditionalLaw, FloatArray, RandomState, check_count


def conditioning_points(X: ArrayLike, columns: Sequence[int] | None = None) -> FloatArray:
    """Values of x at which the benchmark of Kostic et al. 2024 compares conditional laws.

    Each of `columns` in turn (by default the first three, or as many as there are) takes its 5, 10, …, 95 %
    percentiles while all other columns stay at their median: 19 points for one input, 57 for three or more.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 20))
    >>> conditioning_points(X).shape, conditioning_points(X[:, :1]).shape
    ((57, 20), (19, 1))
    """
    inputs = np.asarray(X, dtype=float)
    if inputs.ndim != 2 or inputs.size == 0:
        raise ValueError(
            f"`X` must be a matrix with at least one row and one column; got shape {inputs.shape}. "
            "Pass one column as `X.reshape(-1, 1)`."
        )
    chosen = range(min(3, inputs.shape[1])) if columns is None else columns
    levels = np.arange(5, 100, 5)
    points = np.tile(np.median(inputs, axis=0), (len(chosen), len(levels), 1))
    for block, column in zip(points, chosen, strict=True):
        block[:, column] = np.percentile(inputs[:, column], levels)
    return points.reshape(-1, inputs.shape[1])


class Simulator(ABC):
    """A joint law of (X, Y) that can be sampled and whose conditional law is known exactly."""

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Number of columns of X."""

    def sample(self, n: int, random_state: RandomState = None) -> tuple[FloatArray, FloatArray]:
        """Draw `n` pairs: X of shape (n, p), y of shape (n,).

        `random_state` is None, a seed or a `numpy.random.Generator`; the same seed gives the same pairs.
        """
        return self._sample(check_count(n, "n"), np.random.default_rng(random_state))

    def truth(self, x: ArrayLike) -> ConditionalLaw:
        """Exact law of Y given X = x, for each row of `x` (with one input, a scalar or vector will do)."""
        rows = np.asarray(x, dtype=float)
        if self.n_features == 1 and rows.ndim < 2:
            rows = rows.reshape(-1, 1)
        if rows.ndim != 2 or rows.shape[1] != self.n_features:
            raise ValueError(
                f"`x` must have shape (m, {self.n_features}) for {type(self).__name__}, one row per "
                f"condition; got shape {rows.shape}. Pass rows laid out like the X that `sample` returns."
            )
        if not np.all(np.isfinite(rows)):
            raise ValueError("`x` must be finite; got NaN or infinity. Drop or fill those rows first.")
        return self._truth(rows)

    def conditioning_points(self, X: ArrayLike) -> FloatArray:
        """Values of x at which the benchmark compares laws, given the training inputs `X`."""
        return conditioning_points(X)

    def _sample(self, n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        X = self._inputs(n, rng).reshape(n, self.n_features)
        return X, self._truth(X).sample(1, rng)[:, 0]

    def _inputs(self, n: int, rng: np.random.Generator) -> FloatArray:
        raise NotImplementedError  # only models that override `_sample` have none

    @abstractmethod
    def _truth(self, x: FloatArray) -> ConditionalLaw: ...
