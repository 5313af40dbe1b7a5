"""Time and memory of answers: many test rows against many training rows at a fixed rank.

    python -m benchmarks.answers            # writes benchmarks/results/answers.csv

The model is trained for a few steps only: the cost of an answer does not depend on how good the model is.
"""

from __future__ import annotations

import argparse
import csv
import resource
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import ncprob
from benchmarks.records import RESULTS
from ncprob import Box, NCPRegressor

OUT = RESULTS / "answers.csv"
FIELDS = ["question", "coordinates", "n_train", "n_test", "rank", "seconds", "extra_mb", "threads", "seed", "version"]


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def fitted(coordinates: str, n_train: int, rank: int, seed: int) -> NCPRegressor:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_train, 5))
    y = X[:, 0] + (1 + 0.5 * np.abs(X[:, 1])) * rng.normal(size=n_train)
    return NCPRegressor(rank=rank, coordinates=coordinates, max_steps=40, random_state=seed, progress=False).fit(X, y)


def questions(
    model: NCPRegressor, n_test: int, rng: np.random.Generator
) -> list[tuple[str, int, Callable[[], object]]]:
    X = rng.normal(size=(n_test, 5))
    some = X[: n_test // 10]
    low, high = np.full(5, -np.inf), np.full(5, np.inf)
    low[0] = 0.5
    return [
        ("predict_quantiles (3 levels)", n_test, lambda: model.predict_quantiles(X)),
        ("predict_quantiles (3 levels)", n_test // 10, lambda: model.predict_quantiles(some)),
        ("predict", n_test, lambda: model.predict(X)),
        ("predict_interval (shortest)", n_test // 10, lambda: model.predict_interval(some)),
        ("given(A).quantile", 1, lambda: model.given(Box(low, high)).quantile([0.05, 0.5, 0.95])),
        ("given_target(B).mean", 1, lambda: model.given_target((1.0, np.inf)).mean()),
        ("predict_quantiles (3 levels)", 1, lambda: model.predict_quantiles(X[:1])),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n-train", type=int, default=100_000)
    parser.add_argument("--n-test", type=int, default=100_000)
    parser.add_argument("--rank", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    rows = []
    for coordinates in ("raw", "residual"):
        model = fitted(coordinates, options.n_train, options.rank, options.seed)
        for name, n_test, ask in questions(model, options.n_test, np.random.default_rng(options.seed + 1)):
            before, start = peak_mb(), time.perf_counter()
            ask()
            seconds = time.perf_counter() - start
            facts = [name, coordinates, options.n_train, n_test, options.rank, f"{seconds:.4f}"]
            facts += [f"{peak_mb() - before:.0f}", torch.get_num_threads(), options.seed, ncprob.__version__]
            rows.append(dict(zip(FIELDS, facts, strict=True)))
            print(f"{coordinates:9s} {name:30s} {n_test:7d} rows {seconds:9.4f} s  +{facts[6]} MB", flush=True)
    with options.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
