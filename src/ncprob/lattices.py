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
COUNTS = 16  # but more distinct integers, filling half of their range, none far above the others, may be others too
FAR_ABOVE = 5  # times the average share of the rows
GAP = 0.35  # share of the scores of a value that is left empty
SMALL = 1e-9  # least share of a value: every one has scores of its own, none of them beyond ±6

Points = Float[Tensor, "*points"]


@dataclass(frozen=True)
class Integers:
    """Integer values, any of them: spread evenly over ±½, rounded back.

    Examples
    --------
    >>> Integers().spread(torch.tensor([3.0, 4.0]), torch.tensor([0.1, 0.9]))
    tensor([2.6000, 4.4000])
    >>> Integers().values_at(torch.tensor([2.6, 4.4]))
    tensor([3., 4.])
    """

    def spread(self, y: Points, share: Points) -> Points:
        """y + U − ½, U = `share` uniform on [0, 1]."""
        return y + (share - 0.5)

    def values_at(self, points: Points) -> Points:
        """Values of Y whose intervals hold the points."""
        return points.round()

    def state(self) -> State:
        """What `Lattice.from_state` needs."""
        return State()


@dataclass(frozen=True)
class Levels:
    """The values seen, and no others: normal scores in place of values, each spread over its share.

    A value v owns the scores from Φ⁻¹(F(v−)) to Φ⁻¹(F(v)), F the marginal law: a law of Y given x is smooth in them
    where its chances, relative to the marginal ones, change little from value to value, however unevenly values and
    chances lie.

    Parameters
    ----------
    values : Tensor
        Distinct values, increasing.
    edges : Tensor
        Φ⁻¹(F(v)) of all values but the last, increasing.

    Examples
    --------
    Three quarters of the rows are zero: scores up to Φ⁻¹(¾) = 0.67.

    >>> levels = Levels.fit(torch.tensor([0.0, 0.0, 0.0, 5.0], dtype=torch.float64))
    >>> levels.edges
    tensor([0.6745], dtype=torch.float64)
    >>> levels.values_at(torch.tensor([-1.0, 0.6, 0.7], dtype=torch.float64))
    tensor([0., 0., 5.], dtype=torch.float64)
    """

    values: Float[Tensor, " levels"]
    edges: Float[Tensor, " edges"]

    @classmethod
    def fit(cls, y: Float[Tensor, " rows"], weights: Tensor | None = None) -> Levels:
        """Values and their shares of the rows; more than `Support` keeps are joined as it does."""
        atoms = Support.compressed(y, y.new_zeros(len(y), 1), weights)
        shares = atoms.weights.clamp(min=SMALL)
        return cls(atoms.values[:, 0], torch.special.ndtri((shares / shares.sum()).cumsum(0)[:-1]))

    def spread(self, y: Points, share: Points) -> Points:
        """Φ⁻¹(F(y−) + U (F(y) − F(y−))), U uniform on the middle of [0, 1], where `share` is on the whole.

        The gaps between values let smooth densities tell them apart; with none, a law must jump at the edges.
        """
        return self._scores(y, (1 - GAP) * (share - 0.5) + 0.5)

    def middles(self, y: Points) -> Points:
        """The same with U = ½: a score of each value."""
        return self._scores(y, torch.full_like(y, 0.5))

    def _scores(self, y: Points, share: Points) -> Points:
        level = self._closest(y)
        upto = torch.cat([self.edges.new_zeros(1), torch.special.ndtr(self.edges), self.edges.new_ones(1)])
        return torch.special.ndtri(torch.lerp(upto[level], upto[level + 1], share))

    def _closest(self, y: Points) -> Tensor:
        """Numbers of the values that are closest; a value itself is, however close its neighbours are."""
        above = torch.searchsorted(self.values, y.contiguous()).clamp(max=len(self.values) - 1)
        below = (above - 1).clamp(min=0)
        return torch.where(y - self.values[below] < self.values[above] - y, below, above)

    def numbers_at(self, scores: Points) -> Tensor:
        """Numbers of the values whose intervals hold the scores."""
        return torch.searchsorted(self.edges, scores.contiguous())

    def values_at(self, scores: Points) -> Points:
        """Values of Y whose intervals hold the scores."""
        return self.values[self.numbers_at(scores)]

    def state(self) -> State:
        """What `Lattice.from_state` needs."""
        return State({"values": self.values, "edges": self.edges})

    @classmethod
    def from_state(cls, state: State) -> Levels:
        """The same levels."""
        values = state.tensor("values", torch.float64, (None,))
        edges = state.tensor("edges", torch.float64, (max(0, len(values) - 1),))
        if len(values) == 0 or bool((values.diff() <= 0).any()) or bool((edges.diff() < 0).any()):
            raise ValueError("a component must have values that increase, as their scores do")
        return cls(values, edges)


