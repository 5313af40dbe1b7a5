"""Scores of a fitted method, the same for every method and read from its quantiles and distribution functions only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.methods.base import Method
from benchmarks.tasks import Split
from ncprob.metrics import (
    hellinger,
    interval_coverage,
    interval_width,
    jensen_shannon,
    kl_divergence,
    ks_distance,
    ks_distance_paper,
    pinball_loss,
    total_variation,
    wasserstein1,
)

Array = NDArray[np.float64]

LEVELS = np.arange(1, 200) / 200  # 0.005, 0.010, …, 0.995: for the CRPS
PINBALL_LEVELS = np.arange(1, 20) / 20  # 0.05, …, 0.95
GRID_POINTS = 1000
FIFTHS = 5
STEPS = 0.2  # share of distinct values in y below which it counts as discrete
FLOOR = 1e-6  # least probability of a cell in the Kullback–Leibler divergence


def quantile_scores(quantiles: Array, split: Split) -> dict[str, float | str]:
    """CRPS, pinball loss, and the central 90 % interval, from quantiles of the test rows at `LEVELS`.

    CRPS is twice the mean pinball loss over `LEVELS`. Coverage of simulated data is exact, P(low ≤ Y ≤ high | x)
    averaged over the test rows: 1,000 tosses would add a noise of one point. Width is in standard deviations of y.
    """
    y = split.y_test
    interval = quantiles[:, [_position(0.05), _position(0.95)]]
    inside = _coverage(interval, split)
    fifths = np.array_split(inside[_order(quantiles, split)], FIFTHS)
    return {
        "crps": 2 * float(pinball_loss(y, quantiles, LEVELS)),
        "pinball": float(pinball_loss(y, quantiles[:, [_position(p) for p in PINBALL_LEVELS]], PINBALL_LEVELS)),
        "coverage90": float(inside.mean()),
        "width90": float(interval_width(interval)) / float(split.y.std()),
        "coverage_by_fifth": " ".join(f"{fifth.mean():.4f}" for fifth in fifths),
    }


def distance_scores(method: Method, split: Split) -> dict[str, float | str]:
    """KS distances to the exact laws at the conditioning points; nothing for a table, whose laws nobody knows.

    `ks` and `ks_paper` are taken on 1,000 equally spaced y, as in the paper. With heavy tails hardly any of these lies
    where the mass is, so `ks_bulk` is the plain distance on 1,000 quantiles of the training y.
    """
    if split.simulator is None:
        return {}
    x, law = split.simulator.conditioning_points(split.X), split.simulator.truth
    even = np.linspace(split.y.min(), split.y.max(), GRID_POINTS)
    bulk = np.quantile(split.y, (np.arange(GRID_POINTS) + 0.5) / GRID_POINTS)
    cdf, truth = method.cdf(x, even), law(x).cdf(even)
    by_point = np.asarray(ks_distance(cdf, truth, average=False))
    return {
        "ks": float(by_point.mean()),
        "ks_by_point": " ".join(f"{value:.4f}" for value in by_point),
        "ks_paper": float(ks_distance_paper(cdf, truth)),
        "ks_bulk": float(ks_distance(method.cdf(x, bulk), law(x).cdf(bulk))),
        "w1": float(wasserstein1(cdf, truth, even)) / float(split.y.std()),  # in standard deviations of y
        **divergences(truth, _densities(method, x, even, split), even),
    }


def _densities(method: Method, x: Array, grid: Array, split: Split) -> Array:
    """Density in the middle of every cell of the grid; of a law with steps the mean density of the cell."""
    if not has_steps(split.y):
        return method.pdf(x, (grid[1:] + grid[:-1]) / 2)
    return np.maximum(np.diff(method.cdf(x, grid), axis=1), 0) / np.diff(grid)


def has_steps(y: Array) -> bool:
    """Whether y repeats its values, as counts and grades do: its law has no density."""
    return len(np.unique(y)) < STEPS * len(y)


def divergences(truth: Array, density: Array, grid: Array) -> dict[str, float]:
    """Hellinger, KL(truth ‖ method), Jensen–Shannon and total variation of laws on a grid.

    The truth, given by its distribution function, is binned into the cells of the grid; the method's density is taken
    in their middle (a method without one has that of its cells, see `Method.pdf`) and divided by its integral where
    this is above one. A cell to which the method gives less than `FLOOR` counts as if it had that: KL is large and
    not infinite for laws with gaps.
    """
    width, middle = np.diff(grid), (grid[1:] + grid[:-1]) / 2
    p = np.maximum(np.diff(truth, axis=1), 0) / width
    q = density / np.maximum((density * width).sum(axis=1, keepdims=True), 1.0)
    return {
        "hellinger": float(hellinger(p, q, middle)),
        "kl": float(kl_divergence(p, np.maximum(q, FLOOR / width), middle)),
        "js": float(jensen_shannon(p, q, middle)),
        "tv": float(total_variation(p, q, middle)),
    }


def point_scores(method: Method, split: Split) -> dict[str, float]:
    """Logarithmic score −log p(y | x) of the test rows where there is a density, and the error of the mean if known."""
    density = None if has_steps(split.y) else method.log_density(split.X_test, split.y_test)
    scores = {} if density is None else {"log_score": -float(density.mean())}
    if split.simulator is not None:
        truth = split.simulator.truth(split.X_test).mean()
        if np.all(np.isfinite(truth)):
            error = method.mean(split.X_test) - truth
            scores["mse_mean"] = float(np.mean(error**2))
    return scores


def _position(level: float) -> int:
    return round(level * 200) - 1


def _coverage(interval: Array, split: Split) -> Array:
    """Chance of every test row to lie in its interval: exact, or 0 and 1 where only one y is known."""
    if split.simulator is None:
        return np.array([interval_coverage([y], [ends]) for y, ends in zip(split.y_test, interval, strict=True)])
    law = split.simulator.truth(split.X_test)
    below = np.nextafter(interval[:, :1], -np.inf)  # the interval is closed, which matters for discrete laws
    return (law.cdf(interval[:, 1:]) - law.cdf(below))[:, 0]


def _order(quantiles: Array, split: Split) -> NDArray[np.int64]:
    """Test rows in increasing order of x, or of the predicted median if there are several inputs."""
    only_input = split.X_test.shape[1] == 1
    return np.argsort(np.asarray(split.X_test)[:, 0] if only_input else quantiles[:, _position(0.5)], kind="stable")
