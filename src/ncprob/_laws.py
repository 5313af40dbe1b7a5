"""Conditional laws in closed form, batched over conditions: the exact truths behind `ncprob.datasets`.

Public methods check and shape their argument; the private ones hold the formula, on arrays that
broadcast against parameters of shape (m, 1).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

FloatArray = NDArray[np.float64]
RandomState = int | np.random.Generator | None
Formula = Callable[[FloatArray], FloatArray]


def check_count(value: object, name: str) -> int:
    """Return `value` as an int of at least one."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"`{name}` must be an integer of at least 1; got {value!r}. Ask for one or more.")
    return int(value)


def _bisect(function: Formula, low: FloatArray, high: FloatArray) -> FloatArray:
    """Find the roots of an increasing `function`, elementwise, between `low` and `high`.

    Plain bisection, to 2⁻⁵² of the bracket: slower than Newton's method, but safe where the density is
    almost zero, as it is between the modes of a mixture.
    """
    for _ in range(52):
        middle = 0.5 * (low + high)
        below = function(middle) < 0
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return 0.5 * (low + high)


class ConditionalLaw(ABC):
    """The exact law of Y given X = x, for m values of x at once.

    A scalar argument gives an answer of shape (m,), a vector of g values one of shape (m, g). A matrix
    of shape (m, g) asks each condition about its own values.

    Examples
    --------
    >>> law = LocationScaleLaw([0.0, 1.0], [1.0, 2.0], stats.norm)
    >>> law.cdf(0.0).round(3)
    array([0.5  , 0.309])
    >>> law.quantile([0.1, 0.5, 0.9]).shape
    (2, 3)
    """

    n_conditions: int

    def __len__(self) -> int:
        return self.n_conditions

    def pdf(self, t: ArrayLike) -> FloatArray:
        """Density at `t`; for a discrete law, the probability of the value `t`."""
        return self._answer(self._pdf, t, "t")

    def cdf(self, t: ArrayLike) -> FloatArray:
        """P(Y ≤ t | X = x)."""
        return self._answer(self._cdf, t, "t")

    def quantile(self, q: ArrayLike) -> FloatArray:
        """Smallest t with P(Y ≤ t | X = x) ≥ q, for q in [0, 1]."""
        levels = np.asarray(q, dtype=float)
        if not np.all((levels >= 0) & (levels <= 1)):
            raise ValueError(f"`q` must lie in [0, 1]; got {q!r}. Pass probabilities, not percentages.")
        return self._answer(self._quantile, levels, "q")

    @abstractmethod
    def mean(self) -> FloatArray:
        """E[Y | X = x], shape (m,)."""

    @abstractmethod
    def var(self) -> FloatArray:
        """Var[Y | X = x], shape (m,)."""

    def std(self) -> FloatArray:
        """Return the standard deviation of Y given X = x, shape (m,)."""
        return np.sqrt(self.var())

    def prob(self, low: float, high: float) -> FloatArray:
        """P(low < Y ≤ high | X = x), shape (m,)."""
        if not low <= high:
            raise ValueError(f"`low` must be at most `high`; got {low!r} and {high!r}. Swap the two ends.")
        return self.cdf(high) - self.cdf(low)

    def interval(self, coverage: float = 0.9, kind: str = "shortest") -> FloatArray:
        """Return an interval that holds Y with probability `coverage`, shape (m, 2).

        `kind` is ``"shortest"`` (of all intervals, the one of least width) or ``"central"`` (equal tails).
        """
        if not 0 < coverage < 1:
            raise ValueError(f"`coverage` must lie in (0, 1); got {coverage!r}. Pass 0.9 for 90 %.")
        if kind not in ("shortest", "central"):
            raise ValueError(f'`kind` must be "shortest" or "central"; got {kind!r}. Choose one of the two.')
        tail = np.full((len(self), 1), 0.5 * (1 - coverage))
        return self._shortest(coverage) if kind == "shortest" else self._interval_above(tail, coverage)

    def sample(self, size: int = 1, random_state: RandomState = None) -> FloatArray:
        """Draw `size` values per condition, shape (m, size)."""
        return self._sample(check_count(size, "size"), np.random.default_rng(random_state))

    @abstractmethod
    def _pdf(self, t: FloatArray) -> FloatArray: ...

    @abstractmethod
    def _cdf(self, t: FloatArray) -> FloatArray: ...

    @abstractmethod
    def _quantile(self, q: FloatArray) -> FloatArray: ...

    @abstractmethod
    def _sample(self, size: int, rng: np.random.Generator) -> FloatArray: ...

    def _answer(self, formula: Formula, points: ArrayLike, name: str) -> FloatArray:
        """Apply `formula` to points spread over the conditions, and give back the shape asked for."""
        values = np.asarray(points, dtype=float)
        if values.ndim > 2 or (values.ndim == 2 and len(values) != len(self)):
            raise ValueError(
                f"`{name}` must be a scalar, a vector, or a matrix with {len(self)} rows, one per condition; "
                f"got shape {values.shape}. Pass a vector to ask every condition about the same values."
            )
        spread = np.broadcast_to(np.atleast_2d(values), (len(self), values.shape[-1] if values.ndim else 1))
        answer = formula(spread)
        return answer[:, 0] if values.ndim == 0 else answer

    def _interval_above(self, tail: FloatArray, coverage: float) -> FloatArray:
        """Return the interval that leaves probability `tail` below it and `1 - coverage - tail` above."""
        return self._quantile(np.hstack([tail, np.minimum(tail + coverage, 1.0)]))

    def _shortest(self, coverage: float) -> FloatArray:
        """Minimise Q(p + coverage) − Q(p) over p: a grid first, as laws may have modes, then zoom in.

        Every grid holds the best p so far, and the first one the central p.
        """
        room = 1 - coverage
        best, step, reach = np.full((len(self), 1), room / 2), room / 64, 32
        for _ in range(7):
            tails = np.clip(best + step * np.arange(-reach, reach + 1), 0.0, room)
            width = self._quantile(np.minimum(tails + coverage, 1.0)) - self._quantile(tails)
            best = np.take_along_axis(tails, np.argmin(width, axis=1)[:, None], axis=1)
            step, reach = step / 6, 6
        return self._interval_above(best, coverage)


