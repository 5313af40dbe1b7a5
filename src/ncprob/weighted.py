"""Formulas on weighted sorted atoms, for many weight vectors at once: quantiles, intervals, density, CRPS.

`weights` has shape (rows, atoms) with rows adding to one; `atoms` (atoms,) is increasing. No loop over rows.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

Weights = Float[Tensor, "rows atoms"]
Atoms = Float[Tensor, " atoms"]

POINT_MASS = 0.02  # an atom with so large a share of a law says nothing about the scale of the rest
ROUNDING = 1e-12  # slack for probabilities that were added up in floating point


def padded_cumsum(weights: Weights) -> Float[Tensor, "rows atoms_plus_one"]:
    """Cumulative weights with a leading zero: entry j is the mass of the first j atoms; the last is exactly one."""
    cumulative = torch.nn.functional.pad(weights.cumsum(dim=1), (1, 0)).clamp_(max=1)
    cumulative[:, -1] = 1
    return cumulative


def quantiles(weights: Weights, atoms: Atoms, levels: Float[Tensor, " levels"]) -> Float[Tensor, "rows levels"]:
    """Smallest atom with cumulative weight ≥ level.

    Examples
    --------
    >>> w = torch.tensor([[0.25, 0.5, 0.25]], dtype=torch.float64)
    >>> quantiles(w, torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.25, 0.5, 0.9], dtype=torch.float64))
    tensor([[1., 2., 3.]])
    """
    cumulative = padded_cumsum(weights)[:, 1:].contiguous()
    wanted = (levels - ROUNDING).expand(len(weights), -1).contiguous()
    return atoms[torch.searchsorted(cumulative, wanted).clamp(max=len(atoms) - 1)]


def shortest_interval(weights: Weights, atoms: Float[Tensor, "... atoms"], coverage: float) -> Float[Tensor, "rows 2"]:
    """Narrowest [a_i, a_j] with mass ≥ coverage (Kostic et al. 2024, Algorithm 3); rows share atoms or have their own.

    For every first atom i the last atom j is the first whose cumulative weight reaches coverage plus the mass before i;
    one sorted search finds them all, where the paper's pointers walk one row at a time.

    Examples
    --------
    >>> w = torch.tensor([[0.1, 0.4, 0.4, 0.1]], dtype=torch.float64)
    >>> shortest_interval(w, torch.tensor([0.0, 5.0, 6.0, 9.0]), coverage=0.8)
    tensor([[5., 6.]])
    """
    cumulative = padded_cumsum(weights)
    before, upto = cumulative[:, :-1].contiguous(), cumulative[:, 1:].contiguous()
    last = torch.searchsorted(upto, before + (coverage - ROUNDING))
    own = atoms.expand_as(weights)
    reachable = last < weights.shape[1]
    last = last.clamp_(max=weights.shape[1] - 1)
    widths = torch.where(reachable, own.gather(1, last) - own, math.inf)
    first = widths.argmin(dim=1, keepdim=True)
    return torch.cat([own.gather(1, first), own.gather(1, last.gather(1, first))], dim=1)


def bandwidth(weights: Weights, atoms: Atoms) -> Float[Tensor, "rows 1"]:
    """Half-width of the triangular kernel, per row.

    Silverman's rule (1986, eq. 3.31) with a robust local scale: h = √6 · 0.9 · σ̂ · m^(−1/5), where m = 1/Σ p² is the
    effective number of atoms (Kish 1965) and σ̂ the smaller of IQR/1.349 and (width of the shortest interval of mass
    ¼)/0.637; both equal σ for a normal law. The second keeps separate modes apart. √6 because a triangle of
    half-width h has variance h²/6.
    """
    weights = _without_point_masses(weights)
    quartiles = quantiles(weights, atoms, torch.tensor([0.25, 0.75], dtype=torch.float64, device=weights.device))
    iqr = (quartiles[:, 1] - quartiles[:, 0]) / 1.349
    short = shortest_interval(weights, atoms, 0.25)
    sigma = torch.minimum(iqr, (short[:, 1] - short[:, 0]) / 0.637)
    effective = 1 / weights.square().sum(dim=1)
    width = math.sqrt(6) * 0.9 * sigma * effective ** (-0.2)
    # Point masses have no scale of their own: fall back to a thousandth of the spread of all atoms.
    return width.clamp(min=1e-3 * _spread(atoms))[:, None]


def _without_point_masses(weights: Weights) -> Weights:
    """The spread-out part of each law, normalised; the law itself where less than a tenth of it is spread out."""
    light = torch.where(weights < POINT_MASS, weights, 0.0)
    mass = light.sum(dim=1, keepdim=True)
    return torch.where(mass > 0.1, light / mass.clamp(min=0.1), weights)


def _spread(atoms: Atoms) -> float:
    """A positive robust spread of the atoms: half the interquartile range, else a share of the range, else one."""
    n = len(atoms)
    spread = float(atoms[(3 * n) // 4] - atoms[n // 4]) / 2 or float(atoms[-1] - atoms[0]) / 100
    return spread or 1.0


def density(weights: Weights, atoms: Atoms, points: Float[Tensor, "rows points"]) -> Float[Tensor, "rows points"]:
    """Triangular-kernel density of each row at its own points, with a Cauchy share of 1/(atoms + 1).

    The kernel part at t is the mass within h of t, less its mean distance from t over h, all over h. Masses and first
    moments of the two sides of t are differences of cumulative sums: three sorted searches per point instead of a
    sum over atoms, and exactly zero where no atom is near.

    Examples
    --------
    >>> atoms = torch.linspace(-3, 3, 2001, dtype=torch.float64)
    >>> w = torch.softmax(-(atoms**2) / 2, dim=0)[None]
    >>> density(w, atoms, torch.zeros(1, 1, dtype=torch.float64)).item()  # 1/√(2π) = 0.3989
    0.39...
    """
    h = bandwidth(weights, atoms)
    middle = len(atoms) // 2
    shifted, t = atoms - atoms[middle], points - atoms[middle]  # keeps the sums small against the bandwidth
    mass, moment = outward_cumsum(weights, middle), outward_cumsum(weights * shifted, middle)
    at = [torch.searchsorted(shifted, (t + k * h).contiguous(), right=True) for k in (-1, 0, 1)]
    below, above = (mass.gather(1, at[k + 1]) - mass.gather(1, at[k]) for k in (0, 1))
    moment_below, moment_above = (moment.gather(1, at[k + 1]) - moment.gather(1, at[k]) for k in (0, 1))
    finite = t.nan_to_num()  # at infinity both masses are zero
    distance = finite * below - moment_below + moment_above - finite * above
    kernel = ((below + above - distance / h) / h).clamp(min=0)
    share, spread = 1 / (len(atoms) + 1), _spread(atoms)
    broad = 1 / (math.pi * spread * (1 + (t / spread).square()))
    return (1 - share) * kernel + share * broad


def outward_cumsum(values: Float[Tensor, "rows atoms"], middle: int) -> Float[Tensor, "rows atoms_plus_one"]:
    """Cumulative sums that are zero before column `middle`: far atoms on one side do not blur the sums near it.

    Examples
    --------
    >>> outward_cumsum(torch.tensor([[1.0, 2.0, 3.0]]), middle=1)
    tensor([[-1.,  0.,  2.,  5.]])
    """
    left = -values[:, :middle].flip(1).cumsum(dim=1).flip(1)
    return torch.cat([left, values.new_zeros(len(values), 1), values[:, middle:].cumsum(dim=1)], dim=1)


def crps(weights: Weights, atoms: Float[Tensor, "... atoms"], y: Float[Tensor, " rows"]) -> Float[Tensor, " rows"]:
    """E|Y − y| − ½E|Y − Y'| of each row at its own y (Gneiting & Raftery 2007, eq. 21).

    On sorted atoms ½E|Y − Y'| = Σ_j p_j a_j (P_{j−1} + P_j − 1), P the cumulative weights.

    Examples
    --------
    >>> crps(torch.tensor([[0.5, 0.5]]), torch.tensor([0.0, 2.0]), torch.tensor([1.0]))
    tensor([0.5000])
    """
    cumulative = weights.cumsum(dim=1)
    distance = atoms - y[:, None]  # the spread does not see a shift, and keeps its digits far from zero
    half_spread = (weights * distance * (2 * cumulative - weights - 1)).sum(dim=1)
    return ((weights * distance.abs()).sum(dim=1) - half_spread).clamp(min=0)  # below zero only by rounding


def densest_cells(
    edges: Float[Tensor, "rows edges"], density: Float[Tensor, "rows cells"], level: float
) -> tuple[Float[Tensor, "pieces 2"], Int[Tensor, " rows"]]:
    """Cells of equal probability with the highest density, together of probability ≥ level, neighbours joined.

    All pieces one below the other, and how many belong to each row.

    Examples
    --------
    >>> edges = torch.tensor([[0.0, 1.0, 5.0, 6.0, 7.0]])  # the second cell is wide, so thin
    >>> densest_cells(edges, 0.25 / edges.diff(), level=0.75)
    (tensor([[0., 1.],
            [5., 7.]]), tensor([2]))
    """
    n_cells = density.shape[1]
    wanted = math.ceil(level * n_cells - ROUNDING)
    densest = density.argsort(dim=1, descending=True)[:, :wanted]
    chosen = torch.zeros_like(density, dtype=torch.bool).scatter_(1, densest, True)
    alone = torch.nn.functional.pad(chosen, (1, 1))
    first = chosen & ~alone[:, :-2]
    last = chosen & ~alone[:, 2:]
    row = first.nonzero()[:, 0]
    low, high = edges[:, :-1][first], edges[:, 1:][last]
    # Cells of width zero, inside a heavy atom, are equally dense; some left out must not part the others.
    touching = (row[1:] == row[:-1]) & (low[1:] <= high[:-1])
    starts = torch.nn.functional.pad(~touching, (1, 0), value=True)
    ends = torch.nn.functional.pad(~touching, (0, 1), value=True)
    return torch.stack([low[starts], high[ends]], dim=1), torch.bincount(row[starts], minlength=len(edges))
