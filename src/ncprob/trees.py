"""Predictions of trees, and of a sparse line, as further inputs: what they see, networks then need not learn.

Given right features v, the best left features are the regressions E[v(Y) | X = x] (Kostic et al. 2024, sect. 3), and on
tables with jumps, interactions or repeated rows trees regress better than networks. Every training row gets predictions
of trees that have not seen it (out of bag, or out of fold), so what follows can trust them as it can those of
new rows (stacking: Wolpert 1992, Breiman 1996).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits
from torch import Tensor

from ncprob.ensembles import TreeEnsemble
from ncprob.sparse import SparseLinear, worth_selecting
from ncprob.state import State, numbered

N_TREES = 150
FOREST_FOLDS = 5  # where rows have weights
MOMENTS = 3  # cosines of the rank of y that the forest predicts, beside y itself
FEW_LEVELS = 16  # a target with at most so many values has the share of each predicted
MAX_BOOSTED = 4  # components of y that are boosted; each costs a model per fold
MAX_CELLS = 5_000_000  # rows × inputs beyond which trees would take longer than all the rest
MINIMUM_ROWS = 64
DISTINCT = 0.5  # share of rows that must differ
MAX_LEAVES = 20_000  # of a tree: what a forest takes of memory ceases to grow with the rows
SMALL, LARGE = 3_000, 20_000  # rows: small tables get more folds and finer leaves, large ones fewer


class TreeInputs:
    """Forest and boosted predictions of y as columns beside x.

    A forest of extremely randomised trees (Geurts et al. 2006) predicts y, cosines of its rank, and the share of each
    value where there are few: a coarse picture of the whole law. Gradient boosting (Friedman 2001), cross-fitted,
    predicts y itself more sharply. Where rows are few for the inputs, a sparse linear prediction stands beside them.
    """

    def __init__(
        self, forest: TreeEnsemble, boosted: Sequence[TreeEnsemble], linear: SparseLinear | None = None
    ) -> None:
        self.ensembles, self.linear = (forest, *boosted), linear

    @property
    def _models(self) -> Sequence[TreeEnsemble | SparseLinear]:
        return self.ensembles if self.linear is None else (*self.ensembles, self.linear)

    @property
    def n_columns(self) -> int:
        """Columns of all models."""
        return sum(model.n_outputs for model in self._models)

    def __call__(self, x: Float[Tensor, "rows inputs"]) -> Float[Tensor, "rows columns"]:
        """Columns for new rows: averages over trees and over folds."""
        table = x.cpu().numpy()
        return torch.as_tensor(np.concatenate([model(table) for model in self._models], axis=1)).to(x)

    def state(self) -> State:
        """What `from_state` needs."""
        linear = {} if self.linear is None else {"linear": self.linear.state()}
        return State(parts={"ensembles": numbered([ensemble.state() for ensemble in self.ensembles]), **linear})

    @classmethod
    def from_state(cls, state: State, n_inputs: int) -> TreeInputs:
        """Trees over `n_inputs` columns."""
        ensembles = [TreeEnsemble.from_state(part, n_inputs) for part in state.sequence("ensembles")]
        if not ensembles:
            raise ValueError("inputs from trees must have a forest")
        linear = state.parts.get("linear")
        return cls(ensembles[0], ensembles[1:], None if linear is None else SparseLinear.from_state(linear, n_inputs))

    @classmethod
    def fit(
        cls,
        x: Float[Tensor, "rows inputs"],
        y: Float[Tensor, "rows components"],
        weights: Tensor | None,
        seed: int,
        n_judges: int = 0,
    ) -> tuple[TreeInputs, Float[Tensor, "rows columns"]]:
        """Grow trees on standardised y; them, and the columns of all rows by trees that have not seen them.

        Columns of the last `n_judges` rows come from trees that have seen none of these, as for new rows.

        Examples
        --------
        >>> x = torch.rand(200, 2, generator=torch.Generator().manual_seed(0))
        >>> trees, columns = TreeInputs.fit(x, (x[:, :1] > 0.5).double(), None, seed=0)
        >>> columns.shape == trees(x).shape, bool((columns[:, 0] - (x[:, 0] > 0.5).float()).abs().mean() < 0.1)
        (True, True)
        """
        table, targets = x.cpu().numpy(), y.cpu().numpy()
        mass = None if weights is None else weights.cpu().numpy()
        n = len(table) - n_judges
        wanted = _forest_targets(targets)
        # One forest after the other: with many rows nothing takes as much memory.
        judged = wanted[:0]
        if n_judges:
            blind = _forest(table[:n], wanted[:n], None if mass is None else mass[:n], seed)[0]
            judged = blind(table[n:])
            del blind
        forest, outputs = _forest(table, wanted, mass, seed)
        outputs[n:] = judged
        boosted, columns = [], [outputs]
        for target in targets.T[:MAX_BOOSTED]:
            folds, predictions = _boosting(table, target, mass, seed, n_judges)
            boosted.append(TreeEnsemble.from_boosting(folds))
            columns.append(predictions[:, None])
        linear = None
        if worth_selecting(*table.shape):
            linear, predictions = SparseLinear.fit(table, targets[:, :MAX_BOOSTED], mass, n_judges)
            columns.append(predictions)
        unseen = torch.as_tensor(np.concatenate(columns, axis=1)).to(x)
        return cls(forest, boosted, linear), unseen


def worth_growing(x: Float[Tensor, "rows inputs"]) -> bool:
    """Whether inputs can interact, rows are enough, cells few enough for trees to take seconds, and most rows differ.

    Where many rows are equal, an out-of-sample prediction is the mean of the others: it falls as the row's own y rises,
    which no new row does, and what follows would learn to undo it.
    """
    n_rows, n_inputs = x.shape
    if n_inputs < 2 or n_rows < MINIMUM_ROWS or n_rows * n_inputs > MAX_CELLS:
        return False
    return len(x.unique(dim=0)) > DISTINCT * n_rows


def _forest_targets(y: NDArray[np.float64]) -> NDArray[np.float64]:
    """y, √2 cos(kπ·rank) for k = 1, 2, 3, and indicators of the values where there are few, of every component."""
    columns = []
    for target in y.T:
        values, inverse, counts = np.unique(target, return_inverse=True, return_counts=True)
        rank = ((np.cumsum(counts) - counts / 2) / len(target))[inverse]
        columns += [target, *(np.sqrt(2) * np.cos(np.pi * k * rank) for k in range(1, MOMENTS + 1))]
        if len(values) <= FEW_LEVELS:
            columns += list((target[:, None] == values).T.astype(float))
    return np.stack(columns, axis=1)


def _forest(
    x: NDArray[Any], targets: NDArray[np.float64], weights: NDArray[Any] | None, seed: int
) -> tuple[TreeEnsemble, NDArray[np.float64]]:
    """Trees, and what those that were grown without a row predict for it: out of bag, with weights out of fold.

    Bootstrap samples by weight would leave no tree without a heavy row.
    """
    settings = {
        "min_samples_leaf": 1 if len(x) < LARGE else max(5, len(x) // MAX_LEAVES),
        "n_jobs": torch.get_num_threads(),
        "random_state": seed,
    }
    if weights is None or weights.min() == weights.max():
        model = ExtraTreesRegressor(N_TREES, bootstrap=True, oob_score=True, **settings).fit(x, targets)
        return TreeEnsemble.from_forests([model]), model.oob_prediction_.reshape(len(x), -1)
    fold = np.arange(len(x)) % FOREST_FOLDS
    predictions, models = np.zeros_like(targets), []
    for k in range(FOREST_FOLDS):
        seen = fold != k
        model = ExtraTreesRegressor(N_TREES // FOREST_FOLDS, **settings)
        models.append(model.fit(x[seen], targets[seen], sample_weight=weights[seen]))
        predictions[~seen] = model.predict(x[~seen]).reshape(-1, targets.shape[1])
    return TreeEnsemble.from_forests(models), predictions


def _boosting(
    x: NDArray[Any], target: NDArray[np.float64], weights: NDArray[Any] | None, seed: int, n_judges: int
) -> tuple[list[HistGradientBoostingRegressor], NDArray[np.float64]]:
    """Boosted models, one per fold, each grown without its fold until it no longer predicts it better.

    The last `n_judges` rows are a fold of their own.
    """
    n = len(x)
    n_folds = min(10 if n < SMALL else 5 if n < LARGE else 3, n - n_judges + (n_judges > 0))  # none empty
    fold = np.arange(n) % (n_folds - (n_judges > 0))
    fold[n - n_judges :] = n_folds - 1
    predictions = np.zeros(n)

    def without(k: int) -> HistGradientBoostingRegressor:
        seen, unseen = fold != k, fold == k
        model = HistGradientBoostingRegressor(
            learning_rate=0.05 if n < SMALL else 0.1,
            max_iter=1000,
            max_leaf_nodes=15 if n < SMALL else 31,
            min_samples_leaf=5 if n < SMALL else 20,
            early_stopping=True,
            n_iter_no_change=100 if n < SMALL else 20,  # scores of small folds are noisy
            random_state=seed,
        )
        with threadpool_limits(1, user_api="openmp"):
            model.fit(
                x[seen],
                target[seen],
                None if weights is None else weights[seen],
                X_val=x[unseen],
                y_val=target[unseen],
                sample_weight_val=None if weights is None else weights[unseen],
            )
            # Without its own baseline, which is the lower, the higher the fold that was left out.
            average = np.average(target[seen], weights=None if weights is None else weights[seen])
            predictions[unseen] = model.predict(x[unseen]) - average + np.average(target, weights=weights)
        return model

    # A thread a fold, and none inside: threads of one small model wait for each other in a busy loop, and on cores that
    # other work shares that took 25 times as long.
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        return list(pool.map(without, range(n_folds))), predictions