@dataclass(frozen=True)
class Lattice:
    """Where the components of Y lie: on integers, on levels, or, where None, on a continuum, which stays as it is.

    Examples
    --------
    >>> counts_and_times = Lattice((Integers(), None))
    >>> counts_and_times.values_at(torch.tensor([[2.6, 4.4], [0.1, 0.2]]))  # points of each
    tensor([[3.0000, 4.0000],
            [0.1000, 0.2000]])
    """

    components: tuple[Integers | Levels | None, ...]

    def levels(self, k: int) -> Levels | None:
        """Levels of a component, if it lies on any."""
        kind = self.components[k]
        return kind if isinstance(kind, Levels) else None

    @property
    def has_levels(self) -> bool:
        """Whether any component lies on levels."""
        return any(isinstance(kind, Levels) for kind in self.components)

    @property
    def has_few_values(self) -> bool:
        """Whether all components take few values: Y has no density anywhere."""
        return all(isinstance(kind, Levels) and len(kind.values) <= DISCRETE_LEVELS for kind in self.components)

    def discrete(self, device: torch.device) -> Tensor:
        """Mask of the components that lie on no continuum."""
        return torch.tensor([kind is not None for kind in self.components], device=device)

    def spread(self, y: Float[Tensor, "rows components"], seed: int) -> Float[Tensor, "rows components"]:
        """Targets over a continuum."""
        shares = torch.rand(y.shape, generator=torch.Generator().manual_seed(seed), dtype=y.dtype).to(y.device)
        columns = zip(self.components, y.mT, shares.mT, strict=True)
        return torch.stack([v if kind is None else kind.spread(v, share) for kind, v, share in columns], dim=1)

    def middles(self, y: Float[Tensor, "rows components"]) -> Float[Tensor, "rows components"]:
        """Targets with a score in place of a level."""
        columns = zip(self.components, y.mT, strict=True)
        return torch.stack([kind.middles(v) if isinstance(kind, Levels) else v for kind, v in columns], dim=1)

    def values_at(self, points: Float[Tensor, "... components points"]) -> Float[Tensor, "... components points"]:
        """Values of Y at points of the continuum."""
        return torch.stack([self.component_at(k, part) for k, part in enumerate(points.unbind(dim=-2))], dim=-2)

    def component_at(self, k: int, points: Points) -> Points:
        """The same for one component."""
        kind = self.components[k]
        return points if kind is None else kind.values_at(points)

    def state(self) -> State:
        """What `from_state` needs."""
        kinds = [type(kind).__name__ for kind in self.components]
        return State(
            facts={"kinds": kinds},
            parts=numbered([State() if kind is None else kind.state() for kind in self.components]).parts,
        )

    @classmethod
    def from_state(cls, state: State, n_components: int) -> Lattice:
        """The same lattice of `n_components` components."""
        kinds = state.fact("kinds", list)
        if len(kinds) != n_components:
            raise ValueError(f"a lattice must have {n_components} components; it has {len(kinds)}")
        return cls(tuple(_kind_from_state(kind, state.part(str(k))) for k, kind in enumerate(kinds)))


def _kind_from_state(kind: object, state: State) -> Integers | Levels | None:
    if kind == "Levels":
        return Levels.from_state(state)
    if kind not in ("Integers", "NoneType"):
        raise ValueError(f"components of Y lie on Integers, Levels or neither; got {kind!r}")
    return Integers() if kind == "Integers" else None


def spread(y: Float[Tensor, "rows components"], lattice: Lattice | None, seed: int) -> Float[Tensor, "rows components"]:
    """Targets over a continuum: as they are where they lie on no lattice."""
    return y if lattice is None else lattice.spread(y, seed)


def lattice_of(y: Float[Tensor, "rows components"], weights: Tensor | None = None) -> Lattice | None:
    """The lattice that targets lie on, if any: levels where values are few or often equal, unless they are counts.

    Examples
    --------
    >>> lattice_of(torch.rand(100, 1)) is None
    True
    >>> [type(kind).__name__ for kind in lattice_of(torch.stack([torch.arange(100.0), torch.zeros(100)], 1)).components]
    ['Integers', 'Levels']
    """
    kinds = tuple(_kind_of(column, weights) for column in y.mT)
    return None if all(kind is None for kind in kinds) else Lattice(kinds)


def _kind_of(column: Float[Tensor, " rows"], weights: Tensor | None) -> Integers | Levels | None:
    values, rows = column.unique(return_counts=True)
    n, heaviest = len(column), int(rows.max())
    integer = bool((column == column.round()).all())
    filled = len(values) > COUNTS and bool(values[-1] - values[0] < 2 * len(values))
    if integer and filled and heaviest * len(values) <= FAR_ABOVE * n:
        return Integers()
    if len(values) <= min(DISCRETE_LEVELS, n // 4) or heaviest >= max(5, POINT_MASS * n):
        return Levels.fit(column, weights)
    return Integers() if integer else None
