"""Nearest neighbours kernel conditional density estimation (Freeman, Izbicki & Lee 2017), written anew."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr
from sklearn.neighbors import NearestNeighbors

from benchmarks.methods.base import Array, FromCDF, gaussian, row_chunks, threads

CANDIDATE_NEIGHBOURS = (8, 16, 32, 64, 128)
CANDIDATE_BANDWIDTHS = (0.02, 0.05, 0.1, 0.2, 0.4)  # in standard deviations of y
TUNING_ROWS = 300


class NNKCDE(FromCDF):
    """The y of the k nearest rows (inputs standardised), each blurred by a Gaussian kernel.

    k = √n and bandwidth n^(−1/5) standard deviations of y, which reproduces the paper's figures. With `tuned`, both
    are chosen by the leave-one-out loss ∫f² − 2f(y) on 300 rows, as the authors of the method recommend.
    """

    def __init__(self, tuned: bool = False) -> None:
        self.tuned = tuned

    def _fit(self, X: Array, y: Array, seed: int, validation: tuple[Array, Array] | None) -> None:
        self._mean, self._scale = X.mean(axis=0), X.std(axis=0)
        self._scale[self._scale == 0] = 1.0
        self._y, spread = y, float(y.std()) or 1.0
        self._search = NearestNeighbors(n_jobs=threads()).fit((X - self._mean) / self._scale)
        self._k, width = max(1, round(len(y) ** 0.5)), len(y) ** -0.2
        if self.tuned:
            self._k, width = self._choose(X, spread, seed)
        self._bandwidth = width * spread
        self._grid = self.reading_grid(y, margin=4 * self._bandwidth)
        self.settings = f"k {self._k}, bandwidth {width:.3g} sd{', by leave-one-out loss' if self.tuned else ''}"

    def _choose(self, X: Array, spread: float, seed: int) -> tuple[int, float]:
        rows = np.random.default_rng(seed).permutation(len(X))[:TUNING_ROWS]
        sizes = [k for k in CANDIDATE_NEIGHBOURS if k < len(X)] or [1]
        # One more than asked, as every row finds itself first.
        near = self._neighbours(X[rows], max(sizes) + 1)[:, 1:]
        losses = {
            (k, h): density_loss(near[:, :k], self._y[rows], h * spread) for k in sizes for h in CANDIDATE_BANDWIDTHS
        }
        return min(losses, key=lambda pair: losses[pair])

    def _neighbours(self, X: Array, k: int) -> Array:
        """Targets of the k nearest training rows, nearest first."""
        return self._y[self._search.kneighbors((X - self._mean) / self._scale, k, return_distance=False)]

    def _cdf(self, X: Array, grid: Array) -> Array:
        near = self._neighbours(X, min(self._k, len(self._y)))
        answer = np.empty((len(X), len(grid)))
        for rows in row_chunks(len(X), near.shape[1] * len(grid)):
            answer[rows] = ndtr((grid - near[rows, :, None]) / self._bandwidth).mean(axis=1)
        return answer

    def _pdf(self, X: Array, points: Array) -> Array:
        near = self._neighbours(X, min(self._k, len(self._y)))
        answer = np.empty(points.shape)
        for rows in row_chunks(len(X), near.shape[1] * points.shape[1]):
            answer[rows] = gaussian(points[rows, None, :] - near[rows, :, None], self._bandwidth).mean(axis=1)
        return answer


def density_loss(near: Array, y: Array, bandwidth: float) -> float:
    """Mean of ∫f² − 2f(y) for Gaussian kernels at `near` (rows, k): the integral is closed form."""
    square = [gaussian(row[:, None] - row, bandwidth * np.sqrt(2)).mean() for row in near]
    return float(np.mean(square) - 2 * gaussian(near - y[:, None], bandwidth).mean())
