"""Rows to fit with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ncprob.lattices import Lattice
from ncprob.pairs import Pairs, select, systematic_sample
from ncprob.spool import Spool, SpoolPairs
from ncprob.trees import TreeInputs


@dataclass(frozen=True)
class Sample:
    """Rows of encoded inputs x and targets y (n, q), float64, with optional weights.

    `fold` numbers rows that coordinates are learned on, so that each can be answered by networks that have not seen it.
    """

    x: Any
    y: Tensor
    weights: Tensor | None = None
    fold: Tensor | None = None

    def __len__(self) -> int:
        return len(self.y)

    def rows(self, index: Tensor | slice) -> Sample:
        """Some of the rows."""
        weights = None if self.weights is None else self.weights[index]
        return Sample(select(self.x, index), self.y[index], weights, None if self.fold is None else self.fold[index])


@dataclass(frozen=True)
class RowStream:
    """Rows on disk to train networks on, none of them in any `Sample`.

    `split` turns columns into encoded inputs and targets (rows, q); `weights` is the column of weights, if any.
    """

    spool: Spool
    split: Callable[[Tensor], tuple[Tensor, Tensor]]
    weights: int | None
    device: torch.device
    trees: TreeInputs | None = None

    def pairs(self, target: Callable[[Sample], Any], n_folds: int) -> Pairs:
        """Pairs of complete inputs and what `target` makes of rows, each of which is in one fold for ever."""

        def make(columns: Tensor, numbers: Tensor) -> tuple[Tensor, Any]:
            x, y = self.split(columns)
            if self.trees is not None:
                x = torch.cat([x, self.trees(x)], dim=1)
            return x, target(Sample(x, y, fold=numbers % n_folds))

        return SpoolPairs(self.spool, make, self.weights, self.device)


@dataclass(frozen=True)
class Rows:
    """What a candidate is fitted with: rows to train and to judge on, and all rows that coordinates are learned on."""

    training: Sample
    held_out: Sample | None
    learning: Sample
    trees: TreeInputs | None
    lattice: Lattice | None = None  # that targets lie on
    stream: RowStream | None = None  # where rows are too many for memory, networks train on these instead

    def without_trees(self) -> Rows:
        """The same rows with their own inputs only."""
        if self.trees is None:
            return self
        n_plain = self.learning.x.shape[1] - self.trees.n_columns

        def plain(sample: Sample) -> Sample:
            return replace(sample, x=sample.x[:, :n_plain])

        held_out = None if self.held_out is None else plain(self.held_out)
        stream = None if self.stream is None else replace(self.stream, trees=None)
        return Rows(plain(self.training), held_out, plain(self.learning), None, self.lattice, stream)


def joined(first: Sample, second: Sample) -> Sample:
    """Rows of both; weights only where both have them."""
    weights = None
    if first.weights is not None and second.weights is not None:
        weights = torch.cat([first.weights, second.weights])
    return Sample(_concatenate(first.x, second.x), torch.cat([first.y, second.y]), weights)


def _concatenate(first: Any, second: Any) -> Any:
    if isinstance(first, Tensor):
        return torch.cat([first, second])
    if isinstance(first, dict):
        return {key: _concatenate(value, second[key]) for key, value in first.items()}
    return type(first)(_concatenate(a, b) for a, b in zip(first, second, strict=True))


def drawn_by_weight(sample: Sample | None, seed: int) -> Sample | None:
    """Rows drawn in proportion to their weights, to judge without weights; none if no row has any."""
    if sample is None or sample.weights is None:
        return sample
    if not bool(sample.weights.sum() > 0):
        return None
    rows = systematic_sample(sample.weights, torch.Generator().manual_seed(seed)).to(sample.y.device)
    return replace(sample.rows(rows), weights=None)
