"""FlexCode (Izbicki & Lee 2017): regress an orthogonal basis of y on x, here by random forests."""

from __future__ import annotations

import numpy as np
from sklearn.ensemble import RandomForestRegressor

from benchmarks.methods.base import Array, FromCDF, row_chunks, threads

N_FUNCTIONS = 31
CELLS = 1000  # of the grid on which the density is cut and integrated
BISECTIONS = 40


class FlexCode(FromCDF):
    """f(y | x) = 1 + Σ β_j(x) φ_j(z) on the range of the training y, lowered by ξ(x) and cut at zero to have mass one.

    φ_j(z) = √2 cos(πjz) with z = y scaled to [0, 1], and β_j(x) = E[φ_j | x] by forests of shallow trees. There is no
    mass outside the range of the training y.

    Parameters
    ----------
    joint : bool
        One forest with all φ_j as outputs instead of one forest per φ_j. The paper's package does the latter, where
        shallow trees miss the quick cosines: worse where y follows x closely, and 30 times the work.
    n_estimators : int
        Trees of each forest.
    max_depth : int
        Of every tree.
    """

    package = "scikit-learn"

    def __init__(self, joint: bool = False, n_estimators: int = 100, max_depth: int = 5) -> None:
        self.joint, self.n_estimators, self.max_depth = joint, n_estimators, max_depth

    def _fit(self, X: Array, y: Array, seed: int, validation: tuple[Array, Array] | None) -> None:
        self._low, self._span = float(y.min()), float(np.ptp(y)) or 1.0
        targets = cosines((y - self._low) / self._span)
        self._forests = [
            self._forest(seed + number).fit(X, group)
            for number, group in enumerate([targets] if self.joint else targets.T)
        ]
        self._middles = (np.arange(CELLS) + 0.5) / CELLS
        self._grid = self._low + self._span * np.linspace(0, 1, CELLS + 1)
        how = "one forest on" if self.joint else "a forest for each of"
        trees = f"{self.n_estimators} trees of depth {self.max_depth}"
        self.settings = f"{how} {N_FUNCTIONS} cosines (the first is constant), {trees}, cut as in the paper of FlexCode"

    def _forest(self, seed: int) -> RandomForestRegressor:
        return RandomForestRegressor(self.n_estimators, max_depth=self.max_depth, random_state=seed, n_jobs=threads())

    def _law(self, X: Array) -> tuple[Array, Array, Array]:
        """Coefficients β(x), what the density is lowered by, (rows, 1), and the mass of each cell."""
        coefficients = np.column_stack([forest.predict(X) for forest in self._forests])
        density = 1 + coefficients @ cosines(self._middles).T
        # Its integral is one, so without its negative part it has too much mass, and ξ is between 0 and its maximum.
        low, high = np.zeros((len(X), 1)), density.max(axis=1, keepdims=True)
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            too_much = np.maximum(density - middle, 0.0).mean(axis=1, keepdims=True) > 1
            low, high = np.where(too_much, middle, low), np.where(too_much, high, middle)
        mass = np.maximum(density - low, 0.0)
        return coefficients, low, mass / mass.sum(axis=1, keepdims=True)

    def _cdf(self, X: Array, grid: Array) -> Array:
        answer = np.empty((len(X), len(grid)))
        for rows in row_chunks(len(X), CELLS):
            steps = np.cumsum(self._law(X[rows])[2], axis=1)
            answer[rows] = [np.interp(grid, self._grid, [0.0, *row[:-1], 1.0]) for row in steps]
        return np.minimum(answer, 1.0)

    def _pdf(self, X: Array, points: Array) -> Array:
        answer = np.empty(points.shape)
        z = (points - self._low) / self._span
        for rows in row_chunks(len(X), CELLS + N_FUNCTIONS * points.shape[1]):
            coefficients, lowered, _ = self._law(X[rows])
            density = 1 + np.einsum("ij,ipj->ip", coefficients, cosines(z[rows])) - lowered
            answer[rows] = np.maximum(density, 0.0) / self._span
        return np.where((z >= 0) & (z <= 1), answer, 0.0)


def cosines(z: Array) -> Array:
    """√2 cos(πjz) for j = 1, …, 30; with the constant they are the 31 functions."""
    return np.sqrt(2) * np.cos(np.pi * z[..., None] * np.arange(1, N_FUNCTIONS))
