"""First and second moments of feature pairs: unbiased batch forms and exact chunked accumulation.

Notation: u (batch, rank) are left features of x, v (batch, rank) right features of y, drawn in pairs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


def centered(features: Float[Tensor, "batch rank"]) -> Float[Tensor, "batch rank"]:
    """Features minus their batch mean."""
    return features - features.mean(dim=0)


def covariance(u: Float[Tensor, "batch left"], v: Float[Tensor, "batch right"]) -> Float[Tensor, "left right"]:
    """Unbiased covariance Σ_i (u_i − ū)(v_i − v̄)ᵀ / (n − 1).

    Examples
    --------
    >>> u = torch.tensor([[0.0], [2.0]])
    >>> covariance(u, u)
    tensor([[2.]])
    """
    return centered(u).mT @ centered(v) / (len(u) - 1)


def sum_of_squared_cross_products(u: Float[Tensor, "batch rank"], v: Float[Tensor, "batch rank"]) -> Float[Tensor, ""]:
    """Σ_{i≠j} (u_i·v_j)² = ⟨UᵀU, VᵀV⟩ − Σ_i (u_i·v_i)², without an n×n matrix."""
    return ((u.mT @ u) * (v.mT @ v)).sum() - (u * v).sum(dim=1).square().sum()


def cross_energy(u: Float[Tensor, "batch rank"], v: Float[Tensor, "batch rank"]) -> Float[Tensor, ""]:
    r"""Unbiased U-statistic of tr(Var(u) Var(v)) from one batch of pairs, in O(n d²).

    With ū, v̄ centred and (x, y'), independent draws, tr(Var(u) Var(v)) = E[(ū(x)·v̄(y'))²]. Let M_ij = u_i·v_j for
    i ≠ j. Expanding the centring needs products over two, three and four distinct rows,

        E[M_ij²] − E[M_ij M_kj] − E[M_ij M_ik] + E[M_ij M_kl],

    each averaged over distinct indices only, so rows never meet their own partner (Hoeffding 1948; the
    same bookkeeping gives the unbiased HSIC of Song et al. 2012). Sums over distinct indices follow from
    row sums, column sums and traces of M by inclusion and exclusion; M itself is never formed.
    """
    n = len(u)
    u, v = centered(u), centered(v)  # changes nothing in exact arithmetic, avoids cancellation
    diagonal = (u * v).sum(dim=1)
    row_sums = -diagonal  # Σ_{j≠i} u_i·v_j, because Σ_j v_j = 0
    # After centring, column sums equal row sums and the total is their sum.
    total = row_sums.sum()
    squares = sum_of_squared_cross_products(u, v)
    gram = u.mT @ v
    transposed = (gram * gram.mT).sum() - diagonal.square().sum()  # Σ_{i≠j} M_ij M_ji
    triples = row_sums.square().sum() - squares  # Σ over distinct i, j, k of M_ij M_ik; also of M_ij M_kj
    quadruples = total.square() - 2 * triples - squares - 2 * row_sums.square().sum() + transposed
    pairs_count = n * (n - 1)
    triples_count = pairs_count * (n - 2)
    return squares / pairs_count - 2 * triples / triples_count + quadruples / (triples_count * (n - 3))


@dataclass(frozen=True)
class PairMoments:
    """Weighted means and centred covariances of (u, v), in float64, mergeable.

    `weight` is Σ w_i; covariances divide by it (the population form used by Algorithm 2 of the paper).
    """

    weight: Float[Tensor, ""]
    left_mean: Float[Tensor, " rank"]
    right_mean: Float[Tensor, " rank"]
    left: Float[Tensor, "rank rank"]
    right: Float[Tensor, "rank rank"]
    cross: Float[Tensor, "rank rank"]

    @classmethod
    def of(
        cls,
        u: Float[Tensor, "batch rank"],
        v: Float[Tensor, "batch rank"],
        weights: Float[Tensor, " batch"] | None = None,
    ) -> PairMoments:
        """Moments of one chunk.

        Examples
        --------
        >>> m = PairMoments.of(torch.tensor([[0.0], [2.0]]), torch.tensor([[1.0], [3.0]]))
        >>> m.left_mean.item(), m.cross.item()
        (1.0, 1.0)
        """
        u, v = u.double(), v.double()
        w = u.new_ones(len(u)) if weights is None else weights.double()
        total = w.sum()
        left_mean, right_mean = w @ u / total, w @ v / total
        du, dv = u - left_mean, v - right_mean
        wdu, wdv = w[:, None] * du, w[:, None] * dv
        return cls(total, left_mean, right_mean, wdu.mT @ du / total, wdv.mT @ dv / total, wdu.mT @ dv / total)

    def merge(self, other: PairMoments) -> PairMoments:
        """Moments of the union of two chunks (Chan, Golub & LeVeque 1983): stable, order-free up to rounding."""
        total = self.weight + other.weight
        a, b = self.weight / total, other.weight / total
        du, dv = other.left_mean - self.left_mean, other.right_mean - self.right_mean
        return PairMoments(
            total,
            self.left_mean + b * du,
            self.right_mean + b * dv,
            a * self.left + b * other.left + a * b * torch.outer(du, du),
            a * self.right + b * other.right + a * b * torch.outer(dv, dv),
            a * self.cross + b * other.cross + a * b * torch.outer(du, dv),
        )

    @classmethod
    def accumulate(cls, chunks: Iterable[tuple[Tensor, Tensor, Tensor | None]]) -> PairMoments:
        """Moments of a stream of (u, v, weights) chunks; memory does not grow with the stream."""
        moments: PairMoments | None = None
        for u, v, weights in chunks:
            part = cls.of(u, v, weights)
            moments = part if moments is None else moments.merge(part)
        if moments is None:
            raise ValueError("`pairs` must hold at least one pair; got none. Pass the training pairs.")
        return moments
