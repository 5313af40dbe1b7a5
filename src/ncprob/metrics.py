"""Scores and distances for conditional laws: arrays in, numbers out; nothing here knows a model.

Conditions or observations run along the first axis, grid points, levels or atoms along the last one.
Functions with ``average=True`` give one number, the mean over conditions weighted by `sample_weight`; with
``average=False`` they give one value per condition.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats
from sklearn.isotonic import isotonic_regression

__all__ = [
    "UniformityTest",
    "crps_from_atoms",
    "crps_from_quantiles",
    "hellinger",
    "interval_coverage",
    "interval_score",
    "interval_width",
    "jensen_shannon",
    "kl_divergence",
    "ks_distance",
    "ks_distance_paper",
    "pinball_loss",
    "pit_uniformity",
    "total_variation",
    "wasserstein1",
]

FloatArray = NDArray[np.float64]
Weights = ArrayLike | None


class UniformityTest(NamedTuple):
    """Kolmogorov–Smirnov statistic against the uniform law on [0, 1] and its p-value."""

    statistic: float
    pvalue: float


def _summarise(values: FloatArray, average: bool, sample_weight: Weights) -> float | FloatArray:
    """Average over the conditions if asked to."""
    if not average:
        return values
    weight = None if sample_weight is None else np.asarray(sample_weight, dtype=float)
    if weight is not None and weight.shape != values.shape:
        raise ValueError(
            f"`sample_weight` must have shape {values.shape}, one weight per condition; got {weight.shape}. "
            "Pass one weight per row."
        )
    return float(np.average(values, weights=weight))


def _same_shape(first: ArrayLike, second: ArrayLike, names: str) -> tuple[FloatArray, FloatArray]:
    """Return both as arrays of one common shape with a last axis."""
    a, b = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    if a.shape != b.shape or a.ndim == 0:
        raise ValueError(
            f"{names} must have the same shape, (conditions, grid) or (grid,); got {a.shape} and {b.shape}. "
            "Evaluate both on the same conditions and the same grid."
        )
    return a, b


def _check_grid(grid: ArrayLike, size: int) -> FloatArray:
    """Return `grid` if it is increasing and has `size` points."""
    points = np.asarray(grid, dtype=float)
    if points.shape != (size,) or not np.all(np.diff(points) > 0):
        raise ValueError(
            f"`grid` must be an increasing vector of {size} values, one per column; got shape "
            f"{points.shape}. Pass the values at which both arguments were evaluated, sorted and distinct."
        )
    return points


def _densities(p: ArrayLike, q: ArrayLike, grid: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return two checked densities and their grid."""
    first, second = _same_shape(p, q, "`p` and `q`")
    if np.any(first < 0) or np.any(second < 0):
        lowest = min(first.min(), second.min())
        raise ValueError(f"`p` and `q` must not be negative; got {lowest:.3g}. Clip the densities at zero.")
    return first, second, _check_grid(grid, first.shape[-1])


def _integral(values: FloatArray, grid: FloatArray) -> FloatArray:
    """Trapezoidal rule along the last axis, with the spacing of the grid."""
    return np.asarray(np.trapezoid(values, grid, axis=-1))


def _observations(y: ArrayLike, answers: ArrayLike, name: str) -> tuple[FloatArray, FloatArray]:
    """Return y as a column and `answers` as a matrix with one row per observation."""
    column, rows = np.asarray(y, dtype=float).reshape(-1, 1), np.asarray(answers, dtype=float)
    if rows.ndim != 2 or len(rows) != len(column):
        raise ValueError(
            f"`{name}` must be a matrix with {len(column)} rows, one per value of `y`; got shape "
            f"{rows.shape}. Pass one row per observation."
        )
    return column, rows


