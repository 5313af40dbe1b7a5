"""Scorers of whole distributions for scikit-learn's `scoring=`: greater is better, so losses are negated.

The losses are those of `ncprob.metrics` and `ConditionalDistribution.crps`; the components of a vector y are averaged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils.metadata_routing import MetadataRequest

from ncprob import frames
from ncprob._validation import check_number, check_probabilities
from ncprob.estimators import NCPRegressor
from ncprob.metrics import interval_score, pinball_loss

FloatArray = NDArray[np.float64]
RowLoss = Callable[[NCPRegressor, Any, FloatArray], FloatArray]


class DistributionScorer:
    """`scorer(estimator, X, y)`: minus the mean loss of an `NCPRegressor`, alone, in a `Pipeline` or in a search.

    Made by `crps_scorer`, `make_pinball_scorer` and `make_interval_scorer`. Weights of rows reach it by metadata
    routing after `set_score_request(sample_weight=True)`.
    """

    def __init__(self, name: str, loss: RowLoss) -> None:
        self.name, self._loss = name, loss
        self._weight_request: bool | str | None = None

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Minus the (weighted) mean loss of a fitted model on the rows of X and y."""
        model, inputs = _regressor(estimator, X)
        target = frames.check_target(y, len(y))
        losses = self._loss(model, inputs, target.reshape(len(target), -1))
        return -float(np.average(losses, weights=sample_weight))

    def __repr__(self) -> str:
        return self.name

    def set_score_request(self, *, sample_weight: bool | str | None) -> DistributionScorer:
        """Ask for weights of rows by metadata routing, as scikit-learn's own scorers do."""
        self._weight_request = sample_weight
        return self

    def get_metadata_routing(self) -> MetadataRequest:
        """What this scorer wants from scikit-learn's metadata routing."""
        request = MetadataRequest(owner=self.name)
        request.score.add_request(param="sample_weight", alias=self._weight_request)
        return request


def _regressor(estimator: Any, X: Any) -> tuple[NCPRegressor, Any]:
    """The regressor inside pipelines and searches, and X as it sees it: only `predict` passes through these."""
    while not isinstance(estimator, NCPRegressor):
        if isinstance(estimator, Pipeline):
            X = estimator[:-1].transform(X) if len(estimator) > 1 else X
            estimator = estimator[-1]
        elif hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        else:
            raise TypeError(
                "`estimator` must be an NCPRegressor, or a Pipeline or search that ends in one; "
                f"got {type(estimator).__name__}. Score others by their own predictions."
            )
    return estimator, X


def _by_component(loss: Callable[[FloatArray, FloatArray], Any], y: FloatArray, answers: Any) -> FloatArray:
    """Mean over components of loss(y_k, answers_k), per row; answers of shape (n, …) in any table."""
    n, q = y.shape
    parts = np.asarray(answers, dtype=float).reshape(n, q, -1)
    return np.mean([loss(y[:, k], parts[:, k]) for k in range(q)], axis=0)


def _crps(model: NCPRegressor, X: Any, y: FloatArray) -> FloatArray:
    return np.asarray(model.predict_distribution(X).crps(y)).reshape(y.shape).mean(axis=1)


def _pinball(model: NCPRegressor, X: Any, y: FloatArray, alpha: Sequence[float]) -> FloatArray:
    return _by_component(partial(pinball_loss, alpha=alpha, average=False), y, model.predict_quantiles(X, alpha))


def _interval(model: NCPRegressor, X: Any, y: FloatArray, coverage: float) -> FloatArray:
    answers = model.predict_interval(X, coverage, kind="central")  # the score is lowest at the central interval
    return _by_component(partial(interval_score, coverage=coverage, average=False), y, answers)


crps_scorer = DistributionScorer("crps_scorer", _crps)
"""Minus the continuous ranked probability score."""


def make_pinball_scorer(alpha: float | Sequence[float] = (0.05, 0.5, 0.95)) -> DistributionScorer:
    """Minus the pinball loss of the quantiles at `alpha`, averaged over the levels.

    Examples
    --------
    >>> make_pinball_scorer(0.9)
    make_pinball_scorer(alpha=[0.9])
    """
    levels = check_probabilities(alpha, "alpha").reshape(-1).tolist()
    return DistributionScorer(f"make_pinball_scorer(alpha={levels})", partial(_pinball, alpha=levels))


def make_interval_scorer(coverage: float = 0.9) -> DistributionScorer:
    """Minus Winkler's score of the central interval; of a conformalized model, of its calibrated interval.

    Examples
    --------
    >>> from sklearn.model_selection import cross_val_score
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.uniform(size=(90, 1)), rng.normal(size=90)
    >>> model = NCPRegressor(max_steps=20, coordinates="raw", random_state=0)
    >>> scores = cross_val_score(model, X, y, scoring=make_interval_scorer(0.8), cv=2)
    >>> bool((scores < 0).all())
    True
    """
    level = check_number(coverage, "coverage", minimum=0, maximum=1, open_ends=True)
    return DistributionScorer(f"make_interval_scorer(coverage={level:g})", partial(_interval, coverage=level))
