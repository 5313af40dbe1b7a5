"""Least-squares conditional density estimation (Sugiyama, Takeuchi, Suzuki, Kanamori, Hachiya & Okanohara 2010)."""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import ndtr
from sklearn.cluster import KMeans

from benchmarks.methods.base import Array, FromCDF, gaussian, row_chunks


class LSCDE(FromCDF):
    """f(y | x) ∝ Σ α_l K(x − u_l) K(y − v_l), Gaussian kernels at k-means centres (u_l, v_l) of standardised rows.

    α minimises ½ αᵀHα − hᵀα + ½ λ|α|², where H is the mean over the rows of ∫ φ(x_i, y) φ(x_i, y)ᵀ dy, closed form for
    Gaussian kernels, and h is the mean of φ(x_i, y_i); negative α are cut. What is left is a mixture of Gaussians.

    Parameters
    ----------
    bandwidth : float
        Of all kernels, in standard deviations; 0.5 is the paper's, and wide.
    ridge : float
        λ; 1 is what the paper's library uses.
    n_centres : int
        Kernels, at most the number of rows.
    """

    def __init__(self, bandwidth: float = 0.5, ridge: float = 1.0, n_centres: int = 500) -> None:
        self.bandwidth, self.ridge, self.n_centres = bandwidth, ridge, n_centres

    def _fit(self, X: Array, y: Array, seed: int, validation: tuple[Array, Array] | None) -> None:
        self._mean, self._scale = X.mean(axis=0), X.std(axis=0)
        self._scale[self._scale == 0] = 1.0
        center, spread = float(y.mean()), float(y.std()) or 1.0
        x, target = (X - self._mean) / self._scale, (y - center) / spread
        rows = np.column_stack([x, target])
        count = min(self.n_centres, len(np.unique(rows, axis=0)))
        centres = KMeans(count, n_init=1, random_state=seed).fit(rows).cluster_centers_
        self._u, v = centres[:, :-1], centres[:, -1]
        alpha = self._coefficients(x, target, v)
        self._log_alpha = np.log(alpha, where=alpha > 0, out=np.full(count, -np.inf))
        self._v, self._width = center + spread * v, spread * self.bandwidth
        self._grid = self.reading_grid(y, margin=4 * self._width)
        self.settings = f"{count} k-means centres, bandwidth {self.bandwidth:g} sd, ridge {self.ridge:g}"

    def _coefficients(self, x: Array, y: Array, v: Array) -> Array:
        gram, h = np.zeros((len(v), len(v))), np.zeros(len(v))
        for rows in row_chunks(len(y), len(v)):
            kernel = np.exp(self._exponent(x[rows]))
            gram += kernel.T @ kernel
            h += np.sum(kernel * np.exp(-0.5 * ((y[rows, None] - v) / self.bandwidth) ** 2), axis=0)
        overlap = np.sqrt(np.pi) * self.bandwidth * np.exp(-(((v[:, None] - v) / (2 * self.bandwidth)) ** 2))
        H = gram * overlap / len(y)
        alpha = np.linalg.solve(H + self.ridge * np.eye(len(v)), h / len(y))
        return np.maximum(alpha, 0.0)

    def _exponent(self, x: Array) -> Array:
        return -0.5 * cdist(x, self._u, "sqeuclidean") / self.bandwidth**2

    def _weights(self, X: Array) -> Array:
        """Share of every Gaussian in the law of each x; the nearest centre counts even when all are far away."""
        exponent = self._exponent((X - self._mean) / self._scale) + self._log_alpha
        weights = np.exp(exponent - exponent.max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True)

    def _cdf(self, X: Array, grid: Array) -> Array:
        steps = ndtr((grid - self._v[:, None]) / self._width)
        answer = np.empty((len(X), len(grid)))
        for rows in row_chunks(len(X), len(self._v)):
            answer[rows] = self._weights(X[rows]) @ steps
        return np.clip(answer, 0.0, 1.0)

    def _pdf(self, X: Array, points: Array) -> Array:
        answer = np.empty(points.shape)
        for rows in row_chunks(len(X), len(self._v) * points.shape[1]):
            kernels = gaussian(points[rows, :, None] - self._v, self._width)
            answer[rows] = np.einsum("ipc,ic->ip", kernels, self._weights(X[rows]))
        return answer