def _parameter(values: ArrayLike) -> FloatArray:
    """Store one parameter value per condition as a column."""
    return np.asarray(values, dtype=float).reshape(-1, 1)


def _check_scale(scale: FloatArray) -> FloatArray:
    """Return `scale` if positive: it is not where a model's x lies outside the support of X."""
    if not np.all(scale > 0):
        raise ValueError(
            f"`x` must lie in the support of X, where the scale of Y is positive; got a scale of "
            f"{np.min(scale):.3g}. Keep the rows that the model's `sample` could give."
        )
    return scale


class LocationScaleLaw(ConditionalLaw):
    """Y = location + scale · Z with Z of a fixed, symmetric, unimodal law of `scipy.stats`."""

    def __init__(self, location: ArrayLike, scale: ArrayLike, standard: Any) -> None:
        self.location, self.scale = _parameter(location), _check_scale(_parameter(scale))
        self.standard, self.n_conditions = standard, len(self.location)

    def mean(self) -> FloatArray:
        """E[Y | X = x], shape (m,); NaN where the law has none."""
        return self.location[:, 0] + self.scale[:, 0] * self.standard.mean()

    def var(self) -> FloatArray:
        """Var[Y | X = x], shape (m,); NaN where the law has none."""
        return self.scale[:, 0] ** 2 * self.standard.var()

    def _pdf(self, t: FloatArray) -> FloatArray:
        return self.standard.pdf((t - self.location) / self.scale) / self.scale

    def _cdf(self, t: FloatArray) -> FloatArray:
        return self.standard.cdf((t - self.location) / self.scale)

    def _quantile(self, q: FloatArray) -> FloatArray:
        return self.location + self.scale * self.standard.ppf(q)

    def _sample(self, size: int, rng: np.random.Generator) -> FloatArray:
        return self.location + self.scale * self.standard.rvs(size=(len(self), size), random_state=rng)

    def _shortest(self, coverage: float) -> FloatArray:
        return self._interval_above(np.full((len(self), 1), 0.5 * (1 - coverage)), coverage)


