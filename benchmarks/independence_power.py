"""Power at level 5 % of the independence test against distance correlation and HSIC.

Four kinds of dependence and none, at several sample sizes; every method gets the same data and as many permutations.
All samples are scalar pairs of moderate dependence, so that no method finds everything or nothing.

    python benchmarks/independence_power.py [--repetitions 40] [--seed 0]

Distance correlation (Székely, Rizzo & Bakirov 2007) and HSIC (Gretton et al. 2008, Gaussian kernels with the median
bandwidth) are both of the form ⟨K_x, K_y permuted⟩ with centred matrices, so one routine serves both.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from benchmarks.records import RESULTS
from ncprob._version import __version__
from ncprob.dependence import independence_test

Array = NDArray[np.float64]
OUT = RESULTS / "independence_power.csv"
COLUMNS = ("method", "dependence", "n", "repetitions", "power", "seconds", "seed", "version")
SIZES = (100, 200, 500)
LEVEL, PERMUTATIONS = 0.05, 199


def linear(x: Array, noise: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    return x, 0.25 * x + noise


def quadratic(x: Array, noise: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    return x, 0.25 * x**2 + noise


def circular(x: Array, noise: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    angle = rng.uniform(0, 2 * np.pi, len(x))
    return np.cos(angle) + 0.3 * x, np.sin(angle) + 0.3 * noise


def heteroscedastic(x: Array, noise: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    return x, np.exp(0.4 * x) * noise


def independent(x: Array, noise: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    return x, noise


DEPENDENCES = (linear, quadratic, circular, heteroscedastic, independent)


def centered(matrix: Array) -> Array:
    return matrix - matrix.mean(axis=0) - matrix.mean(axis=1, keepdims=True) + matrix.mean()


def distances(x: Array) -> Array:
    return np.abs(x[:, None] - x)


def gaussian_kernel(x: Array) -> Array:
    d = distances(x)
    return np.exp(-0.5 * (d / np.median(d[d > 0])) ** 2)


def permutation_pvalue(similarity: Callable[[Array], Array], x: Array, y: Array, seed: int) -> float:
    """p-value of ⟨K_x, K_y⟩, K centred: distance covariance for distances, HSIC for kernels."""
    rng = np.random.default_rng(seed)
    left, right = centered(similarity(x)), centered(similarity(y))
    observed = np.vdot(left, right)
    orders = (rng.permutation(len(x)) for _ in range(PERMUTATIONS))
    exceeding = sum(np.vdot(left, right[np.ix_(order, order)]) >= observed - 1e-12 * abs(observed) for order in orders)
    return float(1 + exceeding) / (1 + PERMUTATIONS)


def ncprob_pvalue(x: Array, y: Array, seed: int) -> float:
    return independence_test(x, y, n_permutations=PERMUTATIONS, random_state=seed, device="cpu").pvalue


METHODS: dict[str, Callable[[Array, Array, int], float]] = {
    "ncprob": ncprob_pvalue,
    "distance correlation": lambda x, y, seed: permutation_pvalue(distances, x, y, seed),
    "HSIC": lambda x, y, seed: permutation_pvalue(gaussian_kernel, x, y, seed),
}


def measure(repetitions: int, seed: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for simulate in DEPENDENCES:
        for n in SIZES:
            rows += measure_one(simulate, n, repetitions, seed)
    return rows


def measure_one(simulate: Callable[..., tuple[Array, Array]], n: int, repetitions: int, seed: int) -> list[dict]:
    """One line per method: share of data sets with p ≤ 5 % and mean seconds per test."""
    samples = []
    for repetition in range(repetitions):
        rng = np.random.default_rng([seed, n, repetition])
        samples.append(simulate(rng.normal(size=n), rng.normal(size=n), rng))
    lines = []
    for method, pvalue in METHODS.items():
        start = time.perf_counter()
        rejections = [pvalue(x, y, seed + r) <= LEVEL for r, (x, y) in enumerate(samples)]
        seconds = (time.perf_counter() - start) / repetitions
        facts = (method, simulate.__name__, n, repetitions, f"{np.mean(rejections):.3f}", f"{seconds:.3f}", seed)
        lines.append(dict(zip(COLUMNS, (*facts, __version__), strict=True)))
    return lines


def table(rows: list[dict[str, object]]) -> str:
    lines = [f"{'dependence':<16} {'n':>4} " + " ".join(f"{method:>20}" for method in METHODS)]
    for simulate in DEPENDENCES:
        for n in SIZES:
            power = {
                row["method"]: row["power"] for row in rows if (row["dependence"], row["n"]) == (simulate.__name__, n)
            }
            lines.append(f"{simulate.__name__:<16} {n:>4} " + " ".join(f"{power[method]:>20}" for method in METHODS))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rows = measure(arguments.repetitions, arguments.seed)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    with OUT.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    print(table(rows))


if __name__ == "__main__":
    main()
