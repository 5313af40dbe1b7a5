"""Laws given sets: Y given X ∈ A, and X given Y ∈ B, from a fitted model and its training rows.

Both are averages of the pointwise laws over training rows, so asking about a set or about its points gives the
same answer:

    P(Y ∈ B | X ∈ A) = Σ_{i∈A} ω_i P(Y ∈ B | x_i) / Σ_{i∈A} ω_i,      P(X ∈ A | Y ∈ B) ∝ Σ_{i∈A} ω_i P(Y ∈ B | x_i).

The first is eq. 14 of Kostic et al. 2024; the second applies the adjoint of the conditional expectation operator to the
indicator of B.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ncprob.distribution import ConditionalDistribution, Export
from ncprob.support import Support

REPRESENTATIVES = 512  # rows of A whose laws are formed one by one; more where there are few atoms
LAW_ELEMENTS = 2**21
POOLED_ATOMS = 2**18


@dataclass(frozen=True)
class TrainingRows:
    """Pointwise laws of the training rows, in the order of the training table, with the weights ω of the rows."""

    laws: ConditionalDistribution
    weights: Tensor

    def given(self, mask: Tensor, export: Export | None) -> ConditionalDistribution:
        """The law of Y given that X is among the rows of `mask`, as a distribution with one member."""
        rows = mask.nonzero()[:, 0]
        laws, omega = self.laws[rows], self.weights[rows] / self.weights[rows].sum()
        support = _averaged(laws, omega) if laws.transport is None else _pooled(laws, omega)
        return ConditionalDistribution(support, support.features.new_zeros(1, 1), export=export)

    def reverse(self, points: Tensor, region: Any, export: Export | None) -> ConditionalDistribution:
        """The law of X over `points`, the training X, given Y ∈ `region`."""
        posterior = self.weights * self.laws.probability(region)
        if not bool(posterior.sum() > 0):
            raise ValueError(
                "`B` must have positive probability; no training row gives it any. Choose a larger set of y values."
            )
        support = Support(points, torch.zeros(len(points), 1, device=points.device), posterior)
        return ConditionalDistribution(support, torch.zeros(1, 1, device=points.device), export=export)


def _representatives(key: Tensor, omega: Tensor, n_atoms: int) -> tuple[Tensor, Tensor]:
    """All rows if their laws are quickly formed, else some, drawn systematically along `key` with equal shares of ω."""
    n, many = len(key), max(REPRESENTATIVES, LAW_ELEMENTS // n_atoms)
    if n <= many:
        return torch.arange(n, device=key.device), omega
    order = torch.argsort(key)
    cumulative = omega[order].cumsum(0)
    middle = (torch.arange(many, dtype=torch.float64, device=key.device) + 0.5) / many
    chosen = order[torch.searchsorted(cumulative, middle * cumulative[-1]).clamp(max=n - 1)]
    return chosen, torch.full_like(middle, 1 / many)


def _averaged(laws: ConditionalDistribution, omega: Tensor) -> Support:
    """Average weights on the shared atoms.

    The ratio 1 + ⟨left, right⟩ averages over all rows at once, being linear in left; what cutting it off at
    zero adds is averaged over representatives (a control variate). With few rows this is exactly the average
    of their laws.
    """
    support, left = laws.support, laws.left
    chosen, share = _representatives(left[:, :1].sum(dim=1), omega, len(support))  # a rank of zero has no first column
    mean_left = omega.to(left.dtype) @ left
    linear = support.weights * (1 + (support.features @ mean_left).double())
    some_left = share.to(left.dtype) @ left[chosen]
    linear_of_some = support.weights * (1 + (support.features @ some_left).double())
    repaired_of_some = laws[chosen].average_weights(share)
    weights = (linear + repaired_of_some - linear_of_some).clamp(min=0)
    return Support(support.values, support.features.new_zeros(len(support), 1), weights)


def _pooled(laws: ConditionalDistribution, omega: Tensor) -> Support:
    """Atoms of representatives, each moved by its own map, in one support."""
    assert laws.transport is not None
    chosen, share = _representatives(laws.transport.anchor[:, 0], omega, len(laws.support))
    some = laws[chosen]
    masses = some.average_masses(share)
    if masses is not None:
        levels, weights = masses
        return Support(levels, levels.new_zeros(len(levels), 1, dtype=torch.float32), weights)
    per_row = max(1, POOLED_ATOMS // len(chosen))
    values, weights = some.located_atoms(per_row)
    weights = (weights * share[:, None]).reshape(-1)
    atoms = values.reshape(-1, values.shape[-1])
    return Support.compressed(atoms, atoms.new_zeros(len(atoms), 1, dtype=torch.float32), weights)
