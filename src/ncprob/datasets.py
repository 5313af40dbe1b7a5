"""Simulators that carry their exact truth: draw (X, y), then ask for the law of Y given X = x.

Every model has ``sample(n)``, which gives X of shape (n, p) and y of shape (n,), and ``truth(x)``, which
gives the exact conditional law with its density, distribution function, quantiles, moments and intervals. A process in
time (`OrnsteinUhlenbeck`, `DoubleWell`, `PrinzPotential`) has ``trajectories`` too; its X is a frame and y the next.

References
----------
.. [1] Rothfuss, Ferreira, Walther, Ulrich. Conditional density estimation with neural networks: best
   practices and benchmarks. arXiv:1903.00954, 2019.
.. [2] Gao, Hastie. LinCDE: conditional density estimation via Lindsey's method. JMLR 23, 2022.
.. [3] Kostic, Lounici, Pacreau, Novelli, Turri, Pontil. Neural Conditional Probability for Uncertainty
   Quantification. NeurIPS, 2024.
"""

from abc import abstractmethod
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import signal, special, stats

from ncprob._laws import (
    ConditionalLaw,
    DiscreteLaw,
    FloatArray,
    LocationScaleLaw,
    NormalMixtureLaw,
    SkewNormalLaw,
    check_count,
)
from ncprob._simulator import Simulator, conditioning_points
from ncprob.processes import DoubleWell, OrnsteinUhlenbeck, PrinzPotential, Process

__all__ = [
    "LGGMD",
    "ArmaJump",
    "Cauchy",
    "CircleDiscrete",
    "CircleGaussian",
    "ConditionalLaw",
    "DoubleWell",
    "EconDensity",
    "GaussianMixture",
    "GaussianPair",
    "Laplace",
    "LinearGaussian",
    "OrnsteinUhlenbeck",
    "PrinzPotential",
    "Process",
    "Simulator",
    "SkewNormal",
    "TwoRegimes",
    "conditioning_points",
    "make",
    "names",
]


@dataclass(frozen=True)
class LinearGaussian(Simulator):
    """X ~ U(−1, 1), Y | X = x ~ N(x, 0.1²), from [1]_ and [3]_.

    Examples
    --------
    >>> X, y = LinearGaussian().sample(5, random_state=0)
    >>> X.shape, y.shape
    ((5, 1), (5,))
    >>> LinearGaussian().truth([[0.2]]).quantile([0.5, 0.975]).round(3)
    array([[0.2  , 0.396]])
    """

    n_features: ClassVar[int] = 1

    def _inputs(self, n: int, rng: np.random.Generator) -> FloatArray:
        return rng.uniform(-1, 1, n)

    def _truth(self, x: FloatArray) -> ConditionalLaw:
        return LocationScaleLaw(x, np.full_like(x, 0.1), stats.norm)


@dataclass(frozen=True)
class EconDensity(Simulator):
    """X ~ |N(0, 1)|, Y | X = x ~ N(x², (1 + x)²): noise that grows with x, from [1]_ and [3]_.

    Examples
    --------
    >>> law = EconDensity().truth([[0.0], [2.0]])
    >>> law.mean(), law.std()
    (array([0., 4.]), array([1., 3.]))
    """

    n_features: ClassVar[int] = 1

    def _inputs(self, n: int, rng: np.random.Generator) -> FloatArray:
        return np.abs(rng.standard_normal(n))

    def _truth(self, x: FloatArray) -> ConditionalLaw:
        return LocationScaleLaw(x**2, 1 + x, stats.norm)


