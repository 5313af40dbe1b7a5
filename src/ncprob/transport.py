"""Increasing maps between the coordinates of the atoms and Y, one per member and component."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ncprob.preprocessing import LARGEST


class Transport:
    """y = anchor + h(b): h piecewise linear and increasing, given by its values at knots that all members share.

    Beyond the outer knots h goes on with the slope of its last piece, up to ±`LARGEST`: no answer overflows. Values
    are kept relative to an anchor, so that spreads do not lose digits to a large location.

    Parameters
    ----------
    knots : Tensor of shape (k,)
        Increasing coordinates b of the atoms.
    anchor : Tensor of shape (n, q)
        Where member and component lie.
    offsets : Tensor of shape (n, q, k)
        h at the knots, strictly increasing.

    Examples
    --------
    Two knots make an affine map, here 10 + 2b.

    >>> double = torch.float64
    >>> knots = torch.tensor([-1.0, 1.0], dtype=double)
    >>> map = Transport(knots, torch.tensor([[10.0]], dtype=double), torch.tensor([[[-2.0, 2.0]]], dtype=double))
    >>> map.from_base(torch.tensor([[[0.0, 3.0]]], dtype=double))
    tensor([[[10., 16.]]], dtype=torch.float64)
    >>> map.to_base(torch.tensor([[[10.0, 16.0]]], dtype=double))
    tensor([[[0., 3.]]], dtype=torch.float64)
    """

    def __init__(
        self,
        knots: Float[Tensor, " knots"],
        anchor: Float[Tensor, "members components"],
        offsets: Float[Tensor, "members components knots"],
    ) -> None:
        self.knots, self.anchor, self.offsets = knots, anchor, offsets.contiguous()

    def __getitem__(self, rows: Any) -> Transport:
        return Transport(self.knots, self.anchor[rows], self.offsets[rows])

    def component(self, k: int) -> Transport:
        """The maps of one component."""
        return Transport(self.knots, self.anchor[:, k : k + 1], self.offsets[:, k : k + 1])

    def offsets_at(self, base: Float[Tensor, "members_or_1 components points"]) -> Tensor:
        """h at base points, (members, components, points); one row of points is shared by all members."""
        piece, share = self._position(base)
        if len(base) == 1:
            parts = [
                _between(self.offsets[:, k, piece[0, k]], self.offsets[:, k, piece[0, k] + 1], share[0, k])
                for k in range(base.shape[1])
            ]
            offsets = torch.stack(parts, dim=1)
        else:
            offsets = _between(self.offsets.gather(2, piece), self.offsets.gather(2, piece + 1), share)
        return offsets.clamp_(-LARGEST, LARGEST)

    def from_base(self, base: Float[Tensor, "members_or_1 components points"]) -> Tensor:
        """Values of Y at base points."""
        return self.anchor[..., None] + self.offsets_at(base)

    def to_base(self, values: Float[Tensor, "members_or_1 components points"]) -> Tensor:
        """Inverse of `from_base`."""
        target = (values - self.anchor[..., None]).contiguous()
        last = len(self.knots) - 2
        piece = (torch.searchsorted(self.offsets, target) - 1).clamp(0, last)
        low, high = self.offsets.gather(2, piece), self.offsets.gather(2, piece + 1)
        width = self.knots[piece + 1] - self.knots[piece]
        step = (high - low).clamp(min=torch.finfo(high.dtype).tiny)  # an outer piece is flat where the anchor is huge
        return self.knots[piece] + width * ((target - low) / step)

    def slope(self, base: Float[Tensor, "members components points"]) -> Tensor:
        """dy/db at base points, continuous: central differences at the knots, linear between them."""
        steps = self.offsets.diff(dim=-1) / self.knots.diff()
        middle = (self.offsets[..., 2:] - self.offsets[..., :-2]) / (self.knots[2:] - self.knots[:-2])
        at_knots = torch.cat([steps[..., :1], middle, steps[..., -1:]], dim=-1)
        piece, share = self._position(base)
        return _between(at_knots.gather(2, piece), at_knots.gather(2, piece + 1), share.clamp(0, 1))

    def _position(self, base: Tensor) -> tuple[Tensor, Tensor]:
        """Piece of h that holds each point, and where in the piece it lies (outside [0, 1] beyond the last knots)."""
        last = len(self.knots) - 2
        piece = (torch.searchsorted(self.knots, base.contiguous()) - 1).clamp(0, last)
        return piece, (base - self.knots[piece]) / (self.knots[piece + 1] - self.knots[piece])


def _between(low: Tensor, high: Tensor, share: Tensor) -> Tensor:
    """Linear interpolation in separate operations: an atom moved alone or among others is the same to the last bit."""
    return low + share * (high - low)
