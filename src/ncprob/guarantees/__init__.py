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

from ncprob.guarantees.bounds import (
    SUFFICIENT_CONSTANT,
    Condition,
    OperatorTerms,
    TargetMoments,
    approximation_bound,
    cdf_bound,
    covariance_bound,
    epsilon,
    epsilon_bar,
    epsilon_subgaussian,
    expectation_bound,
    interval_coverage_bound,
    mean_bound,
    phi,
    probability_bound,
    psi,
    ratio_bound,
    relative_bound,
    sample_size_conditions,
)
from ncprob.guarantees.report import Bound, GuaranteeReport, report
from ncprob.guarantees.terms import CanonicalForm, canonical_form, estimate_terms, subgaussian_norm, target_moments

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