@dataclass(frozen=True)
class ArmaJump(Simulator):
    """First-order autoregression with jumps, from [1]_ and [3]_: X is the value before Y in one series.

    With c = 0.1, a = 0.9 and m(x) = c(1 − a) + a·x, the law of Y given X = x is
    0.95 N(m(x), 0.05²) + 0.05 N(m(x) − 3c, 0.1²). The pairs are shuffled after a burn-in of 100 steps.

    Examples
    --------
    >>> law = ArmaJump().truth([[0.1]])
    >>> law.mean().round(3), law.prob(-0.5, -0.1).round(3)
    (array([0.085]), array([0.042]))
    """

    n_features: ClassVar[int] = 1
    level: ClassVar[float] = 0.1  # c
    persistence: ClassVar[float] = 0.9  # a
    burn_in: ClassVar[int] = 100
    jump_weights: ClassVar[tuple[float, float]] = (0.95, 0.05)
    shock_means: ClassVar[tuple[float, float]] = (0.0, -0.3)
    shock_scales: ClassVar[tuple[float, float]] = (0.05, 0.1)

    def _sample(self, n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        length = self.burn_in + n + 1
        jumps = (rng.random(length) < self.jump_weights[1]).astype(int)
        shocks = rng.normal(np.take(self.shock_means, jumps), np.take(self.shock_scales, jumps))
        # the deviation from c follows z_t = a z_{t−1} + shock_t: a linear filter of the shocks
        series = self.level + signal.lfilter([1.0], [1.0, -self.persistence], shocks)[self.burn_in :]
        order = rng.permutation(n)
        return series[:-1][order, None], series[1:][order]

    def _truth(self, x: FloatArray) -> ConditionalLaw:
        centre = self.level * (1 - self.persistence) + self.persistence * x
        return NormalMixtureLaw(self.jump_weights, centre + np.array(self.shock_means), self.shock_scales)


@dataclass(frozen=True)
class SkewNormal(Simulator):
    """X ~ N(0, 0.5²), Y | X = x skew-normal, from [1]_ and [3]_.

    Location 0.1x, scale 0.05 + 0.1x², shape −4 + 4/(1 + e⁻ˣ).

    Examples
    --------
    >>> law = SkewNormal().truth([[0.0]])
    >>> law.mean().round(4), law.quantile(0.5).round(4)
    (array([-0.0357]), array([-0.0328]))
    """

    n_features: ClassVar[int] = 1

    def _inputs(self, n: int, rng: np.random.Generator) -> FloatArray:
        return rng.normal(0.0, 0.5, n)

    def _truth(self, x: FloatArray) -> ConditionalLaw:
        return SkewNormalLaw(0.1 * x, 0.05 + 0.1 * x**2, -4 + 4 * special.expit(x))


@dataclass(frozen=True)
class GaussianMixture(Simulator):
    """Five normal clusters in the plane, X and Y independent inside each, from [1]_ and [3]_.

    The law of Y given X = x is Σⱼ πⱼ(x) N(μⱼ, σⱼ²) with πⱼ(x) the probability of cluster j given x. The
    conditional expectation operator has rank five, or four without its constant part.

    Examples
    --------
    >>> GaussianMixture().truth([[-3.0], [6.0]]).mean().round(2)
    array([2.22, 0.75])
    """

    n_features: ClassVar[int] = 1
    weights: ClassVar[tuple[float, ...]] = (0.18213446, 0.27800721, 0.27609244, 0.25265148, 0.01111442)
    x_means: ClassVar[tuple[float, ...]] = (-2.85132935, 6.37803165, -1.86192647, 2.74906778, 1.2590284)
    y_means: ClassVar[tuple[float, ...]] = (4.50682712, 0.74746629, -2.50359881, 2.12351542, 1.60247277)
    x_variances: ClassVar[tuple[float, ...]] = (0.34930497, 1.94345717, 1.71952355, 0.61868201, 1.08621625)
    y_variances: ClassVar[tuple[float, ...]] = (1.71038747, 1.6109086, 0.4624165, 4.63896369, 0.87053173)

    def _sample(self, n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        cluster = rng.choice(5, n, p=np.array(self.weights) / np.sum(self.weights))
        x = rng.normal(np.take(self.x_means, cluster), np.sqrt(np.take(self.x_variances, cluster)))
        y = rng.normal(np.take(self.y_means, cluster), np.sqrt(np.take(self.y_variances, cluster)))
        return x[:, None], y

    def _truth(self, x: FloatArray) -> ConditionalLaw:
        log_density = stats.norm.logpdf(x, self.x_means, np.sqrt(self.x_variances))
        posterior = special.softmax(np.log(self.weights) + log_density, axis=1)
        return NormalMixtureLaw(posterior, self.y_means, np.sqrt(self.y_variances))


@dataclass(frozen=True)
class LGGMD(Simulator):
    """Local Gaussian or mixture of two, with 17 idle inputs out of 20, from [2]_ and [3]_.

    X ~ U(−1, 1)²⁰. If x₂ > 0.2, Y ~ N(0.25x₁, 0.3²); else Y is one of N(0.25x₁ − 0.5, s₁²) and
    N(0.25x₁ + 0.5, s₂²) with equal chances, s₁ = 0.25(0.25x₃ + 0.5)², s₂ = 0.25(0.25x₃ − 0.5)².

    Examples
    --------
    >>> law = LGGMD().truth(np.zeros((1, 20)))
    >>> law.mean(), law.std().round(3), law.pdf(0.0).round(3)
    (array([0.]), array([0.504]), array([0.]))
    """

    n_features: ClassVar[int] = 20

    def _inputs(self, n: int, rng: np.random.Generator) -> FloatArray:
        return rng.uniform(-1, 1, (n, self.n_features))

    def _truth(self, x: FloatArray) -> ConditionalLaw:
        sign = np.array([-1.0, 1.0])
        single = x[:, 1:2] > 0.2
        # where the law is one normal, both components are that one
        means = 0.25 * x[:, :1] + np.where(single, 0.0, 0.5 * sign)
        scales = np.where(single, 0.3, 0.25 * (0.25 * x[:, 2:3] - 0.5 * sign) ** 2)
        return NormalMixtureLaw((0.5, 0.5), means, scales)


@dataclass(frozen=True)
class Laplace(Simulator):
    """X ~ U(0, 5), Y | X = x ~ Laplace(x², x), from [3]_.

    Examples
    --------
    >>> Laplace().truth([[2.0]]).interval(0.9).round(3)
    array([[-0.605,  8.605]])
    """

    n_features: ClassVar[int] = 1

    def _inputs(self, n: int, rng: np.random.Generator) -> FloatArray:
        return 5.0 - rng.uniform(0, 5, n)  # in (0, 5]: the law has no density at x = 0

    def _truth(self, x: FloatArray) -> ConditionalLaw:
        return LocationScaleLaw(x**2, x, stats.laplace)


@dataclass(frozen=True)
class Cauchy(Simulator):
    """X ~ U(0, 5), Y | X = x ~ Cauchy(x², 1 + x), from [3]_: no mean and no variance (both are NaN).

    Examples
    --------
    >>> law = Cauchy().truth([[2.0]])
    >>> law.quantile([0.25, 0.5, 0.75]), law.mean()
    (array([[1., 4., 7.]]), array([nan]))
    """

    n_features: ClassVar[int] = 1

    def _inputs(self, n: int, rng: np.random.Generator) -> FloatArray:
        return rng.uniform(0, 5, n)

    def _truth(self, x: FloatArray) -> ConditionalLaw:
        return LocationScaleLaw(x**2, 1 + x, stats.cauchy)


@dataclass(frozen=True)
class _Circle(Simulator):
    """Angles θ ~ U(0, 2π) seen as points of a randomly oriented circle in Rᵈ."""

    dimension: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        if check_count(self.dimension, "dimension") < 2:
            raise ValueError(
                f"`dimension` must be at least 2 to hold a circle; got {self.dimension}. Raise `dimension`."
            )

    @property
    def n_features(self) -> int:
        """Number of columns of X, the same as `dimension`."""
        return self.dimension

    @cached_property
    def _plane(self) -> FloatArray:
        """First two columns of a uniformly random orthogonal matrix, all that the rotation needs."""
        gaussian = np.random.default_rng(self.seed).standard_normal((self.dimension, 2))
        orthonormal, triangular = np.linalg.qr(gaussian)
        return orthonormal * np.sign(np.diag(triangular))

    def points(self, theta: ArrayLike) -> FloatArray:
        """Rows of X at the angles `theta`, shape (m, d)."""
        angles = np.atleast_1d(np.asarray(theta, dtype=float))
        return np.stack([np.cos(angles), np.sin(angles)], axis=1) @ self._plane.T

    def angles(self, x: ArrayLike) -> FloatArray:
        """Angle in [0, 2π) of each row of `x`: the inverse of `points`."""
        horizontal, vertical = (np.asarray(x, dtype=float) @ self._plane).T
        return np.mod(np.arctan2(vertical, horizontal), 2 * np.pi)

    def conditioning_points(self, X: ArrayLike) -> FloatArray:
        """Rows at θ = 1, 1.57, 3.14 and 5, where [3]_ compares laws; `X` is not used."""
        return self.points([1.0, 1.57, 3.14, 5.0])

    def _sample(self, n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        theta = 2 * np.pi * (1.0 - rng.random(n))  # in (0, 2π]: the Gaussian law has no density at θ = 0
        return self.points(theta), self._law(theta).sample(1, rng)[:, 0]

    def _truth(self, x: FloatArray) -> ConditionalLaw:
        return self._law(self.angles(x))

    @abstractmethod
    def _law(self, theta: FloatArray) -> ConditionalLaw: ...


@dataclass(frozen=True)
class CircleGaussian(_Circle):
    """Y ~ N(θ, sin²(θ/2)) with θ ~ U(0, 2π) hidden in a circle of R^dimension, from [3]_.

    X = R(cos θ, sin θ, 0, …, 0) with R a random orthogonal matrix, fixed by `seed`.

    Examples
    --------
    >>> model = CircleGaussian(dimension=50)
    >>> law = model.truth(model.points([1.0, np.pi]))
    >>> law.mean().round(3), law.std().round(3)
    (array([1.   , 3.142]), array([0.479, 1.   ]))
    """

    def _law(self, theta: FloatArray) -> ConditionalLaw:
        return LocationScaleLaw(theta, np.abs(np.sin(theta / 2)), stats.norm)


@dataclass(frozen=True)
class CircleDiscrete(_Circle):
    """Y in {1, …, 5} with chances set by the quarter of θ ~ U(0, 2π), X as in `CircleGaussian`, from [3]_.

    The four quarters have (⅕, ⅕, ⅕, ⅕, ⅕), (½, ½, 0, 0, 0), (0, 0, 1, 0, 0) and (0, 0, 0, ½, ½).

    Examples
    --------
    >>> model = CircleDiscrete(dimension=50)
    >>> model.truth(model.points([1.0, 4.0])).pdf([1, 2, 3, 4, 5])
    array([[0.2, 0.2, 0.2, 0.2, 0.2],
           [0. , 0. , 1. , 0. , 0. ]])
    """

    chances: ClassVar[tuple[tuple[float, ...], ...]] = (
        (0.2, 0.2, 0.2, 0.2, 0.2),
        (0.5, 0.5, 0.0, 0.0, 0.0),
        (0.0, 0.0, 1.0, 0.0, 0.0),
        (0.0, 0.0, 0.0, 0.5, 0.5),
    )

    def _law(self, theta: FloatArray) -> ConditionalLaw:
        quarter = np.minimum(theta // (np.pi / 2), 3).astype(int)
        return DiscreteLaw(np.arange(1, 6), np.array(self.chances)[quarter])


@dataclass(frozen=True)
class GaussianPair(Simulator):
    """Two standard normal variables with correlation ρ: the exact test of a spectral method.

    Y | X = x ~ N(ρx, 1 − ρ²). The conditional expectation operator has singular values 1, |ρ|, |ρ|², … with
    the normalised Hermite polynomials as singular functions (Mehler's formula).

    Examples
    --------
    >>> pair = GaussianPair(rho=0.5)
    >>> pair.singular_values(3)
    array([0.5  , 0.25 , 0.125])
    >>> pair.truth([[2.0]]).mean()
    array([1.])
    """

    rho: float = 0.8
    n_features: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not -1 < self.rho < 1:
            raise ValueError(f"`rho` must lie in (-1, 1); got {self.rho!r}. Pass a correlation such as 0.8.")

    def singular_values(self, k: int) -> FloatArray:
        """Leading `k` singular values |ρ|, …, |ρ|ᵏ of the operator without its constant part."""
        return np.abs(self.rho) ** np.arange(1.0, check_count(k, "k") + 1)

    def _inputs(self, n: int, rng: np.random.Generator) -> FloatArray:
        return rng.standard_normal(n)

    def _truth(self, x: FloatArray) -> ConditionalLaw:
        return LocationScaleLaw(self.rho * x, np.full_like(x, np.sqrt(1 - self.rho**2)), stats.norm)


@dataclass(frozen=True)
class TwoRegimes(Simulator):
    """A picture of what a mean hides: one noisy branch for x < 0 that splits smoothly in two for x > 0.

    X ~ U(−3, 3). With σ(z) = 1/(1 + e⁻ᶻ) and half-gap g(x) = 1.6 σ(3x − 3),
    Y | X = x ~ w N(sin x + g, s²) + (1 − w) N(sin x − g, 2.25 s²), where the scale s = 0.1 + 0.25 σ(−2x − 2)
    is large on the left and the upper weight w = 0.7 − 0.4 σ(2x − 3) falls to the right.

    Examples
    --------
    >>> law = TwoRegimes().truth([[-2.0], [2.5]])
    >>> law.mean().round(2), law.pdf(law.mean()[:, None]).round(2)[:, 0]
    (array([-0.91,  0.12]), array([1.12, 0.  ]))
    """

    n_features: ClassVar[int] = 1

    def _inputs(self, n: int, rng: np.random.Generator) -> FloatArray:
        return rng.uniform(-3, 3, n)

    def _truth(self, x: FloatArray) -> ConditionalLaw:
        half_gap = 1.6 * special.expit(3 * x - 3)
        scale = 0.1 + 0.25 * special.expit(-2 * x - 2)
        upper = 0.7 - 0.4 * special.expit(2 * x - 3)
        means = np.sin(x) + half_gap * np.array([1.0, -1.0])
        return NormalMixtureLaw(np.hstack([upper, 1 - upper]), means, scale * np.array([1.0, 1.5]))


_MODELS: dict[str, type[Simulator]] = {
    model.__name__: model
    for model in (
        LinearGaussian,
        EconDensity,
        ArmaJump,
        SkewNormal,
        GaussianMixture,
        LGGMD,
        Laplace,
        Cauchy,
        CircleGaussian,
        CircleDiscrete,
        GaussianPair,
        TwoRegimes,
    )
}


_PROCESSES: dict[str, type[Simulator]] = {
    process.__name__: process for process in (OrnsteinUhlenbeck, DoubleWell, PrinzPotential)
}


def names() -> list[str]:
    """Names of the simulators of tables; `make` also knows the processes in time.

    Examples
    --------
    >>> names()[:3]
    ['LinearGaussian', 'EconDensity', 'ArmaJump']
    """
    return list(_MODELS)


def make(name: str, **kwargs: Any) -> Simulator:
    """Build a simulator from its name; keyword arguments go to its class.

    Examples
    --------
    >>> make("GaussianPair", rho=0.3)
    GaussianPair(rho=0.3)
    """
    known_models = _MODELS | _PROCESSES
    if name in known_models:
        return known_models[name](**kwargs)
    folded = {known.lower(): known for known in known_models}
    close = get_close_matches(str(name).lower().replace("_", "").replace("-", ""), folded, n=1)
    hint = f"Did you mean {folded[close[0]]!r}?" if close else "Pick one of these names."
    raise ValueError(f"`name` must be one of {', '.join(known_models)}; got {name!r}. {hint}")
