"""Conformal prediction with conditional guarantees (Gibbs, Cherian & Candès 2023), package conditionalconformal."""

from __future__ import annotations

from typing import Any

import numpy as np
from conditionalconformal import CondConf
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from sklearn.linear_model import LinearRegression

from benchmarks.methods.base import Array, FromQuantiles, hold_out

DEGREE = 4
KERNEL = {"kernel": "rbf", "gamma": 12.5, "lambda": 0.005}  # the paper's, for one input on (0, 5)


class CCP(FromQuantiles):
    """Polynomial regression of degree 4, and quantiles of its residuals that a constant and an RBF kernel in x correct.

    Meant for 90 % intervals with one input: only the quantiles at 5, 50 and 95 % are asked for, and a law interpolated
    between three quantiles is no estimate of one. A quantile at one x takes the package about a second, so they are
    found at a few x only. With one input these are spaced evenly over its range, with straight lines between them; with
    several they are k-means centres, and the nearest counts. The validation rows calibrate, or else a random tenth of
    the training rows.

    Parameters
    ----------
    n_calibration : int
        Most calibration rows; the time of the package grows with them.
    n_points : int
        Values of x at which quantiles are found.
    """

    package = "conditionalconformal"
    wants_validation = True
    levels = np.array([0.05, 0.5, 0.95])

    def __init__(self, n_calibration: int = 200, n_points: int = 40) -> None:
        self.n_calibration, self.n_points = n_calibration, n_points

    def _fit(self, X: Array, y: Array, seed: int, validation: tuple[Array, Array] | None) -> None:
        X, y, *calibration = hold_out(X, y, seed) if validation is None else (X, y, *validation)
        x_known, y_known = (values[: self.n_calibration] for values in calibration)
        self._mean, self._scale = X.mean(axis=0), X.std(axis=0)
        self._scale[self._scale == 0] = 1.0
        self._regression = LinearRegression().fit(self._powers(X), y)
        self._points = self._places(X, seed)
        self._cutoffs = self._conformal(x_known, y_known)
        between = "straight lines between" if X.shape[1] == 1 else "the nearest of"
        self.settings = (
            f"polynomial of degree {DEGREE}, RBF kernel γ {KERNEL['gamma']}, λ {KERNEL['lambda']}, {len(y_known)} "
            f"calibration rows; only the quantiles 5, 50, 95 %, others interpolated; {between} {len(self._points)} x"
        )

    def _powers(self, X: Array) -> Array:
        standard = (X - self._mean) / self._scale
        return np.concatenate([standard**power for power in range(1, DEGREE + 1)], axis=1)

    def _places(self, X: Array, seed: int) -> Array:
        if X.shape[1] == 1:
            return np.linspace(X.min(), X.max(), self.n_points)[:, None]
        count = min(self.n_points, len(np.unique(X, axis=0)))
        centres = KMeans(count, n_init=1, random_state=seed).fit((X - self._mean) / self._scale).cluster_centers_
        return centres * self._scale + self._mean

    def _conformal(self, x_known: Array, y_known: Array) -> Array:
        """Residuals that the package allows at `_points` for every level, (points, levels)."""
        package = CondConf(
            lambda x, y: y - self._regression.predict(self._powers(x)),
            lambda x: np.ones((len(x), 1)),
            infinite_params=KERNEL,
        )
        package.setup_problem(x_known, y_known)
        return np.array(
            [
                [
                    package.predict(level, x[None], lambda cutoff, _: float(cutoff[0]), exact=False)
                    for level in self.levels
                ]
                for x in self._points
            ]
        )

    def mean(self, X: Any) -> Array:
        """E[y | X] by the polynomial: the method's own, which three quantiles would blur."""
        return np.asarray(self._regression.predict(self._powers(self.numbers(X))))

    def _knots(self, X: Array) -> Array:
        if X.shape[1] == 1:
            corrections = [np.interp(X[:, 0], self._points[:, 0], cutoffs) for cutoffs in self._cutoffs.T]
            correction = np.stack(corrections, axis=1)
        else:
            nearest = cdist(X / self._scale, self._points / self._scale).argmin(axis=1)
            correction = self._cutoffs[nearest]
        return self._regression.predict(self._powers(X))[:, None] + correction
