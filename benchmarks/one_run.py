"""One run of the benchmark in a process of its own: reads a request as JSON, prints the scores as JSON.

    python -m benchmarks.one_run '{"method": "CKDE", "dataset": "LinearGaussian", "n": 500, "seed": 0}'

`benchmarks.runner` calls this; a run has a process to itself so that its peak memory is its own.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch

from benchmarks import methods, tasks
from benchmarks.methods.base import threads
from benchmarks.scores import LEVELS, distance_scores, point_scores, quantile_scores


def peak_megabytes() -> float:
    """Largest resident memory of this process."""
    status = Path("/proc/self/status")
    if status.exists():  # ru_maxrss would include the process this one was forked from
        peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(peak.split()[1]) / 1024
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def run(method: str, dataset: str, n: int | None, seed: int, options: dict[str, Any] | None = None) -> dict[str, Any]:
    """Fit one method on one split and score it; `predict_seconds` is for all `LEVELS` of all test rows."""
    split = tasks.load(dataset, n, seed)
    model = methods.make(method, **(options or {}))
    start = time.perf_counter()
    model.fit(split.X, split.y, seed, validation=split.validation if model.wants_validation else None)
    fitted = time.perf_counter()
    quantiles = model.quantiles(split.X_test, LEVELS)
    answered = time.perf_counter()
    return {
        "n": len(split.y),
        "fit_seconds": fitted - start,
        "predict_seconds": answered - fitted,
        "settings": model.settings,
        "version": model.version(),
        **quantile_scores(quantiles, split),
        **distance_scores(model, split),
        **point_scores(model, split),
        "peak_mb": round(peak_megabytes()),
        "machine": machine(),
    }


def machine() -> str:
    """Cores and accelerator, for whoever compares times."""
    accelerator = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"{os.cpu_count()} cores{accelerator}"


def main() -> None:
    """Run the request on the command line; the last line of the output is the answer."""
    request = json.loads(sys.argv[1])
    torch.set_num_threads(threads())
    warnings.simplefilter("ignore")  # hundreds of lines of rivals, about feature names and the like
    print(json.dumps(run(**request)))


if __name__ == "__main__":
    main()
