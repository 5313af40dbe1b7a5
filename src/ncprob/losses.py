"""The NCP training loss and its regulariser, as functions of features (Kostic et al. 2024, section 3).

With S = diag(s), the loss and the orthonormality penalty are

    L = tr(S^½ Var(u) S Var(v) S^½) − 2 tr(S Cov(u, v))                       (paper, eq. 9)
    R = ‖E[uuᵀ] − I‖²_F + ‖E[vvᵀ] − I‖²_F + 2‖E u‖² + 2‖E v‖²                 (paper, eq. 10)

L ≥ −Σ_{i≤d} σ*_i² with equality at the truncated SVD of the deflated conditional expectation operator
(Theorem 1). `covariance_loss`, `u_statistic_loss` and `paired_loss` are unbiased estimates of L from one batch of
independent pairs and differ in variance; `cross_fitted_loss` is unbiased for the best operator that half a batch can
fit in the span of the features. The pairs they need are in `MINIMUM_PAIRS`.

Each takes the rows of one process, or with `rows` (see `ncprob.ranks`) those that this process holds of a batch that is
spread over several: the value and, after `Ranks.average_gradients`, the gradient are those of the joined batch.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from ncprob.linalg import ridge_solve
from ncprob.ranks import JoinedRows
from ncprob.statistics import centered, centered_parts, energy_and_trace

Held = Float[Tensor, "held rank"]  # rows that this process holds
Features = Float[Tensor, "batch rank"]
Half = Float[Tensor, "half rank"]
Values = Float[Tensor, " rank"]
Scalar = Float[Tensor, ""]


def _rows(features: Held, rows: JoinedRows | None) -> JoinedRows:
    return JoinedRows.alone(len(features)) if rows is None else rows


def covariance_loss(u: Held, v: Held, singular_values: Values, rows: JoinedRows | None = None) -> Scalar:
    """L with the two covariances of the product taken from different halves of the batch.

    E[Var̂₁(u) · Var̂₂(v)] factorises because the halves are independent. O(n d²). Ranks exchange means and four d × d
    Gram matrices.

    Examples
    --------
    >>> u = v = torch.tensor([[1.0], [-1.0], [1.0], [-1.0]])
    >>> covariance_loss(u, v, torch.ones(1)).round(decimals=3)
    tensor(1.3330)
    """
    rows = _rows(u, rows)
    s, ((first, half), (second, _)) = singular_values, rows.halves()
    *halves, centered_u, centered_v = centered_parts(
        *((features[part], half) for features in (u, v) for part in (first, second)), (u, rows), (v, rows)
    )
    u1, u2, v1, v2 = halves
    left1, left2, right1, right2, aligned = rows.total(
        u1.mT @ u1, u2.mT @ u2, v1.mT @ v1, v2.mT @ v2, (centered_u * centered_v).sum(dim=0)
    )
    product = (left1 * right2 + left2 * right1) / (len(half) - 1) ** 2
    return s @ product @ s / 2 - 2 * (aligned @ s) / (len(rows) - 1)


def u_statistic_loss(u: Held, v: Held, singular_values: Values, rows: JoinedRows | None = None) -> Scalar:
    """L averaged over all choices of distinct rows: least variance among unbiased estimates. O(n d²).

    The paper prices this estimate at O(n² d); `cross_energy` shows why no n×n matrix is needed. Ranks exchange means
    and three d × d Gram matrices.

    Examples
    --------
    >>> u = v = torch.tensor([[1.0], [-1.0], [1.0], [-1.0]])
    >>> u_statistic_loss(u, v, torch.ones(1)).round(decimals=3)
    tensor(0.)
    """
    energy, trace = energy_and_trace(u * singular_values, v, _rows(u, rows))
    return energy - 2 * trace


def paired_loss(u: Held, v: Held, singular_values: Values, rows: JoinedRows | None = None) -> Scalar:
    """L from row i of one half and row i of the other: eq. 11 of the paper averaged over the batch. O(n d).

    Centring by the mean of each half shrinks each squared factor by (m − 1)/m, which is divided out. Partners may lie
    on different ranks, so ranks exchange all features, n × d numbers: with several ranks the other losses are cheaper.

    Examples
    --------
    >>> u = v = torch.tensor([[1.0], [-1.0], [1.0], [-1.0]])
    >>> paired_loss(u, v, torch.ones(1)).round(decimals=3)
    tensor(1.3330)
    """
    u, v = _rows(u, rows).joined(u, v)
    (u1, u2), (v1, v2) = _centered_halves(u), _centered_halves(v)
    s, m = singular_values, len(u1)
    forward, backward = (u1 * s * v2).sum(dim=1), (u2 * s * v1).sum(dim=1)
    energy = (forward.square().mean() + backward.square().mean()) / 2 * (m / (m - 1)) ** 2
    return energy - 2 * ((centered(u) * centered(v)).sum(dim=0) @ s) / (len(u) - 1)


def _centered_halves(features: Features) -> tuple[Half, Half]:
    """Each half of the batch minus its own mean."""
    (first, _), (second, _) = JoinedRows.alone(len(features)).halves()
    return centered(features[first]), centered(features[second])


def cross_fitted_loss(
    u: Held, v: Held, singular_values: Values, rows: JoinedRows | None = None, ridge: float = 1e-3
) -> Scalar:
    """Loss of the best operator in the span of the features, fitted on one half and scored on the other.

    In the span of u and v the minimiser of L is closed form, W = Cov(u)⁻¹ Cov(u, v) Cov(v)⁻¹ (ridge CCA). W is
    independent of the half that scores it, so the score L(uW, v) is unbiased for that W, and overfitting
    one half is punished by the other. Singular values play no part here: whitening finds them afterwards. Ranks
    exchange means and twelve d × d Gram matrices, in eight messages.

    Examples
    --------
    >>> x = torch.linspace(-1, 1, 64)[torch.randperm(64, generator=torch.Generator().manual_seed(0)), None]
    >>> bool(cross_fitted_loss(x, x, torch.ones(1)) < -0.5)  # Y = X in one linear feature: −σ² = −1
    True
    """
    ones = torch.ones_like(singular_values)

    (first, first_rows), (second, second_rows) = _rows(u, rows).halves()
    fit1 = best_operator(u[first], v[first], ridge, first_rows)
    fit2 = best_operator(u[second], v[second], ridge, second_rows)
    score2 = u_statistic_loss(u[second] @ fit1, v[second], ones, second_rows)
    score1 = u_statistic_loss(u[first] @ fit2, v[first], ones, first_rows)
    return (score1 + score2) / 2


def best_operator(u: Held, v: Held, ridge: float = 1e-3, rows: JoinedRows | None = None) -> Float[Tensor, "rank rank"]:
    """(Cov(u) + ridge)⁻¹ Cov(u, v) (Cov(v) + ridge)⁻¹, the ridge relative to the mean eigenvalue."""
    rows = _rows(u, rows)
    u, v = centered_parts((u, rows), (v, rows))
    left, right, cross = (sums / (len(rows) - 1) for sums in rows.total(u.mT @ u, v.mT @ v, u.mT @ v))
    return ridge_solve(right, ridge_solve(left, cross, ridge=ridge).mT, ridge=ridge).mT


def orthonormality_penalty(u: Held, v: Held, rows: JoinedRows | None = None) -> Scalar:
    """R of the paper, unbiased, over all pairs of distinct rows; on the plain features. O(n d²).

    It is the U-statistic of ‖E[uuᵀ] − I‖²_F + 2‖E u‖² = E[(u·u')² − ‖u − u'‖²] + d (paper, eq. 12), and the same of v.
    Ranks exchange sums and two d × d Gram matrices.

    Examples
    --------
    >>> u = v = torch.tensor([[1.0], [-1.0], [1.0], [-1.0]])
    >>> orthonormality_penalty(u, v).round(decimals=3)
    tensor(-1.3330)
    """
    rows = _rows(u, rows)
    sums = rows.total(*_second_moments(u), *_second_moments(v))
    return _orthonormality_gap(len(rows), *sums[:4]) + _orthonormality_gap(len(rows), *sums[4:])


def _second_moments(features: Held) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Σ uuᵀ, Σ u, Σ ‖u‖², Σ ‖u‖⁴ over the rows held here."""
    norms = features.square().sum(dim=1)
    return features.mT @ features, features.sum(dim=0), norms.sum(), norms.square().sum()


def _orthonormality_gap(n: int, gram: Tensor, sums: Tensor, norms: Tensor, squared_norms: Tensor) -> Scalar:
    pairs = n * (n - 1)
    squared = (gram.square().sum() - squared_norms) / pairs  # Σ_{i≠j} (u_i·u_j)²
    mean_product = (sums.square().sum() - norms) / pairs
    return squared - 2 * norms / n + 2 * mean_product + len(sums)


LOSSES: dict[str, Callable[..., Scalar]] = {
    "covariance": covariance_loss,
    "u_statistic": u_statistic_loss,
    "paired": paired_loss,
    "cross_fitted": cross_fitted_loss,
}
# U-statistics run over four distinct rows; the cross-fitted loss takes one in each half.
MINIMUM_PAIRS: dict[str, int] = {name: 8 if name == "cross_fitted" else 4 for name in LOSSES}
# Its Cholesky factors make the host ask whether there is one, so steps with it wait for the device.
WAITING = frozenset({"cross_fitted"})
