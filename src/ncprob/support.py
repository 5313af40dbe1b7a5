"""The atoms that carry laws of Y: values, right features, marginal weights, prepared once and shared."""

from __future__ import annotations

import torch
from torch import Tensor

from ncprob.state import State

MAX_ATOMS = 4096  # resolution 1/4096 of the marginal mass, far below the sampling error of as many rows
TAIL_ATOMS = 128


def bins_of_equal_mass(mass: Tensor) -> Tensor:
    """Bin of each of n sorted values of given mass: neighbours share a bin of at most about 1/`MAX_ATOMS` of the mass.

    `TAIL_ATOMS` on each side stay single, so heavy tails keep their reach, and so does a value that has as much mass as
    a bin by itself: a point mass is never mixed with its neighbours.

    Examples
    --------
    >>> bins = bins_of_equal_mass(torch.ones(100_000))
    >>> int(bins[0]), int(bins[1]), int(bins[-1]) < 2 * MAX_ATOMS, int(bins.bincount().max()) <= 30
    (0, 1, True, True)
    """
    n = len(mass)
    width = mass.sum() / (MAX_ATOMS - 2 * TAIL_ATOMS)
    middle = (mass.cumsum(0) - mass / 2) / width
    alone = mass >= width
    alone[:TAIL_ATOMS] = True
    alone[n - TAIL_ATOMS :] = True
    begins = torch.ones(n, dtype=torch.bool, device=mass.device)
    begins[1:] = alone[1:] | alone[:-1] | (middle[1:].floor() > middle[:-1].floor())
    return begins.cumsum(0) - 1


class Support:
    """Atoms of Y with their right features and marginal weights, prepared once and shared by all members.

    A scalar support is kept sorted, so that a distribution function is a plain cumulative sum.
    """

    def __init__(self, values: Tensor, features: Tensor, weights: Tensor | None = None) -> None:
        values = values.double()
        values = values[:, None] if values.ndim == 1 else values
        n_atoms, self.n_components = values.shape
        weights = values.new_ones(n_atoms) if weights is None else weights.double()
        self.public_order: Tensor | None = None
        if self.n_components == 1:
            order = torch.argsort(values[:, 0], stable=True)
            values, features, weights = values[order], features[order], weights[order]
            self.public_order = torch.argsort(order)
        self.values, self.features, self.weights = values, features, weights / weights.sum()
        self._orders = self._component_orders()

    def _component_orders(self) -> list[Tensor] | None:
        return [torch.argsort(column, stable=True) for column in self.values.mT] if self.n_components > 1 else None

    def state(self) -> State:
        """What `from_state` needs."""
        tensors = {"values": self.values, "features": self.features, "weights": self.weights}
        return State(tensors if self.public_order is None else {**tensors, "public_order": self.public_order})

    @classmethod
    def from_state(cls, state: State) -> Support:
        """The same support to the last bit: nothing is sorted or normalised again."""
        values = state.tensor("values", torch.float64, (None, None))
        n_atoms, n_components = values.shape
        features = state.tensor("features", torch.float32, (n_atoms, None))
        weights = state.tensor("weights", torch.float64, (n_atoms,))
        if min(values.shape) == 0 or bool((weights < 0).any()) or abs(float(weights.sum()) - 1) > 1e-6:
            raise ValueError("atoms must have weights that are not negative and add to one")
        support = cls.__new__(cls)
        support.values, support.features, support.weights = values, features, weights
        support.n_components, support.public_order = n_components, None
        if n_components == 1:
            order = support.public_order = state.tensor("public_order", torch.int64, (n_atoms,))
            positions = torch.arange(n_atoms, device=order.device)
            if bool((values[1:] < values[:-1]).any()) or not torch.equal(order.sort().values, positions):
                raise ValueError("atoms must be sorted and their order a permutation")
        support._orders = support._component_orders()
        return support

    def __len__(self) -> int:
        return len(self.values)

    @classmethod
    def compressed(cls, values: Tensor, features: Tensor, weights: Tensor | None = None) -> Support:
        """A support of about `MAX_ATOMS` atoms: equal values are joined, then neighbours (`bins_of_equal_mass`).

        Joined atoms keep their total weight, mean value and mean features, so means of Y and of the features
        are exact; the marginal distribution function moves by at most the mass of one bin. Values without weight are
        left out. Vector atoms have no order and stay as they are.
        """
        if values.ndim == 2 and values.shape[1] > 1:
            return cls(values, features, weights)
        flat = values.double().reshape(-1)
        mass = flat.new_ones(len(flat)) if weights is None else weights.double()
        kept = mass > 0
        flat, mass, features = flat[kept], mass[kept], features[kept]
        distinct, group = flat.unique(return_inverse=True)
        if len(distinct) > MAX_ATOMS:
            group = bins_of_equal_mass(mass.new_zeros(len(distinct)).index_add_(0, group, mass))[group]
        n_groups = int(group.max()) + 1
        total = mass.new_zeros(n_groups).index_add_(0, group, mass)
        share = mass / total[group]
        # Means are taken from the lowest value of a group, so that equal values stay what they are to the last bit.
        lowest = flat.new_full((n_groups,), torch.inf).scatter_reduce_(0, group, flat, "amin")
        joined = lowest.index_add(0, group, (flat - lowest[group]) * share)
        mean = features.new_zeros(n_groups, features.shape[1], dtype=torch.float64)
        mean.index_add_(0, group, features.double() * share[:, None])
        return cls(joined, mean.to(features.dtype), total)

    def sorted_values(self, component: int) -> Tensor:
        """Atoms of one component in increasing order."""
        column = self.values[:, component]
        return column if self._orders is None else column[self._orders[component]]

    def sort(self, weights: Tensor, component: int) -> Tensor:
        """Columns of `weights` (rows, atoms) in the order of `sorted_values`."""
        return weights if self._orders is None else weights[:, self._orders[component]]
