"""Estimated and true densities and distribution functions, at three x of each of the six models.

    python -m benchmarks.laws                       # writes benchmarks/results/laws.csv
    python -m benchmarks.laws --methods ncprob --tasks LGGMD

The x are three of the points at which the density benchmark compares laws: 10, 50 and 90 % of the training inputs. For
LGGMD they show both its regimes and unequal peaks: its second input low and high, then its third input high.
A command that was interrupted goes on where it was when it is given again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.experiments import Experiment, Rows, Unit, fitted, run_script
from benchmarks.methods.base import Array, Method
from benchmarks.suites import SIX_MODELS
from benchmarks.tasks import Split

COLUMNS = ["condition", "y", "pdf", "cdf"]
POINTS = 200
LEVELS_PER_INPUT = 19  # 5, 10, …, 95 % of every input in turn
LOW, MIDDLE, HIGH = 1, 9, 17  # 10, 50, 90 %


def conditions(split: Split) -> list[tuple[str, Array]]:
    """Three x with their names, each of shape (1, inputs)."""
    assert split.simulator is not None
    points = split.simulator.conditioning_points(split.X)
    if split.X.shape[1] == 1:
        return [(f"x = {points[i, 0]:.2f}", points[i : i + 1]) for i in (LOW, MIDDLE, HIGH)]
    chosen = [(1, LOW), (1, HIGH), (2, HIGH)]  # input, level
    rows = [(column, column * LEVELS_PER_INPUT + level) for column, level in chosen]
    return [(f"x{column + 1} = {points[i, column]:.2f}, others median", points[i : i + 1]) for column, i in rows]


def grid(split: Split, x: Array) -> Array:
    """Equally spaced y over where the true law lives and some way beyond."""
    assert split.simulator is not None
    low, high = split.simulator.truth(x).quantile([0.001, 0.999])[0]
    return np.linspace(low - 0.15 * (high - low), high + 0.15 * (high - low), POINTS)


def curves(unit: Unit, split: Split, options: dict[str, Any]) -> tuple[Method, Rows]:
    """Density and distribution function of one method at all conditions."""
    model, rows = fitted(unit, split, options), []
    for name, x in conditions(split):
        y = grid(split, x)
        answers = zip(y, model.pdf(x, y)[0], model.cdf(x, y)[0], strict=True)
        rows += [{"condition": name, "y": at, "pdf": pdf, "cdf": cdf} for at, pdf, cdf in answers]
    return model, rows


EXPERIMENT = Experiment("laws", COLUMNS, dict.fromkeys(SIX_MODELS, 10_000), ("ncprob", "NCP-W", "NF-tuned"), curves)

if __name__ == "__main__":
    run_script(EXPERIMENT, __doc__)
