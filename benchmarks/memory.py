"""Peak memory and time of `fit_files` against the number of rows: `python -m benchmarks.memory --rows 100000 1000000`.

Every size runs in a process of its own, on Parquet files of 20 inputs and a target that are written first. The peak is
what the operating system counts as resident (`ru_maxrss`), the libraries included.
"""

import argparse
import csv
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "memory.csv"
COLUMNS = ["rows", "inputs", "read_seconds", "fit_seconds", "import_mib", "peak_mib", "crps", "crps_exact", "machine"]
INPUTS = 20
PART = 500_000  # rows of a file
NOISE = 0.3


def write_files(folder: Path, n: int) -> None:
    """y = sin(3 x₀) + x₁ + (0.3 + 0.2 x₂)·ε; the other inputs say nothing. Rows are sorted by x₀: the worst order."""
    import numpy as np
    import pyarrow
    from pyarrow import parquet

    for part, start in enumerate(range(0, n, PART)):
        rng, m = np.random.default_rng(part), min(PART, n - start)
        x = rng.uniform(-1, 1, (m, INPUTS))
        x[:, 0] = np.linspace(2 * start / n - 1, 2 * (start + m) / n - 1, m)
        y = np.sin(3 * x[:, 0]) + x[:, 1] + (NOISE + 0.2 * x[:, 2]) * rng.normal(size=m)
        columns = {f"x{k}": x[:, k] for k in range(INPUTS)} | {"y": y}
        parquet.write_table(pyarrow.table(columns), folder / f"part-{part:04d}.parquet", row_group_size=100_000)


def measure(folder: str, n: int) -> None:
    """Fit in this process and print one line of the results."""
    import numpy as np

    from ncprob import NCPRegressor

    def peak() -> float:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    imported, start = peak(), time.perf_counter()
    model = NCPRegressor(random_state=0, progress=False)
    learn, began = model._learn, []

    def timed(*arguments: object) -> None:
        began.append(time.perf_counter())
        learn(*arguments)  # type: ignore[arg-type]

    model._learn = timed  # type: ignore[method-assign]
    model.fit_files(f"{folder}/*.parquet", target="y")
    seconds, highest = time.perf_counter() - start, peak()
    rng = np.random.default_rng(10**6)
    x = rng.uniform(-1, 1, (2000, INPUTS))
    center, scale = np.sin(3 * x[:, 0]) + x[:, 1], NOISE + 0.2 * x[:, 2]
    y = center + scale * rng.normal(size=len(x))
    crps = model.predict_distribution(x).crps(y).mean()
    z = (y - center) / scale
    density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    from scipy.special import ndtr

    exact = np.mean(scale * (z * (2 * ndtr(z) - 1) + 2 * density - 1 / np.sqrt(np.pi)))
    read = began[0] - start
    print(f"{n},{INPUTS},{read:.1f},{seconds - read:.1f},{imported:.0f},{highest:.0f},{crps:.5f},{exact:.5f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[10**5, 10**6, 10**7])
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure, options.rows[0])
        return
    machine = f"{platform.machine()} {os.cpu_count()} cores OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS', '-')}"
    lines = []
    if RESULTS.exists():
        with RESULTS.open() as file:
            lines = [line for line in csv.DictReader(file) if int(line["rows"]) not in options.rows]
    for n in options.rows:
        with tempfile.TemporaryDirectory() as folder:
            write_files(Path(folder), n)
            command = [sys.executable, "-m", "benchmarks.memory", "--measure", folder, "--rows", str(n)]
            answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().split(",")
        lines.append(dict(zip(COLUMNS, [*answer, machine], strict=True)))
        print(lines[-1], flush=True)
        with RESULTS.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(sorted(lines, key=lambda line: int(line["rows"])))


if __name__ == "__main__":
    main()