def ks_distance(
    cdf: ArrayLike, true_cdf: ArrayLike, *, average: bool = True, sample_weight: Weights = None
) -> float | FloatArray:
    """Kolmogorov–Smirnov distance sup_t |F(t) − G(t)|, the supremum taken over the grid.

    References
    ----------
    Gibbs, Su. On choosing and bounding probability metrics. Int. Stat. Rev. 70, 2002.

    Examples
    --------
    >>> ks_distance([[0.0, 0.4, 1.0], [0.1, 0.5, 1.0]], [[0.0, 0.5, 1.0], [0.4, 0.5, 1.0]])
    0.2
    """
    first, second = _same_shape(cdf, true_cdf, "`cdf` and `true_cdf`")
    return _summarise(np.max(np.abs(first - second), axis=-1), average, sample_weight)


def ks_distance_paper(
    cdf: ArrayLike, true_cdf: ArrayLike, *, average: bool = True, sample_weight: Weights = None
) -> float | FloatArray:
    """Kolmogorov–Smirnov distance after repair of both functions, as in the tables of the NCP paper.

    Each function is made increasing by isotonic regression along the grid and divided by its last value, so
    mass outside the grid is not seen. Use `ks_distance` for everything but a comparison with those tables.

    References
    ----------
    Kostic et al. Neural Conditional Probability for Uncertainty Quantification. NeurIPS, 2024.

    Examples
    --------
    >>> ks_distance_paper([0.0, 0.25, 0.5], [0.0, 0.5, 1.0])
    0.0
    """
    first, second = _same_shape(cdf, true_cdf, "`cdf` and `true_cdf`")
    return ks_distance(_repair(first), _repair(second), average=average, sample_weight=sample_weight)


def _repair(cdf: FloatArray) -> FloatArray:
    """Isotonise each row and divide it by its last value; a row without mass becomes zero."""
    rows = np.stack([isotonic_regression(row) for row in cdf.reshape(-1, cdf.shape[-1])])
    last = rows[:, -1:]
    return np.divide(rows, last, out=np.zeros_like(rows), where=last > 0).reshape(cdf.shape)


def pinball_loss(
    y: ArrayLike,
    quantiles: ArrayLike,
    alpha: ArrayLike,
    *,
    average: bool = True,
    sample_weight: Weights = None,
) -> float | FloatArray:
    """Pinball loss max(α(y − q), (α − 1)(y − q)), averaged over the levels `alpha` if there are several.

    `quantiles` has shape (n,) for a scalar `alpha` and (n, k) for k levels.

    References
    ----------
    Koenker, Bassett. Regression quantiles. Econometrica 46, 1978.

    Examples
    --------
    >>> pinball_loss([1.0, 2.0], [0.0, 3.0], 0.9)
    0.5
    """
    answers = np.asarray(quantiles, dtype=float)
    values, answers = _observations(y, answers[:, None] if answers.ndim == 1 else answers, "quantiles")
    levels = _check_levels(alpha, answers.shape[1], "alpha")
    loss = np.mean(_pinball(values - answers, levels), axis=1)
    return _summarise(loss, average, sample_weight)


def _pinball(error: FloatArray, levels: FloatArray) -> FloatArray:
    """Pinball loss of the errors y − q, elementwise."""
    return np.maximum(levels * error, (levels - 1) * error)


def _check_levels(levels: ArrayLike, size: int, name: str) -> FloatArray:
    """Return `size` probabilities in (0, 1)."""
    values = np.atleast_1d(np.asarray(levels, dtype=float))
    if values.shape != (size,) or not np.all((values > 0) & (values < 1)):
        raise ValueError(
            f"`{name}` must hold {size} value(s) in (0, 1), one per column of `quantiles`; got {levels!r}. "
            "Pass the levels that the quantiles belong to."
        )
    return values


