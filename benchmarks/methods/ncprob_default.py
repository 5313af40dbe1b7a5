"""The default of this project: `NCPRegressor` without any setting."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from benchmarks.methods.base import Array, Tabular
from ncprob import NCPRegressor


class NcprobDefault(Tabular):
    """`NCPRegressor(random_state=seed)`; options are for tests only."""

    def __init__(self, **options: Any) -> None:
        self.options = options

    def _fit(self, X: Array, y: Array, seed: int, validation: tuple[Array, Array] | None) -> None:
        self.model = NCPRegressor(random_state=seed, progress=False, **self.options).fit(X, y)
        facts = {"coordinates": "coordinates_", "rank": "rank_", "steps": "n_steps_"}
        found = {fact: getattr(self.model, name) for fact, name in facts.items() if hasattr(self.model, name)}
        self.settings = "; ".join(["default", *(f"{fact} {value}" for fact, value in found.items())])

    def _quantiles(self, X: Array, levels: Array) -> Array:
        return np.asarray(self.model.predict_quantiles(X, levels.tolist()))

    def _cdf(self, X: Array, grid: Array) -> Array:
        return np.asarray(self.model.predict_distribution(X).cdf(grid))

    def pdf(self, X: Any, grid: ArrayLike) -> Array:
        """Density on an increasing grid, (rows, grid)."""
        return np.asarray(self.model.predict_distribution(self.numbers(X)).pdf(np.asarray(grid, dtype=float)))

    def log_density(self, X: Any, y: Array) -> Array:
        """log p(y_i | x_i) of every row."""
        return -np.asarray(self.model.predict_distribution(self.numbers(X)).log_score(y))

    def mean(self, X: Any) -> Array:
        """E[y | X]."""
        return np.asarray(self.model.predict(self.numbers(X)))

    def sample(self, X: Any, size: int, seed: int) -> Array:
        """`size` draws per row, (rows, size)."""
        return np.asarray(self.model.predict_distribution(self.numbers(X)).sample(size, random_state=seed))
