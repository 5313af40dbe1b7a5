"""Conformalized quantile regression (Romano, Patterson & Candès 2019) with boosted trees, by MAPIE."""

from __future__ import annotations

import numpy as np
from mapie.regression import ConformalizedQuantileRegressor
from sklearn.ensemble import GradientBoostingRegressor

from benchmarks.methods.base import Array, FromQuantiles, hold_out


class CQR(FromQuantiles):
    """Boosted trees at 5, 50 and 95 %; the ends move by the conformal quantile of how far calibration rows lie outside.

    Meant for 90 % intervals: only these three quantiles are asked for, and a law interpolated between three quantiles
    is no estimate of one. The validation rows calibrate, or else a random tenth of the training rows.

    Parameters
    ----------
    n_estimators : int
        Trees of each level.
    """

    package = "mapie"
    wants_validation = True
    levels = np.array([0.05, 0.5, 0.95])

    def __init__(self, n_estimators: int = 100) -> None:
        self.n_estimators = n_estimators

    def _fit(self, X: Array, y: Array, seed: int, validation: tuple[Array, Array] | None) -> None:
        X, y, *calibration = hold_out(X, y, seed) if validation is None else (X, y, *validation)
        boosting = GradientBoostingRegressor(loss="quantile", n_estimators=self.n_estimators, random_state=seed)
        self.model = ConformalizedQuantileRegressor(boosting, confidence_level=0.9).fit(X, y)
        self.model.conformalize(*calibration)
        self.settings = (
            f"boosting with {self.n_estimators} trees at 5, 50, 95 %, {len(calibration[1])} calibration rows; others "
            "interpolated"
        )

    def _knots(self, X: Array) -> Array:
        middle, interval = self.model.predict_interval(X)
        return np.column_stack([interval[:, 0, 0], middle, interval[:, 1, 0]])