def crps_from_quantiles(
    y: ArrayLike,
    quantiles: ArrayLike,
    levels: ArrayLike,
    *,
    average: bool = True,
    sample_weight: Weights = None,
) -> float | FloatArray:
    """Continuous ranked probability score 2 ∫₀¹ ρ_α(y − q_α) dα from the quantiles at k increasing levels.

    ρ is the pinball loss. Each level stands for the levels nearest to it, up to 0 and 1 at the ends; at the
    levels (j − ½)/k this is exactly the score of k atoms of equal weight at the quantiles.

    References
    ----------
    Laio, Tamea. Verification tools for probabilistic forecasts. Hydrol. Earth Syst. Sci. 11, 2007.
    Bröcker. Evaluating raw ensembles with the CRPS. Q. J. R. Meteorol. Soc. 138, 2012.

    Examples
    --------
    >>> crps_from_quantiles([0.0], [[-1.0, 1.0]], [0.25, 0.75])
    0.5
    """
    values, answers = _observations(y, quantiles, "quantiles")
    steps = _check_levels(levels, answers.shape[1], "levels")
    if not np.all(np.diff(steps) > 0):
        raise ValueError(f"`levels` must increase; got {levels!r}. Sort them and the columns of `quantiles`.")
    share = np.diff(np.concatenate([[0.0], 0.5 * (steps[1:] + steps[:-1]), [1.0]]))
    return _summarise(2 * _pinball(values - answers, steps) @ share, average, sample_weight)


def crps_from_atoms(
    y: ArrayLike,
    atoms: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    average: bool = True,
    sample_weight: Weights = None,
) -> float | FloatArray:
    """Continuous ranked probability score E|A − y| − ½ E|A − A′| of weighted atoms, exactly.

    `atoms` and `weights` have shape (n, k), or (k,) if all observations share them; weights need not sum to
    one, and None means equal ones. Sorting makes the double sum a single one: O(k log k) per row.

    References
    ----------
    Gneiting, Raftery. Strictly proper scoring rules, prediction, and estimation. JASA 102, 2007.

    Examples
    --------
    >>> crps_from_atoms([0.0, 1.0], [-1.0, 1.0], average=False)
    array([0.5, 0.5])
    """
    places = np.asarray(atoms, dtype=float)
    if places.ndim == 1:
        places = np.broadcast_to(places, (np.size(y), len(places)))
    column, places = _observations(y, places, "atoms")
    order = np.argsort(places, axis=1)
    mass = np.take_along_axis(_atom_weights(weights, places.shape), order, axis=1)
    # distances from y rather than places: no cancellation when y is far from zero
    signed = np.take_along_axis(places, order, axis=1) - column
    below = np.cumsum(mass, axis=1) - mass
    half_spread = np.sum(mass * signed * (2 * below + mass - 1), axis=1)
    return _summarise(np.sum(mass * np.abs(signed), axis=1) - half_spread, average, sample_weight)


def _atom_weights(weights: ArrayLike | None, shape: tuple[int, ...]) -> FloatArray:
    """Return the weights of atoms of the given shape, each row summing to one."""
    mass = np.ones(shape) if weights is None else np.asarray(weights, dtype=float)
    if mass.shape not in (shape, shape[1:]) or np.any(mass < 0) or np.any(mass.sum(axis=-1) <= 0):
        raise ValueError(
            f"`weights` must be non-negative with a positive sum in each row, of shape {shape} "
            f"or {shape[1:]} like `atoms`; got shape {mass.shape}. Clip negatives, drop empty rows."
        )
    return np.broadcast_to(mass / mass.sum(axis=-1, keepdims=True), shape)


