"""LinCDE boosting (Gao & Hastie 2022): exponential families on a spline basis of y, tilted step by step by stumps in x.

Written anew from the paper and from the defaults of its R package. Rows that fall between the same candidate splits of
all inputs have the same law throughout, so they are kept together as one cell with a histogram of y.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.interpolate import BSpline
from scipy.linalg import null_space
from scipy.optimize import brentq
from scipy.sparse import csr_array
from scipy.stats import chi2

from benchmarks.methods.base import Array, FromCDF, row_chunks

N_BINS, N_FUNCTIONS, DEGREES_OF_FREEDOM = 40, 10, 4
SPLIT_QUANTILES = np.arange(1, 19) / 19
MIN_ROWS, SHRINKAGE, STOPPING_LEVEL = 10, 0.1, 0.8
FINE_CELLS = 1000  # of the grid on which a law is integrated
LOWEST_LOG = -100.0  # of the first law, so that a bin far out can be reached


class SplineBasis:
    """Natural cubic splines in directions from smooth to rough, the rough ones scaled down.

    The knots are the i/12 quantiles of the bins, i = 1, …, 11; beyond the outer ones the functions are straight lines.
    """

    def __init__(self, middles: Array) -> None:
        knots = np.quantile(middles, np.arange(1, N_FUNCTIONS + 2) / (N_FUNCTIONS + 2))
        padded = np.concatenate([[knots[0]] * 3, knots, [knots[-1]] * 3])
        self._ends = knots[[0, -1]]
        self._splines = BSpline(padded, np.eye(len(padded) - 4)[:, 1:], 3)  # without the first: no constant
        self._slopes = self._splines.derivative()
        # Natural: no second derivative at the ends.
        self._rotation = null_space(self._splines.derivative(2)(self._ends))
        fine = np.linspace(middles[0], middles[-1], FINE_CELLS)
        third = np.diff(self(fine), n=3, axis=0)
        directions, roughness, _ = np.linalg.svd(third.T @ third)
        penalty = roughness / roughness.mean() + 0.001
        self._rotation = self._rotation @ directions * np.sqrt(penalty.min() / penalty)

    def __call__(self, y: Array) -> Array:
        """Values of the functions, with one more axis than y."""
        inside = np.clip(y, *self._ends)
        values = self._splines(inside) + (y - inside)[..., None] * self._slopes(inside)
        return values @ self._rotation


class Cells(NamedTuple):
    """Training rows between the same splits: histograms of y, numbers of rows, and the cells of every interval."""

    histograms: Array  # (cells, bins)
    sizes: Array
    intervals: csr_array  # (intervals of all inputs, cells)


class LinCDE(FromCDF):
    """f(y | x) ∝ N(y; mean, variance) exp(z(y)ᵀβ(x)), where β is a sum of stumps fitted one after the other.

    Parameters
    ----------
    n_trees : int
        Most stumps; there are fewer when no split gains more than chance.
    """

    def __init__(self, n_trees: int = 1000) -> None:
        self.n_trees = n_trees

    def _fit(self, X: Array, y: Array, seed: int, validation: tuple[Array, Array] | None) -> None:
        margin = 0.02 * (float(np.ptp(y)) or 1.0)
        edges = np.linspace(y.min() - margin, y.max() + margin, N_BINS + 1)
        middles = (edges[1:] + edges[:-1]) / 2
        self._center, self._spread = float(y.mean()), float(y.std()) or 1.0
        self._basis, self._z = SplineBasis(middles), SplineBasis(middles)(middles)
        self._grid = np.linspace(edges[0], edges[-1], FINE_CELLS + 1)
        self._fine = (self._grid[1:] + self._grid[:-1]) / 2
        self._fine_z = self._basis(self._fine)
        self._splits = [np.unique(np.quantile(column, SPLIT_QUANTILES)) for column in X.T]
        # Right of the largest value there is no row.
        self._splits = [splits[splits < column.max()] for splits, column in zip(self._splits, X.T, strict=True)]
        self._first = np.concatenate([[0], np.cumsum([len(splits) + 1 for splits in self._splits])])
        bins = np.clip(np.searchsorted(edges, y) - 1, 0, N_BINS - 1)
        self._ridge = ridge_for(self._z, np.bincount(bins, minlength=N_BINS).astype(float))
        stumps = self._boost(self._cells(X, bins), middles)
        self.settings = (
            f"{stumps} stumps{' (no split gained more than chance)' if stumps < self.n_trees else ''}, "
            f"shrinkage {SHRINKAGE}, {N_BINS} bins, {N_FUNCTIONS} splines with {DEGREES_OF_FREEDOM} degrees of freedom"
        )

    def _intervals(self, X: Array) -> np.ndarray:
        """Number of the interval between splits for every row and input, counted through all inputs."""
        found = [np.searchsorted(splits, column) for splits, column in zip(self._splits, X.T, strict=True)]
        return np.stack(found, axis=1) + self._first[:-1]

    def _cells(self, X: Array, bins: np.ndarray) -> Cells:
        kinds, member = np.unique(self._intervals(X), axis=0, return_inverse=True)
        histograms = np.bincount(member.ravel() * N_BINS + bins, minlength=len(kinds) * N_BINS)
        cells = np.repeat(np.arange(len(kinds)), kinds.shape[1])
        inside = csr_array((np.ones(kinds.size), (kinds.ravel(), cells)), shape=(self._first[-1], len(kinds)))
        histograms = histograms.reshape(-1, N_BINS).astype(float)
        return Cells(histograms, histograms.sum(axis=1), inside)

    def _boost(self, cells: Cells, middles: Array) -> int:
        """Grow the stumps into `_coefficients`, the β of every interval of every input; return their number."""
        self._coefficients = np.zeros((self._first[-1], N_FUNCTIONS))
        law = np.tile(normalised(np.exp(self._log_start(middles))), (len(cells.sizes), 1))
        threshold = chi2.ppf(STOPPING_LEVEL, DEGREES_OF_FREEDOM) / 2
        for stump in range(self.n_trees):
            gain, column, cut = self._best_split(cells, law)
            if gain <= threshold:
                return stump
            first, last = self._first[column], self._first[column + 1]
            left = cells.intervals[first : cut + 1].sum(axis=0) > 0
            for side, span in ((left, slice(first, cut + 1)), (~left, slice(cut + 1, last))):
                sizes, part = cells.sizes[side], law[side]
                beta, _ = lindsey(
                    self._z, cells.histograms[side].sum(axis=0), sizes @ part, self._ridge, cells.sizes.sum()
                )
                self._coefficients[span] += SHRINKAGE * beta
                law[side] = normalised(part * np.exp(SHRINKAGE * self._z @ beta))
        return self.n_trees

    def _best_split(self, cells: Cells, law: Array) -> tuple[float, int, int]:
        """Largest gain of a split, its input, and the last interval on its left."""
        total = cells.sizes.sum()
        _, root = lindsey(self._z, cells.histograms.sum(axis=0), cells.sizes @ law, self._ridge, total)
        metric = np.linalg.inv(covariance(self._z, root) + self._ridge / total * np.eye(N_FUNCTIONS))
        residuals = cells.intervals @ ((cells.histograms - cells.sizes[:, None] * law) @ self._z)
        sizes = cells.intervals @ cells.sizes
        best = (-np.inf, 0, 0)
        for column, (first, last) in enumerate(zip(self._first[:-1], self._first[1:], strict=True)):
            sums, left = np.cumsum(residuals[first:last], axis=0), np.cumsum(sizes[first:last])
            right = total - left
            allowed = np.flatnonzero((left > MIN_ROWS) & (right > MIN_ROWS))
            if len(allowed) == 0:
                continue
            n_left, n_right = left[allowed, None], right[allowed, None]
            contrast = sums[allowed] / n_left - (sums[-1] - sums[allowed]) / n_right
            gains = (n_left * n_right / (2 * total))[:, 0] * np.einsum("ij,jk,ik->i", contrast, metric, contrast)
            if gains.max() > best[0]:
                best = (float(gains.max()), column, int(first + allowed[gains.argmax()]))
        return best

    def _log_start(self, y: Array) -> Array:
        """Logarithm of the normal law at which boosting starts, up to a constant."""
        return np.maximum(-0.5 * ((y - self._center) / self._spread) ** 2, LOWEST_LOG)

    def _beta(self, X: Array) -> Array:
        return self._coefficients[self._intervals(X)].sum(axis=1)

    def _masses(self, beta: Array) -> tuple[Array, Array]:
        """Share of every cell of the fine grid, and the logarithm of the whole mass before division by it."""
        logs = self._log_start(self._fine) + beta @ self._fine_z.T
        highest = logs.max(axis=1, keepdims=True)
        masses = np.exp(logs - highest)
        whole = masses.sum(axis=1, keepdims=True)
        return masses / whole, highest + np.log(whole * (self._grid[1] - self._grid[0]))

    def _cdf(self, X: Array, grid: Array) -> Array:
        answer = np.empty((len(X), len(grid)))
        for rows in row_chunks(len(X), FINE_CELLS):
            steps = np.minimum(np.cumsum(self._masses(self._beta(X[rows]))[0], axis=1), 1.0)
            answer[rows] = [np.interp(grid, self._grid, [0.0, *row[:-1], 1.0]) for row in steps]
        return answer

    def _pdf(self, X: Array, points: Array) -> Array:
        answer = np.empty(points.shape)
        for rows in row_chunks(len(X), FINE_CELLS + 2 * N_FUNCTIONS * points.shape[1]):
            beta, at = self._beta(X[rows]), points[rows]
            inside = (at >= self._grid[0]) & (at <= self._grid[-1])
            at = np.clip(at, self._grid[0], self._grid[-1])
            logs = self._log_start(at) + np.einsum("ij,ipj->ip", beta, self._basis(at))
            answer[rows] = np.where(inside, np.exp(logs - self._masses(beta)[1]), 0.0)
        return answer


def normalised(weights: Array) -> Array:
    """Rows divided by their sums."""
    return weights / weights.sum(axis=-1, keepdims=True)


def covariance(z: Array, law: Array) -> Array:
    """Covariance of the basis under a law on the bins."""
    centred = z - law @ z
    return centred.T @ (law[:, None] * centred)


def lindsey(z: Array, counts: Array, carrier: Array, ridge: float, total: float) -> tuple[Array, Array]:
    """β of the law ∝ carrier · exp(zβ) that fits the counts best, penalised by ridge · n_S/n, and this law.

    Lindsey's Poisson regression with a free intercept has the β of this multinomial likelihood. Newton steps, halved
    until the likelihood grows.
    """
    size = counts.sum()
    weight, log_carrier = ridge * size / total, np.log(np.maximum(carrier, np.finfo(float).tiny))

    def state(beta: Array) -> tuple[float, Array]:
        logs = log_carrier + z @ beta
        highest = logs.max()
        mass = np.exp(logs - highest)
        value = counts @ logs - size * (highest + np.log(mass.sum())) - weight / 2 * beta @ beta
        return float(value), mass / mass.sum()

    beta = np.zeros(z.shape[1])
    value, law = state(beta)
    for _ in range(50):
        gradient = z.T @ (counts - size * law) - weight * beta
        hessian = size * covariance(z, law) + (weight + 1e-9 * size) * np.eye(len(beta))
        step = np.linalg.solve(hessian, gradient)
        if gradient @ step < 1e-8:
            break
        for _ in range(30):
            new_value, new_law = state(beta + step)
            if new_value >= value:
                break
            step = step / 2
        else:
            break
        beta, value, law = beta + step, new_value, new_law
    return beta, law


def ridge_for(z: Array, counts: Array) -> float:
    """λ with Σ e/(e + λ) = 4 over the eigenvalues e of n·Cov(z) under the fit of all y without a penalty."""
    _, law = lindsey(z, counts, np.ones(len(z)), 0.0, counts.sum())
    values = np.maximum(counts.sum() * np.linalg.eigvalsh(covariance(z, law)), 0.0)
    values = values[values > 1e-12 * values.max()]
    if len(values) <= DEGREES_OF_FREEDOM:
        return 0.0
    return float(brentq(lambda ridge: np.sum(values / (values + ridge)) - DEGREES_OF_FREEDOM, 0.0, values.sum()))
