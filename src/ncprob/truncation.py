"""Ridge and rank of a whitened operator, chosen on held-out pairs without another pass over the data."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ncprob.operator import SpectralOperator
from ncprob.statistics import PairMoments

RIDGES = (0.0, 1e-4, 1e-3, 1e-2, 1e-1)


@dataclass(frozen=True)
class Truncation:
    """A choice and its held-out loss."""

    ridge: float
    rank: int
    loss: float


def held_out_losses(operator: SpectralOperator, held_out: PairMoments) -> Float[Tensor, " rank_plus_one"]:
    """L of the operator truncated at k = 0, …, rank, from moments of plain held-out features.

    L_k = Σ_{i,j≤k} s_i s_j A_ij B_ij − 2 Σ_{i≤k} s_i D_ii with A, B, D the held-out second moments of the
    whitened features (Kostic et al. 2024, eq. 9). Products of moments of one sample overstate the first sum a
    little, which leans towards smaller ranks.
    """
    left_map, right_map = operator.left_map.double(), operator.right_map.double()
    left_shift = (held_out.left_mean - operator.left_mean) @ left_map
    right_shift = (held_out.right_mean - operator.right_mean) @ right_map
    left = left_map.mT @ held_out.left @ left_map + torch.outer(left_shift, left_shift)
    right = right_map.mT @ held_out.right @ right_map + torch.outer(right_shift, right_shift)
    cross = (left_map.mT @ held_out.cross @ right_map).diagonal()
    s = operator.singular_values.double()
    energy = (torch.outer(s, s) * left * right).cumsum(0).cumsum(1).diagonal()
    return torch.nn.functional.pad(energy - 2 * (s * cross).cumsum(0), (1, 0))


def choose_truncation(
    operator: SpectralOperator, training: PairMoments, held_out: PairMoments, rank: int | None = None
) -> Truncation:
    """Ridge and rank with the lowest held-out loss; `rank` fixes the rank, rank 0 means independent.

    The operator is left whitened with the last ridge tried: whiten it again with the one chosen.
    """
    best: Truncation | None = None
    for ridge in RIDGES:
        operator.whiten(training, ridge=ridge)
        losses = held_out_losses(operator, held_out)
        k = int(losses.argmin()) if rank is None else rank
        if best is None or float(losses[k]) < best.loss:
            best = Truncation(ridge, k, float(losses[k]))
    assert best is not None
    return best
