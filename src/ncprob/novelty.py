"""How far inputs lie from those that a model has learned from: answers out there are extrapolations."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from ncprob.linalg import symmetric_inverse_sqrt
from ncprob.preprocessing import InputScaler
from ncprob.state import State

FAR = 1.5  # scores beyond are far outside: of normal inputs and a thousand rows, about five standard deviations
MANY = 0.2  # share of rows far outside that is worth a word
FEW_ROWS = 100  # of training, from which an edge is too uncertain for a warning
EDGE = 0.999  # share of training rows inside the edge; at least one row lies outside, so that one cannot set it
RIDGE = 1e-3
MOST_ROWS = 20_000  # rows that the edge is read from


@dataclass(frozen=True)
class InputReach:
    """Where the training inputs end, column by column and together.

    The novelty of x is the larger of two ratios, each 1 at the edge of the training rows: max_j |x_j − c_j| / e_j with
    c_j the median of column j and e_j the largest distance from it on the side of x_j, and the Mahalanobis distance
    ‖W(z − z̄)‖ of the scaled inputs z, which sees combinations of values that do not occur together. Both are learned on
    one half of the rows and divided by what 99.9 % of the other half have, so that of many rows of the same kind few
    are further out; of some tens of rows with heavy tails, one in five may be. Gaps between clusters count as inside.

    Examples
    --------
    >>> x = torch.linspace(-1, 1, 101, dtype=torch.float64)[:, None]
    >>> reach = InputReach.fit(InputScaler.fit(x), x)
    >>> reach.novelty(torch.tensor([[0.0], [0.96], [9.6]], dtype=torch.float64)).round(decimals=2).tolist()
    [0.02, 1.0, 10.0]
    """

    scaler: InputScaler
    edge: Float[Tensor, "2 columns"]
    mean: Float[Tensor, " columns"]
    whitening: Float[Tensor, "columns columns"]
    radii: Float[Tensor, " 2"]

    @classmethod
    def fit(cls, scaler: InputScaler, x: Float[Tensor, "rows columns"]) -> InputReach:
        """Learn the edge of numeric inputs that `scaler` was fitted to."""
        n, p = x.shape
        if p == 0:
            none = x.new_zeros(0).double()
            return cls(scaler, none.expand(2, 0), none, torch.diag(none), x.new_ones(2).double())
        order = torch.randperm(n, generator=torch.Generator().manual_seed(0))[:MOST_ROWS]  # rows may be sorted
        rows = x[order.to(x.device)].double()
        learning, judging = (rows, rows) if n < 4 else (rows[::2], rows[1::2])
        # Below and above the median; a side without much in it has the scale of the column for an edge.
        edge = torch.stack([scaler.center - learning, learning - scaler.center]).amax(dim=1).maximum(scaler.scale)
        z = scaler(learning).double()
        mean = z.mean(dim=0)
        covariance = (z - mean).mT @ (z - mean) / len(z)
        ridge = RIDGE * covariance.diagonal().mean() + torch.finfo(torch.float32).eps
        whitening = symmetric_inverse_sqrt(covariance + ridge * torch.eye(p, dtype=z.dtype, device=z.device))
        raw = cls(scaler, edge, mean, whitening, edge.new_ones(2))
        distances = raw.distances(judging)
        last = max(1, int(EDGE * len(judging)))
        radii = distances.kthvalue(last, dim=1).values
        return replace(raw, radii=torch.where(radii > 0, radii, 1.0))

    def distances(self, x: Float[Tensor, "rows columns"]) -> Float[Tensor, "2 rows"]:
        """Distance by columns and together, in units of their edges."""
        if x.shape[1] == 0:
            return x.new_zeros(2, len(x), dtype=torch.float64)
        offset = x.double() - self.scaler.center
        beyond = torch.where(offset < 0, -offset / self.edge[0], offset / self.edge[1]).amax(dim=1)
        together = torch.linalg.vector_norm((self.scaler(x).double() - self.mean) @ self.whitening, dim=1)
        return torch.stack([beyond, together]) / self.radii[:, None]

    def novelty(self, x: Float[Tensor, "rows columns"]) -> Float[Tensor, " rows"]:
        """The score of every row."""
        return self.distances(x).amax(dim=0)

    def state(self) -> State:
        """What `from_state` needs."""
        return State({"edge": self.edge, "mean": self.mean, "whitening": self.whitening, "radii": self.radii})

    @classmethod
    def from_state(cls, state: State, scaler: InputScaler) -> InputReach:
        """The same reach of the columns of `scaler`."""
        p = len(scaler.center)
        edge = state.tensor("edge", torch.float64, (2, p))
        radii = state.tensor("radii", torch.float64, (2,))
        if not bool((edge > 0).all()) or not bool((radii > 0).all()):
            raise ValueError("inputs must have a positive reach")
        mean, whitening = state.tensor("mean", torch.float64, (p,)), state.tensor("whitening", torch.float64, (p, p))
        return cls(scaler, edge, mean, whitening, radii)
