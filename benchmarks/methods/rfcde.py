"""Random forests for conditional density estimation (Pospisil & Lee 2018), written anew on scikit-learn's forest."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array
from scipy.special import ndtr
from sklearn.ensemble import RandomForestRegressor

from benchmarks.methods.base import Array, FromCDF, gaussian, row_chunks, threads
from benchmarks.methods.flexcode import N_FUNCTIONS, cosines

SPARSE_ENTRIES = 2**25  # of the weights of training rows held at once


class RFCDE(FromCDF):
    """f(y | x) = Σ w_i(x) K(y − y_i) / Σ w_i(x), where w_i counts how often row i was drawn into a leaf of x.

    Trees are split where the squared coefficients of a cosine basis of y grow most: least squares on 31 outputs.

    Parameters
    ----------
    n_estimators : int
        Trees.
    min_draws_leaf : int
        Least number of rows drawn into a leaf, repetitions included.
    bandwidth : float
        Of the Gaussian kernel, in standard deviations of y; 0.01 is the paper's, and narrow.
    """

    package = "scikit-learn"

    def __init__(self, n_estimators: int = 1000, min_draws_leaf: int = 20, bandwidth: float = 0.01) -> None:
        self.n_estimators, self.min_draws_leaf, self.bandwidth = n_estimators, min_draws_leaf, bandwidth

    def _fit(self, X: Array, y: Array, seed: int, validation: tuple[Array, Array] | None) -> None:
        self._y = y
        self._width = self.bandwidth * (float(y.std()) or 1.0)
        forest = RandomForestRegressor(
            self.n_estimators,
            # Draws of the bootstrap count, which gives the paper's figures; `min_samples_leaf` counts distinct rows.
            min_weight_fraction_leaf=min(0.5, self.min_draws_leaf / len(y)),
            max_features="sqrt",
            random_state=seed,
            n_jobs=threads(),
        )
        self._forest = forest.fit(X, cosines((y - y.min()) / (np.ptp(y) or 1.0)))
        nodes = [tree.tree_.node_count for tree in forest.estimators_]
        self._first_node = np.concatenate([[0], np.cumsum(nodes)])
        self._members = self._drawn_rows(X)
        self._grid = self.reading_grid(y, margin=4 * self._width)
        self.settings = (
            f"forest on {N_FUNCTIONS} cosines, {self.n_estimators} trees, √p inputs a split, "
            f"leaves of {self.min_draws_leaf} draws or more, bandwidth {self.bandwidth:g} sd"
        )

    def _drawn_rows(self, X: Array) -> csr_array:
        """How often each training row was drawn into each node, (nodes of all trees, rows)."""
        nodes, rows, counts = [], [], []
        for tree, drawn, first in zip(
            self._forest.estimators_, self._forest.estimators_samples_, self._first_node, strict=False
        ):
            count = np.bincount(drawn, minlength=len(X))
            inside = np.flatnonzero(count)
            nodes.append((first + tree.apply(X[inside])).astype(np.int32))
            rows.append(inside.astype(np.int32))
            counts.append(count[inside].astype(np.float32))
        where = np.concatenate(nodes), np.concatenate(rows)
        return csr_array((np.concatenate(counts), where), shape=(self._first_node[-1], len(X)))

    def _weights(self, X: Array) -> csr_array:
        leaves = self._forest.apply(X) + self._first_node[:-1]
        starts = np.arange(0, leaves.size + 1, self.n_estimators)
        ones = np.ones(leaves.size, dtype=np.float32)
        weights = csr_array((ones, leaves.ravel(), starts), shape=(len(X), self._first_node[-1])) @ self._members
        return weights.multiply(1 / weights.sum(axis=1)[:, None]).tocsr()

    def _cdf(self, X: Array, grid: Array) -> Array:
        answer = np.zeros((len(X), len(grid)))
        for part in row_chunks(len(X), len(self._y), SPARSE_ENTRIES):
            weights = self._weights(X[part]).tocsc()
            for rows in row_chunks(len(self._y), len(grid)):
                answer[part] += weights[:, rows] @ ndtr((grid - self._y[rows, None]) / self._width)
        return np.clip(answer, 0.0, 1.0)

    def _pdf(self, X: Array, points: Array) -> Array:
        answer = np.empty(points.shape)
        for part in row_chunks(len(X), len(self._y), SPARSE_ENTRIES):
            weights = self._weights(X[part])
            for number, (target, at) in enumerate(zip(answer[part], points[part], strict=True)):
                row = slice(weights.indptr[number], weights.indptr[number + 1])
                kernels = gaussian(at - self._y[weights.indices[row], None], self._width)
                target[:] = weights.data[row] @ kernels
        return answer
