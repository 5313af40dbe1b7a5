"""90 % bands along x where tails are heavy: Laplace and Cauchy laws, with n and settings of the paper's intervals.

    python -m benchmarks.bands                      # writes benchmarks/results/bands.csv
    python -m benchmarks.bands --methods ncprob NCP-W

Per x: the quantiles at 5 and 95 %, the exact probability that Y lies between them, and the mean where the law has one.
A command that was interrupted goes on where it was when it is given again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.experiments import Experiment, Rows, Unit, fitted, run_script
from benchmarks.methods.base import Method
from benchmarks.suites import SUITES
from benchmarks.tasks import Split

COLUMNS = ["x", "low", "high", "coverage", "mean"]
LEVELS = (0.05, 0.95)
X = np.linspace(0.05, 5, 100)[:, None]
SUITE = SUITES["heavy-tails"]


def curves(unit: Unit, split: Split, options: dict[str, Any]) -> tuple[Method, Rows]:
    """The band of one method."""
    assert split.simulator is not None
    model, law = fitted(unit, split, options), split.simulator.truth(X)
    band = model.quantiles(X, LEVELS)
    coverage = np.diff(law.cdf(band), axis=1)[:, 0]
    means = model.mean(X) if np.all(np.isfinite(law.mean())) else [None] * len(X)
    values = zip(X[:, 0], *band.T, coverage, means, strict=True)
    return model, [dict(zip(COLUMNS, row, strict=True)) for row in values]


EXPERIMENT = Experiment(
    "bands", COLUMNS, dict.fromkeys(SUITE.tasks, SUITE.sizes[0]), SUITE.methods, curves, SUITE.options
)

if __name__ == "__main__":
    run_script(EXPERIMENT, __doc__)
