"""The terms of the bounds, estimated from held-out features."""

from __future__ import annotations

from math import log, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ncprob._validation import check_integer
from ncprob.guarantees.bounds import FloatArray, OperatorTerms, TargetMoments


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
