r"""Finite-sample guarantees of Neural Conditional Probability: numbers in, numbers out.

The estimate of the paper, from n pairs and features u, v of rank d with singular values s, is

    P̂(B | A) = P̂(B) + Σ_i s_i Ê[û_i | X ∈ A] Ê[v̂_i 1_B],      û, v̂: features minus their sample means   (eq. 14)

and its error is bounded by four numbers: the first singular value left out σ*_{d+1}, the operator gap E_θ of the
training, and the rates ε_n (means of features) and ε̄_n (frequencies of sets).

Where the paper leaves an absolute constant open it is a keyword argument with default 1: `constant` is C of eq. 15 and
`hidden_constant` the one behind ≲ in the appendix. Bounds with such a default are statements about orders of
magnitude. Equations are numbered as in [1]_. Where a printed formula and its proof differ, the functions
follow the proof, and ``as_printed=True`` gives the printed one; ``docs/guarantees.md`` lists these places.

References
----------
.. [1] Kostic, Lounici, Pacreau, Turri, Novelli, Pontil. Neural Conditional Probability for Uncertainty
   Quantification. NeurIPS, 2024.
.. [2] Smale, Zhou. Learning theory estimates via integral operators and their approximations. Constructive
   Approximation 26, 2007.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import e, inf, isnan, log, nan, sqrt
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ncprob._validation import check_choice, check_integer, check_number

__all__ = [
    "SUFFICIENT_CONSTANT",
    "Bound",
    "CanonicalForm",
    "Condition",
    "GuaranteeReport",
    "OperatorTerms",
    "TargetMoments",
    "approximation_bound",
    "canonical_form",
    "cdf_bound",
    "covariance_bound",
    "epsilon",
    "epsilon_bar",
    "epsilon_subgaussian",
    "estimate_terms",
    "expectation_bound",
    "interval_coverage_bound",
    "mean_bound",
    "phi",
    "probability_bound",
    "psi",
    "ratio_bound",
    "relative_bound",
    "report",
    "sample_size_conditions",
    "subgaussian_norm",
    "target_moments",
]

FloatArray = NDArray[np.float64]
FeatureAssumption = Literal["bounded", "subgaussian"]

SUFFICIENT_CONSTANT = 4 * log(4)
"""A value of C for which ε_n bounds the means of both features with probability 1 − δ.

Lemma 2 of [2]_ for u − E u, of norm at most 2 c_u √d, gives 4 c_u √d L/n + √2 σ √(L/n) with L = log(2/δ); half of δ for
each of u and v turns L into log(4/δ) ≤ log 4 · log(e/δ).
"""

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)


# ---------------------------------------------------------------- terms


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


# ---------------------------------------------------------------- rates


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


# ---------------------------------------------------------------- probabilities


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


# ---------------------------------------------------------------- expectations


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


# ---------------------------------------------------------------- conditions


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


# ---------------------------------------------------------------- estimates from data


class CanonicalForm(NamedTuple):
    """Maps of the features and new singular values: u S vᵀ = (u L) S' (v R)ᵀ."""

    left_map: FloatArray
    right_map: FloatArray
    values: FloatArray


def canonical_form(left_gram: ArrayLike, right_gram: ArrayLike, singular_values: ArrayLike) -> CanonicalForm:
    """The same operator U S V* in orthonormal features, from G_u = mean(u uᵀ), G_v = mean(v vᵀ) of training rows.

        G_u^{½} S G_v^{½} = P Σ Qᵀ,      u' = u G_u^{-½} P,   v' = v G_v^{-½} Q,   s' = Σ in decreasing order

    The bounds hold for any features with the same U S V*, but E_θ counts ‖U*U − I‖: features that a ridge has shrunk
    make it nearly one although the estimate is none the worse.

    Examples
    --------
    >>> form = canonical_form([[0.25]], [[1.0]], [0.8])
    >>> form.left_map, form.values
    (array([[2.]]), array([0.4]))
    """
    (left_root, left_inverse), (right_root, right_inverse) = _gram_roots(left_gram), _gram_roots(right_gram)
    p, values, q_t = np.linalg.svd(left_root * np.asarray(singular_values, dtype=np.float64) @ right_root)
    excess = np.maximum(values, 1.0)  # the theorems ask for ‖S‖ ≤ 1; what is above moves into the left features
    return CanonicalForm(left_inverse @ p * excess, right_inverse @ q_t.T, values / excess)