class SkewNormalLaw(ConditionalLaw):
    """Skew-normal law with density 2/ω φ(z) Φ(αz), z = (t − ξ)/ω (Azzalini, 1985)."""

    def __init__(self, location: ArrayLike, scale: ArrayLike, shape: ArrayLike) -> None:
        self.location, self.scale = _parameter(location), _check_scale(_parameter(scale))
        self.shape = _parameter(shape)
        self.delta = self.shape / np.sqrt(1 + self.shape**2)  # correlation of Y with its hidden half-normal
        self.n_conditions = len(self.location)

    def mean(self) -> FloatArray:
        """E[Y | X = x] = ξ + ωδ√(2/π), shape (m,)."""
        return (self.location + self.scale * self.delta * np.sqrt(2 / np.pi))[:, 0]

    def var(self) -> FloatArray:
        """Var[Y | X = x] = ω²(1 − 2δ²/π), shape (m,)."""
        return (self.scale**2 * (1 - 2 * self.delta**2 / np.pi))[:, 0]

    def _pdf(self, t: FloatArray) -> FloatArray:
        z = (t - self.location) / self.scale
        return 2 / self.scale * stats.norm.pdf(z) * special.ndtr(self.shape * z)

    def _cdf(self, t: FloatArray) -> FloatArray:
        z = (t - self.location) / self.scale
        return np.clip(special.ndtr(z) - 2 * special.owens_t(z, self.shape), 0.0, 1.0)

    def _quantile(self, q: FloatArray) -> FloatArray:
        # the law grows with its shape from that of −|Z| to that of |Z|, Z normal: these enclose all others
        low, high = special.ndtri(q / 2), special.ndtri(0.5 + q / 2)
        inside = (q > 0) & (q < 1)
        start = [self.location + self.scale * np.where(inside, end, 0.0) for end in (low, high)]
        root = _bisect(lambda t: self._cdf(t) - q, *start)
        return np.where(inside, root, np.where(q > 0, np.inf, -np.inf))

    def _sample(self, size: int, rng: np.random.Generator) -> FloatArray:
        hidden, free = rng.standard_normal((2, len(self), size))
        return self.location + self.scale * (self.delta * np.abs(hidden) + np.sqrt(1 - self.delta**2) * free)


