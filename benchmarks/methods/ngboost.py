"""Natural gradient boosting (Duan et al. 2020) of a normal law."""

from __future__ import annotations

from ngboost import NGBRegressor
from scipy import stats

from benchmarks.methods.base import Array, Tabular, hold_out


class NGBoost(Tabular):
    """Normal law, trees of depth 3, rate 0.03, at most 1,000 rounds, stopped after 50 without progress on 10 %."""

    package = "ngboost"

    def __init__(self, n_estimators: int = 1000, learning_rate: float = 0.03) -> None:
        self.n_estimators, self.learning_rate = n_estimators, learning_rate

    def _fit(self, X: Array, y: Array, seed: int, validation: tuple[Array, Array] | None) -> None:
        X, y, X_held, y_held = hold_out(X, y, seed)
        self.model = NGBRegressor(
            n_estimators=self.n_estimators,
            learning_rate=self.learning_rate,
            early_stopping_rounds=50,
            random_state=seed,
            verbose=False,
        ).fit(X, y, X_val=X_held, Y_val=y_held)
        best = self.model.best_val_loss_itr  # counted from zero
        self.rounds = self.n_estimators if best is None else int(best) + 1
        self.settings = f"Normal, depth 3, rate {self.learning_rate:g}, {self.rounds} rounds by early stopping on 10 %"

    def _law(self, X: Array) -> stats.distributions.rv_frozen:
        parameters = self.model.pred_dist(X, max_iter=self.rounds).params
        return stats.norm(parameters["loc"][:, None], parameters["scale"][:, None])

    def _quantiles(self, X: Array, levels: Array) -> Array:
        return self._law(X).ppf(levels)

    def _cdf(self, X: Array, grid: Array) -> Array:
        return self._law(X).cdf(grid)

    def _pdf(self, X: Array, points: Array) -> Array:
        return self._law(X).pdf(points)