def estimate_terms(
    u: ArrayLike,
    v: ArrayLike,
    singular_values: ArrayLike,
    n_train: int,
    *,
    rank: int | None = None,
    sigma_next: float | None = None,
    training: tuple[ArrayLike, ArrayLike] | None = None,
) -> OperatorTerms:
    """Terms of the bounds from whitened features of held-out pairs.

    With G_u = mean(u uᵀ), G_v = mean(v vᵀ) and the centred cross-covariance C of the held-out rows,

        ‖U*U − I‖ ≈ ‖G_u − I‖,    ‖U*1‖ ≈ ‖mean(u)‖,    and the same for v,
        ‖[[D]]_d − U S V*‖ ≈ ‖G_u^{-½} C G_v^{-½} − G_u^{½} S G_v^{½}‖.

    The last line compares D and U S V* *inside the span of the features*, in orthonormal coordinates. It is exact in
    the population if the features span the d leading singular spaces. What D does outside the span leaves no
    trace in these rows: if the networks miss a dependence, no number here shows it. All norms are read from m
    rows and are about `OperatorTerms.noise_floor` when the truth is zero: hold out m ≫ d rows.

    Parameters
    ----------
    u, v : array of shape (m, D)
        Features of held-out pairs, D ≥ `rank`, in the order of `singular_values`.
    singular_values : array of shape (D,)
        Values of the model, in [0, 1].
    n_train : int
        Number of pairs behind the empirical means of the estimate.
    rank : int, optional
        Number of leading triplets in use; all by default.
    sigma_next : float, optional
        σ*_{d+1}. By default the largest value that `rank` leaves out, or the smallest one if none is left out. Both are
        fitted values: too large by fitting noise, too small if the networks missed a dependence.
    training : (u, v), optional
        Features of the training rows, (n, D). With them all features are first brought to `canonical_form`, and they
        count for c_u and c_v: the largest values seen anywhere, and at least 1 as in Assumption 1. That is a lower
        estimate of the essential supremum.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> sign = rng.choice([-1.0, 1.0], (5000, 1))
    >>> same = np.where(rng.random((5000, 1)) < 0.75, 1.0, -1.0)
    >>> terms = estimate_terms(sign, sign * same, [0.5], n_train=20_000, sigma_next=0.0)
    >>> terms.left_bound, terms.left_gram_gap, terms.operator_gap < 0.03
    (1.0, 0.0, True)
    """
    left, right, values = _check_features(u, v, singular_values)
    d = len(values) if rank is None else check_integer(rank, "rank", minimum=1)
    if d > len(values):
        raise ValueError(f"`rank` must be at most {len(values)}, the number of features; got {d}. Lower `rank`.")
    if sigma_next is None:
        sigma_next = float(values[d:].max() if d < len(values) else values.min())
    rows = [(left[:, :d], right[:, :d])]
    values = values[:d]
    if training is not None:
        u_train, v_train, _ = _check_features(*training, singular_values)
        rows, values = _canonical([*rows, (u_train[:, :d], v_train[:, :d])], values)
    left_bound, right_bound = (max(1.0, *(float(np.abs(pair[side]).max()) for pair in rows)) for side in (0, 1))
    left, right = rows[0]
    return OperatorTerms(
        n=check_integer(n_train, "n_train", minimum=1),
        rank=d,
        sigma_next=sigma_next,
        approximation_gap=_gap_in_span(left, right, values),
        left_gram_gap=_gram_gap(left),
        right_gram_gap=_gram_gap(right),
        left_mean_norm=float(np.linalg.norm(left.mean(axis=0))),
        right_mean_norm=float(np.linalg.norm(right.mean(axis=0))),
        left_bound=left_bound,
        right_bound=right_bound,
        left_std=sqrt(left.var(axis=0).sum()),
        right_std=sqrt(right.var(axis=0).sum()),
        subgaussian_norm=max(subgaussian_norm(_distances(left)), subgaussian_norm(_distances(right))),
        n_held_out=len(left),
    )


