"""First and second moments of feature pairs: unbiased batch forms and exact chunked accumulation.

Notation: u (batch, rank) are left features of x, v (batch, rank) right features of y, drawn in pairs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import reduce

import torch
from jaxtyping import Float
from torch import Tensor

from ncprob.ranks import ALONE, JoinedRows, Ranks


def centered(features: Float[Tensor, "batch rank"]) -> Float[Tensor, "batch rank"]:
    """Features minus their batch mean."""
    return features - features.mean(dim=0)


def centered_parts(*parts: tuple[Tensor, JoinedRows]) -> list[Tensor]:
    """Parts of batches, each minus its mean over all ranks; one message for all of them.

    Examples
    --------
    >>> u = torch.tensor([[0.0], [2.0], [5.0], [9.0]])
    >>> (first, rows), (second, _) = JoinedRows.alone(4).halves()
    >>> centered_parts((u[first], rows), (u[second], rows))
    [tensor([[-1.],
            [ 1.]]), tensor([[-2.],
            [ 2.]])]
    """
    sums = parts[0][1].total(*(features.sum(dim=0) for features, _ in parts))
    return [features - total / len(rows) for (features, rows), total in zip(parts, sums, strict=True)]


def covariance(u: Float[Tensor, "batch left"], v: Float[Tensor, "batch right"]) -> Float[Tensor, "left right"]:
    """Unbiased covariance Σ_i (u_i − ū)(v_i − v̄)ᵀ / (n − 1).

    Examples
    --------
    >>> u = torch.tensor([[0.0], [2.0]])
    >>> covariance(u, u)
    tensor([[2.]])
    """
    return centered(u).mT @ centered(v) / (len(u) - 1)


def cross_energy(u: Float[Tensor, "batch rank"], v: Float[Tensor, "batch rank"]) -> Float[Tensor, ""]:
    r"""Unbiased U-statistic of tr(Var(u) Var(v)) from one batch of pairs, in O(n d²).

    With ū, v̄ centred and (x, y'), independent draws, tr(Var(u) Var(v)) = E[(ū(x)·v̄(y'))²]. Let M_ij = u_i·v_j for
    i ≠ j. Expanding the centring needs products over two, three and four distinct rows,

        E[M_ij²] − E[M_ij M_kj] − E[M_ij M_ik] + E[M_ij M_kl],

    each averaged over distinct indices only, so rows never meet their own partner (Hoeffding 1948; the
    same bookkeeping gives the unbiased HSIC of Song et al. 2012). Sums over distinct indices follow from
    row sums, column sums and traces of M by inclusion and exclusion; M itself is never formed, since for example
    Σ_{i≠j} (u_i·v_j)² = ⟨UᵀU, VᵀV⟩ − Σ_i (u_i·v_i)².
    """
    return energy_and_trace(u, v, JoinedRows.alone(len(u)))[0]


def energy_and_trace(
    u: Float[Tensor, "held rank"], v: Float[Tensor, "held rank"], rows: JoinedRows
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Unbiased tr(Var(u) Var(v)), see `cross_energy`, and tr Cov(u, v), of a batch that may lie on several ranks.

    Two messages between ranks: the means, then three d × d Gram matrices and two numbers.

    Examples
    --------
    >>> u = torch.tensor([[1.0], [-1.0], [1.0], [-1.0]])
    >>> energy, trace = energy_and_trace(u, u, JoinedRows.alone(4))
    >>> round(trace.item(), 3)
    1.333
    """
    n = len(rows)
    u, v = centered_parts((u, rows), (v, rows))  # changes nothing in exact arithmetic, avoids cancellation
    diagonal = (u * v).sum(dim=1)
    left, right, cross, trace, own = rows.total(u.mT @ u, v.mT @ v, u.mT @ v, diagonal.sum(), diagonal.square().sum())
    # Σ_{j≠i} u_i·v_j = −u_i·v_i, because Σ_j v_j = 0; after centring, column sums equal row sums.
    squares = (left * right).sum() - own  # Σ_{i≠j} M_ij²
    transposed = (cross * cross.mT).sum() - own  # Σ_{i≠j} M_ij M_ji
    triples = own - squares  # Σ over distinct i, j, k of M_ij M_ik; also of M_ij M_kj
    quadruples = trace.square() - 2 * triples - squares - 2 * own + transposed
    pairs_count = n * (n - 1)
    triples_count = pairs_count * (n - 2)
    energy = squares / pairs_count - 2 * triples / triples_count + quadruples / (triples_count * (n - 3))
    return energy, trace / (n - 1)


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
    def accumulate(cls, chunks: Iterable[tuple[Tensor, Tensor, Tensor | None]], ranks: Ranks = ALONE) -> PairMoments:
        """Moments of a stream of (u, v, weights) chunks, and of those of all ranks; memory does not grow with it."""
        moments: PairMoments | None = None
        for u, v, weights in chunks:
            if weights is None or bool((weights > 0).any()):
                part = cls.of(u, v, weights)
                moments = part if moments is None else moments.merge(part)
        found = [part for part in ranks.gathered(None if moments is None else moments.to("cpu")) if part is not None]
        if not found:
            raise ValueError("`pairs` must hold at least one pair; got none. Pass the training pairs.")
        return reduce(cls.merge, found) if moments is None or ranks.size > 1 else moments

    def to(self, device: torch.device | str) -> PairMoments:
        """The same on another device."""
        return PairMoments(*(getattr(self, field.name).to(device) for field in fields(self)))
