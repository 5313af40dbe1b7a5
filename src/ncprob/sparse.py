"""Sparse linear predictions as further inputs: where inputs are many and rows few, most inputs count for nothing.

Trees need many rows to see a slope, and networks learn the noise of every input; the lasso finds a few straight
effects among hundreds of inputs with some hundred rows (Tibshirani 1996; Bühlmann & van de Geer 2011, ch. 2).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso, LassoCV

from ncprob.state import State, to_array

FOLDS = 5
PENALTIES = 30  # tried, from the one that leaves no input down to 1/100 of it
ROWS_PER_INPUT = 50  # with more, networks find out by themselves which inputs count


def worth_selecting(n_rows: int, n_inputs: int) -> bool:
    """Whether rows are so few for the inputs that networks would learn the noise of most.

    Examples
    --------
    >>> worth_selecting(300, n_inputs=100), worth_selecting(10_000, n_inputs=10)
    (True, False)
    """
    return n_rows < ROWS_PER_INPUT * n_inputs


@dataclass(frozen=True)
class SparseLinear:
    """a + Bᵀx, where B, (inputs, outputs), minimises ½ E‖y − a − Bᵀx‖² + α Σ|B_jk|; averaged over folds.

    Answers stay between the lowest and the highest y that was seen, as those of trees do: targets are logarithmic in
    their tails, so what follows would make a line that goes on into an exponential.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(100, 40))
    >>> model, unseen = SparseLinear.fit(x, x[:, :1], None)
    >>> bool(np.abs(unseen - x[:, :1]).mean() < 0.1), int((np.abs(model.slopes) > 0.05).sum())
    (True, 1)
    """

    slopes: NDArray[np.float64]
    intercepts: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    @property
    def n_outputs(self) -> int:
        """Columns of the answer."""
        return len(self.intercepts)

    def __call__(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """Predictions, (rows, outputs)."""
        return np.clip(np.asarray(x, dtype=np.float64) @ self.slopes + self.intercepts, self.low, self.high)

    def state(self) -> State:
        """What `from_state` needs."""
        return State({name: to_array(value) for name, value in vars(self).items()})

    @classmethod
    def from_state(cls, state: State, n_inputs: int) -> SparseLinear:
        """The same over `n_inputs` columns."""
        slopes = state.array("slopes", torch.float64, (n_inputs, None))
        outputs = (slopes.shape[1],)
        return cls(slopes, *(state.array(name, torch.float64, outputs) for name in ("intercepts", "low", "high")))

    @classmethod
    def fit(
        cls, x: NDArray[Any], y: NDArray[np.float64], weights: NDArray[Any] | None, n_judges: int = 0
    ) -> tuple[SparseLinear, NDArray[np.float64]]:
        """The model of every column of y, and predictions of all rows by fits that have not seen them.

        The penalty α is chosen by cross-validation; the last `n_judges` rows take no part in that and are a fold of
        their own.
        """
        x = np.asarray(x, dtype=np.float64)
        mass = np.ones(len(x)) if weights is None else np.asarray(weights, dtype=np.float64)
        counted, first = mass > 0, slice(0, len(x) - n_judges)
        fold = np.arange(len(x)) % FOLDS
        fold[first.stop :] = FOLDS
        unseen, models = np.zeros(y.shape), []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # of penalties that are too weak to be chosen
            for column, target in enumerate(y.T):
                choice = LassoCV(eps=0.01, alphas=PENALTIES, cv=FOLDS).fit(x[first], target[first], mass[first])
                for k in np.unique(fold):
                    seen = fold != k
                    models.append(Lasso(choice.alpha_).fit(x[seen], target[seen], mass[seen]))
                    known = target[seen & counted]
                    unseen[~seen, column] = models[-1].predict(x[~seen]).clip(known.min(), known.max())
        per_output = len(models) // y.shape[1]
        slopes = np.reshape([model.coef_ for model in models], (y.shape[1], per_output, -1)).mean(axis=1)
        intercepts = np.reshape([model.intercept_ for model in models], (y.shape[1], per_output)).mean(axis=1)
        return cls(slopes.T.copy(), intercepts, y[counted].min(axis=0), y[counted].max(axis=0)), unseen