def _canonical(
    rows: list[tuple[FloatArray, FloatArray]], values: FloatArray
) -> tuple[list[tuple[FloatArray, FloatArray]], FloatArray]:
    """Feature pairs in the canonical form of the last of them."""
    left_gram, right_gram = (features.T @ features / len(features) for features in rows[-1])
    form = canonical_form(left_gram, right_gram, values)
    return [(u @ form.left_map, v @ form.right_map) for u, v in rows], form.values


def target_moments(values: ArrayLike, *, center: bool = True) -> TargetMoments:
    """Sample moments of h(Y) from its values, shape (m,) or (m, k).

    With `center` they belong to h(Y) − E h(Y). The estimate and its target move together when a constant is added to h,
    so the centred bounds hold for h as well, and they are smaller.

    Examples
    --------
    >>> moments = target_moments([1.0, 3.0])
    >>> moments.second_moment, moments.covariance_trace, target_moments([1.0, 3.0], center=False).second_moment
    (1.0, 1.0, 5.0)
    """
    h = _check_matrix(values, "values")
    centred = h - h.mean(axis=0)
    squares = np.square(centred if center else h).sum(axis=1)
    covariance = centred.T @ centred / len(h)
    return TargetMoments(
        dimension=h.shape[1],
        second_moment=float(squares.mean()),
        fourth_moment=float(np.square(squares).mean()),
        covariance_trace=float(np.trace(covariance)),
        covariance_norm=float(np.linalg.norm(covariance, 2)),
        subgaussian_norm=subgaussian_norm(_distances(h)),
    )


def subgaussian_norm(values: ArrayLike) -> float:
    """ψ₂ norm of a sample, inf{C > 0 : mean exp((η/C)²) ≤ 2}, appendix "Sub-Gaussian case", by bisection.

    A sample always has a finite norm; that of the law behind it may be infinite.

    Examples
    --------
    >>> round(subgaussian_norm([1.0, 1.0]), 4)  # 1/√(log 2)
    1.2011
    """
    eta = np.abs(_check_matrix(values, "values")).ravel()
    largest = float(eta.max())
    if largest == 0:
        return 0.0
    squares = np.square(eta / largest)
    low, high = 1 / sqrt(log(2 * len(eta))), 1 / sqrt(log(2))  # one point alone reaches 2; all points at the maximum
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if np.exp(squares / middle**2).mean() <= 2 else (middle, high)
    return high * largest


def _gram_gap(features: FloatArray) -> float:
    gram = features.T @ features / len(features)
    return float(np.linalg.norm(gram - np.eye(len(gram)), 2))


def _gap_in_span(u: FloatArray, v: FloatArray, values: FloatArray) -> float:
    """‖G_u^{-½} Cov(u, v) G_v^{-½} − G_u^{½} S G_v^{½}‖; directions without any feature are left out."""
    cross = (u - u.mean(axis=0)).T @ (v - v.mean(axis=0)) / len(u)
    (left_root, left_inverse), (right_root, right_inverse) = (_gram_roots(f.T @ f / len(f)) for f in (u, v))
    return float(np.linalg.norm(left_inverse @ cross @ right_inverse - left_root * values @ right_root, 2))


