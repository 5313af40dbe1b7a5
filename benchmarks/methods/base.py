"""What every method of the benchmark is: fit, then conditional quantiles, distribution functions, densities, draws.

A method states its law as quantiles or as a distribution function and gets the rest from here. Quantiles at a few
levels become a law by linear interpolation, and by going on in a straight line beyond the outermost levels.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from importlib.metadata import version
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray

import ncprob

Array = NDArray[np.float64]

# Levels that boosted quantile regressions learn: every 5 % and some of the tails.
TRAINED_LEVELS = np.array([0.005, 0.01, 0.025, *np.arange(1, 20) / 20, 0.975, 0.99, 0.995])
HELD_OUT_FRACTION = 0.1  # of the training rows, for early stopping


class Method(ABC):
    """One method of the benchmark.

    `settings` says in words how it was run; `package` names the distribution whose version is recorded.
    """

    package: ClassVar[str] = "ncprob"
    wants_validation: ClassVar[bool] = False  # the paper's protocol gives early stopping 1,000 rows of its own
    settings: str = ""

    @classmethod
    def version(cls) -> str:
        """Version that decides the results: that of this project or of the rival's package."""
        return ncprob.__version__ if cls.package == "ncprob" else f"{cls.package} {version(cls.package)}"

    @abstractmethod
    def fit(self, X: Any, y: Array, seed: int, validation: tuple[Any, Array] | None = None) -> Self:
        """Learn the law of y given X."""

    @abstractmethod
    def quantiles(self, X: Any, levels: ArrayLike) -> Array:
        """Conditional quantiles, (rows, levels), not decreasing along the levels."""

    @abstractmethod
    def cdf(self, X: Any, grid: ArrayLike) -> Array:
        """P(y ≤ t | X) for every t of `grid`, (rows, grid)."""

    def pdf(self, X: Any, grid: ArrayLike) -> Array:
        """Density on an increasing grid, (rows, grid); here the mean density of the cell around each point."""
        points = np.asarray(grid, dtype=float)
        inner = (points[1:] + points[:-1]) / 2
        edges = np.concatenate([[2 * points[0] - inner[0]], inner, [2 * points[-1] - inner[-1]]])
        return np.maximum(np.diff(self.cdf(X, edges), axis=1) / np.diff(edges), 0.0)

    def log_density(self, X: Any, y: Array) -> Array | None:
        """log p(y_i | x_i) of every row, or None for a method that has no density."""
        return None

    def mean(self, X: Any) -> Array:
        """E[y | X]; here the mean of quantiles in the middle of 400 equal parts."""
        return self.quantiles(X, (np.arange(400) + 0.5) / 400).mean(axis=1)

    def sample(self, X: Any, size: int, seed: int) -> Array:
        """`size` draws per row, (rows, size); here quantiles at random levels, interpolated between 999 of them."""
        levels = np.arange(1, 1000) / 1000
        draws = np.random.default_rng(seed).uniform(size=(len(X), size))
        knots = self.quantiles(X, levels)
        return np.stack([np.interp(u, levels, row) for u, row in zip(draws, knots, strict=True)])


class Tabular(Method):
    """A method that takes numbers only: text columns become indicators, as they were met in `fit`."""

    _categories: dict[str, list[Any]]

    def fit(self, X: Any, y: Array, seed: int, validation: tuple[Any, Array] | None = None) -> Self:
        """Learn the law of y given X."""
        self._categories = {}
        if isinstance(X, pd.DataFrame):
            text = X.select_dtypes(exclude="number")
            self._categories = {str(name): sorted(text[name].unique()) for name in text}
        held = None if validation is None else (self.numbers(validation[0]), validation[1])
        self._fit(self.numbers(X), np.asarray(y, dtype=float), seed, held)
        return self

    def numbers(self, X: Any) -> Array:
        """X as an array of floats; a text column gives one indicator per category but the first."""
        if not isinstance(X, pd.DataFrame):
            return np.asarray(X, dtype=float)
        columns = []
        for name in X.columns:
            values = X[name].to_numpy()
            kinds = self._categories.get(str(name))
            columns += [values] if kinds is None else [values == kind for kind in kinds[1:]]
        return np.stack(columns, axis=1).astype(float)

    def quantiles(self, X: Any, levels: ArrayLike) -> Array:
        """Conditional quantiles, (rows, levels)."""
        return self._quantiles(self.numbers(X), np.asarray(levels, dtype=float))

    def cdf(self, X: Any, grid: ArrayLike) -> Array:
        """P(y ≤ t | X) for every t of `grid`, (rows, grid)."""
        return self._cdf(self.numbers(X), np.asarray(grid, dtype=float))

    def pdf(self, X: Any, grid: ArrayLike) -> Array:
        """Density on an increasing grid, (rows, grid)."""
        points = np.asarray(grid, dtype=float)
        density = self._pdf(self.numbers(X), np.broadcast_to(points, (len(X), len(points))))
        return super().pdf(X, grid) if density is None else density

    def log_density(self, X: Any, y: Array) -> Array | None:
        """log p(y_i | x_i) of every row, or None for a method that has no density."""
        density = self._pdf(self.numbers(X), np.asarray(y, dtype=float)[:, None])
        return None if density is None else np.log(np.maximum(density[:, 0], np.finfo(float).tiny))

    def _pdf(self, X: Array, points: Array) -> Array | None:
        """Density of every row at its own points, (rows, points); None where a method has none."""
        return None

    @abstractmethod
    def _fit(self, X: Array, y: Array, seed: int, validation: tuple[Array, Array] | None) -> None: ...

    @abstractmethod
    def _quantiles(self, X: Array, levels: Array) -> Array: ...

    @abstractmethod
    def _cdf(self, X: Array, grid: Array) -> Array: ...


