"""Quantile regression forest (Meinshausen 2006) of the package quantile-forest."""

from __future__ import annotations

import numpy as np
from quantile_forest import RandomForestQuantileRegressor

from benchmarks.methods.base import Array, FromQuantiles, hold_out, threads
from ncprob.metrics import pinball_loss

CANDIDATE_LEAVES = (1, 5, 20, 60)
CANDIDATE_TREES = 50
CHOICE_LEVELS = np.arange(1, 20) / 20


class QuantileForest(FromQuantiles):
    """250 trees; all rows of a leaf count (not one of them, the package's short cut).

    The least number of rows in a leaf decides: 1 is best for tables with little noise, 20 and more for few inputs and
    much noise. It is chosen by the pinball loss on 10 % of the rows, then the forest is grown on all.

    Parameters
    ----------
    n_estimators : int
        Trees.
    min_samples_leaf : int, optional
        A fixed leaf size instead of a chosen one.
    """

    package = "quantile-forest"
    levels = np.arange(1, 200) / 200

    def __init__(self, n_estimators: int = 250, min_samples_leaf: int | None = None) -> None:
        self.n_estimators, self.min_samples_leaf = n_estimators, min_samples_leaf

    def _fit(self, X: Array, y: Array, seed: int, validation: tuple[Array, Array] | None) -> None:
        leaf = self.min_samples_leaf or self._choose(X, y, seed)
        self.model = self._forest(self.n_estimators, leaf, seed).fit(X, y)
        how = "by held-out pinball loss" if self.min_samples_leaf is None else "fixed"
        self.settings = f"{self.n_estimators} trees, min_samples_leaf {leaf} {how}, all rows of a leaf"

    def _choose(self, X: Array, y: Array, seed: int) -> int:
        X, y, X_held, y_held = hold_out(X, y, seed)

        def loss(leaf: int) -> float:
            forest = self._forest(min(CANDIDATE_TREES, self.n_estimators), leaf, seed).fit(X, y)
            return float(pinball_loss(y_held, forest.predict(X_held, quantiles=CHOICE_LEVELS.tolist()), CHOICE_LEVELS))

        return min(CANDIDATE_LEAVES, key=loss)

    @staticmethod
    def _forest(n_estimators: int, leaf: int, seed: int) -> RandomForestQuantileRegressor:
        return RandomForestQuantileRegressor(
            n_estimators, min_samples_leaf=leaf, max_samples_leaf=None, random_state=seed, n_jobs=threads()
        )

    def _knots(self, X: Array) -> Array:
        return np.asarray(self.model.predict(X, quantiles=self.levels.tolist()))