class NormalMixtureLaw(ConditionalLaw):
    """Mixture of k normal laws, Σⱼ wⱼ N(μⱼ, σⱼ²), with parameters of shape (m, k) or (k,)."""

    def __init__(self, weights: ArrayLike, means: ArrayLike, scales: ArrayLike) -> None:
        arrays = (np.atleast_2d(np.asarray(a, dtype=float)) for a in (weights, means, scales))
        self.weights, self.means, self.scales = np.broadcast_arrays(*arrays)
        _check_scale(self.scales)
        self.n_conditions = len(self.weights)

    def mean(self) -> FloatArray:
        """E[Y | X = x], shape (m,)."""
        return np.sum(self.weights * self.means, axis=1)

    def var(self) -> FloatArray:
        """Var[Y | X = x]: the mean of the variances plus the variance of the means, shape (m,)."""
        spread = (self.means - self.mean()[:, None]) ** 2
        return np.sum(self.weights * (self.scales**2 + spread), axis=1)

    def _mix(self, formula: Callable[[FloatArray, FloatArray, FloatArray], FloatArray]) -> FloatArray:
        """Sum `formula(weight, mean, scale)` over the components, one (m, g) array at a time."""
        parts = zip(self.weights.T, self.means.T, self.scales.T, strict=True)
        return sum((formula(w[:, None], mu[:, None], sigma[:, None]) for w, mu, sigma in parts), start=np.zeros(()))

    def _pdf(self, t: FloatArray) -> FloatArray:
        return self._mix(lambda w, mu, sigma: w * stats.norm.pdf((t - mu) / sigma) / sigma)

    def _cdf(self, t: FloatArray) -> FloatArray:
        return self._mix(lambda w, mu, sigma: w * special.ndtr((t - mu) / sigma))

    def _quantile(self, q: FloatArray) -> FloatArray:
        inside = (q > 0) & (q < 1)
        z = np.where(inside, special.ndtri(np.where(inside, q, 0.5)), 0.0)
        ends = self.means[:, None, :] + self.scales[:, None, :] * z[:, :, None]
        # a quantile of a mixture lies between those of its components
        root = _bisect(lambda t: self._cdf(t) - q, ends.min(axis=2), ends.max(axis=2))
        return np.where(inside, root, np.where(q > 0, np.inf, -np.inf))

    def _sample(self, size: int, rng: np.random.Generator) -> FloatArray:
        component = _choose(self.weights, size, rng)
        mean, scale = (np.take_along_axis(a, component, axis=1) for a in (self.means, self.scales))
        return mean + scale * rng.standard_normal(component.shape)


class DiscreteLaw(ConditionalLaw):
    """Law on finitely many increasing values: P(Y = support[j] | X = xᵢ) = probabilities[i, j]."""

    def __init__(self, support: ArrayLike, probabilities: ArrayLike) -> None:
        self.support = np.asarray(support)
        self.probabilities = np.atleast_2d(np.asarray(probabilities, dtype=float))
        self.n_conditions = len(self.probabilities)

    def mean(self) -> FloatArray:
        """E[Y | X = x], shape (m,)."""
        return self.probabilities @ self.support

    def var(self) -> FloatArray:
        """Var[Y | X = x], shape (m,)."""
        return np.sum(self.probabilities * (self.support - self.mean()[:, None]) ** 2, axis=1)

    def _pdf(self, t: FloatArray) -> FloatArray:
        return np.sum(self.probabilities[:, None, :] * (t[:, :, None] == self.support), axis=2)

    def _cdf(self, t: FloatArray) -> FloatArray:
        return np.sum(self.probabilities[:, None, :] * (t[:, :, None] >= self.support), axis=2)

    def _quantile(self, q: FloatArray) -> FloatArray:
        # at q = 0 the smallest value that can occur; the slack forgives sums such as 0.2 + 0.2 + 0.2
        level = np.maximum(q, 1e-9)[:, :, None] - 1e-12
        reached = np.cumsum(self.probabilities, axis=1)[:, None, :] >= level
        return self.support[np.argmax(reached, axis=2)].astype(float)

    def _sample(self, size: int, rng: np.random.Generator) -> Any:
        return self.support[_choose(self.probabilities, size, rng)]

    def _shortest(self, coverage: float) -> FloatArray:
        first, last = np.triu_indices(len(self.support))
        total = np.pad(np.cumsum(self.probabilities, axis=1), ((0, 0), (1, 0)))
        enough = total[:, last + 1] - total[:, first] >= coverage - 1e-12
        best = np.argmin(np.where(enough, self.support[last] - self.support[first], np.inf), axis=1)
        return np.stack([self.support[first[best]], self.support[last[best]]], axis=1).astype(float)


def _choose(weights: FloatArray, size: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Draw `size` column indices per row of `weights`, by inverting its cumulative sum."""
    edges = np.cumsum(weights, axis=1)[:, :-1] / np.sum(weights, axis=1, keepdims=True)
    return np.sum(rng.random((len(weights), size, 1)) >= edges[:, None, :], axis=2)
