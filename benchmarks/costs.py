"""Time and memory of fit and predict against rows, inputs, targets, rank and rows asked about.

    python -m benchmarks.costs --axis n p --jobs 1
    python -m benchmarks.costs --jobs 8 --cores 2          # eight points at a time, two cores each

One axis grows, the others stay at n = 1,000 rows, p = 10 inputs, q = 1 target, 1,000 rows asked for three quantiles.
Every point has a process of its own, pinned to `--cores` cores, so that its peak of resident memory is its own. A point
that takes longer than `--limit` seconds, `--rival-limit` for other methods, gets a line that says so, and larger ones
of the same method are not tried.
Points that are in the file are not done again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import queue
import tempfile
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.accelerator import processor
from benchmarks.children import Children, Failed, TookTooLong
from benchmarks.records import RESULTS, Records

Array = NDArray[np.float64]

LEVELS = (0.05, 0.5, 0.95)  # asked for in the time of predictions
SCORE_LEVELS = np.arange(1, 20) / 20
SCORE_ROWS = 1000
FILES_FROM = 10**6  # rows from which `fit_files` is the natural way
PART = 500_000  # rows of a file
RANK_STEPS = 500
NOISE, BEND = 0.3, 0.2

POINT = ["axis", "method", "value"]
COLUMNS = [*POINT, "n", "p", "q", "rank", "asked", "fit_seconds", "predict_seconds", "start_mib", "fit_mib"]
COLUMNS += [
    "ask_mib",
    "predict_mib",
    "pinball",
    "pinball_exact",
    "settings",
    "version",
    "cores",
    "limit",
    "machine",
    "error",
]

RIVALS = ("NCP-W", "quantile-forest", "ngboost", "NF")
ROWS = (300, 10**3, 3 * 10**3, 10**4, 10**5, 10**6, 10**7)
INPUTS = (10, 100, 1000)
ASKED = (10**3, 10**4, 10**5, 10**6, 10**7)
AXES: dict[str, dict[str, tuple[int, ...]]] = {  # values of every method
    "n": {"ncprob": ROWS, **dict.fromkeys(RIVALS, ROWS)},
    "p": {"ncprob": (1, *INPUTS), **dict.fromkeys(RIVALS, INPUTS)},
    "q": {"ncprob": (1, 2, 4, 8, 16)},
    "rank": {"ncprob raw": (8, 16, 32, 64, 128, 256, 512)},
    "asked": {"ncprob raw": ASKED, "ncprob": ASKED, **dict.fromkeys(RIVALS[1:], ASKED[:3])},
}


class Point(NamedTuple):
    """One process; `value` is what the axis has there."""

    axis: str
    method: str
    value: int

    def sizes(self) -> dict[str, int]:
        """All sizes of the task."""
        base = {"n": 1000, "p": 10, "q": 1, "rank": 0, "asked": SCORE_ROWS}
        return base | {self.axis: self.value}

    @property
    def ours(self) -> bool:
        """Whether it is this project's."""
        return self.method.startswith("ncprob")

    @property
    def by_files(self) -> bool:
        """Whether rows come from files."""
        return self.ours and self.sizes()["n"] >= FILES_FROM


# ---------------------------------------------------------------- task


def inputs(n: int, p: int, seed: int) -> Array:
    """Uniform on ±1."""
    return np.random.default_rng(seed).uniform(-1, 1, (n, p))


def location_and_scale(X: Array, q: int) -> tuple[Array, Array]:
    """Of every component given x: sin(3 x₀ + k) + x₁ and 0.3 + 0.2 x₂; inputs beyond the last begin again."""
    first, second, third = (X[:, i % X.shape[1]] for i in range(3))
    location = np.sin(3 * first[:, None] + np.arange(q)) + second[:, None]
    return location, np.repeat((NOISE + BEND * third)[:, None], q, axis=1)


