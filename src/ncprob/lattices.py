"""Targets that take some values again and again: spread over a continuum to be learned, and brought back in answers.

A density cannot describe a share of rows with one and the same value. Spreading such a value at random over an interval
of its own loses nothing: the interval tells the value (Denuit & Lambert 2005, the jittering of counts).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ncprob.state import State, numbered
from ncprob.support import Support

DISCRETE_LEVELS = 64  # targets with at most so many distinct values take these only
POINT_MASS = 0.05  # and so do targets with so large a share of equal values
GAP = 0.5  # share of the scores of a value that is left empty
SMALL = 1e-12  # keeps normal scores of the ends finite


@dataclass(frozen=True)
class Integers:
    """Components in `mask` take integer values, any of them: spread evenly over ±½, rounded back.

    Examples
    --------
    >>> counts = Integers(torch.tensor([True]))
    >>> spread = counts.spread(torch.tensor([[3.0], [4.0]]), seed=0)
    >>> counts.values_at(spread[None])
    tensor([[[3.],
             [4.]]])
    """

    mask: Tensor

    def spread(self, y: Float[Tensor, "rows components"], seed: int) -> Float[Tensor, "rows components"]:
        """y + U, U uniform on ±½."""
        return torch.where(self.mask, y + _uniform(y, seed) - 0.5, y)

    def values_at(self, spread: Float[Tensor, "... components points"]) -> Tensor:
        """Values of Y whose intervals hold the points."""
        return torch.where(self.mask[:, None], spread.round(), spread)

    def nearest(self, values: Float[Tensor, "... components points"]) -> Tensor:
        """Values of Y that are closest to those given."""
        return self.values_at(values)

    def component(self, k: int) -> Integers:
        """The lattice of one component."""
        return Integers(self.mask[k : k + 1])

    def state(self) -> State:
        """What `lattice_from_state` needs."""
        return State({"mask": self.mask})


@dataclass(frozen=True)
class Levels:
    """Components take the values seen, and no others: normal scores in place of values, each spread over its share.

    A value v owns the scores from Φ⁻¹(F(v−)) to Φ⁻¹(F(v)), F the marginal law: a law of Y given x is smooth in them
    where its chances, relative to the marginal ones, change little from value to value, however unevenly values and
    chances lie.

    Parameters
    ----------
    values : tuple of Tensor
        Distinct values of each component, increasing.
    edges : tuple of Tensor
        Φ⁻¹(F(v)) of all values but the last.

    Examples
    --------
    Three quarters of the rows are zero: scores up to Φ⁻¹(¾) = 0.67.

    >>> levels = Levels.fit(torch.tensor([[0.0], [0.0], [0.0], [5.0]], dtype=torch.float64))
    >>> levels.edges[0]
    tensor([0.6745], dtype=torch.float64)
    >>> levels.values_at(torch.tensor([[-1.0, 0.6, 0.7]], dtype=torch.float64))
    tensor([[0., 0., 5.]], dtype=torch.float64)
    """

    values: tuple[Tensor, ...]
    edges: tuple[Tensor, ...]

    @classmethod
    def fit(cls, y: Float[Tensor, "rows components"], weights: Tensor | None = None) -> Levels:
        """Levels of every component and their shares of the rows; more than `Support` keeps are joined as it does."""
        values, edges = [], []
        for column in y.mT:
            atoms = Support.compressed(column, column.new_zeros(len(column), 1), weights)
            values.append(atoms.values[:, 0])
            edges.append(torch.special.ndtri(atoms.weights.cumsum(0)[:-1].clamp(SMALL, 1 - SMALL)))
        return cls(tuple(values), tuple(edges))

    def spread(self, y: Float[Tensor, "rows components"], seed: int) -> Float[Tensor, "rows components"]:
        """Φ⁻¹(F(y−) + U (F(y) − F(y−))), U uniform on the middle half of [0, 1].

        The gaps between values let smooth densities tell them apart; with none, a law must jump at the edges.
        """
        return self._scores(y, (1 - GAP) * (_uniform(y, seed) - 0.5) + 0.5)

    def middles(self, y: Float[Tensor, "rows components"]) -> Float[Tensor, "rows components"]:
        """The same with U = ½: a score of each value."""
        return self._scores(y, torch.full_like(y, 0.5))

    def _scores(self, y: Tensor, share: Tensor) -> Tensor:
        columns = []
        for k, (values, edges) in enumerate(zip(self.values, self.edges, strict=True)):
            level = _nearest(values, y[:, k])
            upto = torch.cat([edges.new_zeros(1), torch.special.ndtr(edges), edges.new_ones(1)])
            score = torch.special.ndtri(torch.lerp(upto[level], upto[level + 1], share[:, k]).clamp(SMALL, 1 - SMALL))
            columns.append(score)
        return torch.stack(columns, dim=1)

    def level_numbers(self, scores: Tensor, k: int) -> Tensor:
        """Numbers of the values of component k whose intervals hold the scores."""
        return torch.searchsorted(self.edges[k], scores.contiguous())

    def values_at(self, scores: Float[Tensor, "... components points"]) -> Tensor:
        """Values of Y whose intervals hold the scores."""
        columns = [self.values[k][self.level_numbers(part, k)] for k, part in enumerate(scores.unbind(dim=-2))]
        return torch.stack(columns, dim=-2)

    def nearest(self, values: Float[Tensor, "... components points"]) -> Tensor:
        """Values of Y that are closest to those given."""
        columns = [levels[_nearest(levels, v)] for levels, v in zip(self.values, values.unbind(dim=-2), strict=True)]
        return torch.stack(columns, dim=-2)

    def component(self, k: int) -> Levels:
        """The lattice of one component."""
        return Levels(self.values[k : k + 1], self.edges[k : k + 1])

    def state(self) -> State:
        """What `lattice_from_state` needs."""
        pairs = zip(self.values, self.edges, strict=True)
        return State(parts={"levels": numbered([State({"values": v, "edges": e}) for v, e in pairs])})


Lattice = Integers | Levels


def lattice_from_state(state: State, n_components: int) -> Lattice:
    """The same lattice of `n_components` components."""
    if "levels" not in state.parts:
        return Integers(state.tensor("mask", torch.bool, (n_components,)))
    components = state.sequence("levels")
    values = tuple(part.tensor("values", torch.float64, (None,)) for part in components)
    edges = tuple(
        part.tensor("edges", torch.float64, (max(0, len(v) - 1),)) for v, part in zip(values, components, strict=True)
    )
    if len(values) != n_components or any(len(v) == 0 for v in values):
        raise ValueError("every component must have values")
    if any(bool((v.diff() <= 0).any()) or bool((e.diff() < 0).any()) for v, e in zip(values, edges, strict=True)):
        raise ValueError("values of a component must increase, and so must their scores")
    return Levels(values, edges)


def spread(y: Float[Tensor, "rows components"], lattice: Lattice | None, seed: int) -> Float[Tensor, "rows components"]:
    """Targets over a continuum: as they are where they lie on no lattice."""
    return y if lattice is None else lattice.spread(y, seed)


def lattice_of(y: Float[Tensor, "rows components"], weights: Tensor | None = None) -> Lattice | None:
    """The lattice that targets lie on, if any: the values seen where they are few or often equal, else integers.

    Examples
    --------
    >>> lattice_of(torch.rand(100, 1)) is None
    True
    >>> type(lattice_of(torch.arange(100.0)[:, None])).__name__, type(lattice_of(torch.zeros(100, 1))).__name__
    ('Integers', 'Levels')
    """
    if any(_is_discrete(column) for column in y.mT):
        return Levels.fit(y, weights)
    integer = (y == y.round()).all(dim=0)
    return Integers(integer) if bool(integer.any()) else None


def _is_discrete(column: Float[Tensor, " rows"]) -> bool:
    values, counts = column.unique(return_counts=True)
    few = len(values) <= min(DISCRETE_LEVELS, len(column) // 4)
    return few or bool(counts.max() >= max(5, POINT_MASS * len(column)))


def _nearest(levels: Float[Tensor, " levels"], values: Tensor) -> Tensor:
    """Numbers of the levels that are closest to values."""
    return torch.searchsorted(levels[:-1] + levels.diff() / 2, values.contiguous())


def _uniform(like: Tensor, seed: int) -> Tensor:
    return torch.rand(like.shape, generator=torch.Generator().manual_seed(seed), dtype=like.dtype).to(like.device)
