"""Split conformal intervals around a random forest (Papadopoulos et al. 2002; Lei et al. 2018), by MAPIE."""

from __future__ import annotations

import numpy as np
from mapie.regression import SplitConformalRegressor
from sklearn.ensemble import RandomForestRegressor

from benchmarks.methods.base import Array, FromQuantiles, hold_out, threads


class RFSCP(FromQuantiles):
    """Forest mean ± the conformal quantile of the absolute residuals of rows the forest has not seen.

    The method gives intervals, not a law. Here the interval of coverage 1 − 2p states the quantiles p and 1 − p, for
    many p at once: a symmetric law of the same shape at every x. The validation rows calibrate, or else a random tenth
    of the training rows; p is as small as their number allows.

    Parameters
    ----------
    n_estimators : int
        Trees.
    """

    package = "mapie"
    wants_validation = True

    def __init__(self, n_estimators: int = 100) -> None:
        self.n_estimators = n_estimators

    def _fit(self, X: Array, y: Array, seed: int, validation: tuple[Array, Array] | None) -> None:
        X, y, *calibration = hold_out(X, y, seed) if validation is None else (X, y, *validation)
        lower = np.arange(1, 100) / 200
        # With fewer calibration rows than 1/(2p) the interval is infinite; MAPIE refuses these and their opposites.
        self._lower = lower[np.minimum(2 * lower, 1 - 2 * lower) * len(calibration[1]) >= 1 + 1e-9]
        self.levels = np.concatenate([self._lower, [0.5], 1 - self._lower[::-1]])
        forest = RandomForestRegressor(self.n_estimators, random_state=seed, n_jobs=threads()).fit(X, y)
        self.model = SplitConformalRegressor(forest, confidence_level=(1 - 2 * self._lower).tolist(), prefit=True)
        self.model.conformalize(*calibration)
        source = "validation rows" if validation is not None else "rows held out of training"
        self.settings = (
            f"forest of {self.n_estimators} trees ± absolute residuals of {len(calibration[1])} {source}; "
            "intervals of many coverages read as a symmetric law"
        )

    def _knots(self, X: Array) -> Array:
        mean, intervals = self.model.predict_interval(X)
        return np.column_stack([intervals[:, 0], mean, intervals[:, 1, ::-1]])
