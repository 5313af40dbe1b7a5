"""Random processes in time with exact transition operators: Ornstein–Uhlenbeck, double well and Prinz potential.

A process is seen every `n_steps` steps of size `step`. It gives trajectories, and of the pair (x_t, x_{t+lag}), with a
lag of one frame, everything exactly: the conditional law, transition probabilities and singular values.

Between frames the chain of Euler and Maruyama, x ← x + h·drift(x) + σ√h·ξ with ξ ~ N(0, 1), is taken as the process
itself, not as an approximation of it. One step has a Gaussian kernel, so that on evenly spaced points the midpoint rule
for products of kernels converges faster than any power of the spacing: some hundred points give ten digits.

References
----------
.. [1] Prinz et al. Markov models of molecular kinetics: generation and validation. J. Chem. Phys. 134, 174105, 2011.
.. [2] Hoffmann et al. Deeptime: a Python library for machine learning dynamical models from time series data. Mach.
   Learn.: Sci. Technol. 3, 015009, 2022.
"""

import itertools
from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import signal, stats

from ncprob._laws import (
    ConditionalLaw,
    FloatArray,
    LocationScaleLaw,
    NormalMixtureLaw,
    RandomState,
    check_count,
)
from ncprob._simulator import Simulator

SPACING = 0.5  # of the points of the grid, in standard deviations of one step
REACH = 6.0  # standard deviations of one step beyond the bounds from which a step must lead back
SMALLEST_MASS = 1e-12  # of a state; the stationary law is not known better


