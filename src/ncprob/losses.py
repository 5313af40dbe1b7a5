"""The NCP training loss and its regulariser, as functions of features (Kostic et al. 2024, section 3).

With S = diag(s), the loss and the orthonormality penalty are

    L = tr(S^½ Var(u) S Var(v) S^½) − 2 tr(S Cov(u, v))                       (paper, eq. 9)
    R = ‖E[uuᵀ] − I‖²_F + ‖E[vvᵀ] − I‖²_F + 2‖E u‖² + 2‖E v‖²                 (paper, eq. 10)

L ≥ −Σ_{i≤d} σ*_i² with equality at the truncated SVD of the deflated conditional expectation operator
(Theorem 1). `covariance_loss`, `u_statistic_loss` and `paired_loss` are unbiased estimates of L from one batch of
independent pairs and differ in variance; `cross_fitted_loss` is unbiased for the best operator that half a batch can
fit in the span of the features. The pairs they need are in `MINIMUM_PAIRS`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from ncprob.linalg import ridge_solve
from ncprob.statistics import centered, covariance, cross_energy

Features = Float[Tensor, "batch rank"]
Half = Float[Tensor, "half rank"]
Values = Float[Tensor, " rank"]
Scalar = Float[Tensor, ""]


def _halves(features: Features) -> tuple[Half, Half]:
    """Two disjoint halves of equal size (an odd last row is left out)."""
    m = len(features) // 2
    return features[:m], features[m : 2 * m]


def _aligned_covariance(u: Features, v: Features, s: Values) -> Scalar:
    """tr(S Cov(u, v)), unbiased."""
    return ((centered(u) * centered(v)).sum(dim=0) @ s) / (len(u) - 1)


def covariance_loss(u: Features, v: Features, singular_values: Values) -> Scalar:
    """L with the two covariances of the product taken from different halves of the batch.

    E[Var̂₁(u) · Var̂₂(v)] factorises because the halves are independent. O(n d²).

    Examples
    --------
    >>> u = v = torch.tensor([[1.0], [-1.0], [1.0], [-1.0]])
    >>> covariance_loss(u, v, torch.ones(1)).round(decimals=3)
    tensor(1.3330)
    """
    (u1, u2), (v1, v2) = _halves(u), _halves(v)
    s = singular_values
    product = covariance(u1, u1) * covariance(v2, v2) + covariance(u2, u2) * covariance(v1, v1)
    return s @ product @ s / 2 - 2 * _aligned_covariance(u, v, s)


def u_statistic_loss(u: Features, v: Features, singular_values: Values) -> Scalar:
    """L averaged over all choices of distinct rows: least variance among unbiased estimates. O(n d²).

    The paper prices this estimate at O(n² d); `cross_energy` shows why no n×n matrix is needed.

    Examples
    --------
    >>> u = v = torch.tensor([[1.0], [-1.0], [1.0], [-1.0]])
    >>> u_statistic_loss(u, v, torch.ones(1)).round(decimals=3)
    tensor(0.)
    """
    s = singular_values
    return cross_energy(u * s, v) - 2 * _aligned_covariance(u, v, s)


def paired_loss(u: Features, v: Features, singular_values: Values) -> Scalar:
    """L from row i of one half and row i of the other: eq. 11 of the paper averaged over the batch. O(n d).

    Centring by the mean of each half shrinks each squared factor by (m − 1)/m, which is divided out.

    Examples
    --------
    >>> u = v = torch.tensor([[1.0], [-1.0], [1.0], [-1.0]])
    >>> paired_loss(u, v, torch.ones(1)).round(decimals=3)
    tensor(1.3330)
    """
    (u1, u2), (v1, v2) = _halves(centered_halves(u)), _halves(centered_halves(v))
    s, m = singular_values, len(u1)
    forward, backward = (u1 * s * v2).sum(dim=1), (u2 * s * v1).sum(dim=1)
    energy = (forward.square().mean() + backward.square().mean()) / 2 * (m / (m - 1)) ** 2
    return energy - 2 * _aligned_covariance(u, v, s)


def centered_halves(features: Features) -> Float[Tensor, "even rank"]:
    """Each half of the batch minus its own mean."""
    return torch.cat([centered(half) for half in _halves(features)])


def cross_fitted_loss(u: Features, v: Features, singular_values: Values, ridge: float = 1e-3) -> Scalar:
    """Loss of the best operator in the span of the features, fitted on one half and scored on the other.

    In the span of u and v the minimiser of L is closed form, W = Cov(u)⁻¹ Cov(u, v) Cov(v)⁻¹ (ridge CCA). W is
    independent of the half that scores it, so the score L(uW, v) is unbiased for that W, and overfitting
    one half is punished by the other. Singular values play no part here: whitening finds them afterwards.

    Examples
    --------
    >>> x = torch.linspace(-1, 1, 64)[torch.randperm(64, generator=torch.Generator().manual_seed(0)), None]
    >>> bool(cross_fitted_loss(x, x, torch.ones(1)) < -0.5)  # Y = X in one linear feature: −σ² = −1
    True
    """
    (u1, u2), (v1, v2) = _halves(u), _halves(v)
    ones = torch.ones_like(singular_values)
    first = u_statistic_loss(u2 @ best_operator(u1, v1, ridge), v2, ones)
    second = u_statistic_loss(u1 @ best_operator(u2, v2, ridge), v1, ones)
    return (first + second) / 2


def best_operator(u: Features, v: Features, ridge: float = 1e-3) -> Float[Tensor, "rank rank"]:
    """(Cov(u) + ridge)⁻¹ Cov(u, v) (Cov(v) + ridge)⁻¹, the ridge relative to the mean eigenvalue."""
    left_solved = ridge_solve(covariance(u, u), covariance(u, v), ridge=ridge)
    return ridge_solve(covariance(v, v), left_solved.mT, ridge=ridge).mT


def orthonormality_penalty(u: Features, v: Features) -> Scalar:
    """R of the paper, unbiased, over all pairs of distinct rows; on the plain features. O(n d²).

    Examples
    --------
    >>> u = v = torch.tensor([[1.0], [-1.0], [1.0], [-1.0]])
    >>> orthonormality_penalty(u, v).round(decimals=3)
    tensor(-1.3330)
    """
    return _orthonormality_gap(u) + _orthonormality_gap(v)


def _orthonormality_gap(features: Features) -> Scalar:
    """U-statistic of ‖E[uuᵀ] − I‖²_F + 2‖E u‖² = E[(u·u')² − ‖u − u'‖²] + d (paper, eq. 12)."""
    n, d = features.shape
    pairs = n * (n - 1)
    norms = features.square().sum(dim=1)
    squared = ((features.mT @ features).square().sum() - norms.square().sum()) / pairs  # Σ_{i≠j} (u_i·u_j)²
    mean_product = (features.sum(dim=0).square().sum() - norms.sum()) / pairs
    return squared - 2 * norms.mean() + 2 * mean_product + d


LOSSES: dict[str, Callable[[Features, Features, Values], Scalar]] = {
    "covariance": covariance_loss,
    "u_statistic": u_statistic_loss,
    "paired": paired_loss,
    "cross_fitted": cross_fitted_loss,
}
# U-statistics run over four distinct rows; the cross-fitted loss takes one in each half.
MINIMUM_PAIRS: dict[str, int] = {name: 8 if name == "cross_fitted" else 4 for name in LOSSES}
