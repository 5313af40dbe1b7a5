"""CatBoost with its MultiQuantile loss: all levels in one model."""

from __future__ import annotations

import numpy as np
from catboost import CatBoostRegressor

from benchmarks.methods.base import Array, FromQuantiles, hold_out, threads


class CatBoost(FromQuantiles):
    """25 levels, at most 2,000 rounds at its default rate 0.03, stopped after 50 without progress on 10 %."""

    package = "catboost"

    def __init__(self, iterations: int = 2000, learning_rate: float = 0.03) -> None:
        self.iterations, self.learning_rate = iterations, learning_rate

    def _fit(self, X: Array, y: Array, seed: int, validation: tuple[Array, Array] | None) -> None:
        X, y, X_held, y_held = hold_out(X, y, seed)
        self.model = CatBoostRegressor(
            loss_function="MultiQuantile:alpha=" + ",".join(f"{level:g}" for level in self.levels),
            iterations=self.iterations,
            learning_rate=self.learning_rate,
            early_stopping_rounds=50,
            random_seed=seed,
            thread_count=threads(),
            allow_writing_files=False,
            verbose=False,
        ).fit(X, y, eval_set=(X_held, y_held))
        self.settings = (
            f"MultiQuantile at {len(self.levels)} levels, rate {self.learning_rate:g}, {self.model.tree_count_} rounds "
            "by early stopping on 10 %"
        )

    def _knots(self, X: Array) -> Array:
        return np.asarray(self.model.predict(X, thread_count=threads()))
