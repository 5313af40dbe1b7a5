"""A quick look at how close fits come to the exact truth of simulated data."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ncprob import datasets
from ncprob.estimators import NCPRegressor
from ncprob.metrics import ks_distance

GRID = 1000
QUICK = ("LinearGaussian", "EconDensity", "ArmaJump", "SkewNormal", "GaussianMixture", "Cauchy", "TwoRegimes")


@dataclass(frozen=True)
class Result:
    """One fit: distance to the truth, that of the marginal law, and time."""

    name: str
    ks: float
    ks_marginal: float
    seconds: float


def run(names: Sequence[str], n_rows: int, random_state: int, **settings: Any) -> Iterator[Result]:
    """Fit every simulator and compare distribution functions at its conditioning points.

    Examples
    --------
    >>> for result in run(["LinearGaussian"], 300, 0, max_steps=50):
    ...     print(result.name, result.ks < result.ks_marginal)
    LinearGaussian True
    """
    simulators = [datasets.make(name) for name in names]  # all names are checked before any work
    for name, simulator in zip(names, simulators, strict=True):
        X, y = simulator.sample(n_rows, random_state=random_state)
        start = time.perf_counter()
        model = NCPRegressor(random_state=random_state, **settings).fit(X, y)
        seconds = time.perf_counter() - start
        x = simulator.conditioning_points(X)
        grid = np.linspace(np.quantile(y, 0.001), np.quantile(y, 0.999), GRID)
        exact = simulator.truth(x).cdf(grid)
        marginal = np.searchsorted(np.sort(y), grid, side="right") / len(y)
        alone = ks_distance(np.broadcast_to(marginal, exact.shape), exact)
        yield Result(name, float(ks_distance(model.predict_distribution(x).cdf(grid), exact)), float(alone), seconds)