class FromQuantiles(Tabular):
    """A method that gives quantiles at `levels`; everything else is interpolated."""

    levels: Array = TRAINED_LEVELS

    @abstractmethod
    def _knots(self, X: Array) -> Array:
        """Quantiles at `self.levels`, (rows, levels); they may cross."""

    def _quantiles(self, X: Array, levels: Array) -> Array:
        knots, at = with_tails(self._knots(X), self.levels)
        return np.stack([np.interp(levels, at, row) for row in knots])

    def _cdf(self, X: Array, grid: Array) -> Array:
        knots, at = with_tails(self._knots(X), self.levels)
        return np.stack([np.interp(grid, row, at, left=0.0, right=1.0) for row in knots])


class FromCDF(Tabular):
    """A method that gives distribution functions; quantiles are read off on a grid made of the training y."""

    _grid: Array

    def _quantiles(self, X: Array, levels: Array) -> Array:
        rows = np.maximum.accumulate(self._cdf(X, self._grid), axis=1)
        return np.stack([np.interp(levels, row, self._grid) for row in rows])

    @staticmethod
    def reading_grid(y: Array, margin: float, size: int = 1000) -> Array:
        """Points at equal distances, for smooth tails, and at quantiles of y, for where heavy tails leave the mass."""
        even = np.linspace(y.min() - margin, y.max() + margin, size)
        return np.unique(np.concatenate([even, np.quantile(y, np.linspace(0, 1, size))]))


def with_tails(quantiles: Array, levels: Array) -> tuple[Array, Array]:
    """Quantiles in order (Chernozhukov et al. 2010), and those of levels 0 and 1 on a line through the last two."""
    ordered = np.sort(quantiles, axis=1)
    low = ordered[:, 0] - levels[0] * (ordered[:, 1] - ordered[:, 0]) / (levels[1] - levels[0])
    slope = (ordered[:, -1] - ordered[:, -2]) / (levels[-1] - levels[-2])
    high = ordered[:, -1] + (1 - levels[-1]) * slope
    return np.column_stack([low, ordered, high]), np.array([0.0, *levels, 1.0])


def hold_out(X: Array, y: Array, seed: int) -> tuple[Array, Array, Array, Array]:
    """X, y to learn from and X, y to stop on: a random tenth of the rows."""
    order = np.random.default_rng(seed).permutation(len(y))
    held = max(1, round(HELD_OUT_FRACTION * len(y)))
    return X[order[held:]], y[order[held:]], X[order[:held]], y[order[:held]]


def threads() -> int:
    """Threads a run may use: what the runner gave it."""
    return int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1))


def accelerator() -> torch.device:
    """Where networks are trained: an accelerator when there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def row_chunks(n_rows: int, width: int, elements: int = 2**23) -> list[slice]:
    """Slices of rows so that no (rows, width) array has more than `elements` entries."""
    step = max(1, elements // max(1, width))
    return [slice(start, start + step) for start in range(0, n_rows, step)]


def gaussian(distance: Array, width: float | Array) -> Array:
    """Density of N(0, width²)."""
    return np.exp(-0.5 * (distance / width) ** 2) / (width * np.sqrt(2 * np.pi))