def targets(X: Array, q: int, seed: int) -> Array:
    """Normal given x; (n,) for one component."""
    location, scale = location_and_scale(X, q)
    y = location + scale * np.random.default_rng(seed + 1).normal(size=location.shape)
    return y[:, 0] if q == 1 else y


def exact_quantiles(X: Array, q: int) -> Array:
    """At `SCORE_LEVELS`, (rows, components, levels)."""
    from scipy.special import ndtri

    location, scale = location_and_scale(X, q)
    return location[..., None] + scale[..., None] * ndtri(SCORE_LEVELS)


def pinball(y: Array, quantiles: Array) -> float:
    """Mean over rows, components and `SCORE_LEVELS`."""
    error = y.reshape(len(y), -1, 1) - quantiles.reshape(len(y), -1, len(SCORE_LEVELS))
    return float(np.maximum(SCORE_LEVELS * error, (SCORE_LEVELS - 1) * error).mean())


def write_files(folder: Path, n: int, p: int) -> None:
    """Parquet files of the task, `PART` rows each."""
    import pyarrow
    from pyarrow import parquet

    for part, start in enumerate(range(0, n, PART)):
        X = inputs(min(PART, n - start), p, seed=2 * part)
        columns = {f"x{k}": X[:, k] for k in range(p)} | {"y": targets(X, 1, seed=2 * part)}
        parquet.write_table(pyarrow.table(columns), folder / f"part-{part:04d}.parquet", row_group_size=100_000)


# ---------------------------------------------------------------- one point, in its own process


class Subject:
    """A method with the two calls that are timed."""

    def __init__(self, point: Point, options: dict[str, Any]) -> None:
        sizes, self.ours = point.sizes(), point.ours
        if self.ours:
            from ncprob import NCPRegressor, __version__

            if point.method == "ncprob raw":
                options = {"coordinates": "raw"} | options
            if sizes["rank"]:  # as many steps for every rank: early stopping would hide what a step costs
                options = {"rank": sizes["rank"], "max_steps": RANK_STEPS, "early_stopping": False} | options
            self.model: Any = NCPRegressor(random_state=0, progress=False, **options)
            self.version = __version__
            return
        from benchmarks import methods

        self.model, self.version = methods.make(point.method, **options), methods.version(point.method)

    def fit(self, X: Array, y: Array) -> None:
        """On arrays in memory."""
        if self.ours:
            self.model.fit(X, y)
        else:
            self.model.fit(X, y, 0)

    def quantiles(self, X: Array, levels: Array) -> Array:
        """As the method's own users would ask; a forest's adapter would ask for 199 levels and interpolate."""
        if self.ours:
            return np.asarray(self.model.predict_quantiles(X, levels.tolist()))
        if self.model.package == "quantile-forest":
            return np.asarray(self.model.model.predict(X, quantiles=levels.tolist()))
        return self.model.quantiles(X, levels)

    @property
    def settings(self) -> str:
        """In words."""
        if not self.ours:
            return str(self.model.settings)
        return f"coordinates {self.model.coordinates_}; rank {self.model.rank_}; steps {self.model.n_steps_}"