def _gram_roots(gram: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """G^½ and its pseudo-inverse."""
    eigenvalues, vectors = np.linalg.eigh(np.asarray(gram, dtype=np.float64))
    kept = eigenvalues > 1e-10 * eigenvalues[-1]
    roots = np.sqrt(np.where(kept, eigenvalues, 0.0))
    inverses = np.divide(1.0, roots, out=np.zeros_like(roots), where=kept)
    return vectors * roots @ vectors.T, vectors * inverses @ vectors.T


def _distances(features: FloatArray) -> FloatArray:
    return np.linalg.norm(features - features.mean(axis=0), axis=1)


# ---------------------------------------------------------------- report


@dataclass(frozen=True)
class Bound:
    """One evaluated bound; `limit` is the error that no estimate of any use can exceed."""

    key: str
    statement: str
    reference: str
    value: float
    limit: float
    applies: bool = True

    @property
    def vacuous(self) -> bool:
        """Whether it says nothing, being above the largest possible error."""
        return self.value > self.limit

    @property
    def verdict(self) -> str:
        """In words."""
        if self.vacuous:
            return f"vacuous: above {self.limit:.3g}, the largest possible error"
        return "informative" if self.applies else "not guaranteed: a condition fails"


@dataclass(frozen=True)
class GuaranteeReport:
    """All bounds for one model and one pair of sets; print it to read it."""

    terms: OperatorTerms
    prob_A: float
    prob_B: float
    delta: float
    constant: float
    features: str
    epsilon: float  # ε_n(δ/3)
    epsilon_bar: float  # ε̄_n(δ/3)
    psi: float  # ψ_n(δ/3)
    conditions: tuple[Condition, ...]
    bounds: tuple[Bound, ...]
    notes: tuple[str, ...] = ()

    @property
    def conditions_hold(self) -> bool:
        """Whether n is large enough for the theorem with these sets."""
        return all(condition.holds for condition in self.conditions)

    def to_dict(self) -> dict[str, float]:
        """Values of the bounds by their keys."""
        return {bound.key: bound.value for bound in self.bounds}

    def __getitem__(self, key: str) -> Bound:
        """The bound with a key, such as `report["probability"]`."""
        keys = [bound.key for bound in self.bounds]
        return self.bounds[keys.index(check_choice(key, "key", keys))]

    def __str__(self) -> str:
        head = (
            f"Guarantees with probability {1 - self.delta:g} (delta = {self.delta:g}), n = {self.terms.n:,}, "
            f"rank d = {self.terms.rank}, {self.features} features, constant C = {self.constant:g}\n"
            f"Sets: P(X in A) = {self.prob_A:.3g}, P(Y in B) = {self.prob_B:.3g}"
        )
        conditions = [(c.name, _number(c.value), _number(c.needed), str(c.holds)) for c in self.conditions]
        bounds = [(b.statement, b.reference, _number(b.value), b.verdict) for b in self.bounds]
        parts = [
            head,
            _table(("term", "value"), self._term_rows()),
            _table(("condition", "have", "need", "holds"), conditions),
            _table(("error of", "from", "at most", "reads"), bounds),
        ]
        return "\n\n".join(parts + [f"Note: {note}" for note in self.notes])

    def _term_rows(self) -> list[tuple[str, ...]]:
        terms = self.terms
        rows = {
            "first singular value left out, sigma_{d+1}": terms.sigma_next,
            "operator gap, E_theta = largest of": terms.operator_gap,
            "  ||[[D]]_d - U S V*||": terms.approximation_gap,
            "  ||U*U - I||": terms.left_gram_gap,
            "  ||V*V - I||": terms.right_gram_gap,
            "  ||U*1||": terms.left_mean_norm,
            "  ||V*1||": terms.right_mean_norm,
            "rate of feature means, eps_n(delta/3)": self.epsilon,
            "rate of frequencies, eps_bar_n(delta/3)": self.epsilon_bar,
            "error of the operator, psi_n(delta/3)": self.psi,
        }
        if terms.n_held_out:
            rows[f"(noise floor of ||U*U - I|| on {terms.n_held_out:,} held-out rows)"] = terms.noise_floor
        return [(name, _number(value)) for name, value in rows.items()]


def report(
    terms: OperatorTerms,
    prob_A: float = 0.5,
    prob_B: float = 0.5,
    delta: float = 0.05,
    *,
    constant: float = 1.0,
    hidden_constant: float = 1.0,
    features: FeatureAssumption = "bounded",
    levels: Sequence[float] = LEVELS,
    target: TargetMoments | None = None,
    as_printed: bool = False,
    notes: Sequence[str] = (),
) -> GuaranteeReport:
    """Evaluate every bound for sets of probability `prob_A` and `prob_B`.

    Parameters
    ----------
    terms : OperatorTerms
        From `estimate_terms`, or exact.
    levels : sequence of float
        Values of F_Y(t) at which the distribution function is bounded.
    target : TargetMoments, optional
        Moments of Y; with them the conditional mean and covariance are bounded too.
    constant, hidden_constant : float
        C of eq. 15 and the constant behind ≲ of the appendix; unknown, 1 by default.

    Examples
    --------
    >>> terms = OperatorTerms(10**5, 2, 0.01, 0, 0, 0, 0, 0, 2.0, 2.0, 1.4, 1.4)
    >>> guarantees = report(terms, prob_A=0.5, prob_B=0.5)
    >>> guarantees.conditions_hold, round(guarantees["probability"].value, 3)
    (True, 0.08)
    """
    # Each bound holds with probability 1 − δ by itself; nothing is said of all of them together.
    options: dict[str, Any] = {"constant": constant, "features": features}
    conditions = sample_size_conditions(terms, prob_A, prob_B, delta, features=features)
    bounds = _probability_bounds(terms, prob_A, prob_B, delta, options)
    bounds += _interval_bounds(terms, prob_A, delta, levels, options | {"as_printed": as_printed})
    if target is not None:
        options |= {"hidden_constant": hidden_constant}
        bounds += _target_bounds(terms, target, prob_A, delta, options, as_printed)
    return GuaranteeReport(
        terms=terms,
        prob_A=prob_A,
        prob_B=prob_B,
        delta=delta,
        constant=constant,
        features=features,
        epsilon=_rate(terms, delta / 3, constant, features),
        epsilon_bar=epsilon_bar(terms.n, delta / 3),
        psi=_psi(terms, delta / 3, constant, features),
        conditions=conditions,
        bounds=tuple(bounds),
        notes=(_CONSTANT_NOTE, *notes),
    )


_CONSTANT_NOTE = (
    "the paper leaves its constants open; each bound holds with the stated probability for a large enough C, "
    "for the plain plug-in estimate, and for features that do not depend on the n pairs."
)


def _probability_bounds(
    terms: OperatorTerms, prob_A: float, prob_B: float, delta: float, options: dict[str, Any]
) -> list[Bound]:
    applies = _applies(terms, prob_A, prob_B, delta, options)
    sets = (terms, prob_A, prob_B, delta)
    largest = _largest_probability(prob_A, prob_B)
    approximation = approximation_bound(terms.sigma_next, prob_A, prob_B)
    ratio, relative = ratio_bound(*sets, **options), relative_bound(*sets, **options)
    return [
        Bound("approximation", "P(B|A) of the exact operator of rank d", "Lemma 1", approximation, largest),
        Bound("ratio", "P(B|A) / P(B)", "Theorem 2, eq. 19", ratio, largest / prob_B, applies),
        Bound("relative", "P(B|A), relative to P(B)", "Theorem 2, eq. 20", relative, largest / prob_B, applies),
        Bound("probability", "P(B|A)", "Theorem 2, eq. 20", prob_B * relative, largest, applies),
    ]


def _largest_probability(prob_A: float, prob_B: float) -> float:
    """P(B | A) is at most 1 and at most P(B)/P(A)."""
    return min(1.0, prob_B / prob_A)


def _interval_bounds(
    terms: OperatorTerms, prob_A: float, delta: float, levels: Sequence[float], options: dict[str, Any]
) -> list[Bound]:
    cdf = [
        Bound(
            key=f"cdf[{level:g}]",
            statement=f"F(t|A) where F(t) = {level:g}",
            reference="Corollary 1",
            value=cdf_bound(terms, prob_A, level, delta, **options),
            limit=_largest_probability(prob_A, level),
            applies=_applies(terms, prob_A, level, delta, options),
        )
        for level in levels
    ]
    coverage = interval_coverage_bound(terms, prob_A, delta, **options)
    applies = _applies(terms, prob_A, 0.5, delta, options)
    return [*cdf, Bound("interval", "coverage of an interval", "eq. 22", coverage, 1.0, applies)]


def _target_bounds(
    terms: OperatorTerms,
    target: TargetMoments,
    prob_A: float,
    delta: float,
    options: dict[str, Any],
    as_printed: bool,
) -> list[Bound]:
    applies = _applies(terms, prob_A, 0.5, delta, options)
    given = (terms, target, prob_A, delta)
    largest_square = target.second_moment / prob_A  # ‖E[Y|A]‖² and ‖Cov(Y|A)‖ are at most E‖Y‖²/P(A)
    expectation = expectation_bound(*given, **options, as_printed=as_printed)
    covariance = covariance_bound(*given, **options, as_printed=as_printed)
    largest = sqrt(largest_square)
    return [
        Bound("expectation", "E[h(Y)|A] for h(y) = y", "Theorem 4", expectation, largest, applies),
        Bound("mean", "E[Y|A]", "Corollary 2", mean_bound(*given, **options), largest, applies),
        Bound("covariance", "Cov(Y|A), operator norm", "Corollary 3", covariance, largest_square, applies),
    ]


def _applies(terms: OperatorTerms, prob_A: float, prob_B: float, delta: float, options: dict[str, Any]) -> bool:
    conditions = sample_size_conditions(terms, prob_A, prob_B, delta, features=options["features"])
    return all(condition.holds for condition in conditions)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Columns padded to their widest entry, a rule under the header."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    rule = tuple("-" * width for width in widths)
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (header, rule, *rows)
    ]
    return "\n".join(line.rstrip() for line in lines)


