"""Conformal intervals side by side: ncprob, MAPIE and crepes on three public tables.

    python -m benchmarks.calibration --data PATH     # or set NCPROB_DATA; writes benchmarks/results/calibration.csv

PATH holds concrete.csv.gz, power.csv.gz and kin8nm.parquet. Every method gets the same 60 % of the rows to fit, 20 % to
calibrate and 20 % to test. Forests have 100 trees, gradient boosting scikit-learn's defaults: what users start with.
Needs the extra: pip install -e '.[benchmarks]'.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from crepes import WrapRegressor
from crepes.extras import DifficultyEstimator
from mapie.regression import ConformalizedQuantileRegressor, SplitConformalRegressor
from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor

import ncprob
from benchmarks.records import RESULTS
from ncprob import NCPRegressor
from ncprob.metrics import interval_coverage, interval_score, interval_width

OUT = RESULTS / "calibration.csv"
FIELDS = ["method", "dataset", "seed", "coverage_asked", "coverage", "width", "interval_score", "seconds", "version"]
TARGETS = {"concrete.csv.gz": "compressive_strength", "power.csv.gz": "PE", "kin8nm.parquet": "y"}
COVERAGE = 0.9

Array = np.ndarray
Split = tuple[Array, Array]
Method = Callable[[Split, Split, Array, int], Array]


def load(folder: Path, name: str) -> Split:
    path = folder / name
    if not path.exists():
        sys.exit(f"{name} is not in {folder}. Give the folder of the tables with --data or NCPROB_DATA.")
    table = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    return table.drop(columns=TARGETS[name]).to_numpy(float), table[TARGETS[name]].to_numpy(float)


def ours(method: str | None) -> Method:
    def intervals(fit: Split, calibrate: Split, X: Array, seed: int) -> Array:
        model = NCPRegressor(random_state=seed, progress=False).fit(*fit)
        model = model if method is None else model.conformalize(*calibrate, method=method)
        return model.predict_interval(X, COVERAGE)

    return intervals


def mapie_split(fit: Split, calibrate: Split, X: Array, seed: int) -> Array:
    forest = RandomForestRegressor(100, random_state=seed, n_jobs=2).fit(*fit)
    model = SplitConformalRegressor(forest, confidence_level=COVERAGE, prefit=True).conformalize(*calibrate)
    return model.predict_interval(X)[1][:, :, 0]


def mapie_cqr(fit: Split, calibrate: Split, X: Array, seed: int) -> Array:
    boosting = GradientBoostingRegressor(loss="quantile", random_state=seed)
    model = ConformalizedQuantileRegressor(boosting, confidence_level=COVERAGE)
    model = model.fit(*fit).conformalize(*calibrate)
    return model.predict_interval(X)[1][:, :, 0]


def crepes_normalized(fit: Split, calibrate: Split, X: Array, seed: int) -> Array:
    model = WrapRegressor(RandomForestRegressor(100, random_state=seed, n_jobs=2, oob_score=True))
    model.fit(*fit)
    residuals = fit[1] - model.learner.oob_prediction_
    difficulty = DifficultyEstimator().fit(X=fit[0], residuals=residuals, scaler=True)
    model.calibrate(*calibrate, de=difficulty)
    return np.asarray(model.predict_int(X, confidence=COVERAGE))


METHODS: dict[str, Method] = {
    "ncprob, not calibrated": ours(None),
    "ncprob, conformalize pit": ours("pit"),
    "ncprob, conformalize cqr": ours("cqr"),
    "MAPIE split, forest": mapie_split,
    "MAPIE CQR, boosting": mapie_cqr,
    "crepes normalised, forest": crepes_normalized,
}


def one_run(name: str, data: Split, method: str, seed: int) -> dict[str, object]:
    X, y = data
    order = np.random.default_rng(seed).permutation(len(y))
    a, b = int(0.6 * len(y)), int(0.8 * len(y))
    fit, calibrate, test = order[:a], order[a:b], order[b:]
    start = time.perf_counter()
    interval = METHODS[method]((X[fit], y[fit]), (X[calibrate], y[calibrate]), X[test], seed)
    seconds = time.perf_counter() - start
    scale = y[fit].std()
    return {
        "method": method,
        "dataset": name.split(".")[0],
        "seed": seed,
        "coverage_asked": COVERAGE,
        "coverage": round(interval_coverage(y[test], interval), 4),
        "width": round(interval_width(interval) / scale, 4),
        "interval_score": round(interval_score(y[test], interval, COVERAGE) / scale, 4),
        "seconds": round(seconds, 2),
        "version": ncprob.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("NCPROB_DATA", ".")))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    tables = {name: load(options.data, name) for name in TARGETS}
    with options.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        for name, data in tables.items():
            for method in METHODS:
                for seed in range(options.seeds):
                    row = one_run(name, data, method, seed)
                    writer.writerow(row)
                    file.flush()
                    print(row, flush=True)


if __name__ == "__main__":
    main()