def resident(peak: bool = True) -> float:
    """Resident memory in MiB: its peak, or what it is now."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM" if peak else "VmRSS"):
            return int(line.split()[1]) / 1024
    return float("nan")


def forget_peak() -> None:
    """Let the peak of resident memory begin anew at what it is; where the system refuses, it stays."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def measure(point: Point, options: dict[str, Any]) -> dict[str, Any]:
    """Fit and predict in this process."""
    sizes = point.sizes()
    n, p, q = sizes["n"], sizes["p"], sizes["q"]
    subject = Subject(point, options)
    with tempfile.TemporaryDirectory() as folder:
        if point.by_files:
            write_files(Path(folder), n, p)
        else:
            X = inputs(n, p, seed=0)
            y = targets(X, q, seed=0)
        forget_peak()
        facts: dict[str, Any] = {"start_mib": resident(peak=False)}
        start = time.perf_counter()
        if point.by_files:
            subject.model.fit_files(f"{folder}/*.parquet", target="y")
        else:
            subject.fit(X, y)
        facts |= {"fit_seconds": time.perf_counter() - start, "fit_mib": resident()}
    X_new = inputs(sizes["asked"], p, seed=10**6)
    forget_peak()
    facts["ask_mib"] = resident(peak=False)
    start = time.perf_counter()
    subject.quantiles(X_new, np.array(LEVELS))
    facts |= {"predict_seconds": time.perf_counter() - start, "predict_mib": resident()}
    X_score = inputs(SCORE_ROWS, p, seed=10**6 + 1)
    y_score = targets(X_score, q, seed=10**6 + 1)
    facts["pinball"] = pinball(y_score, subject.quantiles(X_score, SCORE_LEVELS))
    facts["pinball_exact"] = pinball(y_score, exact_quantiles(X_score, q))
    way = "; fit_files" if point.by_files else ""
    return facts | {"settings": subject.settings + way, "version": subject.version}


# ---------------------------------------------------------------- all points


def machine() -> str:
    """Processor, memory, versions: what the figures are of."""
    import torch

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = f"Python {platform.python_version()}, torch {torch.__version__}, numpy {np.__version__}"
    return f"{processor()}, {os.cpu_count()} cores, {memory:.0f} GiB; {versions}"


class Runner:
    """Processes, each on cores of its own."""

    def __init__(
        self, records: Records, cores: list[list[int]], limits: tuple[float, float], options: dict[str, Any]
    ) -> None:
        self.records, self.limits, self.options, self.machine = records, limits, options, machine()
        self._free: queue.Queue[list[int]] = queue.Queue()
        for slot in cores:
            self._free.put(slot)
        self._children = Children()

    def chain(self, points: list[Point]) -> None:
        """Points of one method along one axis, from small to large, until one fails."""
        done = {tuple(row[name] for name in POINT): row for row in self.records.rows()}
        failed = ""
        for point in points:
            known = done.get((point.axis, point.method, str(point.value)))
            if known is None and not self._children.stopped:
                known = {"error": f"not tried: {failed}"} if failed else self._run(point)
                if known is None:
                    return
                facts = point._asdict() | point.sizes() | {"machine": self.machine} | known
                facts["limit"] = self._limit(point)
                self.records.append(facts)
                print(_headline(facts), flush=True)
            if known is not None and known.get("error") and not failed:
                failed = f"{point.axis} = {point.value} was {known['error']}"

    def _limit(self, point: Point) -> float:
        """Seconds of a point: ours or a rival's."""
        return self.limits[not point.ours]

    def _run(self, point: Point) -> dict[str, Any] | None:
        slot = self._free.get()
        command = ["benchmarks.costs", "--point", json.dumps([*point, self.options, slot])]
        facts = {"cores": len(slot)}
        try:
            found = self._children.run(command, len(slot), self._limit(point), {"CUDA_VISIBLE_DEVICES": ""})
        except TookTooLong as error:
            return facts | {"error": str(error)}
        except Failed as error:
            return facts | {"error": f"failed: {error}"}
        finally:
            self._free.put(slot)
        return None if found is None else facts | found

    def stop(self) -> None:
        """End what is under way; it leaves no line."""
        self._children.stop()


def _headline(facts: dict[str, Any]) -> str:
    what = facts.get("error") or f"fit {facts['fit_seconds']:.4g} s, {facts['fit_mib']:.0f} MiB; " + (
        f"predict {facts['predict_seconds']:.4g} s, {facts['predict_mib']:.0f} MiB; pinball {facts['pinball']:.4f}"
    )
    return f"{facts['axis']} = {facts['value']}, {facts['method']}: {what}"