# ---------------------------------------------------------------- checks


def _check_probability(value: float, name: str) -> float:
    return check_number(value, name, minimum=0, maximum=1, open_ends=True)


def _check_sample(n: int, delta: float) -> tuple[int, float]:
    return check_integer(n, "n", minimum=1), _check_probability(delta, "delta")


def _share(delta: float, parts: int) -> float:
    """One of equal parts of δ, for a union bound."""
    return _check_probability(delta, "delta") / parts


def _check_constant(value: float, name: str = "constant") -> float:
    return check_number(value, name, minimum=0, maximum=inf, open_ends=True)


def _check_matrix(value: ArrayLike, name: str) -> FloatArray:
    array = np.asarray(value, dtype=np.float64)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or array.size == 0:
        raise ValueError(f"`{name}` must have shape (rows, columns); got {array.shape}. Pass one row for every pair.")
    if not np.isfinite(array).all():
        raise ValueError(f"`{name}` must be finite; got NaN or infinity. Remove these rows.")
    return array


def _check_features(u: ArrayLike, v: ArrayLike, values: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
    left, right = _check_matrix(u, "u"), _check_matrix(v, "v")
    singular = np.atleast_1d(np.asarray(values, dtype=np.float64))
    if left.shape != right.shape or left.shape[1:] != singular.shape:
        raise ValueError(
            f"`u` and `v` must have shape (m, {singular.size}), one column for every singular value; "
            f"got {left.shape} and {right.shape}. Pass features of the same pairs and all their values."
        )
    if len(left) < 2:
        raise ValueError(f"`u` must have at least 2 rows; got {len(left)}. Hold out more pairs.")
    if not bool(((singular >= 0) & (singular <= 1)).all()):
        raise ValueError(
            f"`singular_values` must lie in [0, 1]; got values from {singular.min():g} to {singular.max():g}. "
            "Pass the values of the operator."
        )
    return left, right, singular
