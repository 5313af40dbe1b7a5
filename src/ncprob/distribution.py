"""`ConditionalDistribution`: a batch of laws of Y, each carried by weighted atoms. Answers; no fitting.

Member i puts on atom j the weight

    p_ij ∝ ω_j max(0, 1 + ⟨left_i, right_j⟩),       left_i = s ⊙ u(x_i),  right_j = v(y_j),

ω_j being the weight of the atom in the marginal. This is always a valid law, so distribution functions are monotone,
quantiles do not cross and variances are not negative. An increasing map per member, y = T_i(atom_j), carries residual
coordinates. Weights are formed in row chunks of bounded size; no array has more than `CHUNK_ELEMENTS` entries.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from ncprob import weighted
from ncprob._validation import (
    as_float_tensor,
    as_generator,
    check_choice,
    check_integer,
    check_number,
    check_probabilities,
)
from ncprob.lattices import Lattice, Levels
from ncprob.sets import Box, as_box, membership
from ncprob.support import Support
from ncprob.threads import over_threads
from ncprob.transport import Transport

# 8 MiB of float64. Larger temporaries go back to the system each time, and page faults cost more than arithmetic.
CHUNK_ELEMENTS = 2**20

Export = Callable[[Tensor], Any]


def _weighted_sum(weights: Tensor, values: Tensor) -> Tensor:
    """Σ_j w_ij values_ij for values (rows or 1, atoms, k); atoms of weight zero count nothing, even if infinite."""
    if bool(values.isfinite().all()):
        return weights @ values[0] if len(values) == 1 else (weights[:, None, :] @ values)[:, 0]
    return torch.where(weights[:, :, None] > 0, weights[:, :, None] * values, 0.0).sum(dim=1)


def _total(weights: Tensor, values: Tensor) -> Tensor:
    """Σ_j w_j values_j over the last axis; a power that overflows counts nothing where there is no mass."""
    total = (weights * values).sum(dim=-1)
    if bool(total.isnan().any()):
        total = torch.where(weights > 0, weights * values, 0.0).sum(dim=-1)
    return total


def _coins() -> ConditionalDistribution:
    """The laws in examples: two coins, Y = 1 for heads, P(Y = 1) = p with p = ½ for the first and ¾ for the second."""
    support = Support(torch.tensor([0.0, 1.0]), torch.tensor([[-1.0], [1.0]]))
    return ConditionalDistribution(support, torch.tensor([[0.0], [0.5]]))


class ConditionalDistribution:
    """Laws of Y given n conditions; `len(d)`, `d[i]` and slices work as on a list.

    For a scalar question (t or q a number) the answer has shape (n,), for a vector of g values (n, g); t may also hold
    own values of every member, (n, g), for vector Y (n, q, g). For vector Y of q components `cdf`, `pdf`, `quantile`,
    `interval`, `pit`, `crps` and `log_score` act per component, with shapes (n, q) and (n, q, g), while `cov`, `prob`,
    `expectation` and `sample` concern the joint law.

    Parameters
    ----------
    support : Support
        Atoms of Y, shared by all members.
    left : Tensor of shape (n, d)
        Left features times singular values.
    transport : Transport, optional
        An increasing map of the atoms per member and component; by default the atoms are values of Y.
    lattice : Lattice, optional
        Values that Y takes; moved atoms are brought to them (`ncprob.lattices`).
    export : callable, optional
        Applied to every answer, for example to give arrays instead of tensors.

    Examples
    --------
    A table with two atoms: P(Y = 1 | x) is 0.5 for the first condition and 0.75 for the second. The examples of the
    methods call these two coins `_coins()`.

    >>> support = Support(torch.tensor([0.0, 1.0]), torch.tensor([[-1.0], [1.0]]))
    >>> d = ConditionalDistribution(support, torch.tensor([[0.0], [0.5]]))
    >>> d.mean()
    tensor([0.5000, 0.7500], dtype=torch.float64)
    >>> d.cdf([0.0, 0.5, 1.0])
    tensor([[0.5000, 0.5000, 1.0000],
            [0.2500, 0.2500, 1.0000]], dtype=torch.float64)
    >>> d[1].quantile(0.5)
    tensor([1.], dtype=torch.float64)
    """

    def __init__(
        self,
        support: Support,
        left: Tensor,
        *,
        transport: Transport | None = None,
        lattice: Lattice | None = None,
        export: Export | None = None,
    ) -> None:
        self.support, self.left, self.transport = support, left, transport
        self.lattice = None if transport is None else lattice
        self._export_function = export

    def __len__(self) -> int:
        return len(self.left)

    def __getitem__(self, rows: Any) -> ConditionalDistribution:
        if isinstance(rows, numbers.Integral):
            rows = [int(rows)]
            if not -len(self) <= rows[0] < len(self):
                raise IndexError(f"index {rows[0]} is out of range for {len(self)} members")
        elif isinstance(rows, slice) and (rows.step or 1) < 0:
            rows = torch.tensor(range(len(self))[rows], dtype=torch.long)
        index = rows if isinstance(rows, slice) else torch.as_tensor(rows)
        return ConditionalDistribution(
            self.support,
            self.left[index],
            transport=None if self.transport is None else self.transport[index],
            lattice=self.lattice,
            export=self._export_function,
        )

    def __iter__(self) -> Iterator[ConditionalDistribution]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        q = self.support.n_components
        return f"ConditionalDistribution({len(self)} members, {len(self.support)} atoms, {q} component{'s' * (q > 1)})"

    # ---------------------------------------------------------------- plumbing

    @property
    def _scalar(self) -> bool:
        return self.support.n_components == 1

    def _export(self, answer: Tensor) -> Any:
        return answer if self._export_function is None else self._export_function(answer)

    def _by_component(self, answer: Tensor) -> Any:
        """Export (n, q, …), dropping the component axis of scalar Y."""
        return self._export(answer[:, 0] if self._scalar else answer)

    def _to_base(self, values: Tensor) -> Tensor:
        """Values (n or 1, q, …) of Y in the coordinates of the atoms."""
        return values.expand(len(self), -1, -1) if self.transport is None else self.transport.to_base(values)

    def _from_base(self, values: Tensor) -> Tensor:
        """Inverse of `_to_base`; components on a lattice take its values."""
        if self.transport is None:
            return values
        moved = self.transport.from_base(values.flatten(2))
        return (moved if self.lattice is None else self.lattice.values_at(moved)).unflatten(2, values.shape[2:])

    def _located(self, rows: slice) -> Tensor:
        """Atoms of some members in units of Y, (rows or 1, q, atoms)."""
        return self[rows]._from_base(self.support.values.mT[None])

    def _weights(self, rows: slice) -> Tensor:
        """p_ij for the members in `rows`, float64, in the order of the support."""
        ratio = torch.addmm(self.left.new_ones(()), self.left[rows], self.support.features.mT)
        weights = ratio.clamp_(min=0).double().mul_(self.support.weights)
        total = weights.sum(dim=1, keepdim=True)
        if not bool((total > 0).all()):
            # A member whose ratio is nowhere positive knows nothing: it falls back to the marginal.
            weights = torch.where(total > 0, weights, self.support.weights)
            total = weights.sum(dim=1, keepdim=True)
        return weights.div_(total)

    def _in_chunks(self, compute: Callable[[Tensor, slice], Tensor], width: int = 1) -> Tensor:
        """Concatenate compute(weights of some rows, rows); `width` counts arrays of their size that it makes."""
        step = max(1, CHUNK_ELEMENTS // (len(self.support) * max(1, width)))
        starts = range(0, max(1, len(self)), step)  # an empty slice of members gives empty answers
        parts = [slice(start, start + step) for start in starts]
        return torch.cat(list(over_threads(lambda rows: compute(self._weights(rows), rows), parts)))

    def _per_component(self, compute: Callable[[Tensor, Tensor, int, slice], Tensor]) -> Tensor:
        """Stack compute(sorted weights, sorted atoms, component, rows) over components into (n, q, …)."""
        support = self.support

        def all_components(weights: Tensor, rows: slice) -> Tensor:
            parts = [
                compute(support.sort(weights, k), support.sorted_values(k), k, rows)
                for k in range(support.n_components)
            ]
            return torch.stack(parts, dim=1)

        return self._in_chunks(all_components, width=2)

    def _grid(self, values: Any, name: str) -> tuple[Tensor, bool]:
        """A question as a tensor (1 or n, q or 1, g), and whether it was a single number."""
        tensor = as_float_tensor(values, name).to(self.left.device)
        q = self.support.n_components
        if tensor.ndim == 2 and self._scalar and len(tensor) == len(self):
            return tensor[:, None, :], False
        if tensor.ndim == 3 and tensor.shape[:2] == (len(self), q):
            return tensor, False
        if tensor.ndim > 1:
            own = "(n, g)" if self._scalar else f"(n, {q}, g)"
            raise ValueError(
                f"`{name}` must be a number, a vector of values for all members, or own values of every member, shape "
                f"{own}; got shape {tuple(tensor.shape)} for {len(self)} members. Ask in one of these forms."
            )
        return tensor.reshape(1, 1, -1).expand(1, q, -1), tensor.ndim == 0

    def _own_values(self, y: Any) -> Tensor:
        """One value of Y per member, as (n, q, 1)."""
        q = self.support.n_components
        tensor = as_float_tensor(y, "y").to(self.left.device)
        allowed = [(len(self),), (len(self), 1)] if self._scalar else [(len(self), q)]
        if tuple(tensor.shape) not in allowed:
            raise ValueError(
                f"`y` must hold one value per member, shape {allowed[0]}; got {tuple(tensor.shape)}. "
                "Pass the targets of the same rows."
            )
        return tensor.reshape(len(self), q, 1)

    # ---------------------------------------------------------------- atoms

    @property
    def atoms(self) -> Any:
        """Points that carry the laws: (m,) or (m, q); in residual coordinates each member has its own, (n, m[, q]).

        Examples
        --------
        >>> d = _coins()
        >>> d.atoms
        tensor([0., 1.], dtype=torch.float64)
        """
        values = self.support.values
        if self.support.public_order is not None:
            values = values[self.support.public_order]
        if self.transport is not None:
            values = self._from_base(values.mT[None]).mT
        return self._export(values[..., 0] if self._scalar else values)

    def weights(self) -> Any:
        """Probabilities of the atoms, (n, m); rows add to one.

        Examples
        --------
        >>> d = _coins()
        >>> d.weights()
        tensor([[0.5000, 0.5000],
                [0.2500, 0.7500]], dtype=torch.float64)
        """
        order = self.support.public_order
        return self._export(self._in_chunks(lambda w, rows: w if order is None else w[:, order]))

    def repair_amounts(self) -> Tensor:
        """Mass of the negative part of each ratio, relative to the positive part that is kept.

        Examples
        --------
        >>> d = _coins()
        >>> law = ConditionalDistribution(d.support, torch.tensor([[1.5]]))  # ratios 1 ± 1.5
        >>> law.repair_amounts()  # 0.5 of 2.5
        tensor([0.2000], dtype=torch.float64)
        """
        omega = self.support.weights

        def chunk(_: Tensor, rows: slice) -> Tensor:
            ratio = (1 + self.left[rows] @ self.support.features.mT).double()
            return -(ratio.clamp(max=0) @ omega) / (ratio.clamp(min=0) @ omega).clamp(min=1e-300)

        return self._in_chunks(chunk, width=3)

    def average_weights(self, shares: Tensor) -> Tensor:
        """Σ_i shares_i p_i, the weights of a mixture of the members on the shared atoms (order of the support).

        Examples
        --------
        >>> d = _coins()
        >>> d.average_weights(torch.tensor([0.5, 0.5], dtype=torch.float64))
        tensor([0.3750, 0.6250], dtype=torch.float64)
        """
        return self._in_chunks(lambda w, rows: (shares[rows] @ w)[None]).sum(dim=0)

    def average_masses(self, shares: Tensor) -> tuple[Tensor, Tensor] | None:
        """Levels of scalar Y, which all members share, and Σ_i shares_i P_i(Y = level); None where Y has no levels.

        Examples
        --------
        >>> _coins().average_masses(torch.tensor([0.5, 0.5], dtype=torch.float64)) is None
        True
        """
        levels = self._levels(0)
        if levels is None or not self._scalar:
            return None
        atoms = self.support.sorted_values(0)
        masses = self._in_chunks(lambda w, rows: (shares[rows] @ self._level_masses(w, atoms, 0, rows))[None], width=2)
        return levels.values, masses.sum(dim=0)

    def located_atoms(self, per_member: int) -> tuple[Tensor, Tensor]:
        """At most about `per_member` atoms of every member in units of Y, (n, k, q), with their weights (n, k).

        Scalar atoms are joined in runs; vector atoms and those on levels are drawn systematically with equal weights.

        Examples
        --------
        >>> d = _coins()
        >>> values, weights = d.located_atoms(2)
        >>> values.shape, weights.shape
        (torch.Size([2, 2, 1]), torch.Size([2, 2]))
        """
        n_atoms, q = len(self.support), self.support.n_components
        if n_atoms <= per_member:
            weights = self._in_chunks(lambda w, rows: w)
            values = self.support.values.mT.expand(len(self), q, n_atoms)
        elif q == 1 and self._levels(0) is None:
            group = torch.arange(n_atoms, device=self.left.device) * per_member // n_atoms
            weights = self._in_chunks(lambda w, rows: w.new_zeros(len(w), per_member).index_add_(1, group, w))
            firsts = self._in_chunks(
                lambda w, rows: w.new_zeros(len(w), per_member).index_add_(1, group, w * self._located(rows)[:, 0])
            )
            joined = torch.where(weights > 0, firsts / weights.clamp(min=1e-300), 0.0)
            return self._on_lattice(0, joined)[:, :, None], weights
        else:
            # Offsets that differ by the golden ratio: members draw other atoms, so that errors of a mixture cancel.
            member = torch.arange(len(self), dtype=torch.float64, device=self.left.device)[:, None]
            step = torch.arange(per_member, dtype=torch.float64, device=self.left.device)
            levels = (step + (0.5 + 0.618034 * member) % 1) / per_member
            index = self._in_chunks(lambda w, rows: self._atom_index(w, levels[rows]))
            values = self.support.values[index].mT
            weights = torch.full_like(index, 1 / per_member, dtype=torch.float64)
        return self._from_base(values).mT, weights

    @staticmethod
    def _atom_index(weights: Tensor, levels: Tensor) -> Tensor:
        """Inverse of the cumulative weights in the order of the support."""
        return torch.searchsorted(weights.cumsum(dim=1), levels.contiguous(), right=True).clamp(
            max=weights.shape[1] - 1
        )

    # ---------------------------------------------------------------- moments

    def mean(self) -> Any:
        """E[Y] = Σ_j p_j y_j.

        Examples
        --------
        >>> d = _coins()
        >>> d.mean()
        tensor([0.5000, 0.7500], dtype=torch.float64)
        """
        return self._by_component(self._mean())

    def _mean(self) -> Tensor:
        if self.transport is None:
            return self._in_chunks(lambda w, rows: w @ self.support.values)
        return self._raw_moment(1)

    def var(self) -> Any:
        """E[(Y − E Y)²], never negative.

        Examples
        --------
        >>> d = _coins()
        >>> d.var()  # p(1 − p)
        tensor([0.2500, 0.1875], dtype=torch.float64)
        """
        return self._by_component(self._central_moment(2))

    def std(self) -> Any:
        """√E[(Y − E Y)²].

        Examples
        --------
        >>> d = _coins()
        >>> d.std()
        tensor([0.5000, 0.4330], dtype=torch.float64)
        """
        return self._by_component(self._central_moment(2).sqrt())

    def moment(self, k: int, central: bool = False) -> Any:
        """E[Y^k], or E[(Y − E Y)^k] if `central`.

        Examples
        --------
        >>> d = _coins()
        >>> d.moment(2)
        tensor([0.5000, 0.7500], dtype=torch.float64)
        >>> d.moment(3, central=True)  # p(1 − p)(1 − 2p)
        tensor([ 0.0000, -0.0938], dtype=torch.float64)
        """
        k = check_integer(k, "k", minimum=0)
        return self._by_component(self._central_moment(k) if central else self._raw_moment(k))

    def _raw_moment(self, k: int) -> Tensor:
        def chunk(w: Tensor, rows: slice) -> Tensor:
            return _total(w[:, None, :], self._located(rows) ** k)

        return self._in_chunks(chunk, width=2 * self.support.n_components)

    def _central_moment(self, k: int) -> Tensor:
        def chunk(w: Tensor, rows: slice) -> Tensor:
            return _total(w[:, None, :], self._deviations(w, rows) ** k)

        return self._in_chunks(chunk, width=2 * self.support.n_components)

    def _deviations(self, w: Tensor, rows: slice) -> Tensor:
        """Atoms minus the mean of each member, (rows, q, atoms)."""
        if self.transport is None:
            values = self._located(rows)
        else:  # the anchor would only cancel, at the cost of digits
            values = self.transport[rows].offsets_at(self.support.values.mT[None])
            if self.lattice is not None:
                values = torch.where(self.lattice.discrete(values.device)[:, None], self._located(rows), values)
        values = values - values[..., :1]  # a point mass far from zero has deviations of exactly zero
        return values - (w[:, None, :] * values).sum(dim=-1, keepdim=True)

    def skewness(self) -> Any:
        """E[(Y − E Y)³] / Var(Y)^{3/2}; zero for a point mass.

        Examples
        --------
        >>> d = _coins()
        >>> d.skewness()  # (1 − 2p) / √(p(1 − p))
        tensor([ 0.0000, -1.1547], dtype=torch.float64)
        """
        return self._by_component(self._standardized_moment(3))

    def kurtosis(self) -> Any:
        """Excess kurtosis E[(Y − E Y)⁴] / Var(Y)² − 3; zero for the normal law, −3 for a point mass.

        Examples
        --------
        >>> d = _coins()
        >>> d.kurtosis()  # 1 / (p(1 − p)) − 6
        tensor([-2.0000, -0.6667], dtype=torch.float64)
        """
        return self._by_component(self._standardized_moment(4) - 3)

    def _standardized_moment(self, k: int) -> Tensor:
        scale = self._central_moment(2).sqrt()[..., None]

        def chunk(w: Tensor, rows: slice) -> Tensor:
            unit = torch.where(scale[rows] > 0, scale[rows], 1.0)
            return _total(w[:, None, :], (self._deviations(w, rows) / unit) ** k)  # scaled first: powers overflow

        moments = self._in_chunks(chunk, width=2 * self.support.n_components)
        return torch.where(scale[..., 0] > 0, moments, 0.0)

    def cov(self) -> Any:
        """Covariances E[(Y − E Y)(Y − E Y)ᵀ], (n, q, q), symmetric positive semi-definite; (n, 1, 1) for scalar Y.

        Examples
        --------
        >>> d = _coins()
        >>> d.cov().flatten()
        tensor([0.2500, 0.1875], dtype=torch.float64)
        """

        def chunk(w: Tensor, rows: slice) -> Tensor:
            deviations = self._deviations(w, rows)
            return (w[:, None, :] * deviations) @ deviations.mT

        cov = self._in_chunks(chunk, width=2 * self.support.n_components)
        return self._export((cov + cov.mT) / 2)

    # ---------------------------------------------------------------- distribution functions

    def cdf(self, t: Any) -> Any:
        """F(t) = P(Y ≤ t) = Σ_j p_j 1{y_j ≤ t}.

        Examples
        --------
        >>> d = _coins()
        >>> d.cdf(0.0)
        tensor([0.5000, 0.2500], dtype=torch.float64)
        >>> d.cdf([0.0, 1.0])
        tensor([[0.5000, 1.0000],
                [0.2500, 1.0000]], dtype=torch.float64)
        """
        grid, single = self._grid(t, "t")
        answer = self._cdf(grid)
        return self._by_component(answer[..., 0] if single else answer)

    def sf(self, t: Any) -> Any:
        """P(Y > t) = 1 − F(t).

        Examples
        --------
        >>> d = _coins()
        >>> d.sf(0.0)
        tensor([0.5000, 0.7500], dtype=torch.float64)
        """
        return 1 - self.cdf(t)

    def _cdf(self, t: Tensor) -> Tensor:
        """F at t (n or 1, q, g). The atoms are moved, not t: rounding must not part a quantile from its own atom."""
        t = t.expand(len(self), *t.shape[1:])

        def component(w: Tensor, atoms: Tensor, k: int, rows: slice) -> Tensor:
            below = torch.searchsorted(self._moved(atoms, k, rows), t[rows, k].contiguous(), right=True)
            return weighted.padded_cumsum(w).gather(1, below)

        return self._per_component(component)

    def _moved(self, atoms: Tensor, k: int, rows: slice) -> Tensor:
        """Sorted atoms of component k in units of Y: (atoms,), or (rows, atoms) where members move them."""
        if self.transport is None:
            return atoms
        return self._on_lattice(k, self._spread(atoms, k, rows))

    def _spread(self, atoms: Tensor, k: int, rows: slice) -> Tensor:
        """Sorted atoms of component k on the continuum that moved ones lie on, (rows, atoms)."""
        assert self.transport is not None
        return self.transport.component(k)[rows].from_base(atoms[None, None])[:, 0]

    def _on_lattice(self, k: int, points: Tensor) -> Tensor:
        return points if self.lattice is None else self.lattice.component_at(k, points)

    def _levels(self, k: int) -> Levels | None:
        return None if self.lattice is None else self.lattice.levels(k)

    def quantile(self, q: Any) -> Any:
        """Smallest atom t with F(t) ≥ q, for levels strictly inside (0, 1) (Hyndman & Fan 1996, definition 1).

        Examples
        --------
        >>> d = _coins()
        >>> d.quantile([0.25, 0.5, 0.75])
        tensor([[0., 0., 1.],
                [0., 1., 1.]], dtype=torch.float64)
        """
        levels = check_probabilities(q, "q").to(self.left.device)
        answer = self._from_base(self._quantile(levels.reshape(-1)))
        return self._by_component(answer[..., 0] if levels.ndim == 0 else answer)

    def _quantile(self, levels: Tensor) -> Tensor:
        def component(w: Tensor, atoms: Tensor, k: int, rows: slice) -> Tensor:
            return weighted.quantiles(w, atoms, levels)

        return self._per_component(component)

    def median(self) -> Any:
        """Smallest atom t with F(t) ≥ ½: `quantile(0.5)`.

        Examples
        --------
        >>> d = _coins()
        >>> d.median()
        tensor([0., 1.], dtype=torch.float64)
        """
        return self.quantile(0.5)

    def interval(self, coverage: Any, kind: str = "shortest") -> Any:
        """Interval [low, high] of probability at least `coverage`: (n, 2), several coverages (n, 2, k).

        `"shortest"` is the narrowest run of atoms with that probability (paper, Algorithm 3, for all starting points at
        once); `"central"` leaves (1 − coverage)/2 on each side. Vector Y: (n, q, 2[, k]), per component.

        Examples
        --------
        >>> d = _coins()
        >>> d.interval(0.7)  # of the second coin the head alone will do
        tensor([[0., 1.],
                [1., 1.]], dtype=torch.float64)
        >>> d[1].interval(0.7, kind="central")
        tensor([[0., 1.]], dtype=torch.float64)
        """
        check_choice(kind, "kind", ("shortest", "central"))
        levels = check_probabilities(coverage, "coverage").to(self.left.device)
        flat = levels.reshape(-1)
        answer = self._central(flat) if kind == "central" else torch.stack([self._shortest(c) for c in flat], dim=-1)
        return self._by_component(answer[..., 0] if levels.ndim == 0 else answer)

    def _central(self, coverage: Tensor) -> Tensor:
        """(n, q, 2, k) for k coverages, all tails asked at once."""
        tails = (1 - coverage) / 2
        return self._from_base(self._quantile(torch.cat([tails, 1 - tails]))).unflatten(-1, (2, len(tails)))

    def _shortest(self, coverage: Tensor) -> Tensor:
        def component(w: Tensor, atoms: Tensor, k: int, rows: slice) -> Tensor:
            return weighted.shortest_interval(w, self._moved(atoms, k, rows), float(coverage))

        return self._per_component(component)

    def highest_density_region(self, coverage: float) -> list[Any]:
        """Smallest set of probability `coverage` as disjoint intervals, one array (k_i, 2) per member; scalar Y only.

        Each law is cut into 512 cells of equal probability; the densest ones form the set (Hyndman 1996), and
        neighbours are joined. Unlike `interval` the set may have gaps: separate modes give separate pieces.

        Examples
        --------
        >>> halves = torch.special.ndtri((torch.arange(500) + 0.5) / 500)
        >>> modes = Support(torch.cat([halves - 4, halves + 4]), torch.zeros(1000, 1))
        >>> ConditionalDistribution(modes, torch.zeros(1, 1)).highest_density_region(0.9)[0]
        tensor([[-5.6352, -2.3648],
                [ 2.3253,  5.6352]], dtype=torch.float64)
        """
        if not self._scalar:
            raise ValueError("Highest-density regions need scalar Y; this law has several components. Ask `prob`.")
        level = check_number(coverage, "coverage", minimum=0, maximum=1, open_ends=True)
        levels = torch.linspace(0, 1, 513, dtype=torch.float64, device=self.left.device).clamp(1e-9)
        edges = self._quantile(levels)[:, 0]
        middles = (edges[:, None, :-1] + edges[:, None, 1:]) / 2
        density = self._pdf(middles, self._from_base(middles))[:, 0]
        pieces, counts = weighted.densest_cells(self._from_base(edges[:, None])[:, 0], density, level)
        return [self._export(piece) for piece in pieces.split(counts.tolist())]

    def pdf(self, t: Any) -> Any:
        """Density by a triangular kernel on the atoms.

        The bandwidth follows the law of each member, see `ncprob.weighted.bandwidth`: a robust local scale times
        (effective sample size)^(−1/5), so heavy tails and separate modes do not oversmooth. A share of 1/(m + 1) of the
        mass, m atoms, is spread as a Cauchy law over all the line, since a new point leaves the range of m points about
        that often: the density is positive everywhere and log scores are finite.

        Examples
        --------
        >>> normal = Support(torch.special.ndtri((torch.arange(999) + 1.0) / 1000), torch.zeros(999, 1))
        >>> d = ConditionalDistribution(normal, torch.zeros(1, 1))
        >>> d.pdf(0.0)  # N(0, 1) has 0.3989
        tensor([0.3896], dtype=torch.float64)
        """
        grid, single = self._grid(t, "t")
        answer = self._density(grid)
        return self._by_component(answer[..., 0] if single else answer)

    def log_pdf(self, t: Any) -> Any:
        """log p(t), the logarithm of `pdf`.

        Examples
        --------
        >>> normal = Support(torch.special.ndtri((torch.arange(999) + 1.0) / 1000), torch.zeros(999, 1))
        >>> d = ConditionalDistribution(normal, torch.zeros(1, 1))
        >>> d.log_pdf(0.0)  # N(0, 1) has −0.9189
        tensor([-0.9427], dtype=torch.float64)
        """
        grid, single = self._grid(t, "t")
        answer = self._density(grid).log()
        return self._by_component(answer[..., 0] if single else answer)

    def _density(self, t: Tensor) -> Tensor:
        """Density at values of Y, (n or 1, q, g)."""
        return self._pdf(self._to_base(t), t.expand(len(self), -1, -1))

    def _pdf(self, base: Tensor, t: Tensor) -> Tensor:
        """Density at points in the coordinates of the atoms, which are t in units of Y."""

        def component(w: Tensor, atoms: Tensor, k: int, rows: slice) -> Tensor:
            levels = self._levels(k)
            if levels is not None:  # shared by all members: these are atoms as in raw coordinates
                return weighted.density(self._level_masses(w, atoms, k, rows), levels.values, t[rows, k])
            density = weighted.density(w, atoms, base[rows, k])
            if self.transport is None:
                return density
            return density / self.transport.component(k)[rows].slope(base[rows, k : k + 1])[:, 0]

        return self._per_component(component)

    def _level_masses(self, w: Tensor, atoms: Tensor, k: int, rows: slice) -> Tensor:
        """Probabilities of the levels of component k, (rows, levels)."""
        levels = self._levels(k)
        assert levels is not None
        numbers = levels.numbers_at(self._spread(atoms, k, rows))
        return w.new_zeros(len(w), len(levels.values)).scatter_add_(1, numbers, w)

    def mode(self) -> Any:
        """argmax p(t) over 199 quantiles t of each law.

        Examples
        --------
        >>> normal = Support(torch.special.ndtri((torch.arange(999) + 1.0) / 1000), torch.zeros(999, 1))
        >>> d = ConditionalDistribution(normal, torch.zeros(1, 1))
        >>> d.mode()
        tensor([0.], dtype=torch.float64)
        """
        levels = torch.linspace(0.005, 0.995, 199, dtype=torch.float64, device=self.left.device)
        candidates = self._quantile(levels)
        best = self._pdf(candidates, self._from_base(candidates)).argmax(dim=-1, keepdim=True)
        return self._by_component(self._from_base(candidates.gather(-1, best))[..., 0])

    # ---------------------------------------------------------------- sets and functions

    def prob(self, region: tuple[Any, Any] | Box | Callable[[Any], Any]) -> Any:
        """P(Y ∈ B) for a `(low, high]` tuple, a `Box` or a callable giving a boolean mask on Y of shape (m, q).

        Examples
        --------
        >>> d = _coins()
        >>> d.prob((0.0, 1.0))  # 0 < Y ≤ 1
        tensor([0.5000, 0.7500], dtype=torch.float64)
        >>> d.prob(lambda y: y[:, 0] < 0.5)
        tensor([0.5000, 0.2500], dtype=torch.float64)
        """
        return self._export(self.probability(region))

    def probability(self, region: Any) -> Tensor:
        """`prob` as a tensor, whatever `export` is.

        Examples
        --------
        >>> d = _coins()
        >>> d.probability((0.0, 1.0))
        tensor([0.5000, 0.7500], dtype=torch.float64)
        """
        if self._scalar and not callable(region):
            low, high = as_box(region, self.support.n_components, "B").bounds()
            ends = torch.stack([low, high], dim=1)[None].to(self.left.device)  # (1, 1, 2)
            return self._cdf(ends)[:, 0].diff(dim=-1)[:, 0].clamp(0, 1)
        return self._expectation(lambda points: self._indicator(region, points)).clamp(0, 1)[:, 0]

    def _indicator(self, region: Any, points: Tensor) -> Tensor:
        return membership(region, points, "B", self._export)[:, None].double()

    def expectation(self, f: Callable[[Any], Any]) -> Any:
        """E[f(Y)] for a vectorised `f`: (m, q) → (m,) gives (n,), (m, q) → (m, k) gives (n, k).

        Examples
        --------
        >>> d = _coins()
        >>> d.expectation(lambda y: y[:, 0].exp())  # 1 + p(e − 1)
        tensor([1.8591, 2.2887], dtype=torch.float64)
        """
        columns: list[int] = []
        answer = self._expectation(lambda points: self._call(f, points, columns))
        return self._export(answer[:, 0] if columns[0] == 0 else answer)

    def _call(self, f: Callable[[Any], Any], points: Tensor, columns: list[int]) -> Tensor:
        """f(points) as (m, k); `columns` records k, or 0 where f gives one number per row."""
        m = len(points)
        values = torch.as_tensor(f(self._export(points)), dtype=torch.float64)
        if self._scalar and values.ndim > 1 and 1 in values.shape[1:]:
            axis = 1 + list(values.shape[1:]).index(1)
            values = values.squeeze(axis)  # the component axis of scalar Y, carried through by f
        if values.ndim not in (1, 2) or len(values) != m:
            raise ValueError(
                f"`f` must map an array of shape {tuple(points.shape)} to ({m},) or ({m}, k); "
                f"it returned shape {tuple(values.shape)}. Vectorise it over rows."
            )
        values = values.to(points.device)
        if torch.isnan(values).any():
            raise ValueError("`f` must not return NaN on the atoms of Y. Restrict it to values it is defined for.")
        columns.append(0 if values.ndim == 1 else values.shape[1])
        return values.reshape(m, -1)

    def _expectation(self, evaluate: Callable[[Tensor], Tensor]) -> Tensor:
        """Σ_j p_ij evaluate(y_ij), evaluate giving (points, k)."""
        if self.transport is None:
            values = evaluate(self.support.values)
            return self._in_chunks(lambda w, rows: _weighted_sum(w, values[None]))

        def chunk(w: Tensor, rows: slice) -> Tensor:
            atoms = self._located(rows).mT
            values = evaluate(atoms.reshape(-1, atoms.shape[-1])).reshape(*w.shape, -1)
            return _weighted_sum(w, values)

        return self._in_chunks(chunk, width=2 * self.support.n_components)

    def sample(self, size: int, random_state: Any = None) -> Any:
        """Independent draws by inversion, y_j with probability p_j: (n, size), or (n, size, q) from the joint law.

        Examples
        --------
        >>> d = _coins()
        >>> d.sample(5, random_state=0)
        tensor([[1., 1., 0., 1., 1.],
                [1., 0., 1., 1., 1.]], dtype=torch.float64)
        """
        size = check_integer(size, "size", minimum=1)
        generator = as_generator(random_state)
        uniforms = torch.rand((len(self), size), generator=generator, dtype=torch.float64).to(self.left.device)

        def chunk(w: Tensor, rows: slice) -> Tensor:
            return self.support.values[self._atom_index(w, uniforms[rows])]

        draws = self._from_base(self._in_chunks(chunk, width=2).mT.contiguous()).mT
        return self._export(draws[..., 0] if self._scalar else draws)

    # ---------------------------------------------------------------- scores

    def pit(self, y: Any) -> Any:
        """Probability integral transform F_i(y_i): uniform where the model is calibrated (Dawid 1984).

        Examples
        --------
        >>> d = _coins()
        >>> d.pit([0.0, 0.0])
        tensor([0.5000, 0.2500], dtype=torch.float64)
        """
        return self._by_component(self._cdf(self._own_values(y))[..., 0])

    def log_score(self, y: Any) -> Any:
        """−log pdf_i(y_i); lower is better (Good 1952).

        Examples
        --------
        >>> normal = Support(torch.special.ndtri((torch.arange(999) + 1.0) / 1000), torch.zeros(999, 1))
        >>> d = ConditionalDistribution(normal, torch.zeros(1, 1))
        >>> d.log_score([0.0])  # ½ log 2π = 0.9189
        tensor([0.9427], dtype=torch.float64)
        """
        return self._by_component(-self._density(self._own_values(y))[..., 0].log())

    def crps(self, y: Any) -> Any:
        """Continuous ranked probability score E|Y − y| − ½E|Y − Y'| (Gneiting & Raftery 2007); lower is better.

        Examples
        --------
        >>> d = _coins()
        >>> d.crps([1.0, 1.0])  # (1 − p)²
        tensor([0.2500, 0.0625], dtype=torch.float64)
        """
        own = self._own_values(y)

        def component(w: Tensor, atoms: Tensor, k: int, rows: slice) -> Tensor:
            return weighted.crps(w, self._moved(atoms, k, rows), own[rows, k, 0])

        return self._by_component(self._per_component(component))