@dataclass(frozen=True)
class Process(Simulator):
    """A stationary process in one dimension, seen in frames; X of `sample` is a frame and y the next one."""

    step: float
    n_steps: int
    n_features: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not self.step > 0:
            raise ValueError(f"`step` must be positive; got {self.step!r}. Pass a size such as 1e-3.")
        check_count(self.n_steps, "n_steps")

    def every(self, n_frames: int) -> Self:
        """The same process seen every `n_frames`-th frame only: its pairs have `n_frames` times the lag.

        Examples
        --------
        >>> OrnsteinUhlenbeck(n_steps=500).every(2).n_steps
        1000
        """
        return replace(self, n_steps=self.n_steps * check_count(n_frames, "n_frames"))

    def trajectories(self, n_frames: int, n_trajectories: int = 1, random_state: RandomState = None) -> FloatArray:
        """Independent stationary trajectories, shape (n_trajectories, n_frames); the same seed gives the same ones.

        All trajectories advance together, so many short ones are quicker than a long one.

        Examples
        --------
        >>> PrinzPotential().trajectories(5, n_trajectories=3, random_state=0).shape
        (3, 5)
        """
        frames, number = check_count(n_frames, "n_frames"), check_count(n_trajectories, "n_trajectories")
        return self._trajectories(frames, number, np.random.default_rng(random_state))

    def _sample(self, n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        first, second = self._trajectories(2, n, rng).T
        return first[:, None], second

    @abstractmethod
    def _trajectories(self, n_frames: int, number: int, rng: np.random.Generator) -> FloatArray: ...

    @abstractmethod
    def singular_values(self, k: int) -> FloatArray:
        """Leading `k` singular values of the transition operator over one frame, without its constant part."""

    @abstractmethod
    def stationary(self) -> ConditionalLaw:
        """The law of a single frame, as a law with one member."""

    def timescales(self, k: int) -> FloatArray:
        """Implied timescales −lag / log σ of the leading `k` singular values, in units of time (`step` × steps).

        Examples
        --------
        >>> OrnsteinUhlenbeck().timescales(2)
        array([1. , 0.5])
        """
        return -self.step * self.n_steps / np.log(self.singular_values(k))

    def transition_matrix(self, edges: ArrayLike) -> FloatArray:
        """P(x_{t+lag} ∈ S_j | x_t ∈ S_i) for the states S_i = (edges[i], edges[i + 1]], one row per state of x_t.

        Examples
        --------
        >>> OrnsteinUhlenbeck().transition_matrix([-np.inf, 0, np.inf]).round(4)  # ½ ± asin(a) / π
        array([[0.7074, 0.2926],
               [0.2926, 0.7074]])
        """
        borders = np.asarray(edges, dtype=float)
        if borders.ndim != 1 or len(borders) < 2 or not np.all(np.diff(borders) > 0):
            raise ValueError(
                f"`edges` must be two or more increasing numbers, the borders of the states; got {edges!r}. "
                "Use infinity for open ends."
            )
        # Gauss–Legendre panels of the stationary law between the edges of each state
        law = self.stationary()
        rows: list[FloatArray] = []
        ends = np.clip(borders, *law.quantile([1e-13, 1 - 1e-13])[0])
        nodes, weights = np.polynomial.legendre.leggauss(12)
        for low, high in itertools.pairwise(ends):
            knots = np.linspace(low, high, 33)
            radius = np.diff(knots)[:, None] / 2
            points = ((knots[1:] + knots[:-1])[:, None] / 2 + radius * nodes).ravel()
            mass = (radius * weights).ravel() * law.pdf(points)[0]
            if mass.sum() < SMALLEST_MASS:
                raise ValueError(
                    f"`edges` must be borders of states that the process visits; state {len(rows)}, from "
                    f"{borders[len(rows)]:g} to {borders[len(rows) + 1]:g}, has no mass. Choose edges among its values."
                )
            rows.append(mass @ np.diff(self.truth(points).cdf(borders), axis=1) / mass.sum())
        return np.array(rows)


@dataclass(frozen=True)
class OrnsteinUhlenbeck(Process):
    """dx = −θx dt + √2 dW: a Gaussian process whose singular values are a, a², a³, …

    Over a frame of n steps of size h, x_{t+lag} given x_t = x is N(a·x, v(1 − a²)), with a = exp(−θnh) and v = 1/θ.
    `scheme="euler"` takes the chain of Euler and Maruyama instead, as deeptime [2]_ does: a = (1 − θh)ⁿ and
    v = 2h / (1 − (1 − θh)²). The singular functions are Hermite polynomials (Mehler's formula).

    Parameters
    ----------
    theta : float
        Rate θ of return to zero; 1/θ is the slowest timescale.
    step, n_steps : float, int
        Size h of a step, and steps per frame.
    scheme : {"exact", "euler"}
        How a step is taken.

    Examples
    --------
    >>> OrnsteinUhlenbeck(scheme="euler").singular_values(3).round(4)
    array([0.6064, 0.3677, 0.223 ])
    >>> OrnsteinUhlenbeck().truth([[1.0]]).mean().round(4)
    array([0.6065])
    """

    theta: float = 1.0
    step: float = 1e-3
    n_steps: int = 500
    scheme: str = "exact"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scheme not in ("exact", "euler"):
            raise ValueError(f'`scheme` must be "exact" or "euler"; got {self.scheme!r}. Choose one of the two.')
        limit = 1.0 if self.scheme == "euler" else np.inf
        if not 0 < self.theta * self.step < limit:
            raise ValueError(
                f"`theta` must be positive, and theta·step below {limit:g}; got theta {self.theta!r} and step "
                f"{self.step!r}. Choose a smaller step."
            )

    @property
    def coefficient(self) -> float:
        """a = E[x_t x_{t+lag}] / E[x_t²], the correlation of neighbouring frames."""
        if self.scheme == "exact":
            return float(np.exp(-self.theta * self.step * self.n_steps))
        return float((1 - self.theta * self.step) ** self.n_steps)

    @property
    def variance(self) -> float:
        """Variance of a frame."""
        if self.scheme == "exact":
            return 1 / self.theta
        return 2 * self.step / (1 - (1 - self.theta * self.step) ** 2)

    def singular_values(self, k: int) -> FloatArray:
        """Leading `k` singular values a, …, aᵏ."""
        return np.float64(self.coefficient) ** np.arange(1.0, check_count(k, "k") + 1)

    def stationary(self) -> ConditionalLaw:
        """N(0, v), as a law with one member."""
        return LocationScaleLaw([0.0], [np.sqrt(self.variance)], stats.norm)

    def _trajectories(self, n_frames: int, number: int, rng: np.random.Generator) -> FloatArray:
        shocks = rng.normal(0.0, np.sqrt(self.variance), (number, n_frames))
        shocks[:, 1:] *= np.sqrt(1 - self.coefficient**2)
        return signal.lfilter([1.0], [1.0, -self.coefficient], shocks, axis=1)

    def _truth(self, x: FloatArray) -> ConditionalLaw:
        scale = np.sqrt(self.variance * (1 - self.coefficient**2))
        return LocationScaleLaw(self.coefficient * x, np.full_like(x, scale), stats.norm)


@dataclass(frozen=True)
class _Langevin(Process):
    """dx = −V'(x) dt + √2 dW by steps of Euler and Maruyama, with the transition operator on a grid."""

    bounds: ClassVar[tuple[float, float]]  # outside, the stationary law has no mass that counts

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = self.bounds
        beyond = np.linspace(0.0, REACH * self._scale, 50)
        for edge in (low - beyond, high + beyond):
            moved = self._moved(edge)
            if not np.all((np.abs(moved) <= np.abs(edge)) & (moved >= low - beyond) & (moved <= high + beyond)):
                raise ValueError(
                    f"`step` must be so small that steps from the ends of [{low:g}, {high:g}] lead back inside; got "
                    f"{self.step!r}, with which the process leaves. Choose a smaller step, such as 1e-4."
                )

    @abstractmethod
    def potential(self, x: ArrayLike) -> FloatArray:
        """V(x), in units of the thermal energy."""

    @abstractmethod
    def _force(self, x: FloatArray) -> FloatArray:
        """−V'(x)."""

    @property
    def _scale(self) -> float:
        return float(np.sqrt(2 * self.step))

    def _moved(self, x: FloatArray) -> FloatArray:
        """Mean of the next step."""
        return x + self.step * self._force(x)

    @cached_property
    def grid(self) -> FloatArray:
        """Evenly spaced points that carry the transition operator, shape (g,)."""
        low, high = self.bounds
        return np.linspace(low, high, 2 + int((high - low) / (SPACING * self._scale)))

    def _kernel(self, x: FloatArray) -> FloatArray:
        """Probabilities of the points of the grid after one step from each of `x`, shape (m, g)."""
        density = np.exp(-0.5 * ((self.grid - self._moved(x)[:, None]) / self._scale) ** 2)
        return density / density.sum(axis=1, keepdims=True)

    @cached_property
    def _one_step(self) -> FloatArray:
        return self._kernel(self.grid)

    @cached_property
    def _inner_steps(self) -> FloatArray:
        """All steps of a frame but the first, which starts anywhere, and the last, which ends anywhere."""
        return np.linalg.matrix_power(self._one_step, max(0, self.n_steps - 2))

    @cached_property
    def transition_operator(self) -> FloatArray:
        """Probabilities of going from each point of `grid` to each over one frame, shape (g, g); rows add to one."""
        return np.linalg.matrix_power(self._one_step, self.n_steps)

    @cached_property
    def stationary_weights(self) -> FloatArray:
        """Stationary probabilities of the points of `grid`, shape (g,): left eigenvector of the operator."""
        size = len(self.grid)
        system = np.vstack([self._one_step.T - np.eye(size), np.ones(size)])
        weights = np.linalg.lstsq(system, np.eye(size + 1)[-1], rcond=None)[0]
        return np.maximum(weights, 0) / np.maximum(weights, 0).sum()

    def stationary(self) -> ConditionalLaw:
        """The law of a single frame, as a law with one member: one step from the weights on the grid."""
        return NormalMixtureLaw(self.stationary_weights, self._moved(self.grid), self._scale)

    def singular_values(self, k: int) -> FloatArray:
        """Leading `k` singular values of D^½ P D^{-½}, D the stationary weights, after the constant one."""
        kept = self.stationary_weights > 1e-14
        root = np.sqrt(self.stationary_weights[kept])
        scaled = root[:, None] * self.transition_operator[np.ix_(kept, kept)] / root
        return np.linalg.svd(scaled - np.outer(root, root), compute_uv=False)[: check_count(k, "k")]

    def _trajectories(self, n_frames: int, number: int, rng: np.random.Generator) -> FloatArray:
        x = self.stationary().sample(number, rng)[0]
        frames = np.empty((number, n_frames))
        frames[:, 0] = x
        for t in range(1, n_frames):
            for noise in rng.normal(0.0, self._scale, (self.n_steps, number)):
                x = self._moved(x) + noise
            frames[:, t] = x
        return frames

    def _truth(self, x: FloatArray) -> ConditionalLaw:
        if self.n_steps == 1:
            return LocationScaleLaw(self._moved(x[:, 0]), np.full(len(x), self._scale), stats.norm)
        low, high = self.bounds
        if not np.all((x >= low) & (x <= high)):
            raise ValueError(
                f"`x` must lie in [{low:g}, {high:g}], where the process lives; got values from {x.min():g} to "
                f"{x.max():g}. Leave out those outside."
            )
        weights = self._kernel(x[:, 0]) @ self._inner_steps
        return NormalMixtureLaw(weights, self._moved(self.grid), self._scale)


@dataclass(frozen=True)
class DoubleWell(_Langevin):
    """Two wells at ±1 with a barrier between them: V(x) = `barrier` · (x² − 1)², in units of the thermal energy.

    Examples
    --------
    >>> well = DoubleWell()
    >>> well.singular_values(2).round(3)
    array([0.953, 0.123])
    >>> well.transition_matrix([-np.inf, 0, np.inf]).round(3)
    array([[0.969, 0.031],
           [0.031, 0.969]])
    """

    barrier: float = 3.0
    step: float = 1e-3
    n_steps: int = 200
    bounds: ClassVar[tuple[float, float]] = (-2.6, 2.6)

    def __post_init__(self) -> None:
        if not 1 <= self.barrier <= 20:
            raise ValueError(f"`barrier` must lie in [1, 20]; got {self.barrier!r}. Choose a height between.")
        super().__post_init__()

    def potential(self, x: ArrayLike) -> FloatArray:
        """V(x), in units of the thermal energy."""
        return self.barrier * (np.asarray(x, dtype=float) ** 2 - 1) ** 2

    def _force(self, x: FloatArray) -> FloatArray:
        return -4 * self.barrier * x * (x * x - 1)


@dataclass(frozen=True)
class PrinzPotential(_Langevin):
    """Four wells of different depth, from [1]_, as simulated by deeptime [2]_.

    V(x) = 4 (x⁸ + 0.8 exp(−80x²) + 0.2 exp(−80(x − ½)²) + 0.5 exp(−40(x + ½)²)).

    Examples
    --------
    >>> prinz = PrinzPotential()
    >>> prinz.singular_values(4).round(4)
    array([0.942 , 0.674 , 0.4636, 0.0163])
    >>> (1 - prinz.truth([[-0.7]]).cdf(0.0)).round(4)
    array([0.0026])
    """

    step: float = 1e-4
    n_steps: int = 500
    bounds: ClassVar[tuple[float, float]] = (-1.5, 1.5)
    bumps: ClassVar[tuple[tuple[float, float, float], ...]] = ((0.8, 80, 0.0), (0.2, 80, 0.5), (0.5, 40, -0.5))

    def potential(self, x: ArrayLike) -> FloatArray:
        """V(x), in units of the thermal energy."""
        points: Any = np.asarray(x, dtype=float)
        return 4 * points**8 + sum(4 * a * np.exp(-b * (points - c) ** 2) for a, b, c in self.bumps)

    def _force(self, x: FloatArray) -> FloatArray:
        squared = x * x
        force = -32 * squared * squared * squared * x
        for a, b, c in self.bumps:
            shifted = x - c
            force += 8 * a * b * shifted * np.exp(-b * shifted * shifted)
        return force