def chains(axes: list[str], methods: list[str] | None, largest: float) -> list[list[Point]]:
    """Points of every method along every axis, ours first; files and memory are two ways and two chains."""
    found = []
    for axis in axes:
        for method, values in AXES[axis].items():
            if methods is None or method in methods:
                points = [Point(axis, method, value) for value in values if value <= largest]
                by_files = [point for point in points if point.by_files]
                found += [[point for point in points if not point.by_files], by_files]
    return sorted(filter(None, found), key=lambda points: not points[0].ours)


def slots(jobs: int, cores: int) -> list[list[int]]:
    """Cores of every process at a time; those that this process may use.

    Examples
    --------
    >>> [len(slot) for slot in slots(1, 1)]
    [1]
    """
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    if jobs * cores > len(usable):
        raise ValueError(f"`--jobs` times `--cores` must be at most {len(usable)}, the cores here; got {jobs * cores}.")
    return [usable[k * cores : (k + 1) * cores] for k in range(jobs)]


def child(request: str) -> None:
    """Measure one point and print the facts as the last line."""
    axis, method, value, options, slot = json.loads(request)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, slot)
    import torch

    torch.set_num_threads(len(slot))
    warnings.simplefilter("ignore")  # hundreds of lines of rivals
    print(json.dumps(measure(Point(axis, method, value), options)))


def exponent(x: Any, y: Any) -> tuple[float, float]:
    """Slope of log y on log x by least squares, and its standard error, not a number for two points.

    Examples
    --------
    >>> slope, error = exponent([1, 10, 100], [3, 30, 300])
    >>> round(slope, 6), round(error, 6)
    (1.0, 0.0)
    """
    u, v = np.log(np.asarray(x, dtype=float)), np.log(np.asarray(y, dtype=float))
    centred = u - u.mean()
    slope = float(centred @ v / (centred @ centred))
    if len(u) < 3:
        return slope, float("nan")
    rest = v - v.mean() - slope * centred
    return slope, float(np.sqrt(rest @ rest / (len(u) - 2) / (centred @ centred)))


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line; exit status 1 if a point failed for another reason than time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--axis", nargs="+", choices=AXES, default=list(AXES), help="what grows")
    parser.add_argument("--methods", nargs="+", help="by default all of an axis")
    parser.add_argument("--largest", type=float, default=float("inf"), help="values beyond are left out")
    parser.add_argument("--jobs", type=int, default=1, help="points at a time")
    parser.add_argument("--cores", type=int, default=2, help="cores of each, to which it is pinned")
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds of a point")
    parser.add_argument("--rival-limit", type=float, help="seconds of a point of another method; by default --limit")
    parser.add_argument("--out", type=Path, default=RESULTS / "costs.csv")
    parser.add_argument("--redo", action="store_true", help="run again what is in the file, and replace it")
    parser.add_argument("--retry", action="store_true", help="run again what failed or took too long")
    parser.add_argument("--options", type=json.loads, default={}, help="JSON of options for the methods, for tests")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.point:
        child(options.point)
        return 0
    try:
        cores = slots(options.jobs, options.cores)
    except ValueError as error:
        parser.error(str(error))
    work = chains(options.axis, options.methods, options.largest)
    records = Records(options.out, COLUMNS)
    if options.redo or options.retry:
        asked = {(point.axis, point.method, str(point.value)) for points in work for point in points}
        records.remove(lambda row: tuple(row[k] for k in POINT) in asked and (options.redo or bool(row["error"])))
    limits = options.limit, options.rival_limit or options.limit
    runner = Runner(records, cores, limits, options.options)
    try:
        with ThreadPoolExecutor(options.jobs) as pool:
            try:
                list(pool.map(runner.chain, work))
            except BaseException:
                runner.stop()
                raise
    finally:
        runner.stop()
    return int(any(row["error"].startswith("failed") for row in records.rows()))


if __name__ == "__main__":
    raise SystemExit(main())
