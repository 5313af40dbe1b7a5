"""Accuracy and time of the default fit on simulated data with exact conditional laws.

    python -m benchmarks.fits                      # writes benchmarks/results/fits.csv

Protocol of Kostic et al. 2024: Kolmogorov–Smirnov distance to the exact conditional distribution function on 1,000
points, averaged over conditioning values at the 5, 10, …, 95 % percentiles of x. `ks_paper` is the paper's variant
(both functions isotonised and divided by their last value).
"""

from __future__ import annotations

import argparse
import csv
import resource
import time
from pathlib import Path

import numpy as np

import ncprob
from ncprob import NCPRegressor, datasets
from ncprob.metrics import ks_distance, ks_distance_paper

RESULTS = Path(__file__).parent / "results" / "fits.csv"
MODELS = ["LinearGaussian", "EconDensity", "ArmaJump", "SkewNormal", "GaussianMixture", "LGGMD"]
FIELDS = ["method", "dataset", "n", "seed", "ks", "ks_paper", "crps", "fit_seconds", "predict_seconds", "peak_mb"]
FIELDS += ["settings", "version"]


def one_run(name: str, n: int, seed: int) -> dict[str, object]:
    simulator = datasets.make(name)
    X, y = simulator.sample(n, random_state=seed)
    X_test, y_test = simulator.sample(1000, random_state=10_000 + seed)
    start = time.perf_counter()
    model = NCPRegressor(random_state=seed, progress=False).fit(X, y)
    fitted = time.perf_counter()
    x, grid = simulator.conditioning_points(X), np.linspace(y.min(), y.max(), 1000)
    cdf = model.predict_distribution(x).cdf(grid)
    answered = time.perf_counter()
    truth = simulator.truth(x).cdf(grid)
    return {
        "method": "ncprob",
        "dataset": name,
        "n": n,
        "seed": seed,
        "ks": round(float(ks_distance(cdf, truth)), 5),
        "ks_paper": round(float(ks_distance_paper(cdf, truth)), 5),
        "crps": round(float(model.predict_distribution(X_test).crps(y_test).mean()), 5),
        "fit_seconds": round(fitted - start, 2),
        "predict_seconds": round(answered - fitted, 4),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "settings": f"default; {model.coordinates_} coordinates, rank {model.rank_}",
        "version": ncprob.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--models", nargs="+", default=MODELS, choices=datasets.names())
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    with options.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        for name in options.models:
            for seed in range(options.seeds):
                row = one_run(name, options.n, seed)
                writer.writerow(row)
                file.flush()
                print(row, flush=True)


if __name__ == "__main__":
    main()
