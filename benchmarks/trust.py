"""Coverage, calibration and bounds over many seeds, on every simulator: what is promised, and how often it was kept.

    python -m benchmarks.trust --seeds 10

A quick model is fitted for every simulator and seed, and held against 1,000 new rows and the exact law:

- 90 % intervals after `conformalize` on 200 rows cover new rows with a probability of at least 0.9, by theorem;
- F(y|x) of the model, randomised at steps, is uniform on new rows, but for what 400 rows can know;
- |P̂(Y ∈ B | X ∈ A) − P(Y ∈ B | X ∈ A)| stays below the bound of `guarantees` but for a share δ of the data sets. With
  400 rows the bound is above 1 and says nothing (`informative` is 0); tests/statistical/test_bounds.py has cases in
  which it is below.

Results are in results/trust.csv, one row per fit; a run that was interrupted goes on. The exit status is 1 if a promise
was broken more often than chance allows.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np
from scipy import stats

from benchmarks.records import RESULTS, Records, Row
from ncprob import Box, NCPRegressor, __version__, datasets

ROWS, CALIBRATION, NEW_ROWS, TRUTH_ROWS = 400, 200, 1000, 20_000
COVERAGE, DELTA = 0.9, 0.1
COLUMNS = ["dataset", "seed", "n", "coverage", "pit_ks", "set_error", "bound", "informative", "version"]
QUICK = {"hidden_sizes": (32, 32), "max_steps": 300, "tree_inputs": False, "device": "cpu", "progress": False}
OPERATOR = QUICK | {"coordinates": "raw", "rank": 5, "hidden_sizes": (32,), "max_steps": 150}  # bounds are of raw laws


def measure(name: str, seed: int) -> dict[str, object]:
    """One fit and what became of its promises."""
    simulator = datasets.make(name)
    # All rows are of one sample: those of ArmaJump are a series, shuffled, which makes them exchangeable.
    X, y = simulator.sample(ROWS + CALIBRATION + NEW_ROWS, random_state=seed)
    X, X_new, y, y_new = X[:-NEW_ROWS], X[-NEW_ROWS:], y[:-NEW_ROWS], y[-NEW_ROWS:]
    model = NCPRegressor(**QUICK, random_state=seed).fit(X[:ROWS], y[:ROWS])
    low, high = model.conformalize(X[ROWS:], y[ROWS:]).predict_interval(X_new, COVERAGE, kind="central").T
    covered = np.mean((low <= y_new) & (y_new <= high))
    pit = stats.kstest(randomised_pit(model.predict_distribution(X_new), y_new, seed), "uniform").statistic
    error, bound = set_error(simulator, NCPRegressor(**OPERATOR, random_state=seed), X[:ROWS], y[:ROWS])
    facts = {"dataset": name, "seed": seed, "n": ROWS, "coverage": float(covered), "pit_ks": float(pit)}
    return facts | {"set_error": error, "bound": bound, "informative": int(bound < 1), "version": __version__}


def randomised_pit(law, y, seed):
    """F(y−) + U (F(y) − F(y−)), uniform for laws with steps too."""
    upto, before = law.pit(y), law.pit(np.nextafter(y, -np.inf))
    return before + np.random.default_rng(seed).uniform(size=upto.shape) * (upto - before)


def set_error(simulator, model, X, y):
    """Error of P(Y ≤ median | first input > its median), and the bound on it."""
    model.fit(X, y)
    edge, level = np.median(X[:, 0]), float(np.median(y))
    inside = simulator.sample(TRUTH_ROWS, random_state=20_000)[0]
    inside = inside[inside[:, 0] > edge]
    truth = float(np.mean(simulator.truth(inside).cdf(level)))
    in_A = Box([edge, *[-np.inf] * (X.shape[1] - 1)], [np.inf] * X.shape[1])
    answer = float(np.squeeze(model.given(in_A).prob((-np.inf, level))))
    return abs(answer - truth), model.guarantees(DELTA, A=in_A, B=(-np.inf, level))["probability"].value


def broken(name: str, rows: list[Row]) -> list[str]:
    """Promises of a simulator that were broken more often than chance allows, at one in a thousand for each."""
    coverage, pit, error, bound = (np.array([float(row[k]) for row in rows]) for k in COLUMNS[3:7])
    seeds = len(rows)
    # given its calibration rows an interval covers with a Beta(c(n + 1), …) probability, then new rows are drawn
    spread = np.sqrt(COVERAGE * (1 - COVERAGE) * (1 / (CALIBRATION + 2) + 1 / NEW_ROWS) / seeds)
    # 400 rows know the law of the scores, and 1,000 new ones show it, up to this times the Kolmogorov law
    scale = np.sqrt(1 / ROWS + 1 / NEW_ROWS)
    found = []
    if coverage.mean() < COVERAGE - 3.1 * spread:
        found.append(f"{name}: intervals cover {coverage.mean():.3f} on average")
    if pit.max() > stats.kstwobign.ppf(1 - 0.001 / seeds) * scale:
        found.append(f"{name}: F(y|x) is up to {pit.max():.3f} from uniform")
    if (error > bound).sum() > stats.binom.ppf(0.999, seeds, DELTA):
        found.append(f"{name}: {(error > bound).sum()} of {seeds} errors exceed their bound")
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=datasets.names(), metavar="TASK", default=datasets.names())
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=RESULTS / "trust.csv")
    chosen = parser.parse_args(arguments)
    records, complaints = Records(chosen.out, COLUMNS), []
    print(f"{'':<16}{'coverage':>9}{'PIT KS':>9}{'error':>9}{'bound':>9}")
    for name in chosen.tasks:
        done = {(row["dataset"], row["seed"]) for row in records.rows() if row["version"] == __version__}
        for seed in range(chosen.seeds):
            if (name, str(seed)) not in done:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # small samples are meant here
                    records.append(measure(name, seed))
        rows = [row for row in records.rows() if row["dataset"] == name and row["version"] == __version__]
        means = [np.mean([float(row[k]) for row in rows]) for k in ("coverage", "pit_ks", "set_error", "bound")]
        print(f"{name:<16}" + "".join(f"{mean:>9.3g}" for mean in means), flush=True)
        complaints += broken(name, rows)
    print("\n".join(complaints) or f"All promises kept on {len(chosen.tasks)} simulators.")
    return int(bool(complaints))


if __name__ == "__main__":
    sys.exit(main())
