"""A fitted model: coordinates of Y, one or several operators, and the atoms. Knows how to answer, not how to fit."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ncprob.coordinates import MixtureCoordinates
from ncprob.distribution import ConditionalDistribution
from ncprob.lattices import Lattice
from ncprob.operator import SpectralOperator
from ncprob.pairs import select
from ncprob.state import State, numbered
from ncprob.support import Support
from ncprob.trees import TreeInputs

ENCODE_ROWS = 65536


@dataclass
class FittedModel:
    """The conditional law of Y given encoded inputs x.

    The members of an ensemble average their density ratios, r = 1 + (1/M) Σ_m Σ_i s_mi u_mi(x) v_mi(y): again
    one separable ratio, with the features of all members side by side.
    """

    operators: list[SpectralOperator]
    ranks: list[int]
    support: Support
    residual: MixtureCoordinates | None = None
    lattice: Lattice | None = None
    trees: TreeInputs | None = None

    @property
    def coordinates(self) -> str:
        """`"raw"` or `"residual"`."""
        return "raw" if self.residual is None else "residual"

    def state(self) -> State:
        """What `from_state` needs."""
        parts = {"operators": numbered([op.state() for op in self.operators]), "support": self.support.state()}
        if self.residual is not None:
            parts["residual"] = self.residual.state()
        if self.trees is not None:
            parts["trees"] = self.trees.state()
        if self.lattice is not None:
            parts["lattice"] = self.lattice.state()
        return State(facts={"ranks": self.ranks}, parts=parts)

    @classmethod
    def from_state(
        cls,
        state: State,
        n_inputs: int,
        x_encoder: nn.Module | None = None,
        y_encoder: nn.Module | None = None,
    ) -> FittedModel:
        """The same model of `n_inputs` encoded columns; encoders that are not ours are copied and filled."""
        support = Support.from_state(state.part("support"))
        q = support.n_components
        operators = [
            SpectralOperator.from_state(part, *copy.deepcopy((x_encoder, y_encoder)))  # at once: they may be one module
            for part in state.sequence("operators")
        ]
        ranks = state.integers("ranks", minimum=0)
        if len(ranks) != len(operators) or any(k > op.rank for k, op in zip(ranks, operators, strict=True)):
            raise ValueError("every operator must have a rank up to its number of features")
        if support.features.shape[1] != (sum(ranks) if operators else 1):
            raise ValueError("atoms must have as many features as the operators together")
        residual = state.parts.get("residual")
        lattice, trees = state.parts.get("lattice"), state.parts.get("trees")
        return cls(
            operators,
            ranks,
            support,
            None if residual is None else MixtureCoordinates.from_state(residual, q, x_encoder),
            None if lattice is None else Lattice.from_state(lattice, q),
            None if trees is None else TreeInputs.from_state(trees, n_inputs),
        )

    def inputs(self, x: Any) -> Any:
        """x with what the trees say of it, as coordinates and operators see it."""
        return x if self.trees is None else torch.cat([x, self.trees(x)], dim=1)

    @torch.no_grad()
    def left(self, inputs: Any, n_rows: int) -> Tensor:
        """Left features times singular values of all members, (n_rows, Σ ranks)."""

        if not any(self.ranks):  # no operator, or one that the mixture left nothing to
            return torch.zeros(n_rows, self.support.features.shape[1], device=self.support.values.device)

        def members(part: Any) -> Tensor:
            return torch.cat(
                [
                    (op.left_features(part) * op.singular_values)[:, :rank] / len(self.operators)
                    for op, rank in zip(self.operators, self.ranks, strict=True)
                ],
                dim=1,
            )

        features = by_rows(members, inputs, n_rows)
        if not bool(features.isfinite().all()):  # only an encoder of the user can: ours are bounded on finite inputs
            row = int((~features.isfinite()).any(dim=1).nonzero()[0])
            raise ValueError(
                f"`x_encoder` must give finite features; it gives NaN or infinity for row {row} of X. Look for values "
                "there that it does not expect."
            )
        return features

    def distribution(
        self, x: Any, n_rows: int, export: Callable[[Tensor], Any] | None = None
    ) -> ConditionalDistribution:
        """Laws of Y given the rows of x."""
        return self.laws(self.inputs(x), n_rows, export=export)

    def laws(
        self,
        inputs: Any,
        n_rows: int,
        fold: Tensor | None = None,
        export: Callable[[Tensor], Any] | None = None,
    ) -> ConditionalDistribution:
        """Laws of Y given complete inputs; rows that coordinates were learned on are answered out of their `fold`."""
        transport = None if self.residual is None else self.residual.transport(inputs, fold)
        return ConditionalDistribution(
            self.support, self.left(inputs, n_rows), transport=transport, lattice=self.lattice, export=export
        )


@torch.no_grad()
def right_features(operators: list[SpectralOperator], ranks: list[int], y_inputs: Any, n_rows: int) -> Tensor:
    """Right features of all members side by side, (n_rows, Σ ranks)."""

    def members(part: Any) -> Tensor:
        columns = [op.right_features(part)[:, :rank] for op, rank in zip(operators, ranks, strict=True)]
        return torch.cat(columns, dim=1)

    return by_rows(members, y_inputs, n_rows)


def by_rows(compute: Callable[[Any], Tensor], nested: Any, n_rows: int) -> Tensor:
    """Concatenate compute(part) over parts of at most `ENCODE_ROWS` rows."""
    starts = range(0, n_rows, ENCODE_ROWS)
    return torch.cat([compute(select(nested, slice(s, s + ENCODE_ROWS))) for s in starts])
