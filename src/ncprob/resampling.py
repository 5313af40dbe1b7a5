"""Block bootstrap: sampling errors of statistics of dependent rows, such as frames of a trajectory.

Rows that are close in time are alike, so single rows must not be resampled; whole blocks of neighbours are (Künsch
1989). Every statistic here is a function of second moments of the rows, which add over blocks: a resample is a weighted
sum of block sums, and rows are read once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ncprob._validation import check_integer, check_number

FEWEST_BLOCKS = 10  # fewer give an error that is itself known to a quarter at best, 1/√(2(n − 1))
MAX_BLOCKS = 200  # neighbouring blocks are joined beyond; more would not make the error more certain


@dataclass(frozen=True)
class Estimate:
    """A value with its sampling error.

    Attributes
    ----------
    value
        The estimate; a number or an array.
    standard_error
        Standard deviation over resamples.
    low, high
        Ends of the confidence interval.
    """

    value: Any
    standard_error: Any
    low: Any
    high: Any


def block_sums(rows: Tensor, blocks: Tensor) -> Tensor:
    """Σ z zᵀ over the rows z of each block, shape (blocks, width, width), in float64.

    Examples
    --------
    >>> block_sums(torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([0, 0, 1])).flatten()
    tensor([5., 9.], dtype=torch.float64)
    """
    count = int(blocks.max()) + 1
    joined = blocks if count <= MAX_BLOCKS else blocks * MAX_BLOCKS // count
    sizes = joined.bincount().tolist()
    return torch.stack([part.double().mT @ part.double() for part in rows.split(sizes)])


def check_blocks(n: int) -> None:
    """Sampling errors need at least two blocks; of few they are rough, which a warning says.

    Examples
    --------
    >>> check_blocks(1)
    Traceback (most recent call last):
    ValueError: sampling errors need at least 2 blocks of neighbouring rows; got 1. Lower `block_length` or add data.
    """
    if n < 2:
        raise ValueError(
            f"sampling errors need at least 2 blocks of neighbouring rows; got {n}. Lower `block_length` or add data."
        )
    if n < FEWEST_BLOCKS:
        warnings.warn(
            f"sampling errors come from only {n} blocks of neighbouring rows and are rough. Lower `block_length` or "
            "add data.",
            stacklevel=4,
        )


def bootstrap(
    sums: Tensor,
    statistic: Callable[[Tensor], Tensor],
    value: Tensor,
    *,
    confidence: float,
    n_resamples: int,
    seed: int,
    bounds: tuple[float, float],
) -> Estimate:
    """Error of `value` from `statistic` of the summed moments of resampled blocks.

    `statistic` maps sums (resamples, width, width) to values (resamples, …). The interval is the basic one of Davison &
    Hinkley (1997, section 5.2), value − quantiles of (resampled − original), so that `value` may differ from
    `statistic` by a repair that hardly varies; it is cut to `bounds`. Resamples without an answer (NaN) do not count.

    Examples
    --------
    >>> z = torch.stack([torch.ones(1000), torch.arange(1000.0) % 10], dim=1)
    >>> mean = lambda sums: sums[:, 0, 1] / sums[:, 0, 0]
    >>> sums = block_sums(z, torch.arange(1000) // 5)
    >>> error = bootstrap(
    ...     sums, mean, torch.tensor(4.5), confidence=0.9, n_resamples=500, seed=0, bounds=(0, 9)
    ... ).standard_error
    >>> bool(0.16 < error < 0.19)  # 200 block means of variance 6.25
    True
    """
    check_number(confidence, "confidence", minimum=0, maximum=1, open_ends=True)
    check_integer(n_resamples, "n_resamples", minimum=2)
    check_blocks(n := len(sums))
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(n, (n_resamples, n), generator=generator)
    counts = torch.zeros(n_resamples, n, dtype=torch.float64).scatter_add_(1, drawn, torch.ones(drawn.shape).double())
    resampled = torch.cat([statistic(torch.einsum("rb,bij->rij", part, sums)) for part in counts.split(50)])
    difference = resampled - statistic(sums.sum(dim=0)[None])
    tail = (1 - confidence) / 2
    low, high = torch.nanquantile(difference, torch.tensor([tail, 1 - tail], dtype=torch.float64), dim=0)
    spread = torch.nanmean((difference - torch.nanmean(difference, dim=0)).square(), dim=0).sqrt()
    return Estimate(value, spread, (value - high).clamp(*bounds), (value - low).clamp(*bounds))
