"""The bounds of the paper: numbers in, numbers out, each citing its theorem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import e, inf, isnan, log, nan, sqrt
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ncprob._validation import check_choice, check_integer, check_number

FloatArray = NDArray[np.float64]


FeatureAssumption = Literal["bounded", "subgaussian"]


SUFFICIENT_CONSTANT = 4 * log(4)
"""A value of C for which ε_n bounds the means of both features with probability 1 − δ.

Lemma 2 of [2]_ for u − E u, of norm at most 2 c_u √d, gives 4 c_u √d L/n + √2 σ √(L/n) with L = log(2/δ); half of δ for
each of u and v turns L into log(4/δ) ≤ log 4 · log(e/δ).
"""


@dataclass(frozen=True)
class OperatorTerms:
    """What the bounds need to know of a model: sample size, rank, spectrum, the parts of E_θ, size of the features.

    Examples
    --------
    >>> terms = OperatorTerms(
    ...     n=10_000, rank=2, sigma_next=0.01, approximation_gap=0.02, left_gram_gap=0.03, right_gram_gap=0.01,
    ...     left_mean_norm=0.0, right_mean_norm=0.0, left_bound=2.0, right_bound=1.5, left_std=1.4, right_std=1.4)
    >>> terms.operator_gap, terms.feature_bound
    (0.03, 2.0)
    """

    n: int  # pairs behind the empirical means
    rank: int  # d
    sigma_next: float  # σ*_{d+1}
    approximation_gap: float  # ‖[[D]]_d − U S V*‖
    left_gram_gap: float  # ‖U*U − I‖
    right_gram_gap: float  # ‖V*V − I‖
    left_mean_norm: float  # ‖U*1‖
    right_mean_norm: float  # ‖V*1‖
    left_bound: float  # c_u
    right_bound: float  # c_v
    left_std: float  # σ_θ(X), with σ_θ²(X) = E‖u − E u‖²
    right_std: float  # σ_θ(Y)
    subgaussian_norm: float = nan  # K, the larger ψ₂ norm of ‖u − E u‖ and ‖v − E v‖; only for features="subgaussian"
    n_held_out: int = 0  # rows the terms were estimated on; 0 when they are exact

    def __post_init__(self) -> None:
        check_integer(self.n, "n", minimum=1)
        check_integer(self.rank, "rank", minimum=1)
        check_integer(self.n_held_out, "n_held_out", minimum=0)
        check_number(self.sigma_next, "sigma_next", minimum=0, maximum=1)
        for field in fields(self):
            if field.name != "subgaussian_norm":
                check_number(getattr(self, field.name), field.name, minimum=0)

    @property
    def operator_gap(self) -> float:
        """E_θ = max{‖[[D]]_d − U S V*‖, ‖U*U − I‖, ‖U*1‖, ‖V*V − I‖, ‖V*1‖}, eq. 16."""
        grams = max(self.left_gram_gap, self.right_gram_gap)
        return max(self.approximation_gap, grams, self.left_mean_norm, self.right_mean_norm)

    @property
    def feature_bound(self) -> float:
        """c_u ∨ c_v, Assumption 1."""
        return max(self.left_bound, self.right_bound)

    @property
    def feature_std(self) -> float:
        """σ_θ(X) ∨ σ_θ(Y), eq. 15."""
        return max(self.left_std, self.right_std)

    @property
    def noise_floor(self) -> float:
        """2√(d/m) + d/m: about what ‖U*U − I‖ reads on m held-out rows when it is zero; 0 for exact terms."""
        share = self.rank / self.n_held_out if self.n_held_out else 0.0
        return 2 * sqrt(share) + share

    @classmethod
    def worst(cls, members: Sequence[OperatorTerms]) -> OperatorTerms:
        """Terms that cover every member, hence the average of their density ratios (the norm is convex).

        Every bound grows with every term, and falls with n, of which the smallest is kept.
        """
        if not members:
            raise ValueError("`members` must hold at least one OperatorTerms; got none. Pass one for every operator.")
        columns = {field.name: [getattr(member, field.name) for member in members] for field in fields(cls)}
        least = {"n": min(columns.pop("n")), "n_held_out": min(columns.pop("n_held_out"))}
        return cls(**least, **{name: max(values) for name, values in columns.items()})


@dataclass(frozen=True)
class TargetMoments:
    """Moments of h(Y) (for the mean and covariance h(y) = y), needed for bounds on conditional expectations."""

    dimension: int  # d_y
    second_moment: float  # ‖h‖² = E‖h(Y)‖²
    fourth_moment: float  # E‖h(Y)‖⁴
    covariance_trace: float  # tr Cov(h(Y)), the σ²(h(Y)) of Theorem 4
    covariance_norm: float  # ‖Cov(h(Y))‖
    subgaussian_norm: float  # K, the ψ₂ norm of ‖h(Y) − E h(Y)‖

    @property
    def effective_rank(self) -> float:
        """tr Cov / ‖Cov‖, at least 1."""
        return self.covariance_trace / self.covariance_norm if self.covariance_norm > 0 else 1.0


def phi(probability: float) -> float:
    """How much a set of small probability costs: φ = 1 ∨ √((1 − P)/P), section 5.

    Examples
    --------
    >>> phi(0.5), phi(0.1)
    (1.0, 3.0)
    """
    return _phi(probability, "probability")


def _phi(probability: float, name: str) -> float:
    p = _check_probability(probability, name)
    return max(1.0, sqrt((1 - p) / p))


def epsilon_bar(n: int, delta: float) -> float:
    """Rate of frequencies of sets, ε̄_n(δ) = 2 √(2 log(2/δ)/n), eq. 15 and Lemmas 3 and 4.

    Examples
    --------
    >>> round(epsilon_bar(10_000, 0.05), 4)
    0.0543
    """
    n, delta = _check_sample(n, delta)
    return 2 * sqrt(2 * log(2 / delta) / n)


def epsilon(
    n: int, delta: float, rank: int, feature_bound: float, feature_std: float, *, constant: float = 1.0
) -> float:
    """Rate of means of bounded features, eq. 15 and Lemma 2.

        ε_n(δ) = C (c √d log(e/δ)/n + σ √(log(e/δ)/n)),      c = c_u ∨ c_v,  σ = σ_θ(X) ∨ σ_θ(Y)

    The paper says "for some large enough absolute constant C"; the default is 1, and `SUFFICIENT_CONSTANT` is large
    enough. σ_θ²(X) must be E‖u − E u‖²: the paper writes the variance of the norm ‖u − E u‖, which is zero
    for u = ±1 although the mean of n signs is of order 1/√n.

    Examples
    --------
    >>> round(epsilon(10_000, 0.05, rank=4, feature_bound=3.0, feature_std=2.0), 4)
    0.0424
    """
    n, delta = _check_sample(n, delta)
    d = check_integer(rank, "rank", minimum=1)
    c = check_number(feature_bound, "feature_bound", minimum=0)
    sigma = check_number(feature_std, "feature_std", minimum=0)
    per_row = log(e / delta) / n
    return _check_constant(constant) * (c * sqrt(d) * per_row + sigma * sqrt(per_row))


def epsilon_subgaussian(
    n: int, delta: float, feature_std: float, subgaussian_norm: float, *, constant: float = 1.0
) -> float:
    """Rate of means of sub-Gaussian features, Lemma 6: C/√n · √(σ² + K²/n) · log(2/δ).

    K is the ψ₂ norm of ‖u − E u‖, see `subgaussian_norm`. It takes the place of ε_n where features have no
    bound; the constant is again unknown (4√2 in Proposition 1, times the one between K and its L).

    Examples
    --------
    >>> round(epsilon_subgaussian(10_000, 0.05, feature_std=2.0, subgaussian_norm=3.0), 4)
    0.0738
    """
    n, delta = _check_sample(n, delta)
    sigma = check_number(feature_std, "feature_std", minimum=0)
    k = check_number(subgaussian_norm, "subgaussian_norm", minimum=0)
    return _check_constant(constant) * sqrt((sigma**2 + k**2 / n) / n) * log(2 / delta)


def psi(sigma_next: float, operator_gap: float, epsilon: float) -> float:
    """Bound on ‖D − D̂‖: ψ_n = σ*_{d+1} + E_θ + 2 √(1 + E_θ) (E_θ + ε_n) + ε_n², eqs. 17 and 24.

    Examples
    --------
    >>> round(psi(sigma_next=0.1, operator_gap=0.0, epsilon=0.01), 4)
    0.1201
    """
    tail = check_number(sigma_next, "sigma_next", minimum=0)
    gap = check_number(operator_gap, "operator_gap", minimum=0)
    rate = check_number(epsilon, "epsilon", minimum=0)
    return tail + gap + 2 * sqrt(1 + gap) * (gap + rate) + rate**2


def approximation_bound(sigma_next: float, prob_A: float, prob_B: float) -> float:
    """Error of the exact operator cut off at rank d, Lemma 1, eq. 6: σ*_{d+1} √(P(Y ∈ B)/P(X ∈ A)).

    Bounds |P(B | A) − P(B) − ⟨1_A, [[D]]_d 1_B⟩/P(A)|. No sample and no constant is involved.

    Examples
    --------
    >>> approximation_bound(0.1, prob_A=0.25, prob_B=0.25)
    0.1
    """
    tail = check_number(sigma_next, "sigma_next", minimum=0, maximum=1)
    return tail * sqrt(_check_probability(prob_B, "prob_B") / _check_probability(prob_A, "prob_A"))


def ratio_bound(
    terms: OperatorTerms,
    prob_A: float,
    prob_B: float,
    delta: float,
    *,
    constant: float = 1.0,
    features: FeatureAssumption = "bounded",
) -> float:
    """Error of the ratio P(B | A)/P(B), Theorem 2, eq. 19, with probability 1 − δ.

        |P(B|A)/P(B) − P̂(B|A)/P̂(B)| ≤ (4ψ + (1 + ψ)(2φ_X(A) + 4φ_Y(B)) ε̄) / √(P(A) P(B)),   ψ, ε̄ at δ/3

    With ``features="subgaussian"`` the rate of Lemma 6 replaces ε_n inside ψ (appendix "Sub-Gaussian case").

    Examples
    --------
    >>> terms = OperatorTerms(10**6, 2, 0.01, 0, 0, 0, 0, 0, 2.0, 2.0, 1.4, 1.4)
    >>> round(ratio_bound(terms, 0.5, 0.5, 0.05), 3)
    0.206
    """
    third = _share(delta, 3)
    rate, frequency = _psi(terms, third, constant, features), epsilon_bar(terms.n, third)
    sets = 2 * _phi(prob_A, "prob_A") + 4 * _phi(prob_B, "prob_B")
    return (4 * rate + (1 + rate) * sets * frequency) / sqrt(prob_A * prob_B)


def relative_bound(
    terms: OperatorTerms,
    prob_A: float,
    prob_B: float,
    delta: float,
    *,
    constant: float = 1.0,
    features: FeatureAssumption = "bounded",
) -> float:
    """Error of P(B | A) in units of P(B), Theorem 2, eq. 20, with probability 1 − δ.

        |P(B|A) − P̂(B|A)|/P(B) ≤ φ_Y(B) ε̄ + (2(1 + ψ) φ_X(A) ε̄ + ψ) / √(P(A) P(B)),   ψ, ε̄ at δ/3

    Examples
    --------
    >>> terms = OperatorTerms(10**6, 2, 0.01, 0, 0, 0, 0, 0, 2.0, 2.0, 1.4, 1.4)
    >>> round(relative_bound(terms, 0.5, 0.5, 0.05), 3)
    0.064
    """
    third = _share(delta, 3)
    frequency = _phi(prob_B, "prob_B") * epsilon_bar(terms.n, third)
    part = _operator_part(terms, prob_A, third, constant, features)
    return frequency + part / sqrt(prob_A * prob_B)


def probability_bound(
    terms: OperatorTerms,
    prob_A: float,
    prob_B: float,
    delta: float,
    *,
    constant: float = 1.0,
    features: FeatureAssumption = "bounded",
) -> float:
    """Error of P(B | A) itself: P(B) times `relative_bound`, Theorem 2, eq. 20.

    Examples
    --------
    >>> terms = OperatorTerms(10**6, 2, 0.01, 0, 0, 0, 0, 0, 2.0, 2.0, 1.4, 1.4)
    >>> round(probability_bound(terms, 0.5, 0.5, 0.05), 3)
    0.032
    """
    return prob_B * relative_bound(terms, prob_A, prob_B, delta, constant=constant, features=features)


def cdf_bound(
    terms: OperatorTerms,
    prob_A: float,
    level: float,
    delta: float,
    *,
    constant: float = 1.0,
    features: FeatureAssumption = "bounded",
    as_printed: bool = False,
) -> float:
    """Error of the distribution function of Y given X ∈ A at one t with F_Y(t) = `level`, Corollary 1.

    The corollary is eq. 20 for B = (−∞, t], which is what is computed. As printed (eq. 21) it reads

        √(F(1 − F)) ε̄ + √(F/P(A)) (σ*_{d+1} + 2√2 E_θ + (2√2 + 1) ε_n + 4 φ_X(A) ε̄),   ε_n, ε̄ at δ/3

    which needs ψ, E_θ, ε_n ≤ 1, drops one E_θ (2√2 should be 2√2 + 1) and for F > ½ has √(F(1−F)) where eq. 20 has F.

    Examples
    --------
    >>> terms = OperatorTerms(10**6, 2, 0.01, 0, 0, 0, 0, 0, 2.0, 2.0, 1.4, 1.4)
    >>> round(cdf_bound(terms, 0.5, 0.5, 0.05), 3), round(cdf_bound(terms, 0.5, 0.5, 0.05, as_printed=True), 3)
    (0.032, 0.05)
    """
    f, third = _check_probability(level, "level"), _share(delta, 3)
    if not as_printed:
        return probability_bound(terms, prob_A, f, delta, constant=constant, features=features)
    simple = _simplified_part(terms, prob_A, third, constant, features)
    return sqrt(f * (1 - f)) * epsilon_bar(terms.n, third) + sqrt(f / prob_A) * simple


def interval_coverage_bound(
    terms: OperatorTerms,
    prob_A: float,
    delta: float,
    *,
    constant: float = 1.0,
    features: FeatureAssumption = "bounded",
    as_printed: bool = False,
) -> float:
    """Distance of the coverage of the estimated interval from 1 − α, eq. 22, for every α at once.

        |P(Y ∈ B̂_α | X ∈ A) − (1 − α)| ≤ ½ ε̄ + (2(1 + ψ) φ_X(A) ε̄ + ψ)/√P(A),   ψ, ε̄ at δ/6

    As printed the bracket is σ*_{d+1} + 2√2 E_θ + (2√2 + 1) ε_n + 4 φ_X(A) ε̄, with the slips named in `cdf_bound`. The
    ends of B̂_α depend on the data, which a bound at one t does not cover; ½ ε̄ does hold for all intervals at
    once, by the inequality of Dvoretzky, Kiefer, Wolfowitz and Massart.

    Examples
    --------
    >>> terms = OperatorTerms(10**6, 2, 0.01, 0, 0, 0, 0, 0, 2.0, 2.0, 1.4, 1.4)
    >>> round(interval_coverage_bound(terms, 0.5, 0.05), 3)
    0.046
    """
    part = _simplified_part if as_printed else _operator_part
    sixth = _share(delta, 6)
    return epsilon_bar(terms.n, sixth) / 2 + part(terms, prob_A, sixth, constant, features) / sqrt(prob_A)


def expectation_bound(
    terms: OperatorTerms,
    moments: TargetMoments,
    prob_A: float,
    delta: float,
    *,
    constant: float = 1.0,
    hidden_constant: float = 1.0,
    features: FeatureAssumption = "bounded",
    as_printed: bool = False,
) -> float:
    """Error ‖Ê[h(Y) | A] − E[h(Y) | A]‖ for a vector-valued sub-Gaussian h(Y), Theorem 4.

        ≲ √((σ²(h) + K²/n)/n) log(6/δ) + ‖h‖/√P(A) · (ψ + 2(1 + ψ) φ_X(A) ε̄),   ψ, ε̄ at δ/3

    As printed the logarithm is log(3/δ). σ²(h) is E‖h − E h‖², as for features. ≲ hides `hidden_constant`.

    Examples
    --------
    >>> terms = OperatorTerms(10**6, 2, 0.01, 0, 0, 0, 0, 0, 2.0, 2.0, 1.4, 1.4)
    >>> from ncprob.guarantees import target_moments
    >>> moments = target_moments([[-1.0], [1.0]])
    >>> round(expectation_bound(terms, moments, 0.5, 0.05), 3)
    0.046
    """
    n, k = terms.n, moments.subgaussian_norm
    part = _operator_part(terms, prob_A, _share(delta, 3), constant, features)
    spread = sqrt((moments.covariance_trace + k**2 / n) / n) * log((3 if as_printed else 6) / delta)
    return _check_constant(hidden_constant, "hidden_constant") * (spread + sqrt(moments.second_moment / prob_A) * part)


def mean_bound(
    terms: OperatorTerms,
    moments: TargetMoments,
    prob_A: float,
    delta: float,
    *,
    constant: float = 1.0,
    hidden_constant: float = 1.0,
    features: FeatureAssumption = "bounded",
) -> float:
    """Error ‖Ê[Y | A] − E[Y | A]‖ for a sub-Gaussian vector Y, Corollary 2, called ψ_n^(1).

        ≲ √(tr Cov Y) (√ℓ ∨ ℓ) + ‖Y‖/√P(A) · (ψ + 2(1 + ψ) φ_X(A) ε̄),   ℓ = log(3 d_y/δ)/n,  ψ, ε̄ at δ/3

    Examples
    --------
    >>> terms = OperatorTerms(10**6, 2, 0.01, 0, 0, 0, 0, 0, 2.0, 2.0, 1.4, 1.4)
    >>> from ncprob.guarantees import target_moments
    >>> round(mean_bound(terms, target_moments([[-1.0], [1.0]]), 0.5, 0.05), 3)
    0.043
    """
    part = _operator_part(terms, prob_A, _share(delta, 3), constant, features)
    per_row = log(3 * moments.dimension / delta) / terms.n
    spread = sqrt(moments.covariance_trace) * max(sqrt(per_row), per_row)
    return _check_constant(hidden_constant, "hidden_constant") * (spread + sqrt(moments.second_moment / prob_A) * part)


def covariance_bound(
    terms: OperatorTerms,
    moments: TargetMoments,
    prob_A: float,
    delta: float,
    *,
    conditional_mean_norm: float | None = None,
    constant: float = 1.0,
    hidden_constant: float = 1.0,
    features: FeatureAssumption = "bounded",
    as_printed: bool = False,
) -> float:
    """Error ‖Ĉov(Y | A) − Cov(Y | A)‖ in operator norm for a sub-Gaussian vector Y, Corollary 3, called ψ_n^(2).

        ≲ ε_n^(2)(δ) + (ψ + 2(1 + ψ) φ_X(A) ε̄) M/√P(A) + ψ_n^(1) (2 ‖E[Y|A]‖ + ψ_n^(1)),   ψ, ε̄, ψ_n^(1) at δ/4
        ε_n^(2)(δ) = ‖Cov Y‖ (√(r/n) + r/n + √(log(1/δ)/n) + log(1/δ)/n),   r = tr Cov Y/‖Cov Y‖        (eq. 39)

    Here M = √(E‖Y‖⁴), what the Hilbert–Schmidt norm in the proof needs. The printed M = (E‖Y‖²)² has other units.
    The paper's decomposition (eq. 37) holds for E Y = 0; `target_moments` centres, which changes no covariance.

    Parameters
    ----------
    conditional_mean_norm : float, optional
        ‖E[Y | A]‖ of the centred Y; by default its largest possible value √(E‖Y‖²/P(A)).

    Examples
    --------
    >>> terms = OperatorTerms(10**6, 2, 0.01, 0, 0, 0, 0, 0, 2.0, 2.0, 1.4, 1.4)
    >>> from ncprob.guarantees import target_moments
    >>> round(covariance_bound(terms, target_moments([[-1.0], [1.0]]), 0.5, 0.05), 3)
    0.179
    """
    quarter = _share(delta, 4)
    scale = moments.second_moment**2 if as_printed else sqrt(moments.fourth_moment)
    product = _operator_part(terms, prob_A, quarter, constant, features) * scale / sqrt(prob_A)
    mean_error = mean_bound(terms, moments, prob_A, quarter, constant=constant, features=features)
    if conditional_mean_norm is None:
        conditional_mean_norm = sqrt(moments.second_moment / prob_A)
    centre = check_number(conditional_mean_norm, "conditional_mean_norm", minimum=0)
    squares = mean_error * (2 * centre + mean_error)
    return _check_constant(hidden_constant, "hidden_constant") * (
        _covariance_rate(terms.n, delta, moments) + product + squares
    )


def _covariance_rate(n: int, delta: float, moments: TargetMoments) -> float:
    """ε_n^(2)(δ), eq. 39: the rate of an empirical covariance in operator norm (Koltchinskii & Lounici 2017)."""
    n, delta = _check_sample(n, delta)
    rank, tail = moments.effective_rank / n, log(1 / delta) / n
    return moments.covariance_norm * (sqrt(rank) + rank + sqrt(tail) + tail)


def _rate(terms: OperatorTerms, delta: float, constant: float, features: FeatureAssumption) -> float:
    """ε_n(δ) under the assumption made on the features."""
    if check_choice(features, "features", get_args(FeatureAssumption)) == "bounded":
        return epsilon(terms.n, delta, terms.rank, terms.feature_bound, terms.feature_std, constant=constant)
    if isnan(terms.subgaussian_norm):
        raise ValueError(
            "`terms.subgaussian_norm` must be a number for `features` 'subgaussian'; got nan. "
            "Pass K, for example from `subgaussian_norm`, or use 'bounded'."
        )
    return epsilon_subgaussian(terms.n, delta, terms.feature_std, terms.subgaussian_norm, constant=constant)


def _psi(terms: OperatorTerms, delta: float, constant: float, features: FeatureAssumption) -> float:
    return psi(terms.sigma_next, terms.operator_gap, _rate(terms, delta, constant, features))


def _operator_part(
    terms: OperatorTerms, prob_A: float, delta: float, constant: float, features: FeatureAssumption
) -> float:
    """ψ + 2(1 + ψ) φ_X(A) ε̄: error of the operator plus that of the frequency of A."""
    sets, rate = _phi(prob_A, "prob_A"), _psi(terms, delta, constant, features)
    return rate + 2 * (1 + rate) * sets * epsilon_bar(terms.n, delta)


def _simplified_part(
    terms: OperatorTerms, prob_A: float, delta: float, constant: float, features: FeatureAssumption
) -> float:
    """The bracket of eqs. 21 and 22 as printed."""
    rate = _rate(terms, delta, constant, features)
    sets = 4 * _phi(prob_A, "prob_A") * epsilon_bar(terms.n, delta)
    return terms.sigma_next + 2 * sqrt(2) * terms.operator_gap + (2 * sqrt(2) + 1) * rate + sets


@dataclass(frozen=True)
class Condition:
    """One requirement of a theorem: `value` must be at least `needed`."""

    name: str
    value: float
    needed: float

    @property
    def holds(self) -> bool:
        """Whether it is met."""
        return self.value >= self.needed


def sample_size_conditions(
    terms: OperatorTerms, prob_A: float, prob_B: float, delta: float, *, features: FeatureAssumption = "bounded"
) -> tuple[Condition, ...]:
    """What Theorem 2 asks of n and of the sets, eq. 18.

        P(A) ∧ P(B) ≥ ε̄_n(δ/3),      n ≥ (c_u ∨ c_v)² d  ∨  8 log(6/δ) (φ_X(A) ∨ φ_Y(B))

    The requirement on the bound of the features falls away for ``features="subgaussian"``.

    Examples
    --------
    >>> terms = OperatorTerms(1000, 2, 0.01, 0, 0, 0, 0, 0, 2.0, 2.0, 1.4, 1.4)
    >>> [condition.holds for condition in sample_size_conditions(terms, 0.5, 0.1, 0.05)]
    [True, False, True, True]
    """
    check_choice(features, "features", get_args(FeatureAssumption))
    frequency = epsilon_bar(terms.n, _share(delta, 3))
    sets = 8 * log(6 / delta) * max(_phi(prob_A, "prob_A"), _phi(prob_B, "prob_B"))
    conditions = [
        Condition("P(X in A) >= eps_bar(delta/3)", prob_A, frequency),
        Condition("P(Y in B) >= eps_bar(delta/3)", prob_B, frequency),
        Condition("n >= 8 log(6/delta) max(phi(A), phi(B))", terms.n, sets),
    ]
    if features == "bounded":
        conditions.append(Condition("n >= max(c_u, c_v)^2 d", terms.n, terms.feature_bound**2 * terms.rank))
    return tuple(conditions)


def _check_probability(value: float, name: str) -> float:
    return check_number(value, name, minimum=0, maximum=1, open_ends=True)


def _check_sample(n: int, delta: float) -> tuple[int, float]:
    return check_integer(n, "n", minimum=1), _check_probability(delta, "delta")


def _share(delta: float, parts: int) -> float:
    """One of equal parts of δ, for a union bound."""
    return _check_probability(delta, "delta") / parts


def _check_constant(value: float, name: str = "constant") -> float:
    return check_number(value, name, minimum=0, maximum=inf, open_ends=True)
