"""How long a fitted model takes to answer: `python -m benchmarks.latency`; p50 and p99 for 1, 100 and 10,000 rows.

Also answers from eight threads at once, checked against those of one thread, and the growth of resident
memory while a million rows are predicted.
"""

import argparse
import csv
import os
import platform
import resource
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from ncprob import NCPRegressor

RESULTS = Path(__file__).parent / "results" / "latency.csv"
COLUMNS = [
    "model",
    "call",
    "rows",
    "threads",
    "repeats",
    "p50_ms",
    "p99_ms",
    "rows_per_second",
    "growth_mib",
    "machine",
]
SIZES = {1: 300, 100: 100, 10_000: 7}  # rows of a call: calls
N, P = 5000, 8


def data() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (N, P))
    return X, np.sin(3 * X[:, 0]) + X[:, 1] + (0.3 + 0.2 * X[:, 2]) * rng.normal(size=N)


def calls(model: NCPRegressor) -> dict[str, Callable[[Any], Any]]:
    return {
        "predict": model.predict,
        "predict_quantiles": lambda X: model.predict_quantiles(X, alpha=(0.05, 0.5, 0.95)),
        "predict_interval": lambda X: model.predict_interval(X, coverage=0.9),
    }


def timed(call: Callable[[Any], Any], X: Any, repeats: int) -> list[float]:
    for _ in range(3 if len(X) < 1000 else 1):
        call(X)
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        call(X)
        seconds.append(time.perf_counter() - start)
    return seconds


def measure(name: str, model: NCPRegressor, machine: str, many: int) -> list[dict[str, Any]]:
    rng, lines = np.random.default_rng(1), []

    def line(call: str, rows: int, threads: int, seconds: list[float], growth: float | None = None) -> None:
        p50, p99 = 1000 * np.median(seconds), 1000 * np.quantile(seconds, 0.99)
        speed = threads * rows * len(seconds) / sum(seconds)
        values = [name, call, rows, threads, len(seconds), f"{p50:.2f}", f"{p99:.2f}", f"{speed:.0f}"]
        lines.append(dict(zip(COLUMNS, [*values, "" if growth is None else f"{growth:.0f}", machine], strict=True)))
        print(", ".join(f"{key} {value}" for key, value in lines[-1].items() if key != "machine"), flush=True)

    for call, ask in calls(model).items():
        for rows, repeats in SIZES.items():
            line(call, rows, 1, timed(ask, rng.uniform(-1, 1, (rows, P)), repeats))
    X = rng.uniform(-1, 1, (2000, P))
    single = [model.predict(row[None]) for row in X]

    def answer(row: Any) -> tuple[Any, float]:
        start = time.perf_counter()
        return model.predict(row[None]), time.perf_counter() - start

    with ThreadPoolExecutor(8) as pool:
        answers, each = zip(*pool.map(answer, X), strict=True)
    line("predict", 1, 8, list(each))
    assert all(np.array_equal(one, other) for one, other in zip(single, answers, strict=True))
    X = rng.uniform(-1, 1, (many, P))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    model.predict_quantiles(X)
    seconds = time.perf_counter() - start
    line("predict_quantiles", many, 1, [seconds], (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--many", type=int, default=10**6, help="rows of the last measurement")
    parser.add_argument("--max-steps", type=int, default=500)
    options = parser.parse_args()
    machine = f"{platform.machine()} {os.cpu_count()} cores OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS', '-')}"
    settings: dict[str, Any] = {"max_steps": options.max_steps, "random_state": 0, "progress": False}
    X, y = data()
    lines = measure("default", NCPRegressor(**settings).fit(X, y), machine, options.many)
    raw = NCPRegressor(coordinates="raw", **settings).fit(X, y)
    lines += measure("raw", raw, machine, options.many // 10)
    with RESULTS.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


if __name__ == "__main__":
    main()
