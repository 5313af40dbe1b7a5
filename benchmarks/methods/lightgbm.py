"""LightGBM quantile regression: one model per level."""

from __future__ import annotations

import numpy as np
from lightgbm import LGBMRegressor, early_stopping

from benchmarks.methods.base import Array, FromQuantiles, hold_out, threads

Pair = tuple[Array, Array]


class LightGBM(FromQuantiles):
    """25 levels, at most 1,000 rounds each at its default rate 0.1, stopped after 50 without progress on 10 %."""

    package = "lightgbm"

    def __init__(self, n_estimators: int = 1000, learning_rate: float = 0.1) -> None:
        self.n_estimators, self.learning_rate = n_estimators, learning_rate

    def _fit(self, X: Array, y: Array, seed: int, validation: tuple[Array, Array] | None) -> None:
        X, y, X_held, y_held = hold_out(X, y, seed)
        self.models = [self._one_level(level, (X, y), (X_held, y_held), seed) for level in self.levels]
        rounds = round(np.mean([model.best_iteration_ for model in self.models]))
        self.settings = (
            f"one model at each of {len(self.levels)} levels, rate {self.learning_rate:g}, {rounds} rounds on average "
            "by early stopping on 10 %"
        )

    def _one_level(self, level: float, learn: Pair, held: Pair, seed: int) -> LGBMRegressor:
        model = LGBMRegressor(
            objective="quantile",
            alpha=level,
            n_estimators=self.n_estimators,
            learning_rate=self.learning_rate,
            random_state=seed,
            n_jobs=threads(),
            deterministic=True,
            force_col_wise=True,
            verbosity=-1,
        )
        return model.fit(learn[0], learn[1], eval_set=[held], callbacks=[early_stopping(50, verbose=False)])

    def _knots(self, X: Array) -> Array:
        return np.stack([np.asarray(model.booster_.predict(X)) for model in self.models], axis=1)
