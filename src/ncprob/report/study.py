"""What a report looks at: the model, its own training rows, and the rows it is tried on."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ncprob import frames
from ncprob.estimators import NCPClassifier, NCPRegressor
from ncprob.profiles import Inputs

FloatArray = NDArray[np.float64]

MOST_ROWS = 5000  # more rows tell nothing new about a coverage, and every row has a law of its own


@dataclass(frozen=True)
class Study:
    """Columns in units of the user. y has shape (n, q); for a classifier it holds class numbers."""

    model: Any
    test: Inputs
    y: FloatArray
    training: Inputs
    y_training: FloatArray
    weights: FloatArray
    targets: list[str]
    kept: NDArray[np.int64]  # rows that were looked at, among those given
    rows_given: int

    @classmethod
    def of(cls, model: Any, X: Any, y: Any, every_row: bool = False) -> Study:
        """Check what was given, before any work is done; of many rows some are taken, unless `every_row` counts."""
        if not isinstance(model, NCPRegressor | NCPClassifier):
            raise TypeError(
                f"`model` must be an NCPRegressor or NCPClassifier; got {type(model).__name__}. "
                "Of a pipeline, report on its last step with transformed X."
            )
        check_is_fitted(model)
        if model.x_encoder is not None:
            raise ValueError(
                "`model` must have a table as X; this one has an encoder of its own. Plot its laws instead."
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # what there is to say comes again with the laws
            n = len(frames.check_features(model, X, reset=False, tabular=True))
        target = _class_numbers(model, y, n) if isinstance(model, NCPClassifier) else frames.check_target(y, n)
        target = target.reshape(n, -1)
        training_y = model._training_y.cpu().numpy()
        if target.shape[1] != training_y.shape[1]:
            raise ValueError(
                f"`y` must have {training_y.shape[1]} column(s), as in fit; got {target.shape[1]}. Pass these targets."
            )
        test = Inputs.of(X, getattr(model, "feature_names_in_", None))
        kept = np.unique(np.linspace(0, n - 1, n if every_row else min(n, MOST_ROWS)).astype(int))
        return cls(
            model=model,
            test=test.rows(kept),
            y=target[kept],
            training=_training_inputs(model, test),
            y_training=training_y,
            weights=model._training_weights.cpu().numpy(),
            targets=frames.target_labels(model),
            kept=kept,
            rows_given=n,
        )

    @property
    def is_classifier(self) -> bool:
        """Whether y holds classes."""
        return isinstance(self.model, NCPClassifier)

    def laws(self, inputs: Inputs) -> Any:
        """Laws at the rows of `inputs`; warnings are left to `test_laws`, which sees all that can come."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return self.model.predict_distribution(inputs.table())

    def probabilities(self, inputs: Inputs) -> FloatArray:
        """Class probabilities at the rows of `inputs`, (n, n_classes)."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return self.model.predict_proba(inputs.table())

    def losses(self, inputs: Inputs, y: FloatArray) -> FloatArray:
        """Mean loss per target: CRPS, for classes the Brier score Σ_c (p_c − 1{y = c})²."""
        if self.is_classifier:
            missed = self.probabilities(inputs) - np.eye(len(self.model.classes_))[y[:, 0].astype(int)]
            return np.array([np.mean(np.sum(missed**2, axis=1))])
        return np.asarray(self.laws(inputs).crps(y)).reshape(y.shape).mean(axis=0)

    @cached_property
    def _first_look(self) -> tuple[Any, list[str]]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            laws = self.model.predict_distribution(self.test.table())
        return laws, [str(warning.message) for warning in caught]

    @property
    def test_laws(self) -> Any:
        """Laws at the test rows."""
        return self._first_look[0]

    @property
    def complaints(self) -> list[str]:
        """What was said while the test rows were read, such as levels not seen in fit."""
        return self._first_look[1]


def by_component(answer: Any, q: int) -> FloatArray:
    """Answers as (n, q, …): scalar laws have no axis for components."""
    array = np.asarray(answer, dtype=float)
    return array[:, None] if q == 1 else array


def _class_numbers(model: NCPClassifier, y: Any, n: int) -> FloatArray:
    labels = frames.check_labels(y, n)
    unknown = np.setdiff1d(labels, model.classes_)
    if len(unknown):
        raise ValueError(f"`y` must hold classes seen in fit; got {unknown.tolist()[:5]} besides. Drop these rows.")
    return np.searchsorted(model.classes_, labels).astype(np.float64)


def _training_inputs(model: Any, test: Inputs) -> Inputs:
    """Training rows as columns like those of the test rows, in units of the user."""
    known = model._training_columns().values()
    columns = [
        values.astype(bool) if like.dtype.kind == "b" else values
        for values, like in zip(known, test.columns, strict=True)
    ]
    return replace(test, columns=columns)
