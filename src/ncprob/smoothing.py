"""A smooth law for normal scores that are nearly normal already."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

TERMS = 20
MIN_CELLS, MAX_CELLS = 1024, 4096
CELLS_PER_ROOT = (
    32  # cells per √n: half a cell, the error of a step, is 1/32 of the sampling error 1/(2√n) up to n = 16,384
)
GRID = 4097
CRITICAL = 1.63  # 1 % point of √n · sup|F̂ − F| (Kolmogorov 1933)


def smooth_atoms(
    scores: Float[Tensor, " rows"], weights: Float[Tensor, " rows"] | None = None
) -> tuple[Float[Tensor, " atoms"], Float[Tensor, " atoms"]] | None:
    """Atoms and weights of a smooth law fitted to normal scores, or None where a smooth law does not fit.

    U = Φ(score) is nearly uniform if the model behind the scores is nearly right. Its density is estimated by
    1 + Σ_{k≤K} a_k √2 cos(kπu), an orthogonal series estimate (Efromovich 1999) with a fraction of the sampling error
    of n atoms. Coefficients within the universal threshold of their noise, λ² = 2 ln K (Donoho & Johnstone 1994), are
    zero: of K that are nothing but noise the largest is about λ, and in three samples of four all are zero, so a model
    that is right mostly stays as it is. The others shrink less the further they are beyond, a_k = c_k · max(0, 1 − (λ²
    Var(c_k)/c_k²)²), firmer than the garrote of Gao (1998).
    If the scores depart from the estimate by more than chance (Kolmogorov's test), the atoms stay what they are.

    Examples
    --------
    >>> scores = torch.special.ndtri((torch.arange(500, dtype=torch.float64) + 0.5) / 500)
    >>> atoms, weights = smooth_atoms(scores)
    >>> round(float((weights * atoms**2).sum()), 2)  # the variance of the normal law
    1.0
    >>> smooth_atoms(torch.zeros(500)) is None
    True
    """
    mass = torch.full_like(scores, 1 / len(scores)) if weights is None else weights / weights.sum()
    mass, scores = mass.double(), scores.double()
    effective = float(1 / mass.square().sum())
    ordered, order = torch.special.ndtr(scores).sort()
    mass = mass[order]
    u = torch.linspace(0, 1, GRID, dtype=torch.float64, device=scores.device)
    law = _series(ordered, mass, effective, u)
    cumulative = mass.cumsum(0)
    at = _interpolate(u, law, ordered)
    distance = float(torch.maximum((cumulative - at).abs(), (cumulative - mass - at).abs()).max())
    if distance > CRITICAL / math.sqrt(effective):
        return None
    edges = _cell_edges(effective).to(scores.device)
    middles = (edges[1:] + edges[:-1]) / 2
    return torch.special.ndtri(_interpolate(law, u, middles).clamp(1e-15, 1 - 1e-15)), edges.diff()


def _series(u: Tensor, mass: Tensor, effective: float, grid: Tensor) -> Tensor:
    """Distribution function of the shrunken cosine series on a grid; where its density falls below zero it is cut."""
    k = torch.arange(1, TERMS + 1, dtype=torch.float64, device=u.device)
    cosines = math.sqrt(2) * torch.cos(math.pi * k[:, None] * u)
    means = cosines @ mass
    noise = ((cosines - means[:, None]).square() @ mass) / effective
    within = 2 * math.log(TERMS) * noise / means.square().clamp(min=1e-300)
    coefficients = means * (1 - within.square()).clamp(min=0)
    middles = (grid[1:] + grid[:-1]) / 2
    density = 1 + coefficients @ (math.sqrt(2) * torch.cos(math.pi * k[:, None] * middles))
    law = torch.nn.functional.pad(density.clamp(min=1e-6).cumsum(0), (1, 0))
    return law / law[-1]


def _cell_edges(effective: float) -> Tensor:
    """Even cells, the outermost ones halved until they hold less than a quarter of a row: tails keep their reach."""
    cells = min(max(MIN_CELLS, round(CELLS_PER_ROOT * math.sqrt(effective))), MAX_CELLS)
    halvings = max(0, math.ceil(math.log2(4 * effective / cells)))
    tail = torch.tensor([0.0, *(2.0**-i / cells for i in range(halvings, 0, -1))], dtype=torch.float64)
    even = torch.arange(1, cells, dtype=torch.float64) / cells
    return torch.cat([tail, even, 1 - tail.flip(0)])


def _interpolate(x: Tensor, y: Tensor, at: Tensor) -> Tensor:
    """Linear interpolation of y over increasing x."""
    right = torch.searchsorted(x, at.contiguous()).clamp(1, len(x) - 1)
    share = (at - x[right - 1]) / (x[right] - x[right - 1])
    return y[right - 1] + share * (y[right] - y[right - 1])
