"""Forecasts that need no learning to speak of, and the headline scores that they and the model get alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import mean_absolute_error, r2_score

from ncprob.metrics import crps_from_quantiles, interval_coverage, interval_width, pinball_loss
from ncprob.profiles import Inputs, is_number
from ncprob.report.study import FloatArray, Study, by_component

CRPS_LEVELS = (np.arange(199) + 0.5) / 199
PINBALL_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
MOST_LEVELS = 31
LEAST = 1e-12  # probabilities below it count as it in log losses

Scores = dict[str, float]


class Forecast(ABC):
    """Laws of n rows and q targets, as far as scores need them."""

    name: str
    mean: FloatArray  # (n, q)

    @abstractmethod
    def quantile(self, levels: Sequence[float] | FloatArray) -> FloatArray:
        """Quantiles (n, q, k) at k levels."""

    def interval(self, coverage: float) -> FloatArray:
        """Central intervals (n, q, 2)."""
        return self.quantile([(1 - coverage) / 2, (1 + coverage) / 2])


class ModelForecast(Forecast):
    """The model itself; its intervals are calibrated if it was conformalized."""

    name = "ncprob"

    def __init__(self, study: Study) -> None:
        self._study, self._q = study, study.y.shape[1]
        self.mean = by_component(study.test_laws.mean(), self._q)

    def quantile(self, levels: Sequence[float] | FloatArray) -> FloatArray:
        """Quantiles of the laws."""
        return by_component(self._study.test_laws.quantile(np.asarray(levels)), self._q)

    def interval(self, coverage: float) -> FloatArray:
        """As the model answers `predict_interval`."""
        study = self._study
        if study.model._calibrator is None:
            return super().interval(coverage)
        answer = study.model._calibrator.interval(study.test_laws, coverage, kind="central")
        return by_component(answer, self._q)


class MarginalForecast(Forecast):
    """Quantiles of the training y, whatever x is."""

    name = "marginal quantiles"

    def __init__(self, study: Study) -> None:
        self._y, self._weights, self._n = study.y_training, study.weights, len(study.y)
        self.mean = np.tile(np.average(self._y, axis=0, weights=self._weights), (self._n, 1))

    def quantile(self, levels: Sequence[float] | FloatArray) -> FloatArray:
        """The same for all rows."""
        columns = [np.quantile(y, levels, weights=self._weights, method="inverted_cdf") for y in self._y.T]
        return np.tile(np.stack(columns), (self._n, 1, 1))


class LinearForecast(Forecast):
    """Least squares on numbers and levels, with normal errors of one size."""

    name = "linear, normal errors"

    def __init__(self, study: Study) -> None:
        known, new = design(study.training, study.test)
        root = np.sqrt(study.weights)[:, None]
        coefficients, _, rank, _ = np.linalg.lstsq(root * known, root * study.y_training, rcond=1e-8)
        squares = np.average((study.y_training - known @ coefficients) ** 2, axis=0, weights=study.weights)
        n = int((study.weights > 0).sum())
        self._deviation = np.sqrt(squares * n / max(n - rank, 1))
        self.mean = new @ coefficients

    def quantile(self, levels: Sequence[float] | FloatArray) -> FloatArray:
        """Mean plus deviation times the quantile of N(0, 1)."""
        return self.mean[..., None] + self._deviation[:, None] * special.ndtri(np.asarray(levels))


def design(training: Inputs, test: Inputs) -> tuple[FloatArray, FloatArray]:
    """Intercept, scaled numbers and indicators of the most frequent levels, for both tables."""
    parts: list[tuple[NDArray[Any], NDArray[Any]]] = [(np.ones(len(training)), np.ones(len(test)))]
    for old, new in zip(training.columns, test.columns, strict=True):
        if is_number(old):
            centre, scale = old.mean(), old.std() or 1.0
            parts.append(((old - centre) / scale, (new - centre) / scale))
        else:
            values, counts = np.unique(old, return_counts=True)
            for level in values[np.argsort(-counts, kind="stable")[:MOST_LEVELS]]:
                parts.append((old == level, new == level))
    return np.column_stack([a for a, _ in parts]).astype(float), np.column_stack([b for _, b in parts]).astype(float)


def headline_scores(study: Study) -> list[dict[str, Scores]]:
    """Per target: the scores of the model, which comes first, and of its baselines. The first score is the headline."""
    if study.is_classifier:
        return [{name: class_scores(p, study.y[:, 0].astype(int)) for name, p in _class_forecasts(study).items()}]
    forecasts: list[Forecast] = [ModelForecast(study), MarginalForecast(study), LinearForecast(study)]
    found = {forecast.name: scores(forecast, study.y) for forecast in forecasts}
    return [{name: answers[k] for name, answers in found.items()} for k in range(len(study.targets))]


def scores(forecast: Forecast, y: FloatArray) -> list[Scores]:
    """Scores of a forecast of numbers, per target."""
    fine, coarse, interval = forecast.quantile(CRPS_LEVELS), forecast.quantile(PINBALL_LEVELS), forecast.interval(0.9)
    answers = []
    for k, own in enumerate(y.T):
        answers.append(
            {
                "CRPS": float(crps_from_quantiles(own, fine[:, k], CRPS_LEVELS)),
                "pinball loss": float(pinball_loss(own, coarse[:, k], PINBALL_LEVELS)),
                "90 % coverage": interval_coverage(own, interval[:, k]),
                "90 % width": float(interval_width(interval[:, k])),
                "R² of the mean": float(r2_score(own, forecast.mean[:, k])) if len(own) > 1 else float("nan"),
                "MAE of the median": float(mean_absolute_error(own, coarse[:, k, PINBALL_LEVELS.index(0.5)])),
            }
        )
    return answers


def class_scores(probabilities: FloatArray, truth: NDArray[np.int64]) -> Scores:
    """Scores of class probabilities (n, n_classes) for the class numbers that came."""
    missed = probabilities - np.eye(probabilities.shape[1])[truth]
    given = probabilities[np.arange(len(truth)), truth]
    return {
        "log loss": float(-np.log(np.maximum(given, LEAST)).mean()),
        "Brier score": float(np.sum(missed**2, axis=1).mean()),
        "accuracy": float((probabilities.argmax(axis=1) == truth).mean()),
    }


def class_shares(study: Study) -> FloatArray:
    """Share of every class in the training rows."""
    counts = np.bincount(study.y_training[:, 0].astype(int), weights=study.weights, minlength=len(study.model.classes_))
    return counts / counts.sum()


def _class_forecasts(study: Study) -> dict[str, FloatArray]:
    """Class probabilities by the model, by the class shares and by a logistic regression."""
    n, n_classes = len(study.y), len(study.model.classes_)
    answers = {
        ModelForecast.name: study.probabilities(study.test),
        "class shares": np.tile(class_shares(study), (n, 1)),
    }
    if n_classes > 1:
        old, new = design(study.training, study.test)
        known = study.y_training[:, 0].astype(int)
        linear = LogisticRegression(max_iter=500).fit(old[:, 1:], known, sample_weight=study.weights)
        answers["logistic regression"] = np.zeros((n, n_classes))
        answers["logistic regression"][:, linear.classes_] = linear.predict_proba(new[:, 1:])
    return answers
