"""Conditional kernel density estimation (Rosenblatt 1969; rule-of-thumb bandwidths of Silverman 1986)."""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import ndtr

from benchmarks.methods.base import Array, FromCDF, gaussian, row_chunks


class CKDE(FromCDF):
    """f(y | x) = Σ K(x − x_i) K(y − y_i) / Σ K(x − x_i), Gaussian, bandwidths 1.06 σ n^(−1/(4 + d)), d = dim(x) + 1."""

    def _fit(self, X: Array, y: Array, seed: int, validation: tuple[Array, Array] | None) -> None:
        factor = 1.06 * len(y) ** (-1 / (4 + X.shape[1] + 1))
        self._width = factor * X.std(axis=0)
        self._width[self._width == 0] = 1.0
        self._bandwidth = factor * (float(y.std()) or 1.0)
        self._x, self._y = X / self._width, y
        self._grid = self.reading_grid(y, margin=4 * self._bandwidth)
        self.settings = f"Gaussian kernels, {factor:.3g} sd (Silverman)"

    def _weights(self, X: Array) -> Array:
        """Share of every training row in the law of each x; the nearest row counts even when all are far away."""
        exponent = -0.5 * cdist(X / self._width, self._x, "sqeuclidean")
        weights = np.exp(exponent - exponent.max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True)

    def _cdf(self, X: Array, grid: Array) -> Array:
        answer = np.zeros((len(X), len(grid)))
        for part in row_chunks(len(X), len(self._y)):
            weights = self._weights(X[part])
            for rows in row_chunks(len(self._y), len(grid)):
                answer[part] += weights[:, rows] @ ndtr((grid - self._y[rows, None]) / self._bandwidth)
        return np.clip(answer, 0.0, 1.0)

    def _pdf(self, X: Array, points: Array) -> Array:
        answer = np.empty(points.shape)
        for part in row_chunks(len(X), len(self._y)):
            for target, weights, at in zip(answer[part], self._weights(X[part]), points[part], strict=True):
                near = weights > 1e-12
                target[:] = weights[near] @ gaussian(at - self._y[near, None], self._bandwidth)
        return answer
