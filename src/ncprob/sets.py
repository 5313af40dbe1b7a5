"""Sets of points: boxes, and the one way to turn any description of a set into a mask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ncprob._validation import as_float_tensor


@dataclass(frozen=True)
class Box:
    """The half-open box (low₁, high₁] × … × (low_q, high_q]; ±inf leaves a side open.

    Half-open, like the interval (low, high] of a distribution function, so that neighbouring boxes share no point and
    their probabilities add.

    Examples
    --------
    >>> box = Box([0, 0], [1, float("inf")])
    >>> box.contains(torch.tensor([[0.5, 7.0], [0.0, 1.0]]))
    tensor([ True, False])
    """

    low: Any
    high: Any

    def __post_init__(self) -> None:
        low, high = self.bounds()
        # Plain tuples compare and hash; lists and arrays do not.
        object.__setattr__(self, "low", tuple(low.reshape(-1).tolist()) if low.ndim == 1 else self.low)
        object.__setattr__(self, "high", tuple(high.reshape(-1).tolist()) if high.ndim == 1 else self.high)
        if low.ndim != 1 or low.shape != high.shape:
            raise ValueError(
                "`low` and `high` must be numbers or lists of one length; "
                f"got shapes {tuple(low.shape)} and {tuple(high.shape)}. Give one bound per coordinate."
            )
        if not bool((low < high).all()):
            raise ValueError(
                f"`low` must be below `high` in every coordinate; got {self.low} and {self.high}. Swap or widen them."
            )

    def bounds(self) -> tuple[Tensor, Tensor]:
        """Lower and upper corner."""
        low, high = as_float_tensor(self.low, "low"), as_float_tensor(self.high, "high")
        return torch.atleast_1d(low), torch.atleast_1d(high)

    @property
    def dimension(self) -> int:
        """Number of coordinates."""
        return len(self.bounds()[0])

    def contains(self, points: Tensor) -> Tensor:
        """Mask over the rows of `points`, shape (m, dimension)."""
        low, high = (bound.to(points.device) for bound in self.bounds())
        return ((points > low) & (points <= high)).all(dim=-1)


def as_box(region: Any, dimension: int, name: str) -> Box:
    """A `(low, high]` tuple or a `Box` as a box of the wanted dimension."""
    if isinstance(region, tuple) and len(region) == 2:
        region = Box(*region)
    if not isinstance(region, Box):
        raise TypeError(
            f"`{name}` must be a (low, high) tuple, a Box or a callable giving a boolean mask; "
            f"got {type(region).__name__}."
        )
    if region.dimension != dimension:
        raise ValueError(
            f"`{name}` must have {dimension} coordinates, as the data; got {region.dimension}. "
            "Give one bound per coordinate."
        )
    return region


def membership(region: Any, points: Tensor, name: str, convert: Callable[[Tensor], Any]) -> Tensor:
    """Boolean mask over the rows of `points` (m, q) for a `(low, high]` tuple, a `Box` or a callable.

    `convert` turns the points into what a user's callable takes (an array or a tensor).
    """
    m, q = len(points), points[0].numel()
    if not callable(region):
        return as_box(region, q, name).contains(points)
    mask = torch.as_tensor(region(convert(points)))
    if mask.shape == (m, 1):
        mask = mask[:, 0]
    if mask.dtype != torch.bool or mask.shape != (m,):
        raise ValueError(
            f"`{name}` must return one boolean per row, shape ({m},); got {mask.dtype} of shape {tuple(mask.shape)}. "
            "Reduce over coordinates, for example with `.all(axis=1)`."
        )
    return mask.to(points.device)