def _interval_ends(interval: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Split intervals of shape (n, 2) in their lower and upper ends."""
    ends = np.asarray(interval, dtype=float)
    if ends.ndim != 2 or ends.shape[1] != 2 or np.any(ends[:, 0] > ends[:, 1]):
        raise ValueError(
            f"`interval` must have shape (n, 2), the lower end not above the upper one; got shape "
            f"{ends.shape}. Stack the two ends with `np.stack([lower, upper], axis=1)`."
        )
    return ends[:, 0], ends[:, 1]


def interval_coverage(y: ArrayLike, interval: ArrayLike, *, sample_weight: Weights = None) -> float:
    """Share of the y that lie in their closed interval, the empirical P(lower ≤ Y ≤ upper).

    References
    ----------
    Gneiting, Raftery. Strictly proper scoring rules, prediction, and estimation. JASA 102, 2007.

    Examples
    --------
    >>> interval_coverage([0.0, 2.0], [[-1.0, 1.0], [-1.0, 1.0]])
    0.5
    """
    values, _ = _observations(y, interval, "interval")
    lower, upper = _interval_ends(interval)
    inside = (values[:, 0] >= lower) & (values[:, 0] <= upper)
    return float(_summarise(inside.astype(float), True, sample_weight))


def interval_width(interval: ArrayLike, *, average: bool = True, sample_weight: Weights = None) -> float | FloatArray:
    """Width u − l of each interval [l, u].

    References
    ----------
    Gneiting, Raftery. Strictly proper scoring rules, prediction, and estimation. JASA 102, 2007.

    Examples
    --------
    >>> interval_width([[-1.0, 1.0], [0.0, 1.0]])
    1.5
    """
    lower, upper = _interval_ends(interval)
    return _summarise(upper - lower, average, sample_weight)


def interval_score(
    y: ArrayLike, interval: ArrayLike, coverage: float, *, average: bool = True, sample_weight: Weights = None
) -> float | FloatArray:
    """Winkler's score (u − l) + 2/α (l − y)₊ + 2/α (y − u)₊ with α = 1 − coverage.

    Its expectation is smallest at the central interval of the true law.

    References
    ----------
    Winkler. A decision-theoretic approach to interval estimation. JASA 67, 1972.

    Examples
    --------
    >>> interval_score([0.0, 2.0], [[-1.0, 1.0], [-1.0, 1.0]], coverage=0.5, average=False)
    array([2., 6.])
    """
    if not 0 < coverage < 1:
        raise ValueError(f"`coverage` must lie in (0, 1); got {coverage!r}. Pass 0.9 for 90 %.")
    values, _ = _observations(y, interval, "interval")
    lower, upper = _interval_ends(interval)
    missed = np.maximum(lower - values[:, 0], 0) + np.maximum(values[:, 0] - upper, 0)
    return _summarise(upper - lower + 2 / (1 - coverage) * missed, average, sample_weight)


def pit_uniformity(pit: ArrayLike) -> UniformityTest:
    """Kolmogorov–Smirnov test that the values F(yᵢ | xᵢ) are uniform, as they are under the true law.

    References
    ----------
    Gneiting, Balabdaoui, Raftery. Probabilistic forecasts, calibration and sharpness. JRSS B 69, 2007.

    Examples
    --------
    >>> pit_uniformity([0.125, 0.375, 0.625, 0.875])
    UniformityTest(statistic=0.125, pvalue=1.0)
    """
    values = np.asarray(pit, dtype=float).ravel()
    if values.size == 0 or not np.all((values >= 0) & (values <= 1)):
        raise ValueError(f"`pit` must hold values in [0, 1]; got {pit!r}. Pass the CDF at each y.")
    result = stats.kstest(values, "uniform")
    return UniformityTest(float(result.statistic), float(result.pvalue))


def hellinger(
    p: ArrayLike, q: ArrayLike, grid: ArrayLike, *, average: bool = True, sample_weight: Weights = None
) -> float | FloatArray:
    """Hellinger distance (½ ∫ (√p − √q)²)^½ of two densities on a grid, in [0, 1].

    References
    ----------
    Gibbs, Su. On choosing and bounding probability metrics. Int. Stat. Rev. 70, 2002.

    Examples
    --------
    >>> grid = np.linspace(-9, 9, 400)
    >>> p, q = stats.norm.pdf(grid), stats.norm.pdf(grid, 1)
    >>> round(hellinger(p, q, grid) ** 2, 6), round(1 - float(np.exp(-1 / 8)), 6)  # the closed form
    (0.117503, 0.117503)
    """
    first, second, points = _densities(p, q, grid)
    squared = 0.5 * _integral((np.sqrt(first) - np.sqrt(second)) ** 2, points)
    return _summarise(np.sqrt(squared), average, sample_weight)


def total_variation(
    p: ArrayLike, q: ArrayLike, grid: ArrayLike, *, average: bool = True, sample_weight: Weights = None
) -> float | FloatArray:
    """Total variation ½ ∫ |p − q| of two densities on a grid: the largest gap in the probability of a set.

    References
    ----------
    Gibbs, Su. On choosing and bounding probability metrics. Int. Stat. Rev. 70, 2002.

    Examples
    --------
    >>> grid = np.linspace(-9, 9, 400)
    >>> round(total_variation(stats.norm.pdf(grid), stats.norm.pdf(grid, 1), grid), 3)
    0.383
    """
    first, second, points = _densities(p, q, grid)
    return _summarise(0.5 * _integral(np.abs(first - second), points), average, sample_weight)


def kl_divergence(
    p: ArrayLike, q: ArrayLike, grid: ArrayLike, *, average: bool = True, sample_weight: Weights = None
) -> float | FloatArray:
    """Kullback–Leibler divergence ∫ p log(p/q), in nats, of `q` from `p` (the truth, usually) on a grid.

    Infinite where q vanishes and p does not. The form p log(p/q) − p + q is integrated: it has the same
    integral for densities, and is never negative even when the grid cuts off some mass.

    References
    ----------
    Kullback, Leibler. On information and sufficiency. Ann. Math. Statist. 22, 1951.

    Examples
    --------
    >>> grid = np.linspace(-9, 9, 400)
    >>> round(kl_divergence(stats.norm.pdf(grid), stats.norm.pdf(grid, 1), grid), 6)
    0.5
    """
    first, second, points = _densities(p, q, grid)
    return _summarise(_integral(special.kl_div(first, second), points), average, sample_weight)


def jensen_shannon(
    p: ArrayLike, q: ArrayLike, grid: ArrayLike, *, average: bool = True, sample_weight: Weights = None
) -> float | FloatArray:
    """Jensen–Shannon divergence ½ KL(p‖m) + ½ KL(q‖m) with m = (p + q)/2, in [0, log 2].

    References
    ----------
    Lin. Divergence measures based on the Shannon entropy. IEEE Trans. Inf. Theory 37, 1991.

    Examples
    --------
    >>> grid = np.linspace(0, 4, 401)
    >>> p, q = np.where(grid < 2, 0.5, 0.0), np.where(grid < 2, 0.0, 0.5)
    >>> round(jensen_shannon(p, q, grid), 2)  # log 2
    0.69
    """
    first, second, points = _densities(p, q, grid)
    middle = np.maximum(0.5 * (first + second), np.finfo(float).tiny)  # half of the least number is zero
    gain = 0.5 * (special.rel_entr(first, middle) + special.rel_entr(second, middle))
    return _summarise(_integral(gain, points), average, sample_weight)


def wasserstein1(
    cdf: ArrayLike,
    other_cdf: ArrayLike,
    grid: ArrayLike,
    *,
    average: bool = True,
    sample_weight: Weights = None,
) -> float | FloatArray:
    """Wasserstein-1 distance ∫ |F(t) − G(t)| dt of two distribution functions on a grid.

    References
    ----------
    Villani. Optimal Transport: Old and New. Springer, 2009.

    Examples
    --------
    >>> grid = np.linspace(-9, 9, 400)
    >>> round(wasserstein1(stats.norm.cdf(grid), stats.norm.cdf(grid, 1), grid), 6)
    1.0
    """
    first, second = _same_shape(cdf, other_cdf, "`cdf` and `other_cdf`")
    points = _check_grid(grid, first.shape[-1])
    return _summarise(_integral(np.abs(first - second), points), average, sample_weight)
